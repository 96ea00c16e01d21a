// Hot paths of the runtime without torch: prints one JSON object a line, {"name", "value", "unit"}; tests/bench/run.py
// takes the median of five runs.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/dal/inventory.h"
#include "runtime/kde/router.h"
#include "runtime/mou/pool.h"
#include "tests/unit/dal/large_tree.h"

namespace {

using namespace flagos;

// Device memory made of plain host pages: the pool's own cost, no driver.
struct HostMemory : mou::DeviceMemory {
  mou::MemoryLimits limits() const override { return {size_t{1} << 30, size_t{4} << 30, 128, true}; }
  Result<mou::SlabHandle> createSlab(void* host, size_t bytes) override {
    ::mprotect(host, bytes, PROT_READ | PROT_WRITE);
    return host;
  }
  void destroySlab(mou::SlabHandle) noexcept override {}
  void finish(uint32_t) noexcept override {}
  bool idle(uint32_t) const noexcept override { return true; }
};

template <class F>
double nsPer(int n, F&& f) {
  const uint64_t start = nowNs();
  for (int i = 0; i < n; ++i) f(i);
  return static_cast<double>(nowNs() - start) / n;
}

void print(const char* name, double value, const char* unit) { std::printf("{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"%s\"}\n", name, value, unit); }

void routeHit() {
  kde::RouterOptions o;
  o.device.kind = dal::Kind::cpu;
  o.device.shared_memory = true;
  o.deterministic = true;
  auto router = kde::Router::create(o);
  // Eight shapes in turn, as in a training step.
  kde::Signature s[8];
  for (int i = 0; i < 8; ++i) {
    s[i].op = internName("aten::mm.out");
    s[i].nargs = 2;
    for (int k = 0; k < 2; ++k) {
      s[i].args[static_cast<size_t>(k)].dtype = DType::float32;
      s[i].args[static_cast<size_t>(k)].layout = kde::Layout::contiguous;
      s[i].args[static_cast<size_t>(k)].rank = 2;
      s[i].args[static_cast<size_t>(k)].sizes = {64 + i, 64 + i};
    }
    (void)router->choose(s[i]);
  }
  kde::RouteId sum = 0;
  const double ns = nsPer(1000000, [&](int i) { sum += router->choose(s[i & 7]).id; });
  if (sum == 0) std::fprintf(stderr, "no route was chosen\n");
  print("route.hit", ns, "ns");
}

void allocCached() {
  HostMemory memory;
  mou::PoolOptions o;
  o.range_bytes = size_t{1} << 34;
  auto pool = mou::Pool::create(memory, o);
  if (!pool) { std::fprintf(stderr, "%s\n", pool.error().text().c_str()); return; }
  const size_t sizes[8] = {512, 4096, 65536, 1000, 333333, 128, 20000, 1 << 20};
  for (int warm = 0; warm < 2; ++warm)
    for (const size_t bytes : sizes)
      if (auto b = (*pool)->allocate(bytes, 0, 1)) (*pool)->release(*b);
  const double ns = nsPer(1000000, [&](int i) {
    auto b = (*pool)->allocate(sizes[i & 7], 0, 1);
    if (b) (*pool)->release(*b);
  });
  print("alloc.cached", ns / 1000, "us");
}

// A recorded machine of 64 cards behind switches, a fourth of them asleep.
void enumerate64() {
  char name[] = "/tmp/flagos-bench-XXXXXX";
  const char* dir = ::mkdtemp(name);
  if (!dir) return;
  large_tree::write(dir);
  dal::EnumerateOptions o;
  o.root = dir;
  std::vector<double> ms;
  size_t devices = 0;
  for (int i = 0; i < 9; ++i) {
    const uint64_t start = nowNs();
    devices = dal::enumerate(o).devices.size();
    ms.push_back(static_cast<double>(nowNs() - start) / 1e6);
  }
  std::filesystem::remove_all(dir);
  std::sort(ms.begin(), ms.end());
  if (devices != 64) std::fprintf(stderr, "%zu devices were found of 64\n", devices);
  else print("devices.enumerate64", ms[ms.size() / 2], "ms");
}

}  // namespace

int main() {
  routeHit();
  allocCached();
  enumerate64();
  return 0;
}

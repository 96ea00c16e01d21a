// A live device: opening, errors, kernels over several slabs in random rounds, fork, description.
#include "runtime/opencl/device.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "runtime/opencl/device_impl.h"
#include "runtime/opencl/fork_guard.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::ocl;

namespace {

Device& dev() {
  REQUIRE(deviceCount() >= 1);
  auto d = device(0);
  if (!d) FAIL(d.error().text());
  return **d;
}

cl_mem memOf(const mou::Block* b) { return static_cast<cl_mem>(mou::slabHandle(*b)); }

const Kernel& addKernel() {
  static const Kernel* made = nullptr;  // a forked child has it without asking
  if (made) return *made;
  auto k = dev().programs().kernelFromText(
      "device_test.add",
      "kernel void add(global const float* a, ulong ao, global const float* b, ulong bo, global float* c, ulong co) {\n"
      "  size_t i = get_global_id(0); c[co + i] = a[ao + i] + b[bo + i]; }",
      "add");
  if (!k) FAIL(k.error().text());
  return *(made = *k);
}

Result<void> add(Queue& q, const mou::Block* a, const mou::Block* b, const mou::Block* c, size_t n) {
  auto off = [](const mou::Block* x) { return Arg::of<cl_ulong>(x->offset / 4); };
  Range r;
  r.global[0] = n;
  r.local[0] = 1;
  return q.launch(addKernel(), r, {Arg::buffer(memOf(a)), off(a), Arg::buffer(memOf(b)), off(b), Arg::buffer(memOf(c)), off(c)});
}

}  // namespace

TEST_CASE("a kernel is asked whether an address means to it what it means to us", "[opencl]") {
  auto& d = static_cast<DeviceImpl&>(dev());
  const bool cpu = d.description().kind == dal::Kind::cpu;
  CHECK(d.directAddresses() == (cpu && d.sharedMemory()));
  if (cpu && d.sharedMemory())
    for (int i = 0; i < 3; ++i) CHECK(d.kernelsSeeOurAddresses());
}

TEST_CASE("devices have numbers, names, limits and measured rates", "[opencl]") {
  Device& d = dev();
  CHECK(d.index() == 0);
  CHECK(isOpen(0));
  CHECK_FALSE(isOpen(7));
  CHECK_FALSE(inBadFork());
  auto again = device(0);
  REQUIRE(again.ok());
  CHECK(*again == &d);
  const dal::DeviceDescription& x = d.description();
  CHECK_FALSE(x.name.empty());
  CHECK(x.compute_units > 0);
  CHECK(x.memory_bytes > 0);
  CHECK(x.max_alloc_bytes > 0);
  CHECK(x.max_alloc_bytes <= x.memory_bytes);
  CHECK(x.rates_source == "measured");
  CHECK(x.bandwidth_bps > 1e8);
  CHECK(x.flops_f32 > 1e8);
  CHECK(x.copy_bps > 1e7);
  CHECK((x.launch_s > 0 && x.launch_s < 0.1));
  CHECK((x.wait_s > 0 && x.wait_s < 1));
}

TEST_CASE("a device that does not exist is named beside how many there are", "[opencl]") {
  const int n = deviceCount();
  for (const int index : {n, n + 6, -1, 1000}) {
    auto d = device(index);
    REQUIRE_FALSE(d.ok());
    CHECK(d.error().exit == Exit::no_device);
    CHECK(d.error().what.find("npu:" + std::to_string(index) + " does not exist: this machine has " + std::to_string(n)) == 0);
  }
}

TEST_CASE("3000 random rounds over three slabs", "[opencl]") {
  Device& d = dev();
  Queue& q = d.queue();
  constexpr size_t n = 256;
  std::vector<mou::Block*> fillers, blocks;
  // Blocks in three different slabs: what lies between them is taken, then given back.
  for (int i = 0; i < 3; ++i) {
    auto b = d.pool().allocate(n * 4, 0, 0), f = d.pool().allocate(size_t{80} << 20, 0, 0);
    REQUIRE((b.ok() && f.ok()));
    blocks.push_back(*b);
    fillers.push_back(*f);
    auto inside = d.pool().allocate(n * 4 + 128 * static_cast<size_t>(i), 0, 0);
    REQUIRE(inside.ok());
    blocks.push_back(*inside);
    blocks.push_back(*f);
  }
  std::vector<cl_mem> slabs;
  for (auto* b : blocks)
    if (std::find(slabs.begin(), slabs.end(), memOf(b)) == slabs.end()) slabs.push_back(memOf(b));
  CHECK(slabs.size() >= 3);
  std::vector<std::vector<float>> truth(blocks.size(), std::vector<float>(n));
  std::mt19937 random(11);
  std::vector<float> got(n);
  for (size_t k = 0; k < blocks.size(); ++k)
    REQUIRE(q.write(memOf(blocks[k]), blocks[k]->offset, truth[k].data(), n * 4, true).ok());
  int errors = 0;
  for (int round = 0; round < 3000; ++round) {
    const size_t a = random() % blocks.size(), b = random() % blocks.size(), c = random() % blocks.size();
    switch (random() % 3) {
      case 0:
        for (auto& v : truth[a]) v = static_cast<float>(random() % 1000);
        REQUIRE(q.write(memOf(blocks[a]), blocks[a]->offset, truth[a].data(), n * 4, true).ok());
        break;
      case 1:
        REQUIRE(add(q, blocks[a], blocks[b], blocks[c], n).ok());
        for (size_t i = 0; i < n; ++i) truth[c][i] = std::fmod(truth[a][i] + truth[b][i], 1e30f);
        break;
      default:
        REQUIRE(q.read(got.data(), memOf(blocks[a]), blocks[a]->offset, n * 4, true).ok());
        errors += got != truth[a];
        if (d.sharedMemory()) errors += std::memcmp(blocks[a]->address, got.data(), n * 4) != 0;
        if (truth[a][0] > 1e6f) {  // keep sums small enough to be exact
          std::fill(truth[a].begin(), truth[a].end(), 1.0f);
          REQUIRE(q.write(memOf(blocks[a]), blocks[a]->offset, truth[a].data(), n * 4, true).ok());
        }
    }
  }
  CHECK(errors == 0);
  for (size_t k = 0; k < blocks.size(); ++k) d.pool().release(blocks[k]);
  REQUIRE(q.finish().ok());
  d.pool().emptyCache();
}

TEST_CASE("in discrete mode the host cannot touch the range", "[opencl]") {
  Device& d = dev();
  auto b = d.pool().allocate(4096, 0, 0);
  REQUIRE(b.ok());
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  const ssize_t n = ::write(fds[1], (*b)->address, 1);  // EFAULT instead of a signal
  CHECK(n == (d.sharedMemory() ? 1 : -1));
  ::close(fds[0]);
  ::close(fds[1]);
  d.pool().release(*b);
}

TEST_CASE("a forked child gets finished data and errors, never a hang", "[opencl]") {
  Device& d = dev();
  Queue& q = d.queue();
  constexpr size_t n = 256;
  auto a = d.pool().allocate(n * 4, 0, 0), c = d.pool().allocate(n * 4, 0, 0);
  REQUIRE((a.ok() && c.ok()));
  const std::vector<float> ones(n, 1.0f);
  REQUIRE(q.write(memOf(*a), (*a)->offset, ones.data(), n * 4, true).ok());
  for (int i = 0; i < 20; ++i) REQUIRE(add(q, *a, *a, *c, n).ok());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    int bad = 0;
    bad |= !inBadFork();
    bad |= (!q.idle()) << 1;  // what was pending was finished before the fork
    auto r = add(q, *a, *a, *c, n);
    bad |= (r.ok() || r.error().text().find("fork") == std::string::npos || r.error().text().find("spawn") == std::string::npos) << 2;
    auto k = d.programs().kernelFromText("device_test.other", "kernel void f(global int* a) { a[0] = 1; }", "f");
    bad |= k.ok() << 3;
    if (d.sharedMemory()) {
      bad |= (static_cast<float*>((*c)->address)[n - 1] != 2.0f) << 4;
      auto more = d.pool().allocate(size_t{200} << 20, 0, 0);  // a new slab: pages only
      bad |= (!more.ok()) << 5;
      if (more.ok()) static_cast<char*>((*more)->address)[0] = 1;
    }
    auto opened = device(0);
    bad |= (!opened.ok()) << 6;
    ::_exit(bad);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(inBadFork());
  REQUIRE(add(q, *a, *c, *c, n).ok());  // the parent goes on
  std::vector<float> got(n);
  REQUIRE(q.read(got.data(), memOf(*c), (*c)->offset, n * 4, true).ok());
  CHECK(got == std::vector<float>(n, 3.0f));
  d.pool().release(*a);
  d.pool().release(*c);
}

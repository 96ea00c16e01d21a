#include "runtime/opencl/rates.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/dal/rates.h"

namespace flagos::ocl {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Short runs, many times: other programs can only make a run slower, so the fastest is the truth, and the truth is found
// when other runs come near it.
class Tries {
 public:
  template <class F>
  double fastest(int tries, F&& run) {
    std::vector<double> all;
    for (int i = 0; i < tries; ++i) {
      const double t0 = seconds();
      if (!run()) return -1;
      all.push_back(seconds() - t0);
    }
    return of(all);
  }
  double of(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    if (all.size() >= 4 && all[2] > 1.5 * all[0]) steady_ = false;
    return all[0];
  }
  bool steady() const { return steady_; }

 private:
  bool steady_ = true;
};

struct Buffer {
  cl_mem mem;
  Buffer(cl_context context, size_t bytes) : mem(clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, nullptr)) {}
  ~Buffer() {
    if (mem) clReleaseMemObject(mem);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};

Range items(size_t count, size_t local) {
  Range r;
  r.global[0] = count;
  r.local[0] = local;
  return r;
}

// The caches of cards hold up to 256 MiB: a copy that fits would tell the cache's bandwidth, which can exceed what the
// card's memory could ever give, and so point at another model.
size_t cardBytes(const dal::DeviceDescription& d) {
  return std::min<size_t>({size_t{512} << 20, d.max_alloc_bytes, d.memory_bytes / 16}) / 4096 * 4096;
}

// Returns the bytes that one copy touched; 0 if nothing was measured.
double measureBandwidth(Device& device, const Kernel& copy, size_t bytes, size_t group, Tries& tries,
                        dal::DeviceDescription& d) {
  const Buffer from(device.context(), bytes), to(device.context(), bytes);
  if (!from.mem || !to.mem) return 0;
  const size_t vectors = bytes / 64 / group * group;
  auto once = [&] {
    return device.queue().launch(copy, items(vectors, group), {Arg::buffer(from.mem), Arg::buffer(to.mem)}).ok() &&
           device.queue().finish().ok();
  };
  if (!once()) return 0;  // touches every page, compiles
  const double t = tries.fastest(8, once);
  if (t <= 0) return 0;
  const double touched = 2.0 * double(vectors) * 64;
  d.bandwidth_bps = touched / t;
  return touched;
}

}  // namespace

bool measureRates(Device& device, dal::DeviceDescription& d, double* bandwidth_bytes) {
  Queue& q = device.queue();
  ProgramCache& programs = device.programs();
  const auto copy = programs.kernel("rates", "ratesCopy"), fma = programs.kernel("rates", "ratesFma"),
             empty = programs.kernel("rates", "ratesEmpty");
  if (!copy || !fma || !empty) return false;
  const bool cpu = d.kind == dal::Kind::cpu;
  const size_t group = cpu ? 16 : 64;
  const size_t bytes = std::clamp<size_t>(d.max_alloc_bytes / 8, size_t{1} << 20, size_t{32} << 20);
  const Buffer a(device.context(), bytes), b(device.context(), bytes);
  if (!a.mem || !b.mem) return false;
  Tries tries;
  const double touched = measureBandwidth(device, **copy, cpu ? bytes : std::max(bytes, cardBytes(d)), group, tries, d);
  if (bandwidth_bytes) *bandwidth_bytes = touched;

  const size_t threads = std::max<size_t>(1, d.compute_units) * (cpu ? 64 : 2048) / group * group;
  int rounds = 16;
  auto fmaOnce = [&] {
    return q.launch(**fma, items(threads, group), {Arg::buffer(b.mem), Arg::of<cl_int>(rounds)}).ok() && q.finish().ok();
  };
  if (threads * 4 <= bytes && fmaOnce()) {
    double t = Tries().fastest(3, fmaOnce);
    while (t > 0 && t < 1e-3 && rounds < (1 << 22)) {  // long enough that the launch does not count
      rounds *= 2;
      t = Tries().fastest(3, fmaOnce);
    }
    if (t = tries.fastest(24, fmaOnce); t > 0) d.flops_f32 = 2.0 * 16 * 8 * double(rounds) * double(threads) / t;
  }

  const Arg out = Arg::buffer(b.mem);
  auto launchOnce = [&] { return q.launch(**empty, items(group, group), {out}).ok(); };
  if (launchOnce() && q.finish().ok()) {
    constexpr int kBatch = 16;
    std::vector<double> batches, trips;
    for (int i = 0; i < 40; ++i) {
      const double t0 = seconds();
      for (int k = 0; k < kBatch; ++k)
        if (!launchOnce()) return false;
      batches.push_back((seconds() - t0) / kBatch);
      if (!q.finish().ok()) return false;
    }
    d.launch_s = tries.of(batches);
    // From nothing pending to done and back: a wait that finds the work already done says nothing.
    for (int i = 0; i < 60; ++i) {
      const double t0 = seconds();
      if (!launchOnce() || !q.finish().ok()) return false;
      trips.push_back(seconds() - t0);
    }
    std::sort(trips.begin(), trips.end());
    // What a wait costs depends on sleeping threads; the lower quartile is a usual one on a quiet machine.
    const double trip = trips[trips.size() / 4];
    d.wait_s = std::max(trip - d.launch_s, trip / 2);
  }

  const std::vector<char> host(bytes / 4, 1);
  auto upload = [&] { return q.write(a.mem, 0, host.data(), host.size(), true).ok(); };
  if (const double t = tries.fastest(8, upload); t > 0) d.copy_bps = double(host.size()) / t;
  d.rates_source = "measured";
  return tries.steady();
}

void fillRates(Device& device, dal::DeviceDescription& description, const std::string& identity) {
  if (dal::loadRates(description, identity)) return;
  // On a busy machine the numbers serve this process only; a later one measures again.
  double touched = 0;
  if (!measureRates(device, description, &touched)) return;
  // The first value stored stays: whoever measured at the same time now reads the same numbers.
  if (dal::storeRates(description, identity, touched).ok()) (void)dal::loadRates(description, identity);
}

}  // namespace flagos::ocl

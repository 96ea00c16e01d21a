#include "runtime/opencl/rates.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/kde/rates.h"

namespace flagos::ocl {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The fastest of `tries` runs: other programs can only make a run slower. Negative if a run failed.
template <class F>
double fastest(int tries, F&& run) {
  double best = -1;
  for (int i = 0; i < tries; ++i) {
    const double t0 = seconds();
    if (!run()) return -1;
    const double t = seconds() - t0;
    if (best < 0 || t < best) best = t;
  }
  return best;
}

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

}  // namespace

void measureRates(Device& device, dal::DeviceDescription& d) {
  Queue& q = device.queue();
  ProgramCache& programs = device.programs();
  const auto copy = programs.kernel("rates", "ratesCopy"), fma = programs.kernel("rates", "ratesFma"),
             empty = programs.kernel("rates", "ratesEmpty");
  if (!copy || !fma || !empty) return;
  const size_t group = std::min<size_t>(64, std::max<size_t>(1, d.kind == dal::Kind::cpu ? 16 : 64));
  const size_t bytes = std::clamp<size_t>(d.max_alloc_bytes / 8, size_t{1} << 20, size_t{32} << 20);
  const Buffer a(device.context(), bytes), b(device.context(), bytes);
  if (!a.mem || !b.mem) return;
  bool measured = false;

  const size_t vectors = bytes / 64 / group * group;
  auto copyOnce = [&] {
    return q.launch(**copy, items(vectors, group), {Arg::buffer(a.mem), Arg::buffer(b.mem)}).ok() && q.finish().ok();
  };
  if (copyOnce())  // touches every page, compiles
    if (const double t = fastest(6, copyOnce); t > 0) d.bandwidth_bps = 2.0 * double(vectors) * 64 / t, measured = true;

  const size_t threads = std::max<size_t>(1, d.compute_units) * (d.kind == dal::Kind::cpu ? 64 : 2048) / group * group;
  int rounds = 16;
  auto fmaOnce = [&] {
    return q.launch(**fma, items(threads, group), {Arg::buffer(b.mem), Arg::of<cl_int>(rounds)}).ok() && q.finish().ok();
  };
  if (threads * 4 <= bytes && fmaOnce()) {
    double t = fastest(1, fmaOnce);
    while (t > 0 && t < 4e-3 && rounds < (1 << 22)) {  // long enough that the launch does not count
      rounds *= 4;
      t = fastest(1, fmaOnce);
    }
    if (const double more = fastest(6, fmaOnce); more > 0) t = t > 0 ? std::min(t, more) : more;
    if (t > 0) d.flops_f32 = 2.0 * 16 * 8 * double(rounds) * double(threads) / t, measured = true;
  }

  const Arg out = Arg::buffer(b.mem);
  auto launchOnce = [&] { return q.launch(**empty, items(group, group), {out}).ok(); };
  if (launchOnce() && q.finish().ok()) {
    constexpr int kBatch = 50;
    double launch = -1;
    for (int i = 0; i < 10; ++i) {
      const double t = fastest(1, [&] {
        for (int k = 0; k < kBatch; ++k)
          if (!launchOnce()) return false;
        return true;
      });
      if (!q.finish().ok()) break;
      if (t > 0 && (launch < 0 || t < launch)) launch = t;
    }
    if (launch > 0) d.launch_s = launch / kBatch, measured = true;
    // From nothing pending to done and back: a wait that finds the work already done says nothing.
    std::vector<double> trips;
    for (int i = 0; i < 41; ++i) {
      const double t0 = seconds();
      if (!launchOnce() || !q.finish().ok()) break;
      trips.push_back(seconds() - t0);
    }
    if (!trips.empty() && d.launch_s > 0) {
      std::nth_element(trips.begin(), trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 2), trips.end());
      const double trip = trips[trips.size() / 2];
      d.wait_s = trip > d.launch_s * 1.5 ? trip - d.launch_s : trip;
    }
  }

  const std::vector<char> host(bytes / 2, 1);
  auto upload = [&] {
    return q.write(a.mem, 0, host.data(), host.size(), true).ok();
  };
  if (const double t = fastest(4, upload); t > 0) d.copy_bps = double(host.size()) / t, measured = true;
  if (measured) d.rates_source = "measured";
}

void fillRates(Device& device, dal::DeviceDescription& description, const std::string& identity) {
  if (kde::loadRates(description, identity)) return;
  measureRates(device, description);
  if (description.rates_source.empty()) return;
  // The first value stored stays: whoever measured at the same time now reads the same numbers.
  if (kde::storeRates(description, identity).ok()) (void)kde::loadRates(description, identity);
}

}  // namespace flagos::ocl

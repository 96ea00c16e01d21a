#include "runtime/kde/cost.h"

#include <algorithm>

#include "runtime/kde/catalog/kernel_factors.h"

namespace flagos::kde {
namespace {

// Scattered access reaches less of the bandwidth than streams do.
double memoryShare(Family f) { return f == Family::index ? 0.3 : 0.8; }

double computeShare(Family f, bool cpu) {
  switch (f) {
    case Family::gemm: return cpu ? 0.8 : 0.5;
    case Family::attention:
    case Family::conv: return cpu ? 0.6 : 0.4;
    default: return cpu ? 0.25 : 0.3;   // no matrix tiles: adds and transcendental functions
  }
}

}  // namespace

// Wide kernels on CPU cores reach what vendor libraries reach; kernels shaped for the other kind of device are about ten
// times slower. Both are estimates from measurements on one CPU and from what GPU libraries publish.
Efficiency efficiency(Family f, Shape shape, dal::Kind kind) noexcept {
  const bool cpu = kind == dal::Kind::cpu;
  const Efficiency fit{computeShare(f, cpu), memoryShare(f)};
  switch (shape) {
    case Shape::wide: return cpu ? fit : Efficiency{fit.compute / 10, fit.memory / 10};
    case Shape::library:   // CLBlast's kernels have the same shape
    case Shape::tiled: return cpu ? Efficiency{fit.compute / 10, fit.memory / 10} : fit;
    case Shape::host:
    case Shape::fallback: return {computeShare(f, true), memoryShare(f)};
  }
  return fit;
}

Cost predict(const CandidateRow& row, const Facts& f, bool queue_busy) {
  const dal::DeviceDescription& d = f.device();
  Cost c;
  c.work = familyRow(f.family()).work(f);
  if (!c.work.known()) { c.why = c.work.why; return c; }
  const bool host = row.shape == Shape::host || row.shape == Shape::fallback;
  // Only a CPU-type device tells how fast the host is: it is the host.
  if (host && d.kind != dal::Kind::cpu) { c.why = "the host's own rates are not part of this device's description"; return c; }
  if (d.bandwidth_bps <= 0) { c.why = "the device's memory bandwidth is not known"; return c; }
  if (d.flops_f32 <= 0 && c.work.flops > 0) { c.why = "the device's arithmetic rate is not known"; return c; }

  const Efficiency e = efficiency(f.family(), row.shape, d.kind);
  // fp64 at half the fp32 rate is the best case (CPUs, compute cards).
  const double peak = d.flops_f32 * (f.dtype() == DType::float64 ? 0.5 : 1);
  const KernelFactor k = d.kind == dal::Kind::cpu ? kernelFactor(f) : KernelFactor{};
  const double longer = host ? k.host : k.kernel;
  c.compute_s = c.work.flops > 0 ? longer * c.work.flops / (peak * e.compute) : 0;
  // What makes a kernel take so much longer is its instructions, not its bytes.
  c.memory_s = c.work.bytes / (d.bandwidth_bps * e.memory);
  if (longer > 1) c.compute_s = std::max(c.compute_s, longer * c.memory_s);
  if (host) {
    c.host_s = kHostCallSeconds + (queue_busy ? d.wait_s : 0);
    if (row.shape == Shape::fallback) {
      if (d.copy_bps <= 0) { c.why = "the copy rate between host and device is not known"; return c; }
      c.copy_s = std::max(0.0, f.bytes_in + f.bytes_out) / d.copy_bps;
    }
  } else {
    if (d.launch_s <= 0) { c.why = "the time of one kernel launch is not known"; return c; }
    c.launch_s = d.launch_s * c.work.launches;
  }
  // Arithmetic and memory overlap; launches, copies and the host's part do not.
  c.seconds = std::max(c.compute_s, c.memory_s) + c.copy_s + c.launch_s + c.host_s;
  struct Part { double seconds; std::string_view name; };
  const Part parts[] = {{c.compute_s, "compute"}, {c.memory_s, "memory"}, {c.copy_s, "copy"}, {c.launch_s, "launch"}, {c.host_s, "host"}};
  c.bound = std::max_element(std::begin(parts), std::end(parts), [](const Part& a, const Part& b) { return a.seconds < b.seconds; })->name;
  return c;
}

}  // namespace flagos::kde

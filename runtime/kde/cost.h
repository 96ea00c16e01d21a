// Seconds of one call from its work and the device's rates. Arithmetic on stated facts: a rate that is not known makes the
// prediction unknown. How much of a peak rate each kernel shape reaches is an estimate (a table, source "table").
#pragma once
#include <string>
#include <string_view>

#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {

struct Cost {
  double seconds = -1;          // < 0 = unknown
  std::string why;              // unknown: what is missing
  std::string_view bound;       // "compute" | "memory" | "copy" | "launch" | "host" | "" (unknown)
  double compute_s = 0, memory_s = 0, copy_s = 0, launch_s = 0, host_s = 0;
  Work work;
  bool known() const noexcept { return seconds >= 0; }
};

// How much of the peak rates a kernel shape reaches, by family and kind of device.
struct Efficiency { double compute, memory; };
Efficiency efficiency(Family, Shape, dal::Kind) noexcept;

// `queue_busy`: the host route must first wait for the queue.
Cost predict(const CandidateRow&, const Facts&, bool queue_busy);

// A PyTorch operator call on the CPU, besides its work: dispatch and allocation (estimate).
inline constexpr double kHostCallSeconds = 2e-6;

}  // namespace flagos::kde

// What the cost model and the rules know of a device: a plain, copyable description, made by the DAL from a live
// device or from a fingerprint (offline). No probe, no OpenCL handle.
#pragma once
#include <cstdint>
#include <string>

namespace flagos::dal {

enum class Kind : uint8_t { discrete, npu, integrated, other, cpu };
const char* kindName(Kind) noexcept;  // "discrete", "npu", "integrated", "other", "cpu"

struct DeviceDescription {
  std::string name;          // the driver's own name or the fingerprint's model
  std::string vendor;
  std::string firmware;      // "" if unknown
  Kind kind = Kind::other;
  bool shared_memory = false;    // kernels and the host see the same pages
  bool fp16 = false, fp64 = false;
  uint32_t compute_units = 0;    // 0 = unknown
  uint32_t clock_mhz = 0;
  uint64_t memory_bytes = 0;     // 0 = unknown
  uint64_t max_alloc_bytes = 0;  // largest single buffer
  uint64_t local_bytes = 0;      // local memory per work-group
  // Rates for the cost model. 0 = unknown: a prediction that needs it is refused, never invented.
  double bandwidth_bps = 0;      // device memory, bytes/s
  double flops_f32 = 0;          // peak fp32 FLOP/s
  double copy_bps = 0;           // host <-> device, bytes/s
  double launch_s = 0;           // enqueue of one kernel, seconds
  double wait_s = 0;             // host wait for a queue with pending work, seconds
  std::string rates_source;      // "measured", "table", "driver" (units x clock), shown beside every prediction
};

}  // namespace flagos::dal

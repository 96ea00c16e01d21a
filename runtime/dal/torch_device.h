// What PyTorch code asks of a device (torch.npu.get_device_properties, get_device_name, get_device_capability,
// mem_get_info), each fact with its source. One place, so that Python, `flagos devices --json` and viewers agree.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/metric.h"

namespace flagos::dal {

struct Device;

// A fact in words. Exactly one of value and why_missing is empty. Sources are those of Metric.
struct Fact {
  std::string value, source, why_missing;
};

// Bytes. For a device that shares the host's memory, of its share of it.
struct MemoryInfo { Metric total, used, free; };

struct TorchDevice {
  Fact name, stable_id;
  Fact architecture;                     // "gfx1100", "sm_90": the number that vendors' compilers are told
  // The OpenCL version that the chosen driver implements. PyTorch wants two numbers of every device, and this is the
  // one that every device of this backend has; CUDA's compute capability is `architecture`.
  std::optional<std::pair<int, int>> capability;
  std::string why_no_capability;
  std::vector<std::string> supported_dtypes;   // with native OpenCL arithmetic; empty for an unusable device
  Metric compute_units, clock, max_allocation, local_memory;
  bool shared_memory = false;
};

// The numbers as they are now: sysfs and /proc are read again, the vendor's library and OpenCL are asked again only
// where nothing else tells. A sleeping card is not woken. Only for devices of this machine (not of a recorded one).
MemoryInfo memoryInfo(const Device&);
// The same from an enumeration's numbers.
MemoryInfo memoryAtEnumeration(const Device&);

Json toJson(const Fact&);
Json toJson(const TorchDevice&);

}  // namespace flagos::dal

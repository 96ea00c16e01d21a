// predicted-oom: one line that needs more memory than the device has, or than it gives in one piece. Only for devices of
// which the memory is known, and for sizes that follow from the source.
#include <cstdio>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

std::string sized(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1u << 30));
  return text;
}

}  // namespace

void findPredictedOom(Analysis& a, const AnalysisOptions& options) {
  for (const Site& s : a.sites) {
    if (!s.bytes || s.resolution != "exact" || s.devices.empty() || (s.kind != "placement" && s.kind != "move")) continue;
    const auto it = options.machine.details.find(s.devices[0].device);
    if (it == options.machine.details.end()) continue;
    const auto& [name, device] = *it;
    const double total = static_cast<double>(device.description.memory_bytes), one = static_cast<double>(device.description.max_alloc_bytes);
    const bool module = s.call.starts_with("Module.") || s.call.starts_with("torch.nn.");
    std::string why;
    if (device.free_bytes && *s.bytes > *device.free_bytes) why = name + " has " + sized(*device.free_bytes) + " free";
    else if (total > 0 && *s.bytes > total) why = name + " has " + sized(total) + " in all";
    else if (one > 0 && !module && *s.bytes > one) why = name + " gives at most " + sized(one) + " in one piece";
    if (why.empty()) continue;
    Finding f = findingAt("predicted-oom", s.node, "this needs " + sized(*s.bytes) + (s.bytes_how.empty() ? "" : " (" + s.bytes_how + ")") + ", and " + why);
    a.findings.push_back(std::move(f));
  }
}

}  // namespace flagos::lsp

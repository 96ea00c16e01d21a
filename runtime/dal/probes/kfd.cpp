// KFD (ROCm's kernel interface): compute units, clock, memory banks, and whether processor and GPU share one node.
#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {
namespace {

const std::string kNodes = "/sys/class/kfd/kfd/topology/nodes";

std::unordered_map<std::string, uint64_t> properties(const Root& root, const std::string& path) {
  std::unordered_map<std::string, uint64_t> out;
  const auto text = root.text(path, 16384);
  if (!text) return out;
  std::istringstream lines(*text);
  std::string key;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream row(line);
    uint64_t value = 0;
    if (row >> key >> value) out[key] = value;
  }
  return out;
}

}  // namespace

ProbeReport probeKfd(const Root& root, Facts& facts) {
  ProbeReport report{"kfd", 0, {}};
  const auto nodes = root.list(kNodes);
  for (const std::string& n : nodes) {
    auto p = properties(root, kNodes + "/" + n + "/properties");
    if (p["simd_count"] == 0) continue;  // a processor
    const auto location = static_cast<uint32_t>(p["location_id"]);
    const std::string pci =
        PciAddress{static_cast<uint32_t>(p["domain"]), (location >> 8) & 0xff, (location >> 3) & 31, location & 7}
            .text();
    ++report.found;
    for (Card& c : facts.cards) {
      if (c.pci != pci) continue;
      const uint64_t simds_per_unit = p["simd_per_cu"];
      if (simds_per_unit) c.compute_units = static_cast<uint32_t>(p["simd_count"] / simds_per_unit);
      c.clock_mhz = static_cast<uint32_t>(p["max_engine_clk_fcompute"]);
      c.gfx_target = static_cast<uint32_t>(p["gfx_target_version"]);
      if (!c.apu && p["cpu_cores_count"] > 0) c.apu = true;
      // Frame buffer banks: heap types 1 (public) and 2 (private). The tables are cached: no card is woken.
      uint64_t bytes = 0;
      for (const std::string& b : root.list(kNodes + "/" + n + "/mem_banks")) {
        auto bank = properties(root, kNodes + "/" + n + "/mem_banks/" + b + "/properties");
        if (bank["heap_type"] == 1 || bank["heap_type"] == 2) bytes += bank["size_in_bytes"];
      }
      if (!c.vram_total && bytes > 0) c.vram_total = bytes;
      c.nodes.push_back({"/dev/kfd", root.node("/dev/kfd"), false});
    }
  }
  if (report.found == 0)
    report.why_nothing = nodes.empty() ? kNodes + " does not exist: the kernel's amdkfd is not loaded"
                                       : "no node of " + kNodes + " is a GPU";
  return report;
}

}  // namespace flagos::dal

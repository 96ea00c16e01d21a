// The accel class (/dev/accel/accelN): NPUs of Intel, AMD, Qualcomm, Habana. They have no DRM render node.
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {

ProbeReport probeAccel(const Root& root, Facts& facts) {
  ProbeReport report{"accel", 0, {}};
  const auto names = root.list("/sys/class/accel");
  for (const std::string& n : names) {
    if (n.rfind("accel", 0) != 0) continue;
    const auto device = root.linkName("/sys/class/accel/" + n + "/device");
    const std::string pci = device ? normalPciAddress(*device) : "";
    if (pci.empty()) continue;
    ++report.found;
    for (Card& c : facts.cards) {
      if (c.pci != pci) continue;
      const std::string node = "/dev/accel/" + n;
      c.nodes.push_back({node, root.node(node)});
      // ivpu: bytes of host memory that the NPU holds. A gated NPU is left alone.
      if (!c.asleep && !c.dead) c.vram_used = root.number("/sys/bus/pci/devices/" + pci + "/npu_memory_utilization");
    }
  }
  if (report.found == 0)
    report.why_nothing = names.empty()
                             ? "/sys/class/accel does not exist or is empty: no driver of the accel class is loaded"
                             : "no entry of /sys/class/accel leads to a PCI device";
  return report;
}

}  // namespace flagos::dal

// Ascend: /sys/class/npu and the davinci nodes; memory, name and load come from the vendor's library (DCMI).
#include <algorithm>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"

namespace flagos::dal {

ProbeReport probeAscend(const Root& root, Facts& facts) {
  ProbeReport report{"ascend", 0, {}};
  const auto entries = root.list("/sys/class/npu");
  for (const std::string& n : entries) {
    const auto device = root.linkName("/sys/class/npu/" + n + "/device");
    const std::string pci = device ? normalPciAddress(*device) : "";
    const auto digits = n.find_first_of("0123456789");
    if (pci.empty() || digits == std::string::npos) continue;
    ++report.found;
    for (Card& c : facts.cards) {
      if (c.pci != pci) continue;
      const std::string node = "/dev/davinci" + n.substr(digits);
      c.nodes.push_back({node, root.node(node)});
      // The driver also goes through its manager node, for every card.
      c.nodes.push_back({"/dev/davinci_manager", root.node("/dev/davinci_manager"), false});
    }
  }
  // Without a card of Huawei's nobody loads its library.
  const bool here = std::any_of(facts.cards.begin(), facts.cards.end(),
                                [](const Card& c) { return c.vendor == "19e5" && c.class_code.rfind("12", 0) == 0; });
  const bool asleep = std::any_of(facts.cards.begin(), facts.cards.end(),
                                  [](const Card& c) { return c.vendor == "19e5" && c.asleep; });
  const std::string dcmi = root.live() && here && !asleep ? askDcmi(dcmiFiles(), facts) : "";
  if (report.found == 0)
    report.why_nothing = entries.empty() ? "/sys/class/npu does not exist: Ascend's driver is not loaded"
                                         : "no entry of /sys/class/npu leads to a PCI device";
  if (report.found == 0 && !dcmi.empty()) report.why_nothing += "; " + dcmi;
  return report;
}

}  // namespace flagos::dal

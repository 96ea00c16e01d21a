#include "runtime/dal/facts.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {

const std::vector<Probe>& probes() {
  // PCI first: the others attach to its addresses, and it learns which cards sleep before anyone touches them.
  static const std::vector<Probe> list = {
      {"pci", probePci},
      {"drm", probeDrm},
      {"accel", probeAccel},
      {"kfd", probeKfd},
      {"ascend", probeAscend},
      {"wsl", probeWsl},
      {"nvml", probeNvml},
      {"opencl", probeOpenCl},
  };
  return list;
}

Card& Facts::card(const std::string& pci) {
  for (Card& c : cards)
    if (c.pci == pci) return c;
  cards.emplace_back().pci = pci;
  return cards.back();
}

const Card* Facts::find(const std::string& pci) const {
  for (const Card& c : cards)
    if (c.pci == pci) return &c;
  return nullptr;
}

}  // namespace flagos::dal

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

void makePrintable(std::string& s) {
  for (size_t i = 0; i < s.size(); ++i) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x20 || c == 0x7f) s[i] = ' ';
    // U+0080 to U+009F, which terminals obey as well.
    if (c == 0xc2 && i + 1 < s.size() && (static_cast<unsigned char>(s[i + 1]) & 0xe0) == 0x80) s[i] = s[i + 1] = ' ';
  }
  while (!s.empty() && s.back() == ' ') s.pop_back();
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

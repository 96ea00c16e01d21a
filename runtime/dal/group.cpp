// Which OpenCL device is which card. By PCI address where the driver tells it; else only where exactly one card can be
// meant. Never by name: two equal cards have equal names.
#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>

#include "runtime/dal/merge.h"
#include "runtime/dal/vendors.h"

namespace flagos::dal {
namespace {

std::string vendorHex(uint32_t id) {
  // Khronos' own vendor ids start at 0x10000: they name no PCI vendor.
  if (id == 0 || id > 0xffff) return "";
  char buf[8];
  std::snprintf(buf, sizeof buf, "%04x", id);
  return buf;
}

int genericRank(const std::string& platform) {
  std::string p;
  for (const char c : platform) p += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (p.find("clover") != std::string::npos) return 4;
  if (p.find("portable computing language") != std::string::npos || p.find("pocl") != std::string::npos) return 3;
  if (p.find("clvk") != std::string::npos || p.find("openclon12") != std::string::npos) return 2;
  if (p.find("rusticl") != std::string::npos) return 1;
  return 0;  // the vendor's own
}

bool failing(const OpenClFacts& d) { return d.error || d.available == std::optional<bool>(false); }

// Could this OpenCL device (without an address) be that card? Only facts that are certain may say no.
bool canBe(const OpenClFacts& d, const Card& c) {
  if (c.dead || c.vendor.empty() || c.vendor != vendorHex(d.vendor_id)) return false;
  const Vendor* v = findVendor(c.vendor);
  if (v && v->makes == Makes::display) return false;
  if (d.type == "GPU" && c.class_code.substr(0, 2) == "12" && v && v->makes == Makes::both) return false;
  if (d.unified && c.apu && *d.unified != *c.apu) return false;
  // A driver may report less than the card has (it often does), never more than a tenth above it.
  if (d.global_bytes && c.vram_total && c.apu == std::optional<bool>(false) &&
      (*d.global_bytes > *c.vram_total * 1.1 || *d.global_bytes < *c.vram_total * 0.5))
    return false;
  return true;
}

struct Loose { const OpenClFacts* device; std::vector<std::string> cards; };

}  // namespace

int openClVersion(const OpenClFacts& d) {
  int major = 0, minor = 0;
  const std::string& v = d.version.empty() ? d.platform_version : d.version;
  if (std::sscanf(v.c_str(), "OpenCL %d.%d", &major, &minor) < 1 || major < 0 || major > 99 || minor < 0 || minor > 99)
    return 0;
  return major * 1000 + minor;
}

bool betterDriver(const OpenClFacts& a, const OpenClFacts& b) {
  const auto key = [](const OpenClFacts& d) {
    return std::make_tuple(failing(d), genericRank(d.platform), -openClVersion(d), d.platform, d.place.platform,
                           d.place.device);
  };
  return key(a) < key(b);
}

std::string whyPreferred(const OpenClFacts& best, const OpenClFacts& other) {
  if (failing(best) != failing(other)) return "a working driver before one whose calls fail";
  if (genericRank(best.platform) != genericRank(other.platform))
    return genericRank(best.platform) == 0 ? "the vendor's own driver before a generic one"
                                           : "of generic drivers rusticl, then clvk, PoCL, Clover";
  if (openClVersion(best) != openClVersion(other)) return "the newer OpenCL version";
  return "equal otherwise: the platform's name decides, never the loader's order";
}

std::vector<Group> groupOpenCl(const Facts& facts) {
  std::vector<Group> groups;
  std::map<std::string, size_t> by_card;
  std::map<uint32_t, std::set<std::string>> taken;   // platform -> cards it has spoken for
  const auto put = [&](const std::string& pci, const OpenClFacts& d) {
    const auto [it, fresh] = by_card.emplace(pci, groups.size());
    if (fresh) groups.push_back({pci, {}, {}});
    groups[it->second].members.push_back(&d);
    taken[d.place.platform].insert(pci);
  };
  std::vector<Loose> loose;
  std::map<uint32_t, std::vector<const OpenClFacts*>> cpus;
  for (const OpenClFacts& d : facts.opencl) {
    if (d.type == "CPU") { cpus[d.place.platform].push_back(&d); continue; }
    if (!d.pci.empty()) { put(d.pci, d); continue; }
    std::string by_uuid;
    for (const NvmlFacts& n : facts.nvml)
      if (!d.uuid.empty()) {
        if (n.uuid == d.uuid || n.uuid == "GPU-" + d.uuid) by_uuid = n.pci;
        for (const NvmlSlice& slice : n.slices)
          if (slice.uuid == d.uuid || slice.uuid == "MIG-" + d.uuid) by_uuid = n.pci;
      }
    if (!by_uuid.empty()) put(by_uuid, d); else loose.push_back({&d, {}});
  }

  // Elimination: a device with one card left takes it, which may leave one for the next.
  for (bool changed = true; changed;) {
    changed = false;
    std::map<std::pair<uint32_t, std::string>, int> wanted;
    for (Loose& l : loose) {
      l.cards.clear();
      const auto& gone = taken[l.device->place.platform];
      for (const Card& c : facts.cards)
        if (canBe(*l.device, c) && !gone.count(c.pci)) l.cards.push_back(c.pci);
      for (const std::string& c : l.cards) ++wanted[{l.device->place.platform, c}];
    }
    for (size_t i = 0; i < loose.size(); ++i) {
      const Loose l = loose[i];
      // Two devices of one platform for one card (tiles, slices): neither can be told from the other.
      if (l.cards.size() != 1 || wanted[{l.device->place.platform, l.cards[0]}] != 1) continue;
      put(l.cards[0], *l.device);
      loose.erase(loose.begin() + static_cast<std::ptrdiff_t>(i));
      changed = true;
      break;
    }
  }

  // What is left stands alone. Several platforms that list the same cards are not several devices: the k-th device of
  // each is joined, since the chosen driver's list alone decides how many there are.
  std::map<std::pair<std::vector<std::string>, size_t>, size_t> alone;
  std::map<std::pair<uint32_t, std::vector<std::string>>, size_t> ordinal;
  for (const Loose& l : loose) {
    if (l.cards.empty()) { groups.push_back({"", {}, {l.device}}); continue; }
    const size_t k = ordinal[{l.device->place.platform, l.cards}]++;
    const auto [it, fresh] = alone.emplace(std::make_pair(l.cards, k), groups.size());
    if (fresh) groups.push_back({"", l.cards, {}});
    groups[it->second].members.push_back(l.device);
  }
  // The same for the host's processor: a second CPU driver is no second processor.
  std::map<size_t, size_t> cpu_group;
  for (const auto& [platform, list] : cpus)
    for (size_t k = 0; k < list.size(); ++k) {
      const auto [it, fresh] = cpu_group.emplace(k, groups.size());
      if (fresh) groups.push_back({"", {}, {}});
      groups[it->second].members.push_back(list[k]);
    }
  for (Group& g : groups)
    std::stable_sort(g.members.begin(), g.members.end(),
                     [](const OpenClFacts* a, const OpenClFacts* b) { return betterDriver(*a, *b); });
  return groups;
}

}  // namespace flagos::dal

// Order of npu:N, the CPU rule and visibility.
#include <algorithm>
#include <sstream>
#include <tuple>

#include "runtime/dal/merge.h"
#include "runtime/dal/pci_address.h"

namespace flagos::dal {
namespace {

auto orderKey(const Device& d) {
  const auto pci = parsePciAddress(d.pci);
  // Kind's values are in the contract's order. A device without an address comes after those with one.
  return std::make_tuple(static_cast<int>(d.kind), !pci.has_value(), pci.value_or(PciAddress{}), d.stable_id);
}

std::string trim(const std::string& s) {
  const auto a = s.find_first_not_of(" \t"), b = s.find_last_not_of(" \t");
  return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

// Gives indices; the CPU gets one only when nothing else is usable, or when asked for.
void giveIndices(std::vector<Device>& devices, bool include_cpu) {
  bool other_usable = false;
  for (const Device& d : devices) other_usable = other_usable || (d.usable && d.kind != Kind::cpu);
  int next = 0;
  for (Device& d : devices) {
    d.index.reset();
    d.why_no_index.clear();
    if (!d.usable) continue;
    if (d.kind == Kind::cpu && other_usable && !include_cpu)
      d.why_no_index =
          "a CPU-type device is used only when nothing else is usable; FLAGOS_INCLUDE_CPU=1 gives it an index";
    else d.index = next++;
  }
}

// An index means the numbering without the variable.
bool names(const std::string& entry, const Device& d) {
  if (entry.empty()) return false;
  if ((d.index && entry == std::to_string(*d.index)) || entry == d.stable_id) return true;
  const std::string pci = normalPciAddress(entry);
  return !pci.empty() && pci == d.pci;
}

// Before anything is hidden.
std::string whyNames(const std::string& entry, const std::vector<Device>& devices) {
  const std::string about = "FLAGOS_VISIBLE_DEVICES: '" + entry + "' names ";
  int indexed = 0;
  for (const Device& d : devices) indexed += d.index.has_value();
  for (const Device& d : devices)
    if (names(entry, d)) return d.usable ? "" : about + d.name + ", which cannot be used: " + d.why_unusable;
  return about + "no device; without the variable " +
         (indexed == 0   ? "no device has an index"
          : indexed == 1 ? "there is index 0"
                         : "there are indices 0 to " + std::to_string(indexed - 1)) +
         " (PCI addresses and stable ids of `flagos devices` also count)";
}

}  // namespace

void orderDevices(std::vector<Device>& devices, const EnumerateOptions& options, std::vector<std::string>* warnings) {
  std::sort(devices.begin(), devices.end(), [](const Device& a, const Device& b) { return orderKey(a) < orderKey(b); });
  for (Device& d : devices) d.sort_key = {kindName(d.kind), d.pci, d.stable_id};
  giveIndices(devices, options.include_cpu);
  if (options.visible) {
    std::vector<std::string> wanted;
    std::istringstream list(*options.visible);
    for (std::string item; std::getline(list, item, ',');) wanted.push_back(trim(item));
    for (const std::string& w : wanted)
      if (std::string why = w.empty() ? "" : whyNames(w, devices); warnings && !why.empty())
        warnings->push_back(std::move(why));
    bool cpu_named = false;
    for (Device& d : devices) {
      const bool shown = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& w) { return names(w, d); });
      if (shown && d.kind == Kind::cpu) cpu_named = true;
      if (shown || !d.usable) continue;
      d.usable = false;
      d.opencl.reset();
      d.why_unusable = "hidden by FLAGOS_VISIBLE_DEVICES=" + *options.visible;
    }
    giveIndices(devices, options.include_cpu || cpu_named);
  }
  std::stable_sort(devices.begin(), devices.end(),
                   [](const Device& a, const Device& b) { return a.index.has_value() > b.index.has_value(); });
}

}  // namespace flagos::dal

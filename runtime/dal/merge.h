// From facts to devices: which OpenCL device is which card, which driver is chosen, what is usable and why not.
// Rules are documented in docs/contracts/devices.md; this header is their outline.
#pragma once
#include <set>
#include <vector>

#include "runtime/dal/facts.h"

namespace flagos::dal {

// OpenCL devices that are one physical device, best driver first.
struct Group {
  std::string pci;                             // "" = no card could be told
  std::vector<std::string> pci_candidates;     // then: the cards that could be meant
  std::vector<const OpenClFacts*> members;
};

// Assigns each OpenCL device to a card or leaves it alone. Pure.
std::vector<Group> groupOpenCl(const Facts&);

// The driver rule. A lower tuple is better: working before failing, the vendor's own before generic ones, newer OpenCL,
// then the platform's name (never the loader's order, which changes with the files in /etc/OpenCL/vendors).
bool betterDriver(const OpenClFacts& a, const OpenClFacts& b);

// Everything but order, index and visibility.
std::vector<Device> mergeDevices(const Root&, const Facts&);

// Order, sort_key, index, visibility and the CPU rule.
void orderDevices(std::vector<Device>&, const EnumerateOptions&);

// enumerate() on a root of the caller's: tests watch its reads.
Inventory enumerateAt(const Root&, const EnumerateOptions&);

// One device's parts (device_facts.cpp).
Kind kindOf(const Card&, const OpenClFacts* chosen, const Fingerprint&);
void fillMemory(Device&, const Root&, const Card*, const OpenClFacts* chosen, const NvmlFacts*);
void fillDescription(Device&, const Card*, const OpenClFacts* chosen);
std::vector<std::string> dtypesOf(const OpenClFacts&);

}  // namespace flagos::dal

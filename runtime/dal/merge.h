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
// The step of the rule that put `best` before `other`, in words.
std::string whyPreferred(const OpenClFacts& best, const OpenClFacts& other);

// Everything but order, index and visibility.
std::vector<Device> mergeDevices(const Root&, const Facts&);

// NVLinks between cards, directly or over a common switch.
std::vector<FabricLink> fabricOf(const Facts&);

// Order, sort_key, index, visibility and the CPU rule. `warnings` gets one sentence for each entry of
// FLAGOS_VISIBLE_DEVICES that names no device, or one that cannot be used.
void orderDevices(std::vector<Device>&, const EnumerateOptions&, std::vector<std::string>* warnings = nullptr);

// enumerate() on a root of the caller's: tests watch its reads.
Inventory enumerateAt(const Root&, const EnumerateOptions&);

// One device's parts (device_facts.cpp).
Kind kindOf(const Card&, const OpenClFacts* chosen, const Fingerprint&);
void fillMemory(Device&, const Root&, const Card*, const OpenClFacts* chosen, const NvmlFacts*);
void fillDescription(Device&, const Card*, const OpenClFacts* chosen);
std::vector<std::string> dtypesOf(const OpenClFacts&);
// After everything else (torch_device.cpp). `name_source`: where a name that is no exact model comes from.
void fillTorch(Device&, const Card*, const OpenClFacts* chosen, const char* name_source);

// "OpenCL 3.0 ..." -> 3000; 0 if it is no version.
int openClVersion(const OpenClFacts&);

}  // namespace flagos::dal

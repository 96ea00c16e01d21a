// Vendors' management libraries, opened at run time and only asked, never linked: NVML, the libraries that have its
// shape under another prefix, and Ascend's DCMI. Their structs differ in size between vendors and versions, so every
// answer goes into a buffer far larger than any of them, and what comes back is believed only if it makes sense (a
// known card's address, a sane memory size); else it is dropped and said to be.
#pragma once
#include <string>
#include <vector>

#include "runtime/dal/facts.h"

namespace flagos::dal {

struct VendorLibrary {
  std::string vendor;                // PCI id: "10de"
  std::string title;                 // "NVML", shown in reasons
  std::string prefix;                // of its functions: "nvml"
  std::vector<std::string> files;    // tried in order
};
// NVIDIA's first, which may name cards that sysfs does not show (WSL2); the others only add to cards that it does show.
const std::vector<VendorLibrary>& nvmlFamily();

// Adds to facts.nvml (and facts.nvml_driver). Returns "" or why nothing was added.
std::string askNvml(const VendorLibrary&, Facts&);
// The same for Ascend. `files` are tried in order.
const std::vector<std::string>& dcmiFiles();
std::string askDcmi(const std::vector<std::string>& files, Facts&);

// The text of the last PCI address in a struct whose layout is not known for certain; "" if there is none.
std::string addressIn(const unsigned char* bytes, size_t size);
// Bytes of memory that a device may have; anything else is a misread struct.
bool saneMemory(uint64_t total, uint64_t used, uint64_t free);

}  // namespace flagos::dal

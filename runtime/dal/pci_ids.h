// Names from the list of PCI ids that distributions ship. The last source of a name, and never a reason to match.
#pragma once
#include <string>
#include <string_view>

namespace flagos::dal {

inline constexpr const char* kPciIds = "/usr/share/misc/pci.ids";

// Name of a vendor, or of a device of it, from the list's text; "" if it is not there. Ids in lower-case hex.
std::string pciVendorName(std::string_view pci_ids, std::string_view vendor);
std::string pciDeviceName(std::string_view pci_ids, std::string_view vendor, std::string_view device);
// The vendor's lines, its own one first; empty if it is not there.
std::string_view pciVendorSection(std::string_view pci_ids, std::string_view vendor);

}  // namespace flagos::dal

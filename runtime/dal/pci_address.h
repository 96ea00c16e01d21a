// PCI addresses as the kernel prints them: "0000:03:00.0", with domains of four to eight hex digits (VMD domains have
// five).
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flagos::dal {

struct PciAddress {
  uint32_t domain = 0;
  uint32_t bus = 0, device = 0, function = 0;
  auto operator<=>(const PciAddress&) const = default;  // numeric, which text is not once a domain has five digits
  std::string text() const;                             // "0000:03:00.0", "10000:e1:00.0"
};

// Accepts "0000:03:00.0", "00000000:47:00.0" (NVML) and "03:00.0" (domain 0). Anything else gives nullopt.
std::optional<PciAddress> parsePciAddress(std::string_view) noexcept;
// The address in the kernel's spelling, or "" if it is none.
std::string normalPciAddress(std::string_view);

}  // namespace flagos::dal

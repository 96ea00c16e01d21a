#include "runtime/dal/pci_address.h"

#include <charconv>
#include <cstdio>

namespace flagos::dal {
namespace {
bool hex(std::string_view s, size_t min_digits, size_t max_digits, uint32_t* out) noexcept {
  if (s.size() < min_digits || s.size() > max_digits) return false;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), *out, 16);
  return r.ec == std::errc() && r.ptr == s.data() + s.size();
}
}  // namespace

std::string PciAddress::text() const {
  char buf[40];
  std::snprintf(buf, sizeof buf, "%04x:%02x:%02x.%x", domain, bus, device, function);
  return buf;
}

std::optional<PciAddress> parsePciAddress(std::string_view s) noexcept {
  PciAddress a;
  const auto dot = s.rfind('.');
  if (dot == std::string_view::npos || !hex(s.substr(dot + 1), 1, 1, &a.function) || a.function > 7)
    return std::nullopt;
  s = s.substr(0, dot);
  const auto second = s.rfind(':');
  if (second == std::string_view::npos || !hex(s.substr(second + 1), 2, 2, &a.device) || a.device > 31)
    return std::nullopt;
  s = s.substr(0, second);
  const auto first = s.rfind(':');
  if (!hex(first == std::string_view::npos ? s : s.substr(first + 1), 2, 2, &a.bus)) return std::nullopt;
  if (first != std::string_view::npos && !hex(s.substr(0, first), 4, 8, &a.domain)) return std::nullopt;
  return a;
}

std::string normalPciAddress(std::string_view s) {
  const auto a = parsePciAddress(s);
  return a ? a->text() : std::string();
}

}  // namespace flagos::dal

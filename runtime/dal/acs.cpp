#include "runtime/dal/acs.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace flagos::dal {
namespace {

constexpr size_t kFirst = 0x100;          // extended capabilities begin here
constexpr uint32_t kAcs = 0x000d, kSerialNumber = 0x0003;
constexpr uint32_t kRequestRedirect = 1u << 2;

uint32_t le(const std::string& s, size_t at, int bytes) {
  uint32_t v = 0;
  for (int i = 0; i < bytes && at + static_cast<size_t>(i) < s.size(); ++i)
    v |= static_cast<uint32_t>(static_cast<unsigned char>(s[at + static_cast<size_t>(i)])) << (8 * i);
  return v;
}

// Offset of an extended capability; 0 if the list is whole and lacks it, nullopt if the list leads out of what was
// read.
std::optional<size_t> find(const std::string& config, uint32_t id) {
  size_t at = kFirst;
  // The list can be made to loop; its entries take at least eight bytes.
  for (size_t steps = 0; steps < 4096 / 8; ++steps) {
    if (at + 8 > config.size()) return std::nullopt;
    const uint32_t header = le(config, at, 4);
    if (header == 0 || header == 0xffffffffu) return 0;
    if ((header & 0xffff) == id) return at;
    const size_t next = header >> 20;
    if (next == 0) return 0;
    if (next < kFirst) return std::nullopt;
    at = next & ~size_t{3};
  }
  return std::nullopt;
}

}  // namespace

AcsState acsOf(const std::string& config) {
  if (config.size() <= kFirst) return {Redirect::unknown, "only root may read the access control (ACS) of the bridges"};
  const auto at = find(config, kAcs);
  if (!at) return {Redirect::unknown, "the config space of a bridge is cut short"};
  if (*at == 0) return {Redirect::off, {}};
  return {le(config, *at + 6, 2) & kRequestRedirect ? Redirect::on : Redirect::off, {}};
}

AcsState readAcs(const Root& root, const std::string& address) {
  const std::string dir = "/sys/bus/pci/devices/" + address;
  const auto power = root.text(dir + "/power/runtime_status");
  if (power && (*power == "suspended" || *power == "suspending"))
    return {Redirect::unknown, "a bridge on the way is asleep and was not woken"};
  const auto config = root.bytes(dir + "/config", 4096);
  if (!config) return {Redirect::unknown, "the config space of " + address + " cannot be read"};
  return acsOf(*config);
}

std::string withoutSerialNumber(std::string config) {
  if (config.size() <= kFirst) return config;
  if (const auto at = find(config, kSerialNumber); at && *at)
    std::fill(config.begin() + static_cast<std::ptrdiff_t>(*at + 4),
              config.begin() + static_cast<std::ptrdiff_t>(std::min(*at + 12, config.size())), '\0');
  return config;
}

}  // namespace flagos::dal

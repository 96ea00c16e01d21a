// Access control of PCIe bridges (ACS): whether a bridge sends copies between two devices below it up to the root
// instead of straight across. It stands in the extended config space, which only root may read: then it is unknown, not
// absent.
#pragma once
#include <string>

#include "runtime/dal/root.h"

namespace flagos::dal {

enum class Redirect : unsigned char { off, on, unknown };
struct AcsState {
  Redirect redirect = Redirect::unknown;
  std::string why;     // one clause, for unknown
};
// Reads the bridge's config space, unless it sleeps (the read would wake it).
AcsState readAcs(const Root&, const std::string& address);
// The same from a config space's bytes. Any bytes are safe.
AcsState acsOf(const std::string& config);

// A config space without the serial number that some devices carry in it, for records that leave the machine.
std::string withoutSerialNumber(std::string config);

}  // namespace flagos::dal

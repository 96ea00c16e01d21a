// Rule files: any bytes give rules or problems with a place, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/kde/rules/rule.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)flagos::kde::parseRules({reinterpret_cast<const char*>(data), size}, "rules.json", flagos::kde::Level::user);
  return 0;
}

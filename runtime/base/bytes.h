// Sizes as people write them in settings, and counts as they read them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos {

// FLAGOS_MEMORY_LIMIT's text as bytes: "8589934592", "512M", "8GiB" (binary units). Above 0; the error names the
// variable.
Result<size_t> parseBytes(std::string_view text);

// "1 block", "2 blocks": a noun whose plural is an s.
std::string counted(uint64_t n, std::string_view noun);

}  // namespace flagos

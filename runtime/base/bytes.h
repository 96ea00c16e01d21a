// Sizes as people write them in settings.
#pragma once
#include <cstddef>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos {

// FLAGOS_MEMORY_LIMIT's text as bytes: "8589934592", "512M", "8GiB" (binary units). Above 0; the error names the
// variable.
Result<size_t> parseBytes(std::string_view text);

}  // namespace flagos

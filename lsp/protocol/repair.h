// JSON that clients send although it is none: text of a file with bytes that are no UTF-8, and halves of surrogate pairs.
#pragma once
#include <string>
#include <string_view>

namespace flagos::lsp {

// Bytes that are no UTF-8 and `\udXXX` escapes without their other half become U+FFFD. Everything else stays.
std::string repaired(std::string_view json);

}  // namespace flagos::lsp

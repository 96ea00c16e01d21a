// Interned strings: op names, kernel names, reasons. Hot paths carry a 32-bit id, viewers get the text.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace flagos {

using NameId = uint32_t;  // 0 = the empty string

// Cold path (takes a lock, may allocate). Same text, same id, for the life of the process.
NameId internName(std::string_view text);
// Lock-free; the view stays valid for the life of the process. An unknown id gives "".
std::string_view nameText(NameId id) noexcept;

}  // namespace flagos

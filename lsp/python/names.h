// Names of variables and attributes, each kept once: equal names are equal pointers. For the life of the process; any thread.
#pragma once
#include <string>
#include <string_view>

namespace flagos::lsp {

using SlotName = const std::string*;

SlotName internName(std::string_view name);
SlotName knownName(std::string_view name);   // null: nothing ever had this name

}  // namespace flagos::lsp

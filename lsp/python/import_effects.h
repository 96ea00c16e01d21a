// Whether importing a module changes what others see (the default device, the environment, a name of another module), read
// from its lines without parsing: such a module must be run even if nothing of it is used.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace flagos::lsp {

struct ImportEffects {
  bool sets = false;                       // a statement outside functions does it
  std::vector<std::string> setters;        // functions (for a constructor: its class) that do it when they are called
  std::vector<std::string> calls;          // what is called outside functions: the last part of the name
};
// Errs towards more: a line that only looks like it counts.
ImportEffects effectsOfImport(std::string_view text);

}  // namespace flagos::lsp

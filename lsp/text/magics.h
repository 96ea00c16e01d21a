// IPython's own lines in notebook cells (`%magic`, `!command`, `name?`), which are not Python.
//
// They are replaced by Python of the same length, so that every offset, line and column stays what it was. What a magic
// assigns is a name that nothing defines: the analysis then says "unknown" instead of guessing.
#pragma once
#include <string>
#include <string_view>

namespace flagos::lsp {

// The Python in a code cell. A cell magic that hands its body to another program (`%%bash`) gives blank lines only; one
// that runs its body as Python (`%%time`) loses its own line. `%time statement` keeps the statement.
std::string withoutMagics(std::string_view cell);

}  // namespace flagos::lsp

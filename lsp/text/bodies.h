// Where the bodies of a text's functions are, found by a scan that knows only strings, brackets, comments and indentation.
//
// What a file imports is run at its top level, and few of its functions are called: reading their bodies when that happens
// saves most of the time and memory of a syntax tree.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flagos::lsp {

struct FunctionBody {
  uint32_t def = 0;                // where `def` or `async def` begins
  uint32_t begin = 0, end = 0;     // whole lines
  int line = 0;                    // 0-based, of `begin`
};

// Of functions that are in no other function, by position. Empty where the scan meets anything unusual (tabs, form feeds,
// lone CRs, brackets or strings that do not close): the text is then read as a whole. Linear in the text; no allocation but
// the result.
std::vector<FunctionBody> functionBodies(std::string_view text);

// The text with spaces for the bodies: offsets and lines stay.
std::string withoutBodies(std::string_view text, const std::vector<FunctionBody>& bodies);

}  // namespace flagos::lsp

// Positions of any text in every encoding: offset -> position -> offset gives the start of the code point again, positions
// grow with offsets, and what does not exist is clamped into the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lsp/text/position.h"

using namespace flagos::lsp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 4096) size = 4096;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const LineIndex lines(text);
  for (const auto e : {Encoding::utf8, Encoding::utf16, Encoding::utf32}) {
    Position before{0, 0};
    for (uint32_t at = 0; at <= size; ++at) {
      const Position p = lines.position(text, at, e);
      if (p < before) std::abort();
      before = p;
      const uint32_t back = lines.offset(text, p, e);
      if (back > at || at - back > 3) std::abort();   // inside a code point, or of a line's end: its start
      if (lines.position(text, back, e) != p) std::abort();
    }
    for (const int line : {-1, 0, 1, lines.lineCount(), 1 << 30})
      for (const int character : {-5, 0, 1, 1 << 30})
        if (lines.offset(text, {line, character}, e) > size) std::abort();
  }
  return 0;
}

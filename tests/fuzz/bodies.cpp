// Function bodies that are read when they are needed: any text is read without harm, and a sound one gives the tree that
// reading it as a whole gives.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "lsp/python/workspace.h"
#include "tests/unit/lsp/trees.h"

using namespace flagos::lsp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  uint32_t at = 0;
  for (const auto& b : functionBodies(text)) {
    if (b.def < at || b.begin <= b.def || b.end <= b.begin || b.end > text.size()) std::abort();
    at = b.end;
  }
  if (!SyntaxTree::readable(text)) return 0;
  const auto whole = makeUnit("/f.py", text);
  Ast later;
  later.readLater(text);
  const std::string read = dump(later);
  if (!whole || whole->ast.hasErrors() || read == dump(whole->ast)) return 0;
  std::fprintf(stderr, "whole:\n%s\nlater:\n%s\n", dump(whole->ast).c_str(), read.c_str());
  std::abort();
}

// Notebooks: any cell text keeps its length and line breaks when magics are blanked, any structure edit keeps the cells
// and the virtual text in step, any file is a notebook or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "lsp/text/magics.h"
#include "lsp/text/notebook.h"

using namespace flagos;
using namespace flagos::lsp;

namespace {

void checkLayout(Notebook& n) {
  const std::string text = n.layOut();
  for (const Cell* c : n.cells()) {
    if (!c->python()) continue;
    if (c->begin + c->size() > text.size() || text[c->begin + c->size()] != '\n') std::abort();
    if (n.at(c->begin) == nullptr || n.number(*c) < 0) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string python = withoutMagics(text);
  if (python.size() != text.size()) std::abort();
  for (size_t i = 0; i < size; ++i) if ((text[i] == '\n' || text[i] == '\r') != (python[i] == '\n' || python[i] == '\r')) std::abort();
  if (auto document = parseJson(text, "notebook", {1u << 20, 32})) {
    if (auto n = notebookFromJson(*document)) checkLayout(*n);
  }
  Notebook n;
  int version = 0;
  for (size_t at = 0; at + 6 <= size && version < 60; at += 6) {
    const auto uri = [&](uint8_t b) { return "cell:" + std::to_string(b % 9); };
    switch (data[at] % 5) {
      case 0: n.splice(static_cast<int8_t>(data[at + 1]), static_cast<int8_t>(data[at + 2]), {{uri(data[at + 3]), data[at + 4] % 3 != 0}}); break;
      case 1: n.openCell(uri(data[at + 1]), data[at + 2] % 4 ? "python" : "markdown", ++version, text.substr(at, data[at + 3])); break;
      case 2: n.closeCell(uri(data[at + 1])); break;
      case 3: n.changeCell(uri(data[at + 1]), {{Range{{data[at + 2] % 5, data[at + 3] % 9}, {data[at + 2] % 5 + data[at + 4] % 2, data[at + 3] % 9}}, text.substr(at, data[at + 5] % 20)}}, ++version, Encoding::utf16); break;
      default: n.setKind(uri(data[at + 1]), data[at + 2] % 2 == 0); break;
    }
    checkLayout(n);
  }
  return 0;
}

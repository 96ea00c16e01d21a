// Device flow analysis on any text: it ends, every site lies inside the text, and after edits an analysis that keeps what it
// can (the syntax tree, the modules that were run) says what a fresh one says.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "lsp/text/document.h"
#include "tests/unit/lsp/told.h"

using namespace flagos::lsp;

namespace {

AnalysisOptions options() {
  AnalysisOptions out;
  out.machine.known = true;
  out.machine.devices = {"npu:0", "npu:1"};
  out.max_steps = 20000;
  out.max_ns = UINT64_MAX / 4;   // how far an analysis gets must not depend on the time here
  return out;
}

std::string say(Workspace& workspace, Document& document) {
  const auto& tree = document.tree();
  if (!tree) return "no tree";
  const AnalysisOptions o = options();
  const Analysis a = analyse(makeUnit("/f.py", document.text(), *tree), workspace, o, &*tree);
  for (const Site& s : a.sites)
    if (s.span.begin > s.span.end || s.span.end > document.text().size()) std::abort();
  return told(a, o.machine);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Workspace kept;
  Document document("file:///f.py", "/f.py", 1, text);
  say(kept, document);
  // The input's own bytes say where it is edited, and what is put there is a piece of it.
  uint32_t state = 2166136261u;
  for (const char c : text) state = (state ^ static_cast<unsigned char>(c)) * 16777619u;
  const auto below = [&](uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return n ? (state >> 8) % n : 0;
  };
  for (int i = 0; i < 3; ++i) {
    const std::string now = document.text();
    const int line = static_cast<int>(below(static_cast<uint32_t>(document.lines().lineCount())));
    const int column = static_cast<int>(below(40));
    const Range range{{line, column}, {line, column + static_cast<int>(below(4))}};
    const size_t from = below(static_cast<uint32_t>(now.size() + 1));
    document.apply({{range, now.substr(from, below(12))}}, i + 2, Encoding::utf8);
    Workspace anew;
    Document fresh("file:///f.py", "/f.py", 1, document.text());
    const std::string a = say(kept, document), b = say(anew, fresh);
    if (a != b) {
      std::fprintf(stderr, "kept:\n%s\nfresh:\n%s\n", a.c_str(), b.c_str());
      std::abort();
    }
  }
  return 0;
}

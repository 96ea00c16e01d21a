// Device flow analysis on any text: it ends, and every site lies inside the text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "lsp/python/analysis.h"
#include "lsp/text/document.h"

using namespace flagos::lsp;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  Workspace workspace;
  auto unit = makeUnit("/f.py", text);
  if (!unit) return 0;
  AnalysisOptions options;
  options.machine.known = true;
  options.machine.devices = {"npu:0", "npu:1"};
  options.max_steps = 20000;
  const Analysis a = analyse(unit, workspace, options);
  for (const Site& s : a.sites)
    if (s.span.begin > s.span.end || s.span.end > text.size()) std::abort();
  return 0;
}

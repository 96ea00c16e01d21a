// One text analysed beside one other module, on a machine with two devices.
#pragma once
#include "lsp/python/analysis.h"
#include "lsp/server/machine.h"

namespace flagos::lsp {

inline Analysis analyseWith(const std::string& helper, const std::string& main) {
  Workspace workspace([&](const std::string& path) -> std::optional<std::string> {
    if (path == "/w/helper.py") return helper;
    return std::nullopt;
  });
  workspace.setRoots({"/w"});
  AnalysisOptions options;
  options.machine = machineOf({"npu:0", "npu:1"});
  return analyse(makeUnit("/w/main.py", main), workspace, options);
}

}  // namespace flagos::lsp

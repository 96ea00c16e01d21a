#include "lsp/python/analysis.h"

#include "lsp/findings/registry.h"
#include "lsp/predict/predict.h"
#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {
constexpr uint64_t kIndexNs = 60'000'000;  // of one analysis, until the import index is complete
}  // namespace

Analysis analyse(std::shared_ptr<const SourceUnit> unit, Workspace& workspace, const AnalysisOptions& options, const SyntaxTree* tree) {
  Analysis out;
  out.unit = unit;
  workspace.begin();
  struct Lending {
    Workspace& workspace;
    ~Lending() { workspace.lend(nullptr, nullptr, nullptr); }
  } lending{workspace};
  workspace.lend(&unit->path, &unit->text, tree);
  std::string machine = options.machine.known ? "known" : "";
  for (const auto& d : options.machine.devices) machine += " " + d;
  workspace.modules().refresh(workspace, machine);
  workspace.index(kIndexNs);
  if (!workspace.mayMatter(*unit)) return out;
  // Alone first. Where devices are used, again with the programs that call into this file, if there are any.
  const auto follow = [&](bool with_programs) {
    Interp interp(unit, workspace, options);
    listenForFindings(interp);
    interp.run(with_programs);
    out.steps += interp.steps();
    if (interp.abandoned()) { out.abandoned = true; return true; }
    if (!with_programs && interp.hasSites() && interp.hasPrograms()) return false;
    interp.collect(out);
    return true;
  };
  if (!follow(false)) follow(true);
  if (out.abandoned) return out;
  predict(out, options.machine);
  finishFindings(out, options);
  return out;
}

}  // namespace flagos::lsp

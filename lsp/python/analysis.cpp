#include "lsp/python/analysis.h"

#include "lsp/findings/registry.h"
#include "lsp/python/interp.h"

namespace flagos::lsp {

Analysis analyse(std::shared_ptr<const SourceUnit> unit, Workspace& workspace, const AnalysisOptions& options) {
  Analysis out;
  out.unit = unit;
  Interp interp(unit, workspace, options);
  listenForFindings(interp);
  interp.run();
  interp.collect(out);
  finishFindings(out, options);
  return out;
}

}  // namespace flagos::lsp

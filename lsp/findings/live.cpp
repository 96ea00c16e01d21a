#include "lsp/findings/live.h"

#include <algorithm>

#include "lsp/findings/registry.h"

namespace flagos::lsp {

std::vector<Finding> liveFindings(const Analysis& analysis, const LiveFile& live, const telemetry::ProcessRow& process, const AnalysisOptions& options) {
  std::vector<Finding> out;
  measuredLoaderStarved(analysis, live, process, out);
  measuredFallback(analysis, live, out);
  std::erase_if(out, [&](const Finding& f) {
    return std::any_of(analysis.findings.begin(), analysis.findings.end(), [&](const Finding& known) { return known.code == f.code && known.span.begin == f.span.begin; });
  });
  settle(out, *analysis.unit, options);
  return out;
}

}  // namespace flagos::lsp

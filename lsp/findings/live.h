// Findings that only a running process can prove. Joined after the analysis, since live values change while the text stays.
#pragma once
#include <vector>

#include "lsp/findings/common.h"
#include "lsp/live/join.h"

namespace flagos::lsp {

// By position, settled as all findings are. A code that the analysis itself reported at the same place is not repeated.
std::vector<Finding> liveFindings(const Analysis& analysis, const LiveFile& live, const telemetry::ProcessRow& process, const AnalysisOptions& options);

// One per file.
void measuredLoaderStarved(const Analysis& a, const LiveFile& live, const telemetry::ProcessRow& process, std::vector<Finding>& out);
void measuredFallback(const Analysis& a, const LiveFile& live, std::vector<Finding>& out);

}  // namespace flagos::lsp

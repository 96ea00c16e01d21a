#include "lsp/findings/registry.h"

#include <algorithm>

#include "lsp/findings/loop_reports.h"
#include "lsp/findings/severity.h"

namespace flagos::lsp {

void listenForFindings(Interp& interp) {
  const auto loops = LoopReports::attach(interp);
  listenAutocastDevice(interp);
  listenCopyInLoop(interp, loops);
  listenCudaExtension(interp);
  listenDataParallel(interp);
  listenDeviceBoundCheckpoint(interp);
  listenDeviceMismatch(interp);
  listenElementLoop(interp);
  listenGeneratorDevice(interp);
  listenGraphHeld(interp);
  listenInductorBypassesRouting(interp);
  listenIneffectiveAsync(interp);
  listenLateVisibility(interp);
  listenLoaderStarved(interp);
  listenMakeThenMove(interp);
  listenNcclOnNpu(interp);
  listenOptimizerBeforeMove(interp);
  listenPlainAttribute(interp);
  listenPredictedFallback(interp);
  listenResultDropped(interp);
  listenStaleRead(interp);
  listenSyncInLoop(interp, loops);
  listenUploadPerCall(interp);
}

namespace {
// "# flagos: ignore[a, b]" or "# flagos: ignore" on the finding's first or last line.
bool ignored(const SourceUnit& unit, const Finding& f) {
  for (const uint32_t at : {f.span.begin, f.span.end}) {
    const auto line = unit.lines.lineText(unit.text, unit.lines.lineOf(at));
    const auto mark = line.find("# flagos: ignore");
    if (mark == std::string_view::npos) continue;
    const auto rest = line.substr(mark + 16);
    if (!rest.starts_with('[')) return true;
    auto codes = rest.substr(1, rest.find(']') == std::string_view::npos ? rest.size() : rest.find(']') - 1);
    while (!codes.empty()) {
      auto code = codes.substr(0, codes.find(','));
      codes.remove_prefix(std::min(codes.size(), code.size() + 1));
      while (!code.empty() && code.front() == ' ') code.remove_prefix(1);
      while (!code.empty() && code.back() == ' ') code.remove_suffix(1);
      if (code == f.code) return true;
    }
  }
  return false;
}
}  // namespace

void settle(std::vector<Finding>& findings, const SourceUnit& unit, const AnalysisOptions& options) {
  std::erase_if(findings, [&](Finding& f) {
    // A setting replaces the default; what was found to be milder than the default (a guarded sync) stays milder.
    const auto set = options.severity.find(f.code);
    const auto* known = findingCode(f.code);
    if (set != options.severity.end() && (set->second == kOff || (known && f.severity == known->severity))) f.severity = set->second;
    return f.severity == kOff || ignored(unit, f);
  });
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& x, const Finding& y) { return x.span.begin < y.span.begin; });
}

void finishFindings(Analysis& a, const AnalysisOptions& options) {
  findCudaOnlyCheck(a, options);
  findPredictedOom(a, options);
  settle(a.findings, *a.unit, options);
}

}  // namespace flagos::lsp

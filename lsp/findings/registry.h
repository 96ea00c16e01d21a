// The findings: each is one file that registers itself here with one line in registry.cpp.
//
// A flow finding listens to the interpreter's events; a text finding walks the finished analysis. Both report through
// Finding; suppression (`# flagos: ignore[code]`) and order are the registry's work.
#pragma once
#include <memory>

#include "lsp/python/interp.h"

namespace flagos::lsp {

void listenForFindings(Interp& interp);
// Adds the findings that look at the tree, then drops those that a comment on their line ignores.
void finishFindings(Analysis& analysis, const AnalysisOptions& options);
// Applies the severity settings, drops what is off or ignored by a comment, and sorts by position.
void settle(std::vector<Finding>& findings, const SourceUnit& unit, const AnalysisOptions& options);

// One per file.
class LoopReports;
void listenAutocastDevice(Interp& interp);
void listenCopyInLoop(Interp& interp, std::shared_ptr<LoopReports> reports);
void listenCudaExtension(Interp& interp);
void listenDataParallel(Interp& interp);
void listenDeviceBoundCheckpoint(Interp& interp);
void listenDeviceMismatch(Interp& interp);
void listenElementLoop(Interp& interp);
void listenGeneratorDevice(Interp& interp);
void listenGraphHeld(Interp& interp);
void listenInductorBypassesRouting(Interp& interp);
void listenIneffectiveAsync(Interp& interp);
void listenLateVisibility(Interp& interp);
void listenLoaderStarved(Interp& interp);
void listenMakeThenMove(Interp& interp);
void listenNcclOnNpu(Interp& interp);
void listenOptimizerBeforeMove(Interp& interp);
void listenPlainAttribute(Interp& interp);
void listenPredictedFallback(Interp& interp);
void listenResultDropped(Interp& interp);
void listenStaleRead(Interp& interp);
void listenSyncInLoop(Interp& interp, std::shared_ptr<LoopReports> reports);
void listenUploadPerCall(Interp& interp);
void findCudaOnlyCheck(Analysis& analysis, const AnalysisOptions& options);
void findPredictedOom(Analysis& analysis, const AnalysisOptions& options);

}  // namespace flagos::lsp

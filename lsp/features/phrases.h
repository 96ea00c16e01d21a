// The sentences that hover, `--check` and diagnostics share, so that every face says the same.
#pragma once
#include <string>
#include <vector>

#include "lsp/live/join.h"
#include "lsp/python/analysis.h"

namespace flagos::lsp {

std::string devicesText(const Site& site);                     // "npu:0", "npu:0 or cpu", "npu:<RANK>", "unknown"
std::vector<std::string> originLines(const Site& site);        // "npu:0: default of --device (train.py:70)"
std::string bytesText(const Site& site);                       // "needs 512 B (float32 [128])"; "" where it makes no sense
// "0.3 s ago", "2 h ago".
std::string agoText(double seconds);
std::vector<std::string> liveLines(const LiveSite& live);      // state first; several lines
// A function's prediction; before it, with a live process, the line of it that took most of the device's time.
std::string functionLine(const Analysis& a, const LiveFile* live, const FunctionPrediction& f);
std::string routeLine(const telemetry::RouteRow& route);       // one route: kernel, calls, measured, predicted, bound
std::string percent(double share);                             // 0.634 -> "63 %"

}  // namespace flagos::lsp

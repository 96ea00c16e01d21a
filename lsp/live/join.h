// Telemetry of a process joined with the sites of a file: what each line holds, takes, and was routed to.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lsp/live/drift.h"
#include "lsp/live/ranks.h"
#include "lsp/python/analysis.h"
#include "runtime/telemetry/model.h"

namespace flagos::lsp {

struct LiveSite {
  int pid = 0;
  std::string state = "not-executed";   // exact | moved | edited | gone | not-executed
  std::string process_state = "live";   // "ended": every value is "last seen"
  int measured_line = 0;                // where it was when it ran; 0 = none
  int line = 0;                         // where it is now; 0 = nowhere
  int measured_cell = -1;               // of a notebook; measured_line is then within it
  std::string device, qualname, why;
  Metric live_bytes, peak_bytes, device_time, backward_time;
  double share = -1;                    // of the process's device time, backward included; < 0 = not known
  uint64_t calls = 0;
  std::vector<telemetry::RouteRow> routes;      // by device time, then calls
  std::vector<telemetry::RouteRow> backward_routes;   // of the backward pass that this line caused
  std::vector<telemetry::FallbackRow> fallbacks;
  std::vector<telemetry::CopyRow> copies;
  std::optional<Spread> live_spread, peak_spread, time_spread;   // over the ranks of a job
  double age_s = 0;
  double read_at = 0;                   // seconds since the epoch when the process read its counters; 0 = it does not say
};

struct LiveMeasured { Span span; std::string text; LiveSite live; };  // a line that is no device site, but was measured

struct LiveFile {
  bool ran = false;                     // the process executed this file
  bool same_text = true;
  bool have_baseline = true;
  int pid = 0;
  std::string process_state;            // live | ended
  std::vector<LiveSite> sites;          // parallel to Analysis::sites
  std::vector<LiveMeasured> also;       // by position
  std::vector<LiveSite> gone;
};

// Device seconds of one forward run of a line, from what was measured on it now; empty where nothing was timed, where the line
// was edited since, or where the calls that ran are not those that were predicted: then there is nothing to compare.
std::optional<double> measuredRun(const LinePrediction& line, const LiveFile& live);

// `raw`: the file's bytes as they are now (for the content hash).
LiveFile joinLive(const Analysis& analysis, std::string_view raw, const telemetry::ProcessRow& process,
                  const std::vector<LineOrigins>* origins = nullptr);

}  // namespace flagos::lsp

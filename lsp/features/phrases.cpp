#include "lsp/features/phrases.h"

#include "lsp/predict/predict.h"
#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace flagos::lsp {

std::string percent(double share) {
  char b[16];
  const double p = 100 * share;
  std::snprintf(b, sizeof b, p > 0 && p < 9.95 ? "%.1f %%" : "%.0f %%", p);
  return b;
}

std::string devicesText(const Site& s) {
  std::string out;
  std::vector<std::string> seen;
  for (const auto& d : s.devices) {
    bool again = false;
    for (const auto& x : seen) again = again || x == d.device;
    if (again) continue;
    seen.push_back(d.device);
    out += (out.empty() ? "" : " or ") + d.device;
  }
  if (s.resolution == "runtime") return out.empty() ? s.expression : out + " or " + s.expression;
  if (s.resolution == "unknown") return out.empty() ? "unknown" : out + " or unknown";
  return out;
}

std::vector<std::string> originLines(const Site& s) {
  std::vector<std::string> out;
  for (const auto& d : s.devices) {
    const auto slash = d.path.rfind('/');
    out.push_back(d.device + ": " + (d.because.empty() ? "written here" : d.because) + " (" +
                  (d.cell >= 0 ? "cell " + std::to_string(d.cell + 1) + ", line " + std::to_string(d.line)
                               : (slash == std::string::npos ? d.path : d.path.substr(slash + 1)) + ":" + std::to_string(d.line)) + ")");
  }
  if (s.resolution == "runtime") out.push_back(s.expression + ": " + s.reason);
  if (s.resolution == "unknown") out.push_back("unknown: " + s.reason);
  return out;
}

std::string bytesText(const Site& s) {
  if (s.kind != "placement" && s.kind != "move" && s.kind != "copy") return {};
  if (s.bytes) {
    const std::string how = s.bytes_how + (s.assumed ? std::string(s.bytes_how.empty() ? "" : "; ") + kAssumed : "");
    return "needs " + formatBytes(*s.bytes) + (how.empty() ? "" : " (" + how + ")");
  }
  return "bytes unknown: " + (s.bytes_how.empty() ? std::string("the shape does not follow from literals") : s.bytes_how);
}

std::string routeLine(const telemetry::RouteRow& r) {
  std::string out = r.op + " → " + r.kernel + ", " + counted(r.calls, "call");
  double measured = 0;
  if (r.timed_calls > 0 && r.device_time.value) measured = *r.device_time.value / static_cast<double>(r.timed_calls);
  out += measured > 0 ? ", measured " + formatSeconds(measured) + " a call" : std::string(", time not measured");
  if (r.predicted.value) out += ", predicted " + formatSeconds(*r.predicted.value);
  else out += ", predicted unknown" + (r.predicted.why_missing.empty() ? "" : " (" + r.predicted.why_missing + ")");
  if (r.predicted.value && measured > 0) out += " (" + ratioText(*r.predicted.value, measured) + ")";
  out += r.bound.empty() ? ", bound by: unknown" : ", bound by " + r.bound;
  if (!r.reason.empty()) out += " — " + r.reason;
  return out;
}

namespace {

// The value, or in words why there is none: what a driver does not tell is another thing than what is not known yet.
std::string said(const Metric& m) {
  if (m.value) return format(m);
  for (const char* who : {"the driver", "the vendor", "neither the driver"})
    if (m.why_missing.starts_with(who)) return "not reported by the driver (" + m.why_missing + ")";
  return format(m);
}

std::string spreadLine(const char* what, const Spread& s, std::string (*shown)(double)) {
  return std::string(what) + " over " + std::to_string(s.of) + " processes: at most " + shown(s.most) + " on " + s.most_on + ", at least " +
         shown(s.least) + " on " + s.least_on + ", spread " + shown(s.most - s.least);
}

std::string measuredAt(const LiveSite& l) {
  return (l.measured_cell >= 0 ? "cell " + std::to_string(l.measured_cell + 1) + ", " : std::string()) + "line " + std::to_string(l.measured_line);
}

}  // namespace

std::string functionLine(const Analysis& a, const LiveFile* live, const FunctionPrediction& f) {
  const LiveSite* most = nullptr;
  const auto look = [&](const LiveSite& l) {
    if (l.share <= 0 || (l.state != "exact" && l.state != "moved") || l.qualname.substr(l.qualname.rfind('.') + 1) != f.name) return;
    // Of several functions of this name, the nearest above.
    for (const auto& other : a.predicted->functions)
      if (other.name == f.name && other.first_line > f.first_line && other.first_line <= l.line) return;
    if (l.line >= f.first_line && (!most || l.share > most->share)) most = &l;
  };
  if (live && live->ran && a.predicted) {
    for (const auto& l : live->sites) look(l);
    for (const auto& m : live->also) look(m.live);
  }
  if (!most) return functionText(f);
  return "measured: line " + std::to_string(most->line) + " takes most here, " + percent(most->share) + " of the process's device time (pid " +
         std::to_string(live->pid) + "); " + functionText(f);
}

std::string agoText(double seconds) {
  char b[32];
  const double s = std::max(0.0, seconds);
  if (s < 9.95) std::snprintf(b, sizeof b, "%.1f s ago", s);
  else if (s < 100) std::snprintf(b, sizeof b, "%.0f s ago", s);
  else if (s < 6000) std::snprintf(b, sizeof b, "%.0f min ago", s / 60);
  else std::snprintf(b, sizeof b, "%.0f h ago", s / 3600);
  return b;
}

std::vector<std::string> liveLines(const LiveSite& l) {
  std::vector<std::string> out;
  const std::string pid = "pid " + std::to_string(l.pid);
  const bool ended = l.process_state == "ended";
  if (l.state == "not-executed") {
    out.push_back(ended ? pid + " ended; it had not executed this line when last seen" : "attached to " + pid + ", line not executed yet");
    return out;
  }
  std::string head = l.state + (ended ? ", last seen in " + pid + ", which ended" : ", " + pid);
  if (l.state == "moved") head += ", measured on " + measuredAt(l);
  if (l.state == "edited") head += ": measured before this edit (" + measuredAt(l) + "); the process runs the old code";
  if (l.state == "gone") head += ": was " + measuredAt(l) + (l.why.empty() ? "" : "; " + l.why);
  out.push_back(head);
  // When the process read its counters: they are told when they change, so an old reading of a live process still holds.
  const double age = l.read_at > 0 ? wallSeconds() - l.read_at : l.age_s;
  const std::string source = "measured, read " + agoText(age);
  std::string held = (l.device.empty() ? "" : "on " + l.device + ": ") + "live " + said(l.live_bytes) + ", peak " + said(l.peak_bytes);
  if (l.live_bytes.value || l.peak_bytes.value) held += " (" + source + ")";
  if (l.calls > 0) held += ", " + counted(l.calls, "call");
  out.push_back(held);
  std::string time = "device time ";
  if (l.share >= 0) time += percent(l.share) + " of the process";
  else if (!l.device_time.value && l.calls == 0 && l.routes.empty() && !l.copies.empty()) time += "unknown (only copies ran here; their time is not measured)";
  else if (!l.device_time.value && !l.device_time.why_missing.empty()) time += said(l.device_time);
  else time += "not measured yet";
  if (l.device_time.value) time += " (forward " + formatSeconds(*l.device_time.value);
  if (l.device_time.value && l.backward_time.value) time += ", backward " + formatSeconds(*l.backward_time.value);
  if (l.device_time.value) time += "; " + source + ")";
  out.push_back(time);
  if (l.live_spread) out.push_back(spreadLine("live", *l.live_spread, formatBytes));
  if (l.peak_spread) out.push_back(spreadLine("peak", *l.peak_spread, formatBytes));
  if (l.time_spread) out.push_back(spreadLine("device time", *l.time_spread, formatSeconds));
  for (size_t i = 0; i < l.routes.size() && i < 3; ++i) out.push_back(routeLine(l.routes[i]));
  if (l.routes.size() > 3) out.push_back("and " + std::to_string(l.routes.size() - 3) + " more routes");
  for (size_t i = 0; i < l.backward_routes.size() && i < 2; ++i) out.push_back("backward: " + routeLine(l.backward_routes[i]));
  if (l.backward_routes.size() > 2) out.push_back("and " + std::to_string(l.backward_routes.size() - 2) + " more routes of the backward pass");
  if (l.fallbacks.empty()) out.push_back("no fallback");
  for (const auto& f : l.fallbacks)
    out.push_back("fallback: " + f.op + " ran on the CPU " + std::to_string(f.calls) + " times, " + formatBytes(static_cast<double>(f.bytes)) + " copied");
  for (const auto& c : l.copies)
    out.push_back("copies: " + c.kind + ", " + std::to_string(c.calls) + " times, " + formatBytes(static_cast<double>(c.bytes)));
  return out;
}

}  // namespace flagos::lsp

#include "lsp/features/phrases.h"

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
                  (slash == std::string::npos ? d.path : d.path.substr(slash + 1)) + ":" + std::to_string(d.line) + ")");
  }
  if (s.resolution == "runtime") out.push_back(s.expression + ": " + s.reason);
  if (s.resolution == "unknown") out.push_back("unknown: " + s.reason);
  return out;
}

std::string bytesText(const Site& s) {
  if (s.kind != "placement" && s.kind != "move" && s.kind != "copy") return {};
  if (s.bytes) return "needs " + formatBytes(*s.bytes) + (s.bytes_how.empty() ? "" : " (" + s.bytes_how + ")");
  return "bytes unknown: " + (s.bytes_how.empty() ? std::string("the shape does not follow from literals") : s.bytes_how);
}

std::string routeLine(const telemetry::RouteRow& r) {
  std::string out = r.op + " → " + r.kernel + ", " + std::to_string(r.calls) + " calls";
  if (r.timed_calls > 0 && r.device_time.value) out += ", measured " + formatSeconds(*r.device_time.value / static_cast<double>(r.timed_calls)) + " a call";
  else out += ", time not measured";
  if (r.predicted.value) out += ", predicted " + formatSeconds(*r.predicted.value);
  else out += ", predicted unknown" + (r.predicted.why_missing.empty() ? "" : " (" + r.predicted.why_missing + ")");
  out += r.bound.empty() ? ", bound by: unknown" : ", bound by " + r.bound;
  if (!r.reason.empty()) out += " — " + r.reason;
  return out;
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
  if (l.state == "moved") head += ", measured on line " + std::to_string(l.measured_line);
  if (l.state == "edited") head += ": measured before this edit (line " + std::to_string(l.measured_line) + "); the process runs the old code";
  if (l.state == "gone") head += ": was line " + std::to_string(l.measured_line) + (l.why.empty() ? "" : "; " + l.why);
  out.push_back(head);
  out.push_back((l.device.empty() ? "" : "on " + l.device + ": ") + "live " + format(l.live_bytes) + ", peak " + format(l.peak_bytes) + ", " + std::to_string(l.calls) + " calls");
  std::string time = "device time ";
  if (l.share >= 0) time += percent(l.share) + " of the process";
  else time += "not measured yet";
  if (l.device_time.value) time += " (forward " + formatSeconds(*l.device_time.value);
  if (l.device_time.value && l.backward_time.value) time += ", backward " + formatSeconds(*l.backward_time.value);
  if (l.device_time.value) time += ")";
  out.push_back(time);
  for (size_t i = 0; i < l.routes.size() && i < 3; ++i) out.push_back(routeLine(l.routes[i]));
  if (l.routes.size() > 3) out.push_back("and " + std::to_string(l.routes.size() - 3) + " more routes");
  if (l.fallbacks.empty()) out.push_back("no fallback");
  for (const auto& f : l.fallbacks)
    out.push_back("fallback: " + f.op + " ran on the CPU " + std::to_string(f.calls) + " times, " + formatBytes(static_cast<double>(f.bytes)) + " copied");
  return out;
}

}  // namespace flagos::lsp

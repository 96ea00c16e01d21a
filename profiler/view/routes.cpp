#include <map>
#include <tuple>

#include "profiler/view/screens.h"

namespace flagos::view {
namespace {

// One shown row: all call sites of the same operator, kernel and reason.
struct Sum {
  uint64_t calls = 0, timed = 0;
  double time = 0, predicted = 0;      // predicted: seconds over `predicted_calls` calls
  uint64_t predicted_calls = 0;
  std::string bound, source, why_missing;
};

}  // namespace

Table routesScreen(const std::vector<telemetry::ProcessRow>& processes) {
  Table t;
  t.columns = {{"PID", true, "process the values come from"},
               {"Operator", false, "as PyTorch names it"},
               {"Kernel", false, "the candidate that was chosen"},
               {"Calls", true, "since the process started"},
               {"Time", true, "device time since a viewer came"},
               {"Per call", true, "measured: device time / timed calls"},
               {"Predicted", true, "the cost model's time for one call"},
               {"Bound by", false, "what limits it: compute, memory, copy, launch or host"},
               {"Why", false, "the rule or comparison that chose it"}};
  t.note = "No operator has run on a device yet.";
  for (const auto& p : processes) {
    std::map<std::tuple<std::string, std::string, std::string>, Sum> sums;
    for (const auto& r : p.routes) {
      Sum& s = sums[{r.op, r.kernel, r.reason}];
      s.calls += r.calls;
      s.timed += r.timed_calls;
      if (r.device_time.value) s.time += *r.device_time.value;
      else s.why_missing = r.device_time.why_missing;
      if (r.predicted.value) {
        s.predicted += *r.predicted.value * static_cast<double>(r.calls);
        s.predicted_calls += r.calls;
      }
      if (s.bound.empty()) s.bound = r.bound;
      if (s.source.empty()) s.source = r.device_time.source;
    }
    for (const auto& [key, s] : sums) {
      const auto& [op, kernel, reason] = key;
      const std::string why = s.why_missing.empty() ? "no call was timed yet" : s.why_missing;
      const Metric time = s.timed ? Metric::of(s.time, "s", s.source) : Metric::missing("s", why);
      const Metric each = s.timed ? Metric::of(s.time / static_cast<double>(s.timed), "s", s.source) : Metric::missing("s", why);
      const Metric predicted = s.predicted_calls
          ? Metric::of(s.predicted / static_cast<double>(s.predicted_calls), "s", "predicted", std::nullopt)
          : Metric::missing("s", "the cost model lacks a rate of this device");
      t.rows.push_back({{countCell(static_cast<uint64_t>(p.pid)), textCell(op), textCell(kernel), countCell(s.calls), metricCell(time),
                         metricCell(each), metricCell(predicted), textCell(s.bound.empty() ? "unknown" : s.bound), textCell(reason)},
                        {}, 0});
    }
  }
  sortRows(t, {{4, true}, {3, true}});
  return t;
}

Table fallbacksScreen(const std::vector<telemetry::ProcessRow>& processes) {
  Table t;
  t.columns = {{"PID", true, "process the values come from"}, {"What", false, "operator that fell back to the CPU, or direction of a copy"},
               {"Calls", true, ""}, {"Bytes", true, "bytes copied for it"}, {"Line", false, "the source line that asked for it"}};
  t.note = "Nothing fell back to the CPU, and nothing was copied.";
  for (const auto& p : processes) {
    const auto place = [&](uint32_t id) {
      for (const auto& s : p.sites)
        if (s.id == id) return textCell(placeText(p, s), s.file);
      return textCell("(no Python line)");
    };
    const auto bytes = [](uint64_t n) { return metricCell(Metric::of(static_cast<double>(n), "B", "measured")); };
    for (const auto& f : p.fallbacks)
      t.rows.push_back({{countCell(static_cast<uint64_t>(p.pid)), textCell("fallback " + f.op), countCell(f.calls), bytes(f.bytes), place(f.site)}, {}, 0});
    for (const auto& c : p.copies)
      t.rows.push_back({{countCell(static_cast<uint64_t>(p.pid)), textCell("copy " + c.kind), countCell(c.calls), bytes(c.bytes), place(c.site)}, {}, 0});
  }
  sortRows(t, {{3, true}});
  return t;
}

}  // namespace flagos::view

#include <cstdio>
#include <map>

#include "profiler/view/screens.h"

namespace flagos::view {

Table linesScreen(const std::vector<telemetry::ProcessRow>& processes) {
  Table t;
  t.columns = {{"PID", true, "process the values come from"},
               {"Line", false, "the source line that asked for the work"},
               {"Function", false, ""},
               {"Device", false, ""},
               {"Live", true, "bytes the line's tensors hold now"},
               {"Peak", true, "most bytes they held at once"},
               {"Time", true, "device time since a viewer came"},
               {"Share", true, "of all device time of the process"},
               {"Calls", true, "operator calls"},
               {"State", false, "exact, moved, edited or gone: the line against the file as it is now"},
               {"Call", false, "which call of the line, as the file has it"}};
  t.note = "No source line holds device memory yet.";
  for (const auto& p : processes) {
    const Metric total = totalDeviceTime(p);
    std::map<std::string, int> calls;   // of each line that is shown
    for (const auto& s : p.sites) ++calls[placeText(p, s) + s.device];
    for (const auto& s : p.sites) {
      Metric share = Metric::missing("%", s.device_time.why_missing);
      if (s.device_time.value && total.value && *total.value > 0)
        share = Metric::of(100 * *s.device_time.value / *total.value, "%", s.device_time.source, s.device_time.age_s);
      Cell shareCell = metricCell(share);
      if (share.value) {
        char text[16];
        std::snprintf(text, sizeof text, "%.1f %%", *share.value);
        shareCell.text = text;
      }
      std::string place = placeText(p, s);
      if (calls[place + s.device] > 1 && s.column >= 0) place += ":" + std::to_string(s.column + 1);
      t.rows.push_back({{countCell(static_cast<uint64_t>(p.pid)), textCell(place, s.file), textCell(s.qualname),
                         textCell(s.device), metricCell(s.live_bytes), metricCell(s.peak_bytes), metricCell(s.device_time),
                         shareCell, countCell(s.calls), textCell(p.state == "ended" ? s.state + ", ended" : s.state), textCell(s.text)},
                        s.file, s.line});
    }
  }
  sortRows(t, {{4, true}, {6, true}});
  return t;
}

}  // namespace flagos::view

#include "profiler/view/screens.h"

namespace flagos::view {

Table devicesScreen(const std::vector<telemetry::ProcessRow>& processes) {
  Table t;
  t.columns = {{"PID", true, "process the values come from"},
               {"Device", false, ""},
               {"State", false, "live, or ended: its last values are shown"},
               {"Name", false, "the driver's own name, or the matched model"},
               {"Allocated", true, "bytes held by tensors of the process"},
               {"Peak", true, "most bytes held at once"},
               {"Reserved", true, "bytes of device buffers, used and cached"},
               {"Total", true, "device memory"},
               {"Free", true, "device memory nobody holds"},
               {"Busy", true, "share of the last second in which the process's queues had work"}};
  t.note = "No running process uses a device. Start one, for example: python examples/train_digits.py";
  for (const auto& p : processes)
    for (const auto& d : p.devices)
      t.rows.push_back({{countCell(static_cast<uint64_t>(p.pid)), textCell(d.device), textCell(p.state), textCell(d.name), metricCell(d.allocated),
                         metricCell(d.allocated_peak), metricCell(d.reserved), metricCell(d.total), metricCell(d.free),
                         metricCell(d.utilisation)},
                        {}, 0});
  return t;
}

Table processesScreen(const std::vector<telemetry::ProcessRow>& processes) {
  Table t;
  t.columns = {{"PID", true, ""}, {"State", false, "live, or ended: its last values are shown"}, {"Script", false, ""},
               {"Age", true, "age of the values"}};
  t.note = "No process of this user is announced in the runtime directory.";
  for (const auto& p : processes)
    t.rows.push_back({{countCell(static_cast<uint64_t>(p.pid)), textCell(p.state), textCell(p.script.empty() ? "(interactive)" : p.script),
                       metricCell(Metric::of(p.age_s, "s", "measured", std::nullopt))},
                      p.script, 1});
  return t;
}

}  // namespace flagos::view

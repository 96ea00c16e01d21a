#include "profiler/view/screens.h"

namespace flagos::view {

const std::vector<Screen>& screens() {
  static const std::vector<Screen> rows = {
      {"devices", "Devices", "Each device and the memory this process holds on it", devicesScreen},
      {"lines", "Lines", "Memory and device time by source line", linesScreen},
      {"routes", "Routes", "Which kernel ran for each operator, and why", routesScreen},
      {"fallbacks", "Fallbacks and copies", "Work that left the device, and bytes that crossed the bus", fallbacksScreen},
      {"processes", "Processes", "Running and crashed processes of this user", processesScreen},
  };
  return rows;
}

const Screen* screen(std::string_view name) {
  for (const Screen& s : screens())
    if (name == s.name) return &s;
  return nullptr;
}

Metric totalDeviceTime(const telemetry::ProcessRow& p) {
  Metric total = Metric::missing("s", "nothing was timed yet");
  for (const auto& s : p.sites)
    if (s.device_time.value) {
      total.value = total.value.value_or(0) + *s.device_time.value;
      total.source = s.device_time.source;
      total.age_s = s.device_time.age_s;
    }
  return total;
}

std::string placeText(const telemetry::ProcessRow& p, const telemetry::SiteRow& s) {
  if (s.id == 0 || s.file.empty()) {
    if (s.backward_of)
      for (const auto& f : p.sites)
        if (f.id == s.backward_of && f.id != s.id) return "backward of " + placeText(p, f);
    return "(no Python line)";
  }
  const std::string place = s.file.substr(s.file.rfind('/') + 1) + ":" + std::to_string(s.line);
  return s.backward_of ? "backward of " + place : place;
}

}  // namespace flagos::view

// The screens of flagos-top and `flagos top`. One screen = one file with one function + one row in screens.cpp.
#pragma once
#include <string_view>
#include <vector>

#include "profiler/view/table.h"
#include "runtime/telemetry/model.h"

namespace flagos::view {

struct Screen {
  const char* name;      // "lines": command line and tests
  const char* title;     // "Lines"
  const char* about;     // one sentence
  Table (*make)(const std::vector<telemetry::ProcessRow>& processes);
};

const std::vector<Screen>& screens();
const Screen* screen(std::string_view name);

Table devicesScreen(const std::vector<telemetry::ProcessRow>&);
Table linesScreen(const std::vector<telemetry::ProcessRow>&);
Table routesScreen(const std::vector<telemetry::ProcessRow>&);
Table fallbacksScreen(const std::vector<telemetry::ProcessRow>&);
Table processesScreen(const std::vector<telemetry::ProcessRow>&);

// Sum of the measured device times of the process's sites; missing if nothing was timed. Denominator of shares.
Metric totalDeviceTime(const telemetry::ProcessRow&);
// "train_digits.py:63", with "backward of " before it for autograd work.
std::string placeText(const telemetry::ProcessRow&, const telemetry::SiteRow&);

}  // namespace flagos::view

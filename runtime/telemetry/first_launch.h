// The first launch of a kernel may contain the driver's compiler: seconds where the kernel takes microseconds. Its own
// time is therefore not shown; the next launch of the same kernel, by the same line and route, stands for both.
#pragma once

#include "runtime/telemetry/recorder.h"

namespace flagos::telemetry {

// How many launches a time of this kernel stands for: 0 for a first launch (it is owed), otherwise 1 and those owed.
// Any thread; noexcept. Without memory to remember it a first launch is never made up for: unknown, not wrong.
uint32_t launchesTimed(SiteId site, RouteId route, NameId kernel, bool first) noexcept;

void forgetFirstLaunches() noexcept;  // tests

}  // namespace flagos::telemetry

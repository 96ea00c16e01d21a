// The process-wide list of routes behind route(id).
#pragma once
#include "runtime/kde/router.h"

namespace flagos::kde {

// Gives the route its id and makes it visible. Null when the list is full.
const Route* publishRoute(Route);
// Mean device seconds of one call, from telemetry. < 0 = never measured. Any thread.
void setMeasured(RouteId, double seconds) noexcept;
double measuredSeconds(RouteId) noexcept;

}  // namespace flagos::kde

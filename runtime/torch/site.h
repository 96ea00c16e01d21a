// Which Python line asked for the work of this thread.
#pragma once
#include "runtime/telemetry/recorder.h"

namespace flagos::glue {

// The user's line on threads that run Python, "backward of" its forward line on autograd's threads, else 0.
telemetry::SiteId readSite() noexcept;

}  // namespace flagos::glue

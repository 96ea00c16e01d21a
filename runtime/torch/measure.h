// Measured choice (DESIGN section 5): where the cost model cannot tell two candidates apart, both are timed on the live
// inputs before the first use, and the times are kept on disk before any result is used. Later runs read them, so the same
// script takes the same routes again. FLAGOS_MEASURE=on switches it on.
#pragma once
#include "runtime/torch/decision.h"

namespace flagos::glue {

// Whether calls of this operator do nothing but make their results: they may be made several times, results apart.
bool isPure(const c10::FunctionSchema& schema);

// The route of an open call after timing its candidates, or after giving that up. One call at a time; waits for the
// device's queue.
const kde::Route& settled(const kde::Signature& s, const kde::Route& open, ocl::Device& device, const Trial& trial);

}  // namespace flagos::glue

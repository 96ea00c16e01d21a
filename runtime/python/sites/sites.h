// Which line of the user's Python asked for this work? Called at the entry of every operator, with or without the GIL.
//
// The calling thread is parked inside our C call, so its own frame chain cannot change: the interpreter's frames are read
// directly (one section per CPython minor version, checked at start-up against the public API; elsewhere the public API
// is used and takes the GIL). A place is keyed by its instruction address; code objects we have keyed are kept for ever,
// so the key stays true. Only the first sight of a place takes the GIL and resolves file, line and columns.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/telemetry/recorder.h"

namespace flagos::telemetry {

// Once, at import, with the GIL. Frames of files under these folders are not the user's (torch's package, flagos's own).
// Returns how frames are read: "frames 3.11" (direct) or "public API (reason)".
const std::string& initSites(const std::string& torch_dir, const std::string& flagos_dir);

// The innermost frame of this thread that is the user's; 0 without one (a thread of the autograd engine, a C++ program,
// an interpreter that is shutting down). The caller must hold no lock of ours: a first sight takes the GIL.
SiteId currentSite() noexcept;

// Autograd: the forward operator notes (thread, sequence number of its node) -> site; the node's backward asks for it.
// A ring of 65,536 entries: an older note is forgotten (0), never mistaken for another.
void rememberForward(uint64_t thread, uint64_t sequence, SiteId site) noexcept;
SiteId forwardSite(uint64_t thread, uint64_t sequence) noexcept;

// For nodes that no forward operator made (AccumulateGrad): the user's line that is waiting inside backward() or
// autograd.grad(). `graph_task` names one backward pass (torch::autograd::get_current_graph_task_id()); the search takes
// the GIL once a pass. 0 if none or more than one thread is waiting there.
SiteId backwardCaller(int64_t graph_task) noexcept;

}  // namespace flagos::telemetry

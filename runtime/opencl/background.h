// One low-priority thread for work that must not hold up an operator: building programs ahead of use, and asking the
// driver for binaries (which makes some drivers compile once more) to keep them on disk. It waits for quiet before it
// saves. At exit() what is left is dropped, not done: a driver's compiler may have lost its static objects by then. So
// whoever owns the process's end calls shutdown() (device.h) while everything still stands.
#pragma once
#include <functional>

namespace flagos::ocl {

// Runs at once, in order of arrival, before any save.
void runSoon(std::function<void()> job);
// Runs when nothing was added for a moment, or when drained.
void runWhenQuiet(std::function<void()> job);
// Blocks until both lists are empty. Does nothing in a forked child.
void drainBackground() noexcept;

}  // namespace flagos::ocl

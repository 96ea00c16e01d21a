// torch.profiler's view of the npu: every kernel, copy and fill as a device activity, linked to the operator that asked.
// Kineto tells us which operator runs (a correlation id, which launches carry in their tag) and takes the rows at the end.
#pragma once
#include "runtime/opencl/queue.h"

namespace flagos::glue {

// Registers the plugin. Once, at start; costs nothing until a profile with device activities begins.
void installProfiler();

// A command has run. From the timing sink: any thread, under a queue's lock.
void profilerTiming(const ocl::Timing& timing) noexcept;

}  // namespace flagos::glue

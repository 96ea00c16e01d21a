// For the sink of timings alone: when the command that it is being told of was enqueued, on the clock of nowNs().
#pragma once
#include <cstdint>

namespace flagos::ocl {

uint64_t enqueuedNs() noexcept;

}  // namespace flagos::ocl

// One monotonic clock for every timestamp, replaceable in tests.
#pragma once
#include <cstdint>

namespace flagos {

// CLOCK_MONOTONIC in nanoseconds, or the value set by setClockForTest. Any thread.
uint64_t nowNs() noexcept;
// Seconds since the epoch, for file stamps and text only.
double wallSeconds() noexcept;
// Freezes nowNs() at ns (0 = real clock again). Tests only.
void setClockForTest(uint64_t ns) noexcept;

}  // namespace flagos

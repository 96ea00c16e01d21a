#include "runtime/base/clock.h"

#include <ctime>

#include <atomic>

namespace flagos {
namespace {
std::atomic<uint64_t> g_frozen{0};
}

uint64_t nowNs() noexcept {
  if (const uint64_t f = g_frozen.load(std::memory_order_relaxed)) return f;
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
double wallSeconds() noexcept {
  timespec t;
  ::clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
void setClockForTest(uint64_t ns) noexcept { g_frozen.store(ns); }

}  // namespace flagos

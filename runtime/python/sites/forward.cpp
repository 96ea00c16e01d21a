// Which forward line made the autograd node whose backward runs now.
#include <array>
#include <atomic>

#include "runtime/python/sites/sites.h"

namespace flagos::telemetry {
namespace {

constexpr uint32_t kBits = 16;

// Written by the thread that runs forward, read by autograd's threads. A reader that meets a writer sees the key change
// and answers 0.
struct Note { std::atomic<uint64_t> key{0}; std::atomic<SiteId> site{0}; };
std::array<Note, 1u << kBits> g_notes;

// Sequence numbers of one thread fill the ring in order; threads are spread over it.
uint64_t keyOf(uint64_t thread, uint64_t sequence) noexcept {
  return (thread << 44 ^ sequence) + 1;       // 0 = empty; 2^44 operators a thread, 2^20 threads
}
Note& noteOf(uint64_t thread, uint64_t sequence) noexcept {
  return g_notes[(sequence + thread * 0x9e3779b97f4a7c15u) & ((1u << kBits) - 1)];
}

}  // namespace

void rememberForward(uint64_t thread, uint64_t sequence, SiteId site) noexcept {
  Note& n = noteOf(thread, sequence);
  n.key.store(0, std::memory_order_relaxed);
  n.site.store(site, std::memory_order_release);   // who sees the new site sees the key gone
  n.key.store(keyOf(thread, sequence), std::memory_order_release);
}

SiteId forwardSite(uint64_t thread, uint64_t sequence) noexcept {
  Note& n = noteOf(thread, sequence);
  const uint64_t key = keyOf(thread, sequence);
  if (n.key.load(std::memory_order_acquire) != key) return 0;
  const SiteId site = n.site.load(std::memory_order_acquire);
  return n.key.load(std::memory_order_relaxed) == key ? site : 0;
}

}  // namespace flagos::telemetry

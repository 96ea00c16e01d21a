// Every route of the process by id: written once under a lock, read without one.
#include <array>
#include <atomic>
#include <mutex>

#include "runtime/kde/routes.h"

namespace flagos::kde {
namespace {

constexpr uint32_t kChunk = 1024, kChunks = 1024;   // a million routes; after that routers share what they have

struct Slot {
  Route route;
  std::atomic<double> measured{-1};   // mean of what telemetry reported
};
struct Registry {
  std::mutex mutex;
  std::array<std::atomic<Slot*>, kChunks> chunks{};
  std::atomic<uint32_t> size{1};
  void (*published)(const Route&) = nullptr;
};
// Leaked: telemetry's thread may read routes while static destructors run.
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}
Slot* slot(RouteId id) noexcept {
  Registry& r = registry();
  if (id == 0 || id >= r.size.load(std::memory_order_acquire)) return nullptr;
  return &r.chunks[id / kChunk].load(std::memory_order_acquire)[id % kChunk];
}

}  // namespace

const Route* route(RouteId id) noexcept {
  const Slot* s = slot(id);
  return s ? &s->route : nullptr;
}

RouteId routeCount() noexcept { return registry().size.load(std::memory_order_acquire) - 1; }

const Route* publishRoute(Route route) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const uint32_t id = r.size.load(std::memory_order_relaxed);
  if (id >= kChunk * kChunks) return nullptr;
  auto& chunk = r.chunks[id / kChunk];
  if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Slot[kChunk], std::memory_order_release);
  Slot& s = chunk.load(std::memory_order_relaxed)[id % kChunk];
  route.id = id;
  s.route = route;
  // The sink knows the route before any thread can meet its id.
  if (r.published) r.published(s.route);
  r.size.store(id + 1, std::memory_order_release);
  return &s.route;
}

void onRoute(void (*published)(const Route&)) noexcept {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.published = published;
  if (!published) return;
  const uint32_t size = r.size.load(std::memory_order_relaxed);
  for (uint32_t id = 1; id < size; ++id) published(r.chunks[id / kChunk].load(std::memory_order_relaxed)[id % kChunk].route);
}

void setMeasured(RouteId id, double seconds) noexcept {
  if (Slot* s = slot(id); s && seconds >= 0) s->measured.store(seconds, std::memory_order_relaxed);
}
double measuredSeconds(RouteId id) noexcept {
  const Slot* s = slot(id);
  return s ? s->measured.load(std::memory_order_relaxed) : -1;
}

}  // namespace flagos::kde

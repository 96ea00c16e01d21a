#include "runtime/telemetry/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <unordered_map>

#include "runtime/base/clock.h"
#include "runtime/telemetry/first_launch.h"

namespace flagos::telemetry {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

// An array that grows by chunks, which never move: readers and hot paths index it without a lock.
template <class T, uint32_t kChunkSize, uint32_t kChunkCount>
class Chunked {
 public:
  T* find(uint32_t i) const noexcept {
    if (i >= kChunkSize * kChunkCount) return nullptr;
    T* chunk = chunks_[i / kChunkSize].load(std::memory_order_acquire);
    return chunk ? &chunk[i % kChunkSize] : nullptr;
  }
  // Null only when memory or ids are used up.
  T* make(uint32_t i) noexcept {
    if (T* t = find(i)) return t;
    if (i >= kChunkSize * kChunkCount) return nullptr;
    T* fresh = new (std::nothrow) T[kChunkSize]();
    if (!fresh) return nullptr;
    T* expected = nullptr;
    if (!chunks_[i / kChunkSize].compare_exchange_strong(expected, fresh, std::memory_order_acq_rel)) {
      delete[] fresh;
      fresh = expected;
    }
    return &fresh[i % kChunkSize];
  }

 private:
  std::array<std::atomic<T*>, kChunkCount> chunks_{};
};

struct MemoryCell { std::atomic<int64_t> live, peak; std::atomic<uint64_t> allocations; };

// A counter of one (site, what): a route, a fallback operator or a copy kind.
enum class What : uint32_t { route, fallback, copy };
struct EventCell {
  uint64_t key;
  // amount: device ns of a route, bytes of the others. timed: calls made while timings ran; launches: kernels timed.
  std::atomic<uint64_t> calls, amount, timed, launches;
};

struct RouteInfo {
  std::atomic<uint32_t> op, kernel, reason, bound, device;
  std::atomic<double> predicted_s;
};

// Union of kernel intervals of one device. Queues run at the same time and timings arrive late, so the last disjoint
// intervals are kept and merged; older ones are settled in `total`.
struct Busy {
  std::mutex mutex;
  struct Span { uint64_t start, end; };
  std::array<Span, 64> spans{};                 // sorted, disjoint
  uint32_t count = 0;
  uint64_t settled_until = 0;
  std::atomic<uint64_t> total{0};

  void add(uint64_t start, uint64_t end) noexcept {
    std::lock_guard lock(mutex);
    start = std::max(start, settled_until);     // too late to know better: never count a moment twice
    if (end <= start) return;
    uint32_t first = 0;
    while (first < count && spans[first].end < start) ++first;
    uint32_t last = first;                      // [first, last) touch the new one
    uint64_t covered = 0, s = start, e = end;
    for (; last < count && spans[last].start <= end; ++last) {
      covered += spans[last].end - spans[last].start;
      s = std::min(s, spans[last].start);
      e = std::max(e, spans[last].end);
    }
    total.fetch_add((e - s) - covered, relaxed);
    if (last == first) {
      if (count == spans.size()) {              // settle the oldest
        if (first == 0) { settled_until = std::max(settled_until, e); return; }
        settled_until = spans[0].end;
        for (uint32_t i = 1; i < count; ++i) spans[i - 1] = spans[i];
        --count, --first;
      }
      for (uint32_t i = count; i > first; --i) spans[i] = spans[i - 1];
      ++count;
    } else {
      for (uint32_t i = last; i < count; ++i) spans[first + 1 + (i - last)] = spans[i];
      count -= last - first - 1;
    }
    spans[first] = {s, e};
  }
  void reset() noexcept {
    std::lock_guard lock(mutex);
    count = 0, settled_until = 0;
    total.store(0, relaxed);
  }
};

struct Recorder {
  std::mutex mutex;                             // guards `index` and growth of `cells`
  std::unordered_map<uint64_t, EventCell*> index;
  Chunked<EventCell, 1024, 4096> cells;
  std::atomic<uint32_t> cell_count{0};
  std::array<Chunked<MemoryCell, 1024, 1024>, kMaxDevices> memory;
  std::atomic<uint32_t> device_count{0};
  Chunked<RouteInfo, 1024, 1024> routes;
  std::array<Busy, kMaxDevices> busy;
  std::atomic<bool> timing{false};
  std::atomic<uint64_t> dropped{0};             // counts lost because memory for a cell ran out
};

Recorder* makeRecorder() {
  // Leaked on purpose: tensors are freed while static destructors run.
  auto* r = new Recorder;
  static Recorder* self = r;
  // A child must not inherit a lock held by a thread that it does not have.
  ::pthread_atfork([] { self->mutex.lock(); for (auto& b : self->busy) b.mutex.lock(); },
                   [] { for (auto& b : self->busy) b.mutex.unlock(); self->mutex.unlock(); },
                   [] { for (auto& b : self->busy) b.mutex.unlock(); self->mutex.unlock(); });
  return r;
}
Recorder& recorder() noexcept {
  static Recorder* const r = makeRecorder();
  return *r;
}
// Made when the library is loaded: were it made first on the server's thread, a fork in that moment would leave the child
// waiting for ever for a construction that nobody ends there.
[[maybe_unused]] const bool g_made = (recorder(), true);

uint32_t deviceSlot(Recorder& r, uint32_t device) noexcept {
  device = std::min(device, kMaxDevices - 1);
  uint32_t n = r.device_count.load(relaxed);
  while (n <= device && !r.device_count.compare_exchange_weak(n, device + 1, relaxed)) {}
  return device;
}

uint64_t keyOf(SiteId site, What what, uint32_t id) noexcept {
  return uint64_t{site} << 32 | static_cast<uint64_t>(what) << 30 | (id & 0x3fffffffu);
}

EventCell* findCell(Recorder& r, uint64_t key) noexcept {
  std::lock_guard lock(r.mutex);
  if (const auto it = r.index.find(key); it != r.index.end()) return it->second;
  const uint32_t i = r.cell_count.load(relaxed);
  EventCell* cell = r.cells.make(i);
  if (!cell) return nullptr;
  cell->key = key;
  try {
    r.index.emplace(key, cell);
  } catch (...) {
    return nullptr;
  }
  r.cell_count.store(i + 1, std::memory_order_release);
  return cell;
}

// Per thread, direct-mapped; plain data, so that it needs no destructor when a thread ends. Cells live for ever.
struct CacheEntry { uint64_t key; EventCell* cell; };
constexpr uint32_t kCacheBits = 10;
thread_local CacheEntry t_cache[1u << kCacheBits];

EventCell* cellOf(Recorder& r, SiteId site, What what, uint32_t id) noexcept {
  const uint64_t key = keyOf(site, what, id);
  CacheEntry& e = t_cache[(key * 0x9e3779b97f4a7c15u) >> (64 - kCacheBits)];
  if (e.key == key && e.cell) return e.cell;
  EventCell* cell = findCell(r, key);
  if (cell) e = {key, cell};
  else r.dropped.fetch_add(1, relaxed);
  return cell;
}

void count(SiteId site, What what, uint32_t id, uint64_t amount) noexcept {
  if (EventCell* c = cellOf(recorder(), site, what, id)) {
    c->calls.fetch_add(1, relaxed);
    if (amount) c->amount.fetch_add(amount, relaxed);
  }
}

}  // namespace

void defineRoute(RouteId id, NameId op, NameId kernel, NameId reason, double predicted_s, NameId bound, uint32_t device) {
  RouteInfo* i = recorder().routes.make(id);
  if (!i) return;
  i->op.store(op, relaxed);
  i->kernel.store(kernel, relaxed);
  i->reason.store(reason, relaxed);
  i->bound.store(bound, relaxed);
  i->device.store(deviceSlot(recorder(), device), relaxed);
  i->predicted_s.store(predicted_s, relaxed);
}

void countAlloc(uint32_t device, SiteId site, uint64_t bytes) noexcept {
  Recorder& r = recorder();
  MemoryCell* c = r.memory[deviceSlot(r, device)].make(site);
  if (!c) { r.dropped.fetch_add(1, relaxed); return; }
  // Every allocation sees the sum it made, so the largest of them is the exact peak.
  const int64_t live = c->live.fetch_add(static_cast<int64_t>(bytes), relaxed) + static_cast<int64_t>(bytes);
  int64_t peak = c->peak.load(relaxed);
  while (live > peak && !c->peak.compare_exchange_weak(peak, live, relaxed)) {}
  c->allocations.fetch_add(1, relaxed);
}

void countFree(uint32_t device, SiteId site, uint64_t bytes) noexcept {
  Recorder& r = recorder();
  if (MemoryCell* c = r.memory[deviceSlot(r, device)].make(site)) c->live.fetch_sub(static_cast<int64_t>(bytes), relaxed);
}

void countCall(SiteId site, RouteId route) noexcept {
  Recorder& r = recorder();
  if (EventCell* c = cellOf(r, site, What::route, route)) {
    c->calls.fetch_add(1, relaxed);
    if (r.timing.load(relaxed)) c->timed.fetch_add(1, relaxed);
  }
}
void countFallback(SiteId site, NameId op, uint64_t bytes) noexcept { count(site, What::fallback, op, bytes); }
void countCopy(SiteId site, CopyKind kind, uint64_t bytes) noexcept {
  count(site, What::copy, static_cast<uint32_t>(kind), bytes);
}

void addDeviceTime(SiteId site, RouteId route, uint64_t start_ns, uint64_t end_ns, NameId kernel, bool first) noexcept {
  if (end_ns < start_ns) return;                // a driver that reports such a pair has no profile for it
  Recorder& r = recorder();
  if (EventCell* c = cellOf(r, site, What::route, route)) {
    c->amount.fetch_add((end_ns - start_ns) * launchesTimed(site, route, kernel, first), relaxed);
    c->launches.fetch_add(1, relaxed);
  }
  const RouteInfo* info = r.routes.find(route);
  r.busy[deviceSlot(r, info ? info->device.load(relaxed) : 0)].add(start_ns, end_ns);
}

bool timingWanted() noexcept { return recorder().timing.load(relaxed); }
void setTimingWanted(bool on) noexcept { recorder().timing.store(on, relaxed); }
uint64_t deviceBusyNs(uint32_t device) noexcept {
  return device < kMaxDevices ? recorder().busy[device].total.load(relaxed) : 0;
}

Counters readCounters() {
  Recorder& r = recorder();
  Counters out;
  out.t_ns = nowNs();
  const uint32_t devices = r.device_count.load(relaxed);
  const SiteId sites = siteCount();
  // Rows of (site, device) by position, to credit the calls of routes to them.
  std::unordered_map<uint64_t, size_t> row;
  for (uint32_t d = 0; d < devices; ++d) {
    for (SiteId s = 0; s <= sites; ++s) {
      const MemoryCell* c = r.memory[d].find(s);
      if (!c) { s |= 1023u; continue; }         // no cell of this chunk exists
      const uint64_t allocations = c->allocations.load(relaxed);
      const int64_t live = c->live.load(relaxed), peak = c->peak.load(relaxed);
      if (!allocations && !live) continue;
      row.emplace(uint64_t{d} << 32 | s, out.sites.size());
      out.sites.push_back({s, d, static_cast<uint64_t>(std::max<int64_t>(live, 0)),
                           static_cast<uint64_t>(std::max(peak, live)), allocations, 0, 0, 0, 0});
    }
    out.device_busy_ns.push_back(r.busy[d].total.load(relaxed));
  }
  const uint32_t cells = r.cell_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < cells; ++i) {
    const EventCell& c = *r.cells.find(i);
    const uint64_t calls = c.calls.load(relaxed), amount = c.amount.load(relaxed), timed = c.timed.load(relaxed),
                   launches = c.launches.load(relaxed);
    if (!calls && !launches) continue;
    const auto site = static_cast<SiteId>(c.key >> 32);
    const auto id = static_cast<uint32_t>(c.key & 0x3fffffffu);
    switch (static_cast<What>(c.key >> 30 & 3u)) {
      case What::fallback: out.fallbacks.push_back({site, id, calls, amount}); break;
      case What::copy: out.copies.push_back({site, static_cast<CopyKind>(id), calls, amount}); break;
      case What::route: {
        RouteCounters rc{site, id, 0, 0, 0, 0, -1, calls, amount, timed, launches, 0};
        if (const RouteInfo* info = r.routes.find(id)) {
          rc.op = info->op.load(relaxed), rc.kernel = info->kernel.load(relaxed), rc.reason = info->reason.load(relaxed);
          rc.bound = info->bound.load(relaxed), rc.device = info->device.load(relaxed);
          rc.predicted_s = rc.op ? info->predicted_s.load(relaxed) : -1;
        }
        out.routes.push_back(rc);
        const auto [it, fresh] = row.emplace(uint64_t{rc.device} << 32 | site, out.sites.size());
        if (fresh) out.sites.push_back({site, rc.device, 0, 0, 0, 0, 0, 0, 0});
        SiteCounters& s = out.sites[it->second];
        s.calls += calls, s.device_ns += amount, s.timed_calls += timed, s.launches += launches;
      }
    }
  }
  return out;
}

void resetForTest() {
  forgetFirstLaunches();
  Recorder& r = recorder();
  for (uint32_t d = 0; d < kMaxDevices; ++d) {
    r.busy[d].reset();
    for (SiteId s = 0; s <= siteCount(); ++s) {
      MemoryCell* c = r.memory[d].find(s);
      if (!c) { s |= 1023u; continue; }
      c->live.store(0, relaxed), c->peak.store(0, relaxed), c->allocations.store(0, relaxed);
    }
  }
  for (uint32_t i = 0, n = r.cell_count.load(std::memory_order_acquire); i < n; ++i) {
    EventCell* c = r.cells.find(i);
    if (!c) break;
    c->calls.store(0, relaxed), c->amount.store(0, relaxed), c->timed.store(0, relaxed), c->launches.store(0, relaxed);
  }
  r.timing.store(false, relaxed);
}

}  // namespace flagos::telemetry

// The table of source sites and of source files.
#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runtime/telemetry/recorder.h"

namespace flagos::telemetry {
namespace {

constexpr uint32_t kChunk = 1024, kChunks = 1024;

struct Entry { Site site; std::atomic<SiteId> twin{0}; };
struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, SiteId> ids;
  std::array<std::atomic<Entry*>, kChunks> chunks{};
  std::atomic<uint32_t> count{0};               // ids 1 .. count are published
  std::vector<File> files;
};

Table* makeTable() {
  auto* t = new Table;                          // leaked: read while static destructors run
  static Table* self = t;
  ::pthread_atfork([] { self->mutex.lock(); }, [] { self->mutex.unlock(); }, [] { self->mutex.unlock(); });
  return t;
}
Table& table() noexcept {
  static Table* const t = makeTable();
  return *t;
}
[[maybe_unused]] const bool g_made = (table(), true);   // at load, never in the middle of a fork

Entry* entry(SiteId id) noexcept {
  Table& t = table();
  if (id == 0 || id > t.count.load(std::memory_order_acquire)) return nullptr;
  return &t.chunks[id / kChunk].load(std::memory_order_acquire)[id % kChunk];
}

std::string keyOf(const Site& s) {
  std::string k = s.file;
  k += '\0';
  k += s.qualname;
  for (const int64_t n : {int64_t{s.line}, int64_t{s.end_line}, int64_t{s.column}, int64_t{s.end_column},
                          static_cast<int64_t>(s.call_hash), int64_t{s.backward_of}})
    k += '\0' + std::to_string(n);
  return k;
}

}  // namespace

SiteId internSite(const Site& s) {
  Table& t = table();
  const std::string key = keyOf(s);
  std::lock_guard lock(t.mutex);
  if (const auto it = t.ids.find(key); it != t.ids.end()) return it->second;
  const uint32_t id = t.count.load(std::memory_order_relaxed) + 1;
  if (id >= kChunk * kChunks) return 0;         // a million lines: the rest is "not attributed"
  auto& chunk = t.chunks[id / kChunk];
  if (!chunk.load(std::memory_order_relaxed)) chunk.store(new Entry[kChunk], std::memory_order_release);
  chunk.load(std::memory_order_relaxed)[id % kChunk].site = s;
  t.ids.emplace(key, id);
  t.count.store(id, std::memory_order_release);
  return id;
}

SiteId backwardSite(SiteId forward) {
  Entry* e = entry(forward);
  if (!e) return 0;
  if (e->site.backward_of) return forward;      // double backward stays with the same forward line
  if (const SiteId twin = e->twin.load(std::memory_order_acquire)) return twin;
  Site s = e->site;
  s.backward_of = forward;
  const SiteId twin = internSite(s);
  e->twin.store(twin, std::memory_order_release);
  return twin;
}

const Site* site(SiteId id) noexcept {
  const Entry* e = entry(id);
  return e ? &e->site : nullptr;
}
SiteId siteCount() noexcept { return table().count.load(std::memory_order_acquire); }

void recordFile(const File& f) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  for (const File& have : t.files)
    if (have.path == f.path) return;
  t.files.push_back(f);
}
std::vector<File> recordedFiles() {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.files;
}

}  // namespace flagos::telemetry

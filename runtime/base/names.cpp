#include "runtime/base/names.h"

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

namespace flagos {
namespace {
// Chunks never move, so readers need no lock: an id is published after its slot is written.
constexpr uint32_t kChunk = 1024, kChunks = 4096;
struct Table {
  std::mutex mutex;
  std::unordered_map<std::string_view, NameId> ids;
  std::array<std::atomic<std::string*>, kChunks> chunks{};
  std::atomic<uint32_t> size{1};
};
// Leaked on purpose: other threads may still read names while static destructors run.
Table& table() {
  static Table* t = new Table;
  return *t;
}
[[maybe_unused]] const bool g_made = (table(), true);   // at load, never on another thread in the middle of a fork
}  // namespace

NameId internName(std::string_view text) {
  if (text.empty()) return 0;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  if (const auto it = t.ids.find(text); it != t.ids.end()) return it->second;
  const uint32_t id = t.size.load(std::memory_order_relaxed);
  if (id >= kChunk * kChunks) return 0;
  auto& chunk = t.chunks[id / kChunk];
  if (!chunk.load(std::memory_order_relaxed)) chunk.store(new std::string[kChunk], std::memory_order_release);
  std::string& slot = chunk.load(std::memory_order_relaxed)[id % kChunk];
  slot.assign(text);
  t.ids.emplace(slot, id);
  t.size.store(id + 1, std::memory_order_release);
  return id;
}

std::string_view nameText(NameId id) noexcept {
  Table& t = table();
  if (id == 0 || id >= t.size.load(std::memory_order_acquire)) return {};
  return t.chunks[id / kChunk].load(std::memory_order_acquire)[id % kChunk];
}

}  // namespace flagos

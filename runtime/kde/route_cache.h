// Signature -> route, read without a lock: open addressing over entries that are never freed while the cache lives.
// An entry's route belongs to an epoch of the rules; an older one counts as a miss and is written again in place.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "runtime/kde/router.h"

namespace flagos::kde {

class RouteCache {
 public:
  struct Entry {
    uint64_t hash = 0;
    Signature signature;
    std::atomic<uint32_t> epoch{0};
    std::atomic<const Route*> busy{nullptr}, idle{nullptr};   // by the state of the queue; mostly the same route
    std::vector<const Route*> history;                        // all it ever had; under the writer's lock
  };

  RouteCache() { grow(1024); }

  // Hot; any thread. Null: no entry.
  Entry* find(const Signature& s, uint64_t hash) const noexcept {
    const Table* t = table_.load(std::memory_order_acquire);
    for (uint64_t i = hash & t->mask;; i = (i + 1) & t->mask) {
      Entry* e = t->slots[i].load(std::memory_order_acquire);
      if (!e) return nullptr;
      if (e->hash == hash && e->signature == s) return e;
    }
  }

  // Under the writer's lock. The table stays at most half full, so that find always meets a gap.
  Entry* insert(const Signature& s, uint64_t hash) {
    if ((entries_.size() + 1) * 2 > table_.load(std::memory_order_relaxed)->mask) grow((entries_.size() + 1) * 4);
    auto e = std::make_unique<Entry>();
    e->hash = hash;
    e->signature = s;
    entries_.push_back(std::move(e));
    put(*table_.load(std::memory_order_relaxed), entries_.back().get());
    return entries_.back().get();
  }
  size_t size() const noexcept { return entries_.size(); }

 private:
  struct Table {
    explicit Table(uint64_t capacity) : mask(capacity - 1), slots(capacity) {}
    const uint64_t mask;
    std::vector<std::atomic<Entry*>> slots;
  };
  static void put(Table& t, Entry* e) noexcept {
    uint64_t i = e->hash & t.mask;
    while (t.slots[i].load(std::memory_order_relaxed)) i = (i + 1) & t.mask;
    t.slots[i].store(e, std::memory_order_release);
  }
  void grow(size_t wanted) {
    uint64_t capacity = 1024;
    while (capacity < wanted) capacity *= 2;
    auto t = std::make_unique<Table>(capacity);
    for (const auto& e : entries_) put(*t, e.get());
    table_.store(t.get(), std::memory_order_release);
    tables_.push_back(std::move(t));   // readers may still be in an older one
  }

  std::atomic<Table*> table_{nullptr};
  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace flagos::kde

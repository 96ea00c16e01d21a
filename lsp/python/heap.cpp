#include "lsp/python/heap.h"

namespace flagos::lsp {

ObjectId Heap::make(ObjectId parent) {
  objects_.emplace_back();
  objects_.back().parent = parent;
  return static_cast<ObjectId>(objects_.size() - 1);
}

Value Heap::get(ObjectId id, const std::string& slot) const {
  const auto& slots = objects_[id].slots;
  const auto it = slots.find(slot);
  return it == slots.end() ? nullptr : it->second;
}

void Heap::set(ObjectId id, const std::string& slot, Value v) {
  auto& current = objects_[id].slots[slot];
  journal_.push_back({id, slot, current});
  current = std::move(v);
}

Delta Heap::since(size_t mark) const {
  Delta out;
  for (size_t i = mark; i < journal_.size(); ++i) {
    const auto& e = journal_[i];
    out[{e.id, e.slot}] = objects_[e.id].slots.find(e.slot)->second;
  }
  return out;
}

void Heap::rollback(size_t mark) {
  while (journal_.size() > mark) {
    auto& e = journal_.back();
    objects_[e.id].slots[e.slot] = std::move(e.before);
    journal_.pop_back();
  }
}

void Heap::keepNew(size_t mark, ObjectId first) {
  size_t kept = mark;
  for (size_t i = mark; i < journal_.size(); ++i) {
    if (journal_[i].id >= first) continue;
    if (kept != i) journal_[kept] = std::move(journal_[i]);
    ++kept;
  }
  journal_.resize(kept);
}

void Heap::merge(const std::vector<Delta>& paths) {
  std::map<std::pair<ObjectId, std::string>, Value> result;
  for (const auto& path : paths) {
    for (const auto& [key, value] : path) {
      if (result.count(key)) continue;
      Value joined;
      bool missing = false;
      for (const auto& other : paths) {
        const auto it = other.find(key);
        const Value v = it != other.end() ? it->second : get(key.first, key.second);
        if (v) joined = join(joined, v); else missing = true;
      }
      (void)missing;  // unbound on one path: the program would fail there, so the other path is what counts
      result.emplace(key, joined);
    }
  }
  for (auto& [key, value] : result) set(key.first, key.second, std::move(value));
}

}  // namespace flagos::lsp

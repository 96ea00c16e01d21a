#include "lsp/python/heap.h"

#include <algorithm>

namespace flagos::lsp {
namespace {
constexpr size_t kIndexFrom = 12;

bool before(const Change& a, const Change& b) { return a.id != b.id ? a.id < b.id : std::less<>()(a.slot, b.slot); }
}  // namespace

const Value* Slots::find(SlotName name) const {
  if (index_) {
    const auto it = index_->find(name);
    return it == index_->end() ? nullptr : &entries_[it->second].value;
  }
  for (const auto& e : entries_) if (e.name == name) return &e.value;
  return nullptr;
}

Value& Slots::operator[](SlotName name) {
  if (const Value* v = find(name)) return const_cast<Value&>(*v);
  entries_.push_back({name, nullptr});
  if (index_) {
    index_->emplace(name, static_cast<uint32_t>(entries_.size() - 1));
  } else if (entries_.size() >= kIndexFrom) {
    index_ = std::make_unique<std::unordered_map<SlotName, uint32_t>>();
    for (size_t i = 0; i < entries_.size(); ++i) index_->emplace(entries_[i].name, static_cast<uint32_t>(i));
  }
  return entries_.back().value;
}

ObjectId Heap::make(ObjectId parent) {
  ObjectId id;
  if (!free_.empty()) {
    id = free_.back();
    free_.pop_back();
  } else {
    id = static_cast<ObjectId>(objects_.size());
    objects_.emplace_back();
  }
  Object& o = objects_[id];
  o.parent = parent;
  o.owner = owner_;
  o.serial = ++serial_;
  owned_[owner_].push_back(id);
  return id;
}

const Value& Heap::get(ObjectId id, SlotName slot) const {
  static const Value nothing;
  const Value* v = slot ? objects_[id].slots.find(slot) : nullptr;
  return v ? *v : nothing;
}

Value Heap::get(ObjectId id, std::string_view slot) const { return get(id, knownName(slot)); }

void Heap::set(ObjectId id, SlotName slot, Value v) {
  Value& current = objects_[id].slots[slot];
  journal_.push_back({id, slot, std::move(current)});
  current = std::move(v);
}

Delta Heap::since(size_t mark) const {
  Delta out;
  out.reserve(journal_.size() - mark);
  for (size_t i = mark; i < journal_.size(); ++i) out.push_back({journal_[i].id, journal_[i].slot, nullptr});
  std::sort(out.begin(), out.end(), before);
  out.erase(std::unique(out.begin(), out.end(), [](const Change& a, const Change& b) { return a.id == b.id && a.slot == b.slot; }),
            out.end());
  for (auto& c : out) c.value = *objects_[c.id].slots.find(c.slot);
  return out;
}

void Heap::rollback(size_t mark) {
  while (journal_.size() > mark) {
    auto& e = journal_.back();
    objects_[e.id].slots[e.slot] = std::move(e.before);
    journal_.pop_back();
  }
}

namespace {

// What PyTorch does where nothing was set: the machine's slots are never unbound.
Value unset(ObjectId id, SlotName slot) {
  if (id != 0) return nullptr;
  if (*slot == "$default") return deviceValue("cpu", {});
  if (slot->starts_with("$current:")) return deviceValue(slot->substr(9) + ":0", {});
  return nullptr;
}

}  // namespace

void Heap::merge(const std::vector<Delta>& paths) {
  if (paths.size() == 1) { apply(paths[0]); return; }
  std::vector<size_t> at(paths.size(), 0);
  while (true) {
    const Change* least = nullptr;
    for (size_t p = 0; p < paths.size(); ++p)
      if (at[p] < paths[p].size() && (!least || before(paths[p][at[p]], *least))) least = &paths[p][at[p]];
    if (!least) return;
    const ObjectId id = least->id;
    const SlotName slot = least->slot;
    const Value now = get(id, slot);
    Value joined;  // unbound on one path: the program would fail there, so the other path is what counts
    for (size_t p = 0; p < paths.size(); ++p) {
      const bool touched = at[p] < paths[p].size() && paths[p][at[p]].id == id && paths[p][at[p]].slot == slot;
      const Value& v = touched ? paths[p][at[p]++].value : now;
      if (v) joined = join(joined, v);
      else if (const Value otherwise = unset(id, slot)) joined = join(joined, otherwise);
    }
    set(id, slot, std::move(joined));
  }
}

bool Heap::wroteOlder(size_t mark, uint64_t serial) const {
  return std::any_of(journal_.begin() + static_cast<std::ptrdiff_t>(mark), journal_.end(),
                     [&](const Entry& e) { return objects_[e.id].serial <= serial; });
}

uint32_t Heap::own(uint32_t owner) { return std::exchange(owner_, owner); }

std::unique_ptr<Heap::Suspended> Heap::suspend() {
  auto s = std::make_unique<Suspended>();
  s->journal = std::move(journal_);
  journal_.clear();
  for (auto it = s->journal.rbegin(); it != s->journal.rend(); ++it)
    if (objects_[it->id].owner == 0) std::swap(objects_[it->id].slots[it->slot], it->before);
  return s;
}

void Heap::resume(std::unique_ptr<Suspended> s) {
  for (auto& e : s->journal)
    if (objects_[e.id].owner == 0) std::swap(objects_[e.id].slots[e.slot], e.before);
  s->journal.insert(s->journal.end(), std::make_move_iterator(journal_.begin()), std::make_move_iterator(journal_.end()));
  journal_ = std::move(s->journal);
}

Delta Heap::settle(uint32_t owner) {
  Delta effects = since(0);
  std::erase_if(effects, [&](const Change& c) { return objects_[c.id].owner == owner; });
  while (!journal_.empty()) {
    auto& e = journal_.back();
    if (objects_[e.id].owner != owner) objects_[e.id].slots[e.slot] = std::move(e.before);
    journal_.pop_back();
  }
  return effects;
}

void Heap::release(uint32_t owner) {
  const auto it = owned_.find(owner);
  if (it == owned_.end()) return;
  for (const ObjectId id : it->second) {
    objects_[id] = {};
    free_.push_back(id);
  }
  owned_.erase(it);
}

}  // namespace flagos::lsp

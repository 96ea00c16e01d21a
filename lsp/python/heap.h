// Objects with identity, and the journal that lets the analysis run one branch, put everything back, run the other, and
// join what both left behind. Cost is proportional to what a branch writes.
//
// One heap lives as long as a workspace's cache of executed modules (python/modules.h): each object has an owner, so that
// what belongs to an analysis can be dropped and what belongs to a module stays. Single-threaded.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lsp/python/names.h"
#include "lsp/python/value.h"

namespace flagos::lsp {

using ObjectId = uint32_t;

// Named values in the order in which the names first appeared.
class Slots {
 public:
  struct Entry { SlotName name; Value value; };
  class Iterator {
   public:
    explicit Iterator(const Entry* e) : e_(e) {}
    std::pair<const std::string&, const Value&> operator*() const { return {*e_->name, e_->value}; }
    Iterator& operator++() { ++e_; return *this; }
    bool operator!=(const Iterator& o) const { return e_ != o.e_; }
   private:
    const Entry* e_;
  };
  Slots() = default;
  Slots(const Slots& o) : entries_(o.entries_) {}
  Slots(Slots&&) = default;
  Slots& operator=(Slots&&) = default;
  Iterator begin() const { return Iterator(entries_.data()); }
  Iterator end() const { return Iterator(entries_.data() + entries_.size()); }
  const Value* find(SlotName name) const;
  Value& operator[](SlotName name);
  void clear() { entries_.clear(); index_.reset(); }

 private:
  std::vector<Entry> entries_;
  std::unique_ptr<std::unordered_map<SlotName, uint32_t>> index_;   // once there are many
};

struct Object {
  Value cls;                                     // instances: class_ or external
  ObjectId parent = 0;                           // scopes: the enclosing scope
  uint32_t owner = 0;                            // who made it: 0 = the analysis that runs, else a module's number
  uint64_t serial = 0;                           // objects made later have a greater one
  const Node* born = nullptr;
  Slots slots;
};

// What a branch changed: (object, slot) -> its value at the branch's end (null: deleted). Sorted by object and slot.
struct Change { ObjectId id; SlotName slot; Value value; };
using Delta = std::vector<Change>;

class Heap {
 public:
  Heap() { objects_.resize(1); }                 // 0: the machine (default device, current device)
  ObjectId make(ObjectId parent = 0);
  Object& at(ObjectId id) { return objects_[id]; }
  const Object& at(ObjectId id) const { return objects_[id]; }
  size_t size() const { return objects_.size(); }
  Value get(ObjectId id, std::string_view slot) const;
  void set(ObjectId id, std::string_view slot, Value v) { set(id, internName(slot), std::move(v)); }
  void set(ObjectId id, SlotName slot, Value v);
  // The value itself, not a copy: it may change with the next set().
  const Value& get(ObjectId id, SlotName slot) const;

  size_t mark() const { return journal_.size(); }
  uint64_t serial() const { return serial_; }    // of the object made last
  // Whether anything since the mark was written to an object that was there before `serial`.
  bool wroteOlder(size_t mark, uint64_t serial) const;
  template <typename F> void forEachOlder(size_t mark, uint64_t serial, F&& fn) const {
    for (size_t i = mark; i < journal_.size(); ++i) if (objects_[journal_[i].id].serial <= serial) fn(journal_[i].id, journal_[i].slot);
  }
  Delta since(size_t mark) const;
  void rollback(size_t mark);
  // After a rollback: every slot that some path touched becomes the join over all paths.
  void merge(const std::vector<Delta>& paths);
  void apply(const Delta& delta) { for (const auto& c : delta) set(c.id, c.slot, c.value); }

  // ---- owners ----
  // Objects made from now on belong to `owner`; returns the owner before.
  uint32_t own(uint32_t owner);
  // Undoes what the running analysis wrote to its own objects and to the machine, keeping it aside; resume() does it
  // again. Between the two a module runs as if nobody had asked for it yet (but sees the modules that wait for it half
  // done, as in Python), and marks start from 0.
  struct Suspended;
  std::unique_ptr<Suspended> suspend();
  void resume(std::unique_ptr<Suspended> s);
  // What the journal holds on objects of other owners, as a delta, and rolled back; the rest is forgotten (it stays).
  Delta settle(uint32_t owner);
  // Empties every object of this owner; their numbers are used again.
  void release(uint32_t owner);

 private:
  struct Entry { ObjectId id; SlotName slot; Value before; };
  std::deque<Object> objects_;
  std::vector<Entry> journal_;
  std::unordered_map<uint32_t, std::vector<ObjectId>> owned_;
  std::vector<ObjectId> free_;
  uint32_t owner_ = 0;
  uint64_t serial_ = 0;
};

struct Heap::Suspended { std::vector<Entry> journal; };

}  // namespace flagos::lsp

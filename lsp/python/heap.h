// Objects with identity, and the journal that lets the analysis run one branch, put everything back, run the other, and
// join what both left behind. Cost is proportional to what a branch writes.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "lsp/python/value.h"

namespace flagos::lsp {

using ObjectId = uint32_t;

struct Object {
  Value cls;                                     // instances: class_ or external
  ObjectId parent = 0;                           // scopes: the enclosing scope
  const Node* born = nullptr;
  std::unordered_map<std::string, Value> slots;
};

// What a branch changed: (object, slot) -> its value at the branch's end (null: deleted).
using Delta = std::map<std::pair<ObjectId, std::string>, Value>;

class Heap {
 public:
  Heap() { objects_.resize(1); }                 // 0: the machine (default device, current device)
  ObjectId make(ObjectId parent = 0);
  Object& at(ObjectId id) { return objects_[id]; }
  const Object& at(ObjectId id) const { return objects_[id]; }
  size_t size() const { return objects_.size(); }
  Value get(ObjectId id, const std::string& slot) const;
  void set(ObjectId id, const std::string& slot, Value v);

  size_t mark() const { return journal_.size(); }
  Delta since(size_t mark) const;
  void rollback(size_t mark);
  // Forgets what the journal holds on objects made at or after `first`: a module that was imported inside a branch stays.
  void keepNew(size_t mark, ObjectId first);
  // After a rollback: every slot that some path touched becomes the join over all paths.
  void merge(const std::vector<Delta>& paths);

 private:
  struct Entry { ObjectId id; std::string slot; Value before; };
  std::deque<Object> objects_;
  std::vector<Entry> journal_;
};

}  // namespace flagos::lsp

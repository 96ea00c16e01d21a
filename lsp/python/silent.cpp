// Calls that need not be followed again: the function was followed several times, at a cost, without any news about
// devices, and nothing that goes in, comes out or is written has to do with one. Deep call trees that only handle text and
// numbers would otherwise use up the whole budget.
//
// A function of another file that is dear is not followed again either, as long as it cannot call back into this one.
//
// What such a call would have left (attributes that the runs before wrote) becomes unknown, with this reason; it never
// keeps an old value.
#include <algorithm>

#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {
constexpr int kRuns = 3;                   // followed so often without news
constexpr size_t kSteps = 600;             // and so many steps were spent on it; below that it costs nothing
constexpr size_t kDear = 8'000;
constexpr size_t kMaxSlots = 48;           // of an object that is looked through
constexpr size_t kMaxWrites = 256;
constexpr int kMaxLooks = 3;               // objects inside objects
}  // namespace

// Nothing that a device, a tensor or, where `calls` matter, a callback could come from.
bool Interp::carriesNothing(const Value& v, bool calls, int looks) const {
  if (!v) return true;
  if (v->loader || v->late || v->device) return false;
  const auto all = [&](const std::vector<Value>& items) {
    return items.size() <= kMaxSlots && std::all_of(items.begin(), items.end(), [&](const Value& i) { return i == v || carriesNothing(i, calls, looks); });
  };
  switch (v->kind) {
    case V::unknown: case V::none: case V::boolean: case V::integer: case V::real: return true;
    case V::string: return !isDeviceString(v->text);
    case V::runtime: return !isDeviceString(deviceType(std::string_view(v->text).substr(0, v->text.find('<'))));
    case V::tuple: case V::list: case V::union_: case V::class_: return all(v->items);
    case V::iterable: return carriesNothing(v->self, calls, looks);
    case V::external: return !calls || v->text.find("torch") == std::string::npos;
    case V::function: case V::bound: case V::partial: return !calls && carriesNothing(v->self, calls, looks);
    case V::module: case V::forward: return !calls;
    case V::dict: case V::instance: {
      // What hangs deeper was there when the function was followed, too.
      if (looks >= kMaxLooks) return true;
      const Object& o = heap_.at(v->object);
      if (o.cls && !is(o.cls, V::class_)) return false;
      size_t seen = 0;
      for (const auto& [name, value] : o.slots) {
        if (++seen > kMaxSlots || (name[0] == '$' && name != "$any" && name != "$element")) return false;
        if (value && value->object == v->object) continue;
        if (!carriesNothing(value, calls, looks + 1)) return false;
      }
      return true;
    }
    default: return false;
  }
}

// Whether code of the file that is analysed could be called through this value.
bool Interp::leadsBack(const Value& v, int looks) const {
  if (!v || looks > kMaxLooks) return false;
  const auto any = [&](const std::vector<Value>& items) {
    return std::any_of(items.begin(), items.end(), [&](const Value& i) { return i != v && leadsBack(i, looks + 1); });
  };
  switch (v->kind) {
    case V::function: case V::class_: return v->unit == unit_.get() || any(v->items);
    case V::module: case V::forward: return v->unit == unit_.get();
    case V::instance: case V::dict: {
      const Object& o = heap_.at(v->object);
      if (leadsBack(o.cls, looks)) return true;
      size_t seen = 0;
      for (const auto& [name, value] : o.slots) if (++seen > kMaxSlots || (value && value->object != v->object && leadsBack(value, looks + 1))) return true;
      return false;
    }
    default: return any(v->items) || leadsBack(v->self, looks + 1);
  }
}

bool Interp::worthFollowing(const Value& fn, const Args& args, const Value& self) const {
  const auto it = followed_.find(fn->node);
  if (it == followed_.end() || it->second.runs < kRuns || it->second.steps < kSteps || it->second.writes.size() > kMaxWrites) return true;
  const Followed& f = it->second;
  const auto all = [&](auto&& test) { return test(self) && std::all_of(args.list.begin(), args.list.end(), [&](const Arg& a) { return test(a.value); }); };
  if (!f.loud && args.stars.empty() && all([&](const Value& v) { return carriesNothing(v, true); })) return false;
  // Another file's function that takes a good part of the budget: its result is not known then, which is no wrong answer.
  return fn->unit == unit_.get() || f.steps < kDear || !all([&](const Value& v) { return !leadsBack(v); });
}

void Interp::wasFollowed(const Node* def, size_t steps, bool news, size_t mark, uint64_t serial, const Value& result) {
  Followed& f = followed_[def];
  f.runs = news ? 0 : f.runs + 1;
  f.steps += steps;
  f.loud = f.loud || !carriesNothing(result, false);
  heap_.forEachOlder(mark, serial, [&](ObjectId id, SlotName slot) {
    if ((id == 0 && *slot == "$used") || f.writes.size() > kMaxWrites) return;
    f.loud = f.loud || id == 0 || !carriesNothing(heap_.get(id, slot), false);
    f.writes.try_emplace({id, slot}, heap_.at(id).cls);
  });
}

Value Interp::notFollowed(const Node* def, const Args& args, const Value& self) {
  const Value v = unknown("`" + std::string(def->text) + "` is not followed again: nothing new about devices was seen in it");
  const auto& writes = followed_[def].writes;
  if (writes.empty()) return v;
  for (const auto& [to, cls] : writes) heap_.set(to.first, to.second, v);
  // Where this call has other objects of the same kinds, it would have written to those.
  std::vector<ObjectId> seen;
  const std::function<void(const Value&, int)> forget = [&](const Value& x, int looks) {
    if (!x || looks > kMaxLooks) return;
    for (const auto& i : x->items) forget(i, looks);
    if ((x->kind != V::instance && x->kind != V::dict) || std::find(seen.begin(), seen.end(), x->object) != seen.end()) return;
    seen.push_back(x->object);
    for (const auto& [name, value] : heap_.at(x->object).slots) forget(value, looks + 1);
    for (const auto& [to, cls] : writes) if (cls == heap_.at(x->object).cls) heap_.set(x->object, to.second, v);
  };
  forget(self, 0);
  for (const auto& a : args.list) forget(a.value, 0);
  return v;
}

}  // namespace flagos::lsp

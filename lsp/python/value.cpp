#include "lsp/python/value.h"

#include <algorithm>
#include <array>

namespace flagos::lsp {
namespace {
constexpr size_t kMaxAlternatives = 16;

std::shared_ptr<Val> make(V kind) {
  auto v = std::make_shared<Val>();
  v->kind = kind;
  return v;
}
}  // namespace

Value unknown(std::string reason) { auto v = make(V::unknown); v->text = std::move(reason); return v; }
Value none() { static const Value v = make(V::none); return v; }
Value boolean(bool b) {
  static const Value yes = [] { auto v = make(V::boolean); v->number = 1; return v; }();
  static const Value no = make(V::boolean);
  return b ? yes : no;
}
Value integer(int64_t n) { auto v = make(V::integer); v->number = n; return v; }
Value string(std::string s, Origin o) { auto v = make(V::string); v->text = std::move(s); v->origin = std::move(o); return v; }
Value deviceValue(std::string name, Origin o) { auto v = make(V::device); v->text = std::move(name); v->origin = std::move(o); return v; }
Value runtimeValue(std::string e, Origin o) { auto v = make(V::runtime); v->text = std::move(e); v->origin = std::move(o); return v; }
Value external(std::string dotted) { auto v = make(V::external); v->text = std::move(dotted); return v; }
Value tuple(std::vector<Value> items) { auto v = make(V::tuple); v->items = std::move(items); return v; }
Value list(std::vector<Value> items) { auto v = make(V::list); v->items = std::move(items); return v; }
Value iterableOf(Value element) { auto v = make(V::iterable); v->self = std::move(element); return v; }
Value tensorOn(Value device) { auto v = make(V::tensor); v->device = std::move(device); return v; }

Value withOrigin(const Value& v, Origin o) {
  auto copy = std::make_shared<Val>(*v);
  copy->origin = std::move(o);
  return copy;
}

bool same(const Value& a, const Value& b) {
  if (a == b) return true;
  if (!a || !b || a->kind != b->kind) return false;
  if (a->text != b->text || a->number != b->number || a->real != b->real || a->object != b->object || a->node != b->node)
    return false;
  if (!(a->origin == b->origin) || a->items.size() != b->items.size() || a->dtype != b->dtype || a->shape != b->shape ||
      a->made_by != b->made_by || a->named.size() != b->named.size())
    return false;
  if (a->graph != b->graph || a->dims != b->dims || a->pinned != b->pinned || a->loader != b->loader || a->late != b->late) return false;
  if (!same(a->device, b->device) || !same(a->self, b->self)) return false;
  for (size_t i = 0; i < a->items.size(); ++i) if (!same(a->items[i], b->items[i])) return false;
  for (size_t i = 0; i < a->named.size(); ++i)
    if (a->named[i].first != b->named[i].first || !same(a->named[i].second, b->named[i].second)) return false;
  return true;
}

namespace {
void addAlternative(std::vector<Value>& out, const Value& v) {
  if (v->kind == V::union_) {
    for (const auto& i : v->items) addAlternative(out, i);
    return;
  }
  for (auto& o : out) {
    if (same(o, v)) return;
    if (o->kind == V::unknown && v->kind == V::unknown) {  // one reason is enough
      if (o->loader != v->loader) {
        auto merged = std::make_shared<Val>(*o);
        merged->loader = nullptr;
        o = merged;
      }
      return;
    }
    if (o->kind == V::tensor && v->kind == V::tensor) {
      auto merged = std::make_shared<Val>(*o);
      merged->device = join(o->device, v->device);
      if (o->shape != v->shape) merged->shape.reset();
      if (o->dtype != v->dtype) merged->dtype = DType::other;
      if (o->made_by != v->made_by) merged->made_by = nullptr;
      merged->graph = o->graph && v->graph;
      merged->dims = o->dims && v->dims;
      merged->pinned = o->pinned && v->pinned;
      if (o->loader != v->loader) merged->loader = nullptr;
      if (o->late != v->late) merged->late = nullptr;
      o = merged;
      return;
    }
  }
  out.push_back(v);
}
}  // namespace

Value join(const Value& a, const Value& b) {
  if (!a) return b;
  if (!b || a == b) return a;
  std::vector<Value> items;
  addAlternative(items, a);
  addAlternative(items, b);
  if (items.size() == 1) return items[0];
  if (items.size() > kMaxAlternatives) return unknown("more than 16 possible values");
  auto v = make(V::union_);
  v->items = std::move(items);
  return v;
}

Value joinAll(const std::vector<Value>& values) {
  Value out;
  for (const auto& v : values) out = join(out, v);
  return out;
}

void forEach(const Value& v, const std::function<void(const Value&)>& fn) {
  if (!v) return;
  if (v->kind != V::union_) { fn(v); return; }
  for (const auto& i : v->items) fn(i);
}

Value map(const Value& v, const std::function<Value(const Value&)>& fn) {
  Value out;
  forEach(v, [&](const Value& alternative) { out = join(out, fn(alternative)); });
  return out;
}

bool isAny(const Value& v, V kind) {
  bool found = false;
  forEach(v, [&](const Value& a) { found = found || a->kind == kind; });
  return found;
}

Truth truth(const Value& v) {
  if (!v) return Truth::unknown;
  const auto of = [](bool b) { return b ? Truth::yes : Truth::no; };
  switch (v->kind) {
    case V::none: return Truth::no;
    case V::boolean: case V::integer: return of(v->number != 0);
    case V::real: return of(v->real != 0);
    case V::string: return of(!v->text.empty());
    case V::device: case V::dtype: case V::function: case V::class_: case V::module: case V::partial: return Truth::yes;
    case V::tuple: return of(!v->items.empty());
    case V::list: return v->items.empty() ? Truth::unknown : Truth::yes;  // an empty literal may be filled under another name
    case V::union_: {
      const Truth first = truth(v->items[0]);
      for (const auto& i : v->items) if (truth(i) != first) return Truth::unknown;
      return first;
    }
    default: return Truth::unknown;
  }
}

std::string_view deviceType(std::string_view device) { return device.substr(0, device.find(':')); }

bool isStrongDeviceString(std::string_view s) {
  static constexpr std::array<std::string_view, 5> weak = {"cpu", "meta", "ai", "lazy", "hip"};
  return isDeviceString(s) && (s.find(':') != std::string_view::npos || std::find(weak.begin(), weak.end(), s) == weak.end());
}

bool isDeviceString(std::string_view s) {
  static constexpr std::array<std::string_view, 22> types = {
      "cpu", "npu", "cuda", "xpu", "mps", "meta", "hpu", "xla", "mlu", "musa", "ipu", "vulkan", "flagos", "ascend", "ai",
      "privateuseone", "lazy", "maia", "mtia", "hip", "gcu", "supa"};
  const auto type = deviceType(s);
  if (std::find(types.begin(), types.end(), type) == types.end()) return false;
  if (type.size() == s.size()) return true;
  const auto index = s.substr(type.size() + 1);
  return !index.empty() && index.size() < 5 && index.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace flagos::lsp

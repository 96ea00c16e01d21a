#include "lsp/python/value.h"

#include <cerrno>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

namespace flagos::lsp {
namespace {
constexpr size_t kMaxAlternatives = 16;

NewVal make(V kind) {
  auto v = makeVal();
  v->kind = kind;
  return v;
}

// Blocks of freed values, used again: an analysis makes and drops hundreds of thousands.
struct Pool {
  std::vector<void*> free;
  ~Pool() { for (void* p : free) std::free(p); }
};
constexpr size_t kPooled = 4096;
Pool& pool() {
  thread_local Pool p;
  return p;
}
}  // namespace

void* Val::operator new(size_t size) {
  auto& free = pool().free;
  if (free.empty()) {
    if (void* p = std::malloc(size)) return p;
    throw std::bad_alloc();
  }
  void* p = free.back();
  free.pop_back();
  return p;
}

void Val::operator delete(void* p) {
  auto& free = pool().free;
  if (free.size() < kPooled) free.push_back(p); else std::free(p);
}

void Val::recycle(const Val* v) { delete v; }

Value unknown(std::string reason) { auto v = make(V::unknown); v->text = std::move(reason); return v; }
Value none() { thread_local const Value v = make(V::none); return v; }
Value boolean(bool b) {
  thread_local const Value yes = [] { auto v = make(V::boolean); v->number = 1; return v; }();
  thread_local const Value no = make(V::boolean);
  return b ? yes : no;
}
Value literalInteger(std::string_view text) {
  std::string digits;
  for (const char c : text) if (c != '_') digits += c;
  const char kind = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  errno = 0;
  const long long n = std::strtoll(digits.c_str() + (base == 10 ? 0 : 2), nullptr, base);
  return errno == ERANGE ? unknown("an integer beyond 64 bits") : integer(n);
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
  auto copy = makeVal(*v);
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
  if (a->graph != b->graph || a->dims != b->dims || a->pinned != b->pinned || a->assumed != b->assumed || a->loader != b->loader || a->late != b->late) return false;
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
  // One device from very many places is still one device; the first places are enough to name.
  const bool places = out.size() >= kMaxAlternatives / 2 && (v->kind == V::device || v->kind == V::string || v->kind == V::runtime);
  for (auto& o : out) {
    if (same(o, v) || (places && o->kind == v->kind && o->text == v->text)) return;
    if (o->kind == V::unknown && v->kind == V::unknown) {  // one reason is enough
      if (o->loader != v->loader) {
        auto merged = makeVal(*o);
        merged->loader = nullptr;
        o = merged;
      }
      return;
    }
    if (o->kind == V::tensor && v->kind == V::tensor) {
      auto merged = makeVal(*o);
      merged->device = join(o->device, v->device);
      if (o->shape != v->shape) merged->shape.reset();
      if (o->dtype != v->dtype) merged->dtype = DType::other;
      if (o->made_by != v->made_by) merged->made_by = nullptr;
      merged->graph = o->graph && v->graph;
      merged->dims = o->dims && v->dims;
      merged->pinned = o->pinned && v->pinned;
      merged->assumed = o->assumed || v->assumed;
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

bool isAny(const Value& v, V kind) {
  bool found = false;
  forEach(v, [&](const Value& a) { found = found || a->kind == kind; });
  return found;
}

std::optional<int64_t> arithmetic(std::string_view op, int64_t a, int64_t b) {
  if (op.ends_with('=')) op.remove_suffix(1);
  int64_t r = 0;
  if (op == "+") return __builtin_add_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "-") return __builtin_sub_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "*") return __builtin_mul_overflow(a, b, &r) ? std::nullopt : std::optional(r);
  if (op == "**" && b >= 0 && b < 64) {
    r = 1;
    for (int64_t i = 0; i < b; ++i) if (__builtin_mul_overflow(r, a, &r)) return std::nullopt;
    return r;
  }
  if (op == "//" && b > 0 && a >= 0) return a / b;
  if (op == "%" && b > 0 && a >= 0) return a % b;
  if (op == "<<" && b >= 0 && b < 40 && a >= 0 && a < (1 << 20)) return a << b;
  return std::nullopt;
}

bool isTypeChecking(const Value& v) {
  return is(v, V::external) && (v->text == "typing.TYPE_CHECKING" || v->text == "typing_extensions.TYPE_CHECKING");
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
    case V::external: return isTypeChecking(v) ? Truth::no : Truth::unknown;
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

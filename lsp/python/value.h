// What the analysis knows of a Python value: a constant, a device, a tensor, an object, or why it is not known.
//
// Values are immutable and shared; objects with identity (instances, modules, dicts, frames) live in the Heap and are
// referred to by number. A union holds the alternatives of branches. "unknown" always carries a reason.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lsp/python/ast.h"
#include "lsp/python/counted.h"
#include "runtime/base/dtype.h"

namespace flagos::lsp {

struct SourceUnit;  // python/workspace.h

// The statement that decided a device, and how to say so.
struct Origin {
  const SourceUnit* unit = nullptr;
  int line = 0;
  std::string because;   // "default of --device", "assigned to `device`"
  bool fresh = false;    // a literal of the statement being run: an assignment or a call may still name it
  bool operator==(const Origin& o) const { return unit == o.unit && line == o.line && because == o.because; }
};

enum class V : uint8_t {
  unknown,    // text: the reason
  none, boolean, integer, real,
  string,     // text
  runtime,    // text: "<LOCAL_RANK>", "npu:<LOCAL_RANK>": decided when the program runs
  device,     // text: "npu:1", or "npu" (the current one)
  dtype,      // text: "float16"
  tensor,     // device; dtype; shape
  instance,   // object; node / text of its class
  function,   // node, unit, object = closure scope
  class_,     // node, unit, object = class scope; items = bases
  external,   // text: dotted name outside the workspace
  module,     // object = its scope, unit; text = as imported
  forward,    // object = a module's scope, text = a name in it, self = the module: looked up when it is used
  bound,      // self . text, or self + function value in items[0]
  tuple, list,  // items
  dict,       // object
  partial,    // self = callee, items = positional, named = keywords
  iterable,   // self: what iterating it gives; number: how many of them, 0 = not known
  union_,     // items
};

struct Val;
using Value = Counted<const Val>;   // of the thread that analyses
using NewVal = Counted<Val>;        // while it is being filled in

struct Val {
  Val() = default;
  Val(const Val& o) = default;
  static void recycle(const Val* v);
  static void* operator new(size_t size);
  static void operator delete(void* p);

  Uses uses;
  V kind = V::unknown;
  std::string text;
  int64_t number = 0;
  double real = 0;
  uint32_t object = 0;
  DType dtype = DType::other;
  const Node* node = nullptr;
  const SourceUnit* unit = nullptr;
  Origin origin;
  Value device, self;
  std::vector<Value> items;
  std::vector<std::pair<std::string, Value>> named;
  std::optional<std::vector<int64_t>> shape;  // tensor; every entry known
  const Node* made_by = nullptr;              // tensor: the factory call, if nothing happened to it since
  // What findings ask of tensors. Each is set only where it is certain.
  bool graph = false;                         // holds an autograd graph
  bool dims = false;                          // has at least one dimension
  bool pinned = false;                        // in pinned host memory
  bool assumed = false;                       // a number, or a tensor's size: holds unless the caller or the command line says otherwise
  const Node* loader = nullptr;               // came out of this DataLoader call (unknown values too)
  const Node* late = nullptr;                 // on the host, being filled by this non-blocking copy
};

inline NewVal makeVal() { return NewVal(new Val); }
inline NewVal makeVal(const Val& like) { return NewVal(new Val(like)); }

enum class Truth : uint8_t { no, yes, unknown };

Value unknown(std::string reason);
Value literalInteger(std::string_view text);   // "0x1_000"; unknown beyond 64 bits
Value none();
Value boolean(bool b);
Value integer(int64_t n);
Value string(std::string s, Origin o = {});
Value deviceValue(std::string name, Origin o);
Value runtimeValue(std::string expression, Origin o);
Value external(std::string dotted);
Value tuple(std::vector<Value> items);
Value list(std::vector<Value> items);
Value iterableOf(Value element);
Value tensorOn(Value device);
Value withOrigin(const Value& v, Origin o);  // a copy with another origin

// Both, without duplicates; tensors join by joining their devices. More than 16 alternatives become unknown.
Value join(const Value& a, const Value& b);
Value joinAll(const std::vector<Value>& values);
bool same(const Value& a, const Value& b);
// Calls fn for every alternative (once for a value that is no union).
template <typename F> void forEach(const Value& v, F&& fn) {
  if (!v) return;
  if (v->kind != V::union_) { fn(v); return; }
  const Value all = v;   // fn may change what `v` is a part of
  for (const auto& i : all->items) fn(i);
}
// The alternatives' images, joined.
template <typename F> Value map(const Value& v, F&& fn) {
  if (!v) return nullptr;
  if (v->kind != V::union_) return fn(v);
  const Value all = v;
  Value out;
  for (const auto& i : all->items) out = join(out, fn(i));
  return out;
}
bool isAny(const Value& v, V kind);          // some alternative is of this kind
inline bool is(const Value& v, V kind) { return v && v->kind == kind; }
// a OP b as Python computes it; nothing for other operators, signs that round differently, and what 64 bits do not hold.
// Also of the assignments: "+=" is "+".
std::optional<int64_t> arithmetic(std::string_view op, int64_t a, int64_t b);
Truth truth(const Value& v);
// typing.TYPE_CHECKING: false when a program runs.
bool isTypeChecking(const Value& v);

// "npu:1" -> true; "npu", "cpu", "cuda:0" too. Names PyTorch itself does not know are not devices.
bool isDeviceString(std::string_view s);
// A text that hardly means anything but a device: "npu:1", "cuda". Not "cpu", "meta", "ai".
bool isStrongDeviceString(std::string_view s);
// "npu:1" -> "npu".
std::string_view deviceType(std::string_view device);

}  // namespace flagos::lsp

// What findings ask of tensors beyond their device: an autograd graph, a dimension, pinned memory. Kept apart from the
// device analysis: each trait is set only where it is certain, so that a call unknown here simply has none.
#include <algorithm>

#include "lsp/python/interp.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {
namespace {

using Names = NameSet;

// Results that autograd does not follow.
const Names kNoGraph = {"detach", "argmax", "argmin", "argsort", "nonzero", "eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf", "isfinite",
    "logical_and", "logical_or", "logical_not", "sign", "round", "floor", "ceil", "long", "int", "bool", "byte", "short", "data", "grad", "topk",
    "sort", "max", "min", "no_grad", "zeros_like", "ones_like", "rand_like", "randn_like", "empty_like", "full_like", "randint_like", "tensor",
    "as_tensor", "from_numpy", "new_zeros", "new_ones", "new_tensor", "new_full", "new_empty", "numel", "size", "multinomial", "bernoulli"};
// Methods and functions whose result has as many dimensions as what they get, or more.
const Names kKeepsDims = {"clone", "contiguous", "detach", "t", "transpose", "permute", "flatten", "relu", "exp", "log", "sqrt", "abs", "sigmoid",
    "tanh", "softmax", "log_softmax", "unsqueeze", "repeat", "expand", "add", "sub", "mul", "div", "pow", "clamp", "neg", "sin", "cos", "float",
    "half", "double", "long", "int", "bool", "bfloat16", "masked_fill", "cumsum", "sort", "roll", "flip", "gelu", "silu", "dropout", "layer_norm",
    "normalize", "zeros_like", "ones_like", "rand_like", "randn_like", "empty_like", "full_like", "requires_grad_", "add_", "mul_", "sub_", "div_",
    "zero_", "fill_", "normal_", "uniform_", "+", "-", "*", "/", "//", "%", "**", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^", "unary"};
const Names kAlwaysDims = {"cat", "stack", "concat", "hstack", "vstack", "linear", "conv1d", "conv2d", "conv3d", "embedding", "nonzero", "one_hot", "mm", "bmm",
    "addmm", "unique", "masked_select", "interpolate", "pad"};
const Names kBool = {"eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not", "logical_xor", "bool", "isclose", "isin"};
// The same memory, seen otherwise: still pinned, still out of the loader.
const Names kViews = {"[]", "view", "reshape", "unsqueeze", "squeeze", "T", "flatten", "transpose", "permute", "contiguous"};

bool all(const Value& v, const std::function<bool(const Val&)>& holds) {
  bool any = false, every = true;
  forEach(v, [&](const Value& x) {
    if (x->kind != V::tensor) { every = every && (x->kind == V::integer || x->kind == V::real); return; }
    any = true;
    every = every && holds(*x);
  });
  return any && every;
}
bool hasGraph(const Value& v) { return all(v, [](const Val& t) { return t.graph || t.text == "parameter"; }); }
bool hasDims(const Value& v) { return all(v, [](const Val& t) { return t.dims || (t.shape && !t.shape->empty()); }); }

bool anyOf(const Value& v, bool (*holds)(const Value&), int depth = 0) {
  if (!v || depth > 2) return false;
  if (holds(v)) return true;
  if (v->kind == V::list || v->kind == V::tuple)
    return std::any_of(v->items.begin(), v->items.end(), [&](const Value& i) { return anyOf(i, holds, depth + 1); });
  return v->kind == V::iterable && anyOf(v->self, holds, depth + 1);
}

bool isTrue(const Args& args, std::string_view name) {
  const Arg* a = args.keyword(name);
  return a && truth(a->value) == Truth::yes && !isAny(a->value, V::unknown);
}

}  // namespace

Value Interp::withTraits(const Value& result, const Value& receiver, const Args& args, std::string_view what) {
  if (!result || !isAny(result, V::tensor)) return result;
  const std::string_view name = what.substr(what.rfind('.') == std::string_view::npos ? 0 : what.rfind('.') + 1);
  bool graph = false, dims = kAlwaysDims.count(name) > 0;
  const bool module = is(receiver, V::instance);
  const auto look = [&](const Value& v) {
    graph = graph || anyOf(v, hasGraph);
    dims = dims || (kKeepsDims.count(name) && anyOf(v, hasDims));
  };
  look(receiver);
  for (const auto& a : args.list) if (a.name != "$target") look(a.value);
  if (module) {
    const Value bytes = heap_.get(receiver->object, "$bytes");
    const Value& cls = heap_.at(receiver->object).cls;
    const bool loss = is(cls, V::external) && cls->text.ends_with("Loss");
    graph = graph || (is(cls, V::external) && !loss && !(bytes && bytes->number == 0));
    dims = !loss;
  }
  graph = (graph && !kNoGraph.count(name)) || isTrue(args, "requires_grad");
  if (name == "requires_grad_") {
    const Arg* on = args.get(0, "requires_grad");
    graph = !on || truth(on->value) == Truth::yes;
  }
  if (no_grad_ > 0) graph = false;
  return map(result, [&](const Value& r) -> Value {
    if (r->kind != V::tensor || r->text == "parameter" || r->text == "buffer") return r;
    const bool view = kViews.count(name) > 0;
    const bool pinned = name == "pin_memory" || isTrue(args, "pin_memory") || (view && is(receiver, V::tensor) && receiver->pinned);
    const Node* loader = view && receiver ? receiver->loader : nullptr;
    const DType dtype = kBool.count(name) ? DType::bool_ : r->dtype;
    const bool has_dims = r->dims || dims || (kKeepsDims.count(name) && receiver && hasDims(receiver));
    if (r->graph == graph && r->dims == has_dims && r->pinned == pinned && r->loader == loader && r->dtype == dtype) return r;
    auto t = makeVal(*r);
    t->graph = graph;
    t->dims = has_dims;
    t->pinned = pinned;
    t->loader = loader;
    t->dtype = dtype;
    return t;
  });
}

Value Interp::lateCopy(const Value& result, const Value& from, const Args& args, const Node* n) {
  const auto to = certainDevices(result);
  const bool on_host = !to.empty() && std::all_of(to.begin(), to.end(), [](const auto& d) { return d == "cpu"; });
  auto t = makeVal(*result);
  t->late = on_host && isTrue(args, "non_blocking") && onAccelerator(from) ? n : nullptr;
  return t;
}

Value Interp::condition(const Node* n) {
  const Value v = eval(n);
  if (isAny(v, V::tensor)) emit(E::truth, n, "", v, {});
  return v;
}

void Interp::guarded(const Node* n, const std::function<void()>& path) {
  guards_.push_back({n, loops_.size()});
  path();
  guards_.pop_back();
}

void Interp::tellAssign(const Node* statement, const Value& v) {
  Args value;
  value.list.push_back({"", v, statement->b});
  Value object;
  if (statement->a && statement->a->kind == N::attribute) {
    const auto listeners = wanted_;
    wanted_ = 0;  // the object is evaluated again by the assignment itself
    object = eval(statement->a->a);
    wanted_ = listeners;
  }
  emit(E::assign, statement, "", object, value);
}

std::vector<std::string> Interp::slotsOf(ObjectId object) const {
  std::vector<std::string> out;
  for (const auto& [name, value] : heap_.at(object).slots) if (value) out.push_back(name);
  return out;
}

}  // namespace flagos::lsp

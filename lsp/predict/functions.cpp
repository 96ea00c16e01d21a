// Shapes of functions, methods and operators on tensors.
#include <algorithm>
#include <map>
#include <set>

#include "lsp/predict/shapes.h"
#include "lsp/python/interp.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {
namespace {

std::optional<int64_t> integerOf(const Value& v) { return is(v, V::integer) ? std::optional<int64_t>(v->number) : std::nullopt; }

std::optional<Shape> integers(const std::vector<Value>& items) {
  Shape out;
  for (const auto& i : items) {
    const auto n = integerOf(i);
    if (!n) return std::nullopt;
    out.push_back(*n);
  }
  return out;
}

// Sizes or dimensions given as one tuple or as separate arguments, from the i-th positional on.
std::optional<Shape> list(const Args& args, size_t from) {
  const Arg* first = args.at(from);
  if (!first) return std::nullopt;
  if (is(first->value, V::tuple) || is(first->value, V::list)) return integers(first->value->items);
  std::vector<Value> items;
  for (size_t i = from; const Arg* a = args.at(i); ++i) items.push_back(a->value);
  return integers(items);
}

std::optional<int64_t> dimension(const Arg* a, size_t rank, std::optional<int64_t> fallback = {}) {
  const auto n = a ? integerOf(a->value) : fallback;
  if (!n) return std::nullopt;
  const int64_t r = static_cast<int64_t>(rank);
  const int64_t d = *n < 0 ? *n + r : *n;
  return d >= 0 && d < r ? std::optional<int64_t>(d) : std::nullopt;
}

std::optional<int64_t> count(const Shape& s) {
  int64_t n = 1;
  for (const auto x : s) if (__builtin_mul_overflow(n, x, &n)) return std::nullopt;
  return n;
}

bool floating(DType d) { return d == DType::float16 || d == DType::bfloat16 || d == DType::float32 || d == DType::float64; }
bool whole(DType d) { return d == DType::int8 || d == DType::uint8 || d == DType::int16 || d == DType::int32 || d == DType::int64; }

// The dtype of a tensor of dtype d with a Python number: the number counts only where its kind is a higher one.
DType withNumber(DType d, const Value& number) {
  if (d == DType::bool_ && is(number, V::integer)) return DType::int64;
  if ((d == DType::bool_ || whole(d)) && is(number, V::real)) return DType::float32;
  return d;
}

// What sqrt(), exp() and true division make of whole numbers.
DType asFloating(DType d) { return d == DType::bool_ || whole(d) ? DType::float32 : d; }

// The dtype that a `dtype=` asks for, or what follows without it.
DType asked(const Args& args, DType otherwise) {
  const Arg* a = args.keyword("dtype");
  if (!a || is(a->value, V::none)) return otherwise;
  return is(a->value, V::dtype) ? a->value->dtype : DType::other;
}

Inferred reduce(const std::string& name, const Shape& x, DType d, const Args& args, size_t at) {
  const bool truth_of = name == "any" || name == "all", index = name == "argmax" || name == "argmin";
  Inferred out{true, std::nullopt, index ? DType::int64 : truth_of ? (d == DType::uint8 ? d : DType::bool_) : d, {}};
  const Arg* dim = args.get(at, "dim");
  const Arg* keep = args.get(at + 1, "keepdim");
  if (keep && truth(keep->value) == Truth::unknown) return out;
  const bool kept = keep && truth(keep->value) == Truth::yes;
  std::set<int64_t> gone;
  if (!dim || is(dim->value, V::none)) {
    for (size_t i = 0; i < x.size(); ++i) gone.insert(static_cast<int64_t>(i));
  } else {
    const std::vector<Value> items = is(dim->value, V::tuple) || is(dim->value, V::list) ? dim->value->items : std::vector<Value>{dim->value};
    for (const auto& i : items) {
      const Arg one{"", i, nullptr};
      const auto n = dimension(&one, x.size());
      if (!n) return out;
      gone.insert(*n);
    }
  }
  Shape r;
  int64_t reduced = 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!gone.count(static_cast<int64_t>(i))) r.push_back(x[i]);
    else { reduced *= x[i]; if (kept) r.push_back(1); }
  }
  if ((name == "sum" || name == "prod") && (d == DType::bool_ || whole(d))) out.dtype = DType::int64;
  if (name == "sum" || name == "prod" || name == "mean") out.dtype = asked(args, out.dtype);
  out.shape = r;
  out.ops.push_back({"aten::" + name, {{x, d}}, "reduced=" + std::to_string(reduced)});
  return out;
}

Inferred matmul(const Shape& a, const Shape& b, DType d) {
  Inferred out{true, std::nullopt, d, {}};
  if (a.empty() || b.empty()) return out;
  if (a.size() == 1 || b.size() == 1) {
    if (a.back() != b[b.size() >= 2 ? b.size() - 2 : 0]) return out;
    Shape r(a.begin(), a.end() - 1);
    if (b.size() > 1) { r.assign(b.begin(), b.end() - 2); r.push_back(b.back()); }
    out.shape = r;
    return out;
  }
  if (a.back() != b[b.size() - 2]) return out;
  const auto batch = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  if (!batch) return out;
  Shape r = *batch;
  r.push_back(a[a.size() - 2]);
  r.push_back(b.back());
  out.shape = r;
  const auto n = count(*batch);
  if (!n) return out;
  if (batch->empty()) out.ops.push_back({"aten::mm", {{a, d}, {b, d}}, ""});
  else out.ops.push_back({"aten::bmm", {{{*n, a[a.size() - 2], a.back()}, d}, {{*n, a.back(), b.back()}, d}}, ""});
  return out;
}

// torch.cat and torch.stack of tensors that are all known.
Inferred joined(std::string_view name, const Args& args) {
  const Inferred open{true, std::nullopt, DType::other, {}};
  const Arg* parts = args.get(0, "tensors");
  if (!parts || (!is(parts->value, V::list) && !is(parts->value, V::tuple)) || parts->value->items.empty()) return open;
  const auto& items = parts->value->items;
  for (const auto& i : items) if (!is(i, V::tensor) || !i->shape) return open;
  Shape out = *items[0]->shape;
  DType d = items[0]->dtype;
  for (const auto& i : items) d = promote(d, i->dtype);
  const bool stack = name == "stack";
  const auto dim = dimension(args.get(1, "dim"), out.size() + (stack ? 1 : 0), 0);
  if (!dim) return {true, std::nullopt, d, {}};
  const auto k = static_cast<size_t>(*dim);
  for (size_t i = 1; i < items.size(); ++i) {
    const Shape& other = *items[i]->shape;
    if (other.size() != out.size()) return open;
    for (size_t j = 0; j < out.size(); ++j) if ((stack || j != k) && other[j] != (*items[0]->shape)[j]) return open;
    if (!stack) out[k] += other[k];
  }
  if (stack) out.insert(out.begin() + *dim, static_cast<int64_t>(items.size()));
  Inferred result{true, out, d, {{"aten::cat", {}, ""}}};
  for (const auto& i : items) result.ops[0].operands.push_back({*i->shape, i->dtype});
  return result;
}

// torch.where(condition, a, b) with tensors or numbers.
Inferred chosen(const Args& args) {
  const Inferred open{true, std::nullopt, DType::other, {}};
  const Arg *c = args.at(0), *a = args.at(1), *b = args.at(2);
  if (!c || !a || !b || !is(c->value, V::tensor) || !c->value->shape) return open;
  Inferred out{true, c->value->shape, DType::other, {{"aten::where.self", {{*c->value->shape, DType::bool_}}, ""}}};
  const Arg* first = is(a->value, V::tensor) ? a : b;
  if (!is(first->value, V::tensor)) return open;   // of two numbers
  out.dtype = first->value->dtype;
  for (const Arg* x : {a, b}) {
    if (!is(x->value, V::tensor)) {
      if (!is(x->value, V::integer) && !is(x->value, V::real) && !is(x->value, V::boolean)) return open;
      out.dtype = withNumber(out.dtype, x->value);
      continue;
    }
    if (!x->value->shape || x->value->shape->empty() != first->value->shape->empty()) return open;
    out.shape = broadcast(*out.shape, *x->value->shape);
    out.dtype = promote(out.dtype, x->value->dtype);
    if (!out.shape) return open;
    out.ops[0].operands.push_back({*x->value->shape, x->value->dtype});
  }
  return out;
}

// torch.nn.functional.pad: pairs from the last dimension on.
Inferred padded(Shape shape, DType d, const Arg* pad) {
  const Inferred open{true, std::nullopt, d, {}};
  if (!pad || (!is(pad->value, V::tuple) && !is(pad->value, V::list)) || pad->value->items.size() % 2 || pad->value->items.size() / 2 > shape.size()) return open;
  const auto by = integers(pad->value->items);
  if (!by) return open;
  for (size_t i = 0; i < by->size(); ++i) {
    int64_t& size = shape[shape.size() - 1 - i / 2];
    size += (*by)[i];
    if (size < 0) return open;
  }
  return {true, shape, d, {}};
}

// The same layer as a function: F.conv2d(x, w, b, stride, ...) with sizes from the weight.
Inferred asLayer(const std::string& cls, std::vector<std::pair<std::string, Value>> config, const Value& input) {
  auto c = makeVal();
  c->named = std::move(config);
  return inferLayer(cls, c, input);
}

}  // namespace

Inferred inferFunction(std::string_view name, const Value& receiver, const Args& args) {
  static const std::map<std::string, std::string, std::less<>> unary = {
      {"relu", "aten::relu"}, {"gelu", "aten::gelu"}, {"silu", "aten::silu"}, {"sigmoid", "aten::sigmoid"}, {"tanh", "aten::tanh"}, {"exp", "aten::exp"},
      {"log", "aten::log"}, {"sqrt", "aten::sqrt"}, {"rsqrt", "aten::rsqrt"}, {"abs", "aten::abs"}, {"neg", "aten::neg"}, {"unary", "aten::neg"},
      {"sin", "aten::sin"}, {"cos", "aten::cos"}, {"erf", "aten::erf"}, {"clone", "aten::clone"}, {"leaky_relu", "aten::leaky_relu"},
      {"pow", "aten::pow.Tensor_Scalar_out"}, {"square", "aten::square"}, {"cumsum", "aten::cumsum"}, {"cumprod", "aten::cumprod"}, {"softmax", "aten::softmax.int"}, {"log_softmax", "aten::log_softmax.int"}, {"relu_", "aten::relu_"}};
  static const std::map<std::string, std::string, std::less<>> binary = {
      {"+", "aten::add.out"}, {"-", "aten::sub.out"}, {"*", "aten::mul.out"}, {"/", "aten::div.out"}, {"add", "aten::add.out"},
      {"sub", "aten::sub.out"}, {"mul", "aten::mul.out"}, {"div", "aten::div.out"}, {"maximum", "aten::maximum"}, {"minimum", "aten::minimum"},
      {"//", "aten::floor_divide"}, {"%", "aten::remainder.Tensor_out"}, {"**", "aten::pow.Tensor_Tensor_out"}, {"&", "aten::bitwise_and.Tensor_out"},
      {"|", "aten::bitwise_or.Tensor_out"}, {"^", "aten::bitwise_xor.Tensor_out"}};
  static const NameSet compare = {"<", ">", "<=", ">=", "==", "!="};
  static const NameSet keeps = {"contiguous", "detach", "requires_grad_", "dropout", "float", "half", "double", "bfloat16",
      "long", "int", "bool", "zero_", "fill_", "normal_", "uniform_", "zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like",
      "clamp", "masked_fill", "tril", "triu", "flip", "roll", "fliplr", "flipud", "nan_to_num", "layer_norm"};
  // On whole numbers these give float32.
  static const NameSet makes_floating = {"sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "erf"};
  static const NameSet one_number = {"max", "min", "std", "var", "norm", "median"};   // without arguments
  static const NameSet reductions = {"sum", "mean", "argmax", "argmin", "amax", "amin", "prod", "any", "all", "logsumexp"};
  std::vector<Value> tensors;
  if (is(receiver, V::tensor)) tensors.push_back(receiver);
  for (const auto& a : args.list) if (a.name.empty() && is(a.value, V::tensor)) tensors.push_back(a.value);
  if (args.unknown_rest) return {};
  if (name == "cat" || name == "concat" || name == "stack") return joined(name, args);
  if (tensors.empty()) return {};
  const Value& x = tensors[0];
  const size_t at = is(receiver, V::tensor) ? 0 : 1;     // the first argument that is not the tensor itself
  const DType d = x->dtype;
  const bool sized = x->shape.has_value();
  const Inferred open{true, std::nullopt, DType::other, {}};

  if (const auto u = unary.find(name); u != unary.end()) {
    DType to = makes_floating.count(name) ? asFloating(d) : d;
    if (name == "pow") to = args.at(at) && is(args.at(at)->value, V::tensor) ? DType::other : args.at(at) ? withNumber(d, args.at(at)->value) : d;
    if (name.starts_with("cum")) to = asked(args, d == DType::bool_ || whole(d) ? DType::int64 : d);
    if (name.ends_with("softmax")) to = asked(args, d);
    if (!sized || (name == "pow" && to == DType::other)) return {true, std::nullopt, to, {}};
    return {true, x->shape, to, {{u->second, {{*x->shape, d}}, ""}}};
  }
  if (keeps.count(name)) {
    static const std::map<std::string, DType, std::less<>> casts = {{"float", DType::float32}, {"half", DType::float16}, {"double", DType::float64},
        {"bfloat16", DType::bfloat16}, {"long", DType::int64}, {"int", DType::int32}, {"bool", DType::bool_}};
    const auto cast = casts.find(name);
    DType to = cast == casts.end() ? d : cast->second;
    if (const Arg* a = args.keyword("dtype")) to = is(a->value, V::dtype) ? a->value->dtype : DType::other;
    return {true, x->shape, to, {}};
  }
  const auto b = binary.find(name);
  if (b != binary.end() || compare.count(name)) {
    DType result = d;
    std::optional<Shape> shape = x->shape;
    OpCall op{b != binary.end() ? b->second : "aten::eq.Tensor_out", {}, ""};
    if (sized) op.operands.push_back({*x->shape, d});
    if (tensors.size() > 1) {
      const Value& y = tensors[1];
      result = x->shape && y->shape && (x->shape->empty() != y->shape->empty()) ? (x->shape->empty() ? y->dtype : d) : promote(d, y->dtype);
      shape = x->shape && y->shape ? broadcast(*x->shape, *y->shape) : std::nullopt;
      if (y->shape) op.operands.push_back({*y->shape, y->dtype});
    } else {
      for (const auto& a : args.list) {
        if (!is(a.value, V::tensor) && !is(a.value, V::integer) && !is(a.value, V::real) && !is(a.value, V::boolean)) return open;   // an operand that is not known
        result = withNumber(result, a.value);
      }
    }
    if (name == "/" || name == "div") result = args.keyword("rounding_mode") ? DType::other : asFloating(result);
    if (name == "-" && result == DType::bool_) return open;   // refused
    if (compare.count(name)) result = DType::bool_;
    if (!shape) return {true, std::nullopt, result, {}};
    return {true, shape, result, {op}};
  }
  if (name == "@" || name == "matmul" || name == "mm" || name == "bmm") {
    if (tensors.size() < 2 || !sized || !tensors[1]->shape) return {true, std::nullopt, d, {}};
    return matmul(*x->shape, *tensors[1]->shape, d);
  }
  if (reductions.count(name)) {
    if (!sized) return open;
    return reduce(std::string(name), *x->shape, d, args, at);
  }
  if (one_number.count(name) && sized && args.list.size() == at) return reduce(std::string(name), *x->shape, d, args, at);
  if (name == "var" || name == "std") {   // (dim, keepdim=...): a second positional may be `unbiased`
    if (!sized || args.at(at + 1) || args.keyword("unbiased")) return open;
    return reduce(std::string(name), *x->shape, d, args, at);
  }
  if (name == "where") return chosen(args);
  if (name == "scaled_dot_product_attention") {
    if (tensors.size() < 3 || !sized || !tensors[1]->shape || !tensors[2]->shape) return open;
    const Shape &q = *x->shape, &k = *tensors[1]->shape, &v = *tensors[2]->shape;
    if (q.size() < 2 || k.size() != q.size() || v.size() != q.size() || q.back() != k.back() || k[k.size() - 2] != v[v.size() - 2]) return open;
    Shape r = q;
    r.back() = v.back();
    Inferred out{true, r, d, {}};
    const Arg* causal = args.keyword("is_causal");
    const bool masked = args.keyword("attn_mask") && !is(args.keyword("attn_mask")->value, V::none);
    if (q.size() == 4 && !masked && (!causal || truth(causal->value) != Truth::unknown))
      out.ops.push_back({"aten::scaled_dot_product_attention", {{q, d}, {k, d}, {v, d}}, causal && truth(causal->value) == Truth::yes ? "causal=1" : ""});
    return out;
  }
  if (name == "linear") {
    if (tensors.size() < 2 || !sized || !tensors[1]->shape || tensors[1]->shape->size() != 2) return open;
    const Shape& w = *tensors[1]->shape;
    return asLayer("Linear", {{"in_features", integer(w[1])}, {"out_features", integer(w[0])}, {"bias", boolean(tensors.size() > 2)}}, x);
  }
  if (name == "conv2d" || name == "conv1d") {
    if (tensors.size() < 2 || !sized || !tensors[1]->shape || tensors[1]->shape->size() < 3) return open;
    const Shape& w = *tensors[1]->shape;
    std::vector<Value> kernel;
    for (size_t i = 2; i < w.size(); ++i) kernel.push_back(integer(w[i]));
    const Arg* g = args.get(at + 5, "groups");
    const auto groups = g ? integerOf(g->value) : std::optional<int64_t>(1);
    if (!groups) return open;
    std::vector<std::pair<std::string, Value>> config = {{"in_channels", integer(w[1] * *groups)}, {"out_channels", integer(w[0])},
        {"kernel_size", tuple(kernel)}, {"bias", boolean(tensors.size() > 2)}, {"groups", integer(*groups)}};
    const char* names[] = {"stride", "padding", "dilation"};
    for (size_t i = 0; i < 3; ++i) if (const Arg* a = args.get(at + 2 + i, names[i])) config.emplace_back(names[i], a->value);
    return asLayer(name == "conv2d" ? "Conv2d" : "Conv1d", std::move(config), x);
  }
  if (name == "max_pool2d" || name == "avg_pool2d") {
    std::vector<std::pair<std::string, Value>> config;
    const char* names[] = {"kernel_size", "stride", "padding"};
    for (size_t i = 0; i < 3; ++i) if (const Arg* a = args.get(at + i, names[i])) config.emplace_back(names[i], a->value);
    return asLayer(name == "max_pool2d" ? "MaxPool2d" : "AvgPool2d", std::move(config), x);
  }
  if (name == "adaptive_avg_pool2d") {
    const Arg* a = args.get(at, "output_size");
    return a ? asLayer("AdaptiveAvgPool2d", {{"output_size", a->value}}, x) : open;
  }
  if (name == "flatten") {
    std::vector<std::pair<std::string, Value>> config = {{"start_dim", integer(0)}};
    if (const Arg* a = args.get(at, "start_dim")) config[0].second = a->value;
    if (const Arg* a = args.get(at + 1, "end_dim")) config.emplace_back("end_dim", a->value);
    return asLayer("Flatten", std::move(config), x);
  }
  if (name == "view" || name == "reshape") {
    auto r = list(args, at);
    if (!r) return {true, std::nullopt, d, {}};
    int64_t known = 1, holes = 0;
    for (const auto s : *r) { if (s == -1) ++holes; else known *= s; }
    if (holes > 1) return {true, std::nullopt, d, {}};
    if (!sized) return {true, holes ? std::nullopt : r, d, {}};
    const auto n = count(*x->shape);
    if (!n || (holes && (known == 0 || *n % known != 0)) || (!holes && known != *n)) return {true, std::nullopt, d, {}};
    for (auto& s : *r) if (s == -1) s = *n / known;
    return {true, r, d, {}};
  }
  if (!sized) return {};
  Shape r = *x->shape;
  if (name == "t" || name == "T" || name == "mT") {
    if (r.size() > 2 && name != "mT") return open;
    if (r.size() >= 2) std::swap(r[r.size() - 1], r[r.size() - 2]);
    return {true, r, d, {}};
  }
  if (name == "transpose") {
    const auto i = dimension(args.at(at), r.size()), j = dimension(args.at(at + 1), r.size());
    if (!i || !j) return {true, std::nullopt, d, {}};
    std::swap(r[static_cast<size_t>(*i)], r[static_cast<size_t>(*j)]);
    return {true, r, d, {}};
  }
  if (name == "permute") {
    const auto order = list(args, at);
    if (!order || order->size() != r.size()) return {true, std::nullopt, d, {}};
    Shape out;
    for (const auto o : *order) {
      const int64_t i = o < 0 ? o + static_cast<int64_t>(r.size()) : o;
      if (i < 0 || i >= static_cast<int64_t>(r.size())) return open;
      out.push_back(r[static_cast<size_t>(i)]);
    }
    return {true, out, d, {}};
  }
  if (name == "unsqueeze") {
    const auto i = dimension(args.get(at, "dim"), r.size() + 1);
    if (!i) return {true, std::nullopt, d, {}};
    r.insert(r.begin() + *i, 1);
    return {true, r, d, {}};
  }
  if (name == "squeeze") {
    const Arg* a = args.get(at, "dim");
    if (!a) { std::erase(r, 1); return {true, r, d, {}}; }
    const auto i = dimension(a, r.size());
    if (!i) return {true, std::nullopt, d, {}};
    if (r[static_cast<size_t>(*i)] == 1) r.erase(r.begin() + *i);
    return {true, r, d, {}};
  }
  if (name == "expand") {
    const auto to = list(args, at);
    if (!to || to->size() < r.size()) return {true, std::nullopt, d, {}};
    Shape out = *to;
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] == -1) { if (i < out.size() - r.size()) return open; out[i] = r[i - (out.size() - r.size())]; }
    return {true, out, d, {}};
  }
  if (name == "cross_entropy" || name == "nll_loss" || name == "mse_loss") {
    Inferred out{true, Shape{}, d, {}};
    if (const Arg* reduction = args.keyword("reduction"); reduction && !(is(reduction->value, V::string) && reduction->value->text != "none")) return open;
    if (name == "cross_entropy") out.ops.push_back({"aten::log_softmax.int", {{r, d}}, ""});
    if (tensors.size() > 1 && tensors[1]->shape && name != "mse_loss")
      out.ops.push_back({"aten::nll_loss_forward", {{r, d}, {*tensors[1]->shape, DType::int64}}, ""});
    if (name == "mse_loss" && tensors.size() > 1 && tensors[1]->shape) out.ops.push_back({"aten::mse_loss", {{r, d}, {*tensors[1]->shape, tensors[1]->dtype}}, ""});
    return out;
  }
  if (name == "repeat") {
    const auto times = list(args, at);
    if (!times || times->size() < r.size()) return {true, std::nullopt, d, {}};
    Shape out = *times;
    const size_t more = out.size() - r.size();
    for (size_t i = 0; i < r.size(); ++i)
      if (__builtin_mul_overflow(out[i + more], r[i], &out[i + more])) return {true, std::nullopt, d, {}};
    return {true, out, d, {}};
  }
  if (name.starts_with("new_") && name != "new_tensor") {
    const auto size = list(args, at);
    return {true, name == "new_full" && !(args.at(at) && (is(args.at(at)->value, V::tuple) || is(args.at(at)->value, V::list))) ? std::nullopt : size, asked(args, d), {}};
  }
  if (name == "pad") return padded(r, d, args.get(at, "pad"));
  return {};
}

}  // namespace flagos::lsp

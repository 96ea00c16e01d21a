#include "lsp/predict/shapes.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace flagos::lsp {

std::string OpCall::shapes() const {
  std::string out;
  for (const auto& o : operands) {
    out += out.empty() ? "" : " ";
    if (o.absent) { out += "-"; continue; }
    out += "[";
    for (size_t i = 0; i < o.shape.size(); ++i) out += (i ? "," : "") + std::to_string(o.shape[i]);
    out += "]";
  }
  return out;
}

std::string OpCall::dtypes() const {
  std::string out;
  for (const auto& o : operands) out += (out.empty() ? "" : ",") + std::string(o.absent ? "float32" : dtypeName(o.dtype));
  return out;
}

std::optional<Shape> broadcast(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const auto floating = [](DType d) { return d == DType::float16 || d == DType::bfloat16 || d == DType::float32 || d == DType::float64; };
  const auto known = [&](DType d) { return d != DType::other; };
  if (!known(a) || !known(b)) return DType::other;
  if (floating(a) != floating(b)) return floating(a) ? a : b;
  if (!floating(a)) return dtypeBytes(a) >= dtypeBytes(b) ? (a == DType::bool_ ? b : a) : b;
  if (dtypeBytes(a) == dtypeBytes(b)) return DType::float32;   // float16 with bfloat16
  return dtypeBytes(a) > dtypeBytes(b) ? a : b;
}

const std::vector<std::string>& layerParameters(std::string_view cls) {
  static const std::vector<std::string> conv = {"in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias"};
  static const std::vector<std::string> norm = {"num_features", "eps", "momentum", "affine", "track_running_stats"};
  static const std::vector<std::string> max_pool = {"kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"};
  static const std::vector<std::string> avg_pool = {"kernel_size", "stride", "padding", "ceil_mode"};
  static const std::map<std::string, std::vector<std::string>, std::less<>> table = {
      {"Linear", {"in_features", "out_features", "bias"}}, {"Conv1d", conv}, {"Conv2d", conv}, {"Conv3d", conv},
      {"BatchNorm1d", norm}, {"BatchNorm2d", norm}, {"BatchNorm3d", norm}, {"LayerNorm", {"normalized_shape", "eps"}},
      {"GroupNorm", {"num_groups", "num_channels"}}, {"Embedding", {"num_embeddings", "embedding_dim"}}, {"MaxPool2d", max_pool},
      {"MaxPool1d", max_pool}, {"AvgPool2d", avg_pool}, {"AvgPool1d", avg_pool}, {"AdaptiveAvgPool2d", {"output_size"}},
      {"Flatten", {"start_dim", "end_dim"}}, {"Softmax", {"dim"}}, {"LogSoftmax", {"dim"}}, {"Dropout", {"p", "inplace"}}};
  static const std::vector<std::string> none;
  const auto it = table.find(cls);
  return it == table.end() ? none : it->second;
}

namespace {

using Sizes = std::optional<std::vector<int64_t>>;

Value config(const Value& c, std::string_view name) {
  for (const auto& [k, v] : c->named) if (k == name) return v;
  return nullptr;
}
std::optional<int64_t> one(const Value& v) { return is(v, V::integer) ? std::optional<int64_t>(v->number) : std::nullopt; }
// `n` sizes from an integer or a tuple; `fallback` where nothing is given.
Sizes several(const Value& v, size_t n, std::optional<int64_t> fallback) {
  if (!v || is(v, V::none)) return fallback ? Sizes(std::vector<int64_t>(n, *fallback)) : std::nullopt;
  if (const auto i = one(v)) return std::vector<int64_t>(n, *i);
  if ((!is(v, V::tuple) && !is(v, V::list)) || v->items.size() != n) return std::nullopt;
  std::vector<int64_t> out;
  for (const auto& i : v->items) {
    const auto x = one(i);
    if (!x) return std::nullopt;
    out.push_back(*x);
  }
  return out;
}
std::optional<bool> flag(const Value& v, bool fallback) {
  if (!v) return fallback;
  const Truth t = truth(v);
  return t == Truth::unknown ? std::nullopt : std::optional<bool>(t == Truth::yes);
}
int64_t product(const Shape& s, size_t from, size_t to) {
  return std::accumulate(s.begin() + static_cast<std::ptrdiff_t>(from), s.begin() + static_cast<std::ptrdiff_t>(to), int64_t{1}, std::multiplies<>());
}

std::string pair(const char* name, const std::vector<int64_t>& v) {
  if (v.size() == 1 || v[0] == v[1]) return std::string(" ") + name + "=" + std::to_string(v[0]);
  return std::string(" ") + name + "_h=" + std::to_string(v[0]) + " " + name + "_w=" + std::to_string(v[1]);
}

// (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded up if asked.
std::optional<int64_t> window(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil) {
  if (stride <= 0) return std::nullopt;
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) return std::nullopt;
  int64_t out = (room + (ceil ? stride - 1 : 0)) / stride + 1;
  if (ceil && (out - 1) * stride >= size + padding) --out;
  return out;
}

Inferred same(const Shape& s, DType d, std::string op) {
  return {true, s, d, {{std::move(op), {{s, d}}, ""}}};
}

}  // namespace

Inferred inferLayer(std::string_view cls, const Value& c, const Value& input) {
  static const std::map<std::string, std::string, std::less<>> pointwise = {
      {"ReLU", "aten::relu"}, {"GELU", "aten::gelu"}, {"SiLU", "aten::silu"}, {"Sigmoid", "aten::sigmoid"}, {"Tanh", "aten::tanh"},
      {"LeakyReLU", "aten::leaky_relu"}, {"ELU", "aten::elu"}, {"Hardswish", "aten::hardswish"}, {"ReLU6", "aten::hardtanh"}};
  Inferred unknown_result{true, std::nullopt, DType::other, {}};
  if (!is(input, V::tensor) || !input->shape || !c) return {layerParameters(cls).size() > 0 || pointwise.count(cls) > 0, std::nullopt, input ? input->dtype : DType::other, {}};
  const Shape& x = *input->shape;
  const DType d = input->dtype;
  if (const auto p = pointwise.find(cls); p != pointwise.end()) return same(x, d, p->second);
  if (cls == "Identity" || cls.starts_with("Dropout")) return {true, x, d, {}};   // dropout: nothing in eval, a mask in training
  if (cls == "Linear") {
    const auto in = one(config(c, "in_features")), out = one(config(c, "out_features"));
    const auto bias = flag(config(c, "bias"), true);
    if (!in || !out || !bias || x.empty() || x.back() != *in) return unknown_result;
    Shape r = x;
    r.back() = *out;
    OpCall op{"aten::linear", {{x, d}, {{*out, *in}, d}}, ""};
    if (*bias) op.operands.push_back({{*out}, d});
    return {true, r, d, {op}};
  }
  if (cls.starts_with("Conv") && cls.size() == 6) {
    const size_t n = static_cast<size_t>(cls[4] - '0');
    const auto in = one(config(c, "in_channels")), out = one(config(c, "out_channels"));
    const Value padding_value = config(c, "padding");
    const auto k = several(config(c, "kernel_size"), n, std::nullopt), s = several(config(c, "stride"), n, 1), dil = several(config(c, "dilation"), n, 1);
    auto p = several(padding_value, n, 0);
    const auto groups = config(c, "groups") ? one(config(c, "groups")) : std::optional<int64_t>(1);
    const auto bias = flag(config(c, "bias"), true);
    if (is(padding_value, V::string) && padding_value->text == "same" && k && dil) {
      p = std::vector<int64_t>(n);
      for (size_t i = 0; i < n; ++i) {
        if ((*dil)[i] * ((*k)[i] - 1) % 2) return unknown_result;
        (*p)[i] = (*dil)[i] * ((*k)[i] - 1) / 2;
      }
    } else if (is(padding_value, V::string) && padding_value->text == "valid") {
      p = std::vector<int64_t>(n, 0);
    }
    if (!in || !out || !k || !s || !dil || !p || !groups || *groups <= 0 || !bias) return unknown_result;
    if (x.size() != n + 2 || x[1] != *in) return unknown_result;
    Shape r = {x[0], *out}, w = {*out, *in / *groups};
    for (size_t i = 0; i < n; ++i) {
      const auto size = window(x[i + 2], (*k)[i], (*s)[i], (*p)[i], (*dil)[i], false);
      if (!size) return unknown_result;
      r.push_back(*size);
      w.push_back((*k)[i]);
    }
    Inferred result{true, r, d, {}};
    if (n <= 2) {
      OpCall op{n == 1 ? "aten::conv1d" : "aten::conv2d", {{x, d}, {w, d}}, ""};
      if (*bias) op.operands.push_back({{*out}, d});
      op.scalars = (pair("stride", *s) + pair("padding", *p) + pair("dilation", *dil) + " groups=" + std::to_string(*groups)).substr(1);
      result.ops.push_back(op);
    }
    return result;
  }
  if (cls.starts_with("BatchNorm")) {
    const auto n = one(config(c, "num_features"));
    if (!n || x.size() < 2 || x[1] != *n) return unknown_result;
    return {true, x, d, {{"aten::batch_norm", {{x, d}, {{*n}, d}, {{*n}, d}}, ""}}};
  }
  if (cls == "LayerNorm") {
    const Value v = config(c, "normalized_shape");
    const auto n = one(v) ? Sizes(std::vector<int64_t>{*one(v)}) : is(v, V::tuple) || is(v, V::list) ? several(v, v->items.size(), std::nullopt) : std::nullopt;
    if (!n || n->size() > x.size() || !std::equal(n->rbegin(), n->rend(), x.rbegin())) return unknown_result;
    return {true, x, d, {{"aten::layer_norm", {{x, d}, {*n, d}, {*n, d}}, ""}}};
  }
  if (cls == "GroupNorm") {
    const auto n = one(config(c, "num_channels"));
    if (!n || x.size() < 2 || x[1] != *n) return unknown_result;
    return {true, x, d, {{"aten::group_norm", {{x, d}, {{*n}, d}, {{*n}, d}}, ""}}};
  }
  if (cls == "Embedding") {
    const auto n = one(config(c, "num_embeddings")), size = one(config(c, "embedding_dim"));
    if (!n || !size) return unknown_result;
    Shape r = x;
    r.push_back(*size);
    // PyTorch looks rows up with index_select, whatever the shape of the indices; no more rows than there are indices are read.
    const int64_t rows = product(x, 0, x.size());
    return {true, r, DType::float32, {{"aten::index_select", {{{std::min(*n, rows), *size}, DType::float32}, {{rows}, d}}, ""}}};
  }
  if (cls == "MaxPool2d" || cls == "AvgPool2d" || cls == "MaxPool1d" || cls == "AvgPool1d") {
    const size_t n = static_cast<size_t>(cls[7] - '0');
    const auto k = several(config(c, "kernel_size"), n, std::nullopt);
    const Value stride = config(c, "stride");
    const auto s = !stride || is(stride, V::none) ? k : several(stride, n, std::nullopt);
    const auto p = several(config(c, "padding"), n, 0), dil = several(config(c, "dilation"), n, 1);
    const auto ceil = flag(config(c, "ceil_mode"), false);
    if (!k || !s || !p || !dil || !ceil || x.size() < n + 1) return unknown_result;
    Shape r = x;
    for (size_t i = 0; i < n; ++i) {
      const auto size = window(x[x.size() - n + i], (*k)[i], (*s)[i], (*p)[i], (*dil)[i], *ceil);
      if (!size) return unknown_result;
      r[x.size() - n + i] = *size;
    }
    Inferred result{true, r, d, {}};
    if (n == 2)
      result.ops.push_back({cls[0] == 'M' ? "aten::max_pool2d" : "aten::avg_pool2d", {{x, d}}, (pair("kernel", *k) + pair("stride", *s) + pair("padding", *p)).substr(1)});
    return result;
  }
  if (cls == "AdaptiveAvgPool2d") {
    const auto o = several(config(c, "output_size"), 2, std::nullopt);
    if (!o || x.size() < 3) return unknown_result;
    Shape r = x;
    r[x.size() - 2] = (*o)[0];
    r[x.size() - 1] = (*o)[1];
    const int64_t kh = (*o)[0] > 0 ? x[x.size() - 2] / (*o)[0] : 0, kw = (*o)[1] > 0 ? x[x.size() - 1] / (*o)[1] : 0;
    if (kh <= 0 || kw <= 0) return {true, r, d, {}};
    return {true, r, d, {{"aten::adaptive_avg_pool2d", {{x, d}}, (pair("kernel", {kh, kw}) + pair("stride", {kh, kw})).substr(1)}}};
  }
  if (cls == "Flatten") {
    const auto from = config(c, "start_dim") ? one(config(c, "start_dim")) : std::optional<int64_t>(1);
    const auto to = config(c, "end_dim") ? one(config(c, "end_dim")) : std::optional<int64_t>(-1);
    if (!from || !to || x.empty()) return unknown_result;
    const auto rank = static_cast<int64_t>(x.size());
    const int64_t a = *from < 0 ? *from + rank : *from, b = *to < 0 ? *to + rank : *to;
    if (a < 0 || b >= rank || a > b) return unknown_result;
    Shape r(x.begin(), x.begin() + a);
    r.push_back(product(x, static_cast<size_t>(a), static_cast<size_t>(b) + 1));
    r.insert(r.end(), x.begin() + b + 1, x.end());
    return {true, r, d, {}};
  }
  if (cls == "Softmax" || cls == "LogSoftmax") return same(x, d, cls == "Softmax" ? "aten::softmax.int" : "aten::log_softmax.int");
  return {};
}

}  // namespace flagos::lsp

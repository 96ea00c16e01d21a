#include "lsp/predict/bytes.h"

#include <cmath>
#include <functional>
#include <set>

#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {

std::optional<int64_t> number(const Value& v) {
  if (is(v, V::integer) && v->number >= 0) return v->number;
  return std::nullopt;
}

std::optional<std::vector<int64_t>> sizes(const std::vector<Value>& items) {
  std::vector<int64_t> out;
  for (const auto& i : items) {
    const auto n = number(i);
    if (!n) return std::nullopt;
    out.push_back(*n);
  }
  return out;
}

std::optional<std::vector<int64_t>> shapeArgument(const Args& args, size_t from, const char* keyword) {
  if (const Arg* k = args.keyword(keyword)) {
    if (is(k->value, V::tuple) || is(k->value, V::list)) return sizes(k->value->items);
    if (const auto n = number(k->value)) return std::vector<int64_t>{*n};
    return std::nullopt;
  }
  const Arg* first = args.at(from);
  if (!first) return std::nullopt;
  if (is(first->value, V::tuple) || is(first->value, V::list)) return sizes(first->value->items);
  std::vector<Value> items;
  for (size_t i = from; const Arg* a = args.at(i); ++i) items.push_back(a->value);
  return sizes(items);
}

// Shape and type of nested literal lists.
bool literal(const Value& v, std::vector<int64_t>& shape, DType& dtype, size_t depth) {
  if (is(v, V::list) || is(v, V::tuple)) {
    const auto n = static_cast<int64_t>(v->items.size());
    if (shape.size() <= depth) shape.push_back(n);
    else if (shape[depth] != n) return false;
    for (const auto& i : v->items) if (!literal(i, shape, dtype, depth + 1)) return false;
    return true;
  }
  if (shape.size() > depth) return false;
  if (is(v, V::real)) dtype = DType::float32;
  else if (is(v, V::integer)) { if (dtype != DType::float32) dtype = DType::int64; }
  else if (is(v, V::boolean)) { if (dtype == DType::other) dtype = DType::bool_; }
  else return false;
  return true;
}

std::optional<std::vector<int64_t>> perDimension(const Value& v, size_t n) {
  if (const auto one = number(v)) return std::vector<int64_t>(n, *one);
  if (is(v, V::tuple) || is(v, V::list)) {
    auto s = sizes(v->items);
    if (s && s->size() == n) return s;
  }
  return std::nullopt;
}

// Of a MultiheadAttention: the projections of query, key and value in one matrix, and the one behind.
double attention(double size, bool bias) { return 4 * (4 * size * size + (bias ? 4 * size : 0)); }

constexpr double kCountable = 9223372036854775808.0;

// A size that no 64 bits hold is worth saying.
std::string whyWithout(const Args& args) {
  std::string out;
  const std::function<void(const Value&)> look = [&](const Value& v) {
    if (is(v, V::unknown) && v->text.ends_with("64 bits")) out = v->text;
    if (is(v, V::tuple) || is(v, V::list)) for (const auto& i : v->items) look(i);
  };
  for (const auto& a : args.list) look(a.value);
  return out;
}

}  // namespace

std::optional<double> TensorSize::bytes() const {
  if (!shape || dtypeBytes(dtype) == 0) return std::nullopt;
  double n = static_cast<double>(dtypeBytes(dtype));
  for (const auto s : *shape) n *= static_cast<double>(s);
  if (n >= kCountable) return std::nullopt;   // PyTorch counts bytes in 64 bits
  return n;
}

std::string TensorSize::how() const {
  if (!shape && !why.empty()) return why;
  if (!shape) return "the shape does not follow from literals";
  if (dtypeBytes(dtype) == 0) return "the dtype is not known";
  std::string out(dtypeName(dtype));
  out += " [";
  for (size_t i = 0; i < shape->size(); ++i) out += (i ? ", " : "") + std::to_string((*shape)[i]);
  out += "]";
  return bytes() ? out : out + " needs more bytes than 64 bits count";
}

namespace {
std::optional<double> real(const Value& v) {
  if (is(v, V::integer)) return static_cast<double>(v->number);
  return is(v, V::real) ? std::optional(v->real) : std::nullopt;
}
}  // namespace

TensorSize factorySize(const std::string& name, const Args& args) {
  TensorSize out;
  out.dtype = DType::float32;
  if (args.unknown_rest) { out.dtype = DType::other; return out; }
  if (name == "zeros" || name == "ones" || name == "empty" || name == "rand" || name == "randn") {
    out.shape = shapeArgument(args, 0, "size");
  } else if (name == "full") {
    const Arg* size = args.get(0, "size");
    if (size && (is(size->value, V::tuple) || is(size->value, V::list))) out.shape = sizes(size->value->items);
    const Arg* fill = args.get(1, "fill_value");
    if (fill) out.dtype = is(fill->value, V::integer) ? DType::int64 : is(fill->value, V::real) ? DType::float32 : is(fill->value, V::boolean) ? DType::bool_ : DType::other;
  } else if (name == "eye") {
    const auto n = args.get(0, "n") ? number(args.get(0, "n")->value) : std::nullopt;
    const Arg* m = args.get(1, "m");
    const auto columns = m ? number(m->value) : n;
    if (n && columns) out.shape = {{*n, *columns}};
  } else if (name == "arange") {
    const Arg *a = args.at(0), *b = args.at(1), *c = args.at(2);
    out.dtype = DType::other;
    if (a && is(a->value, V::integer) && (!b || is(b->value, V::integer)) && (!c || is(c->value, V::integer))) {
      const int64_t from = b ? a->value->number : 0, to = b ? b->value->number : a->value->number, step = c ? c->value->number : 1;
      if (step > 0 && to >= from) { out.shape = {{(to - from + step - 1) / step}}; out.dtype = DType::int64; }
    } else if (const auto x = a ? real(a->value) : std::nullopt, y = b ? real(b->value) : std::nullopt, z = c ? real(c->value) : std::nullopt; x && (y || !b) && (z || !c)) {
      const double from = y ? *x : 0, to = y ? *y : *x, length = std::ceil((to - from) / z.value_or(1));
      if (length >= 0 && length < 1e15) { out.shape = {{static_cast<int64_t>(length)}}; out.dtype = DType::float32; }
    }
  } else if (name == "linspace" || name == "logspace") {
    const Arg* steps = args.get(2, "steps");
    if (steps) if (const auto n = number(steps->value)) out.shape = {{*n}};
  } else if (name == "randperm") {
    out.dtype = DType::int64;
    if (const Arg* a = args.get(0, "n")) if (const auto n = number(a->value)) out.shape = {{*n}};
  } else if (name == "randint") {
    out.dtype = DType::int64;
    const Arg* size = args.keyword("size");
    for (size_t i = 1; !size && i < 3; ++i) if (const Arg* a = args.at(i); a && (is(a->value, V::tuple) || is(a->value, V::list))) size = a;
    if (size) out.shape = sizes(size->value->items);
  } else if (name == "tensor" || name == "as_tensor") {
    std::vector<int64_t> shape;
    out.dtype = DType::other;
    if (const Arg* a = args.get(0, "data"); a && literal(a->value, shape, out.dtype, 0)) out.shape = shape;
    else out.dtype = DType::other;
  } else {
    out.dtype = DType::other;
  }
  if (!out.shape) out.why = whyWithout(args);
  if (const Arg* d = args.keyword("dtype")) out.dtype = is(d->value, V::dtype) ? d->value->dtype : is(d->value, V::none) ? out.dtype : DType::other;
  return out;
}

std::optional<double> layerSize(const std::string& cls, const Args& args) {
  static const std::set<std::string> without = {"ReLU", "ReLU6", "LeakyReLU", "ELU", "GELU", "SiLU", "Sigmoid", "Tanh", "Softmax", "LogSoftmax",
      "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Flatten", "Unflatten", "Identity", "MaxPool1d", "MaxPool2d", "MaxPool3d", "AvgPool1d",
      "AvgPool2d", "AvgPool3d", "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "Upsample", "PixelShuffle", "CrossEntropyLoss",
      "MSELoss", "NLLLoss", "L1Loss", "BCELoss", "BCEWithLogitsLoss", "SmoothL1Loss", "KLDivLoss", "HuberLoss", "Hardswish", "Mish", "ZeroPad2d", "Softplus", "Softmin", "Softsign", "Tanhshrink",
      "GLU", "Hardtanh", "Hardsigmoid", "CELU", "SELU", "AlphaDropout", "LogSigmoid", "ReflectionPad1d", "ReflectionPad2d", "ReplicationPad1d",
      "ReplicationPad2d", "ConstantPad1d", "ConstantPad2d", "UpsamplingNearest2d", "UpsamplingBilinear2d", "Fold", "Unfold", "AdaptiveAvgPool3d",
      "AdaptiveMaxPool1d", "PixelUnshuffle", "CosineSimilarity", "TripletMarginLoss", "CTCLoss", "LocalResponseNorm"};
  if (without.count(cls)) {
    for (const auto& a : args.list) if (isAny(a.value, V::tensor)) return std::nullopt;   // class weights are a buffer
    return 0.0;
  }
  if (args.unknown_rest) return std::nullopt;
  if (const Arg* d = args.keyword("dtype"); d && !is(d->value, V::dtype) && !is(d->value, V::none)) return std::nullopt;
  const auto get = [&](size_t i, const char* name) -> std::optional<double> {
    const Arg* a = args.get(i, name);
    const auto n = a ? number(a->value) : std::nullopt;
    return n ? std::optional<double>(static_cast<double>(*n)) : std::nullopt;
  };
  const auto flag = [&](size_t i, const char* name, bool fallback) -> std::optional<bool> {
    const Arg* a = args.get(i, name);
    if (!a) return fallback;
    const Truth t = truth(a->value);
    return t == Truth::unknown ? std::nullopt : std::optional<bool>(t == Truth::yes);
  };
  if (cls == "Linear") {
    const auto in = get(0, "in_features"), out = get(1, "out_features");
    const auto bias = flag(2, "bias", true);
    if (in && out && bias) return 4 * (*in * *out + (*bias ? *out : 0));
  } else if (cls.starts_with("Conv") && cls.size() > 5 && cls.back() == 'd') {
    const bool transposed = cls.starts_with("ConvTranspose");
    const auto dims = static_cast<size_t>(cls[cls.size() - 2] - '0');
    const auto in = get(0, "in_channels"), out = get(1, "out_channels");
    const Arg* k = args.get(2, "kernel_size");
    const auto kernel = k ? perDimension(k->value, dims) : std::nullopt;
    const Arg* g = args.get(transposed ? 6 : 6, "groups");
    const auto groups = g ? get(6, "groups") : std::optional<double>(1);
    const auto bias = flag(7, "bias", true);
    if (in && out && kernel && groups && *groups > 0 && bias) {
      double n = *in * *out / *groups;
      for (const auto s : *kernel) n *= static_cast<double>(s);
      return 4 * (n + (*bias ? *out : 0));
    }
  } else if (cls == "Embedding" || cls == "EmbeddingBag") {
    const auto n = get(0, "num_embeddings"), d = get(1, "embedding_dim");
    if (n && d) return 4 * *n * *d;
  } else if (cls.starts_with("BatchNorm")) {
    const auto n = get(0, "num_features");
    const auto affine = flag(3, "affine", true), track = flag(4, "track_running_stats", true);
    if (n && affine && track) return 4 * ((*affine ? 2 * *n : 0) + (*track ? 2 * *n : 0)) + (*track ? 8 : 0);
  } else if (cls.starts_with("InstanceNorm")) {
    const auto n = get(0, "num_features");
    const auto affine = flag(3, "affine", false), track = flag(4, "track_running_stats", false);
    if (n && affine && track) return 4 * ((*affine ? 2 * *n : 0) + (*track ? 2 * *n : 0)) + (*track ? 8 : 0);
  } else if (cls == "LayerNorm" || cls == "GroupNorm" || cls == "RMSNorm") {
    const bool group = cls == "GroupNorm";
    const Arg* a = args.get(group ? 1 : 0, group ? "num_channels" : "normalized_shape");
    const auto affine = flag(group ? 3 : 2, group ? "affine" : "elementwise_affine", true);
    const auto bias = cls == "LayerNorm" ? flag(3, "bias", true) : std::optional<bool>(group);
    if (!a || !affine || !bias) return std::nullopt;
    if (!*affine) return 0.0;
    double n = 1;
    if (const auto one = number(a->value)) n = static_cast<double>(*one);
    else if (is(a->value, V::tuple) || is(a->value, V::list)) {
      const auto s = sizes(a->value->items);
      if (!s) return std::nullopt;
      for (const auto x : *s) n *= static_cast<double>(x);
    } else {
      return std::nullopt;
    }
    return (*bias ? 8 : 4) * n;
  } else if (cls == "PReLU") {
    const Arg* a = args.get(0, "num_parameters");
    const auto n = a ? number(a->value) : std::optional<int64_t>(1);
    if (n) return 4 * static_cast<double>(*n);
  } else if (cls == "Bilinear") {
    const auto a = get(0, "in1_features"), b = get(1, "in2_features"), out = get(2, "out_features");
    const auto bias = flag(3, "bias", true);
    if (a && b && out && bias) return 4 * (*a * *b * *out + (*bias ? *out : 0));
  } else if (cls == "MultiheadAttention") {
    const auto e = get(0, "embed_dim");
    const auto bias = flag(3, "bias", true), added = flag(4, "add_bias_kv", false);
    for (const char* own : {"kdim", "vdim"}) if (args.keyword(own)) return std::nullopt;
    if (e && bias && added && !*added && args.positional() <= 6) return attention(*e, *bias);
  } else if (cls == "TransformerEncoderLayer" || cls == "TransformerDecoderLayer") {
    const bool decoder = cls == "TransformerDecoderLayer";
    const auto d = get(0, "d_model");
    const Arg* f = args.get(2, "dim_feedforward");
    const auto wide = f ? get(2, "dim_feedforward") : std::optional<double>(2048);
    const auto bias = flag(8, "bias", true);
    if (d && wide && bias)
      return (decoder ? 2 : 1) * attention(*d, *bias) + 4 * (2 * *d * *wide + (*bias ? *wide + *d : 0)) + (decoder ? 3 : 2) * 4 * *d * (*bias ? 2 : 1);
  } else if (cls == "LSTM" || cls == "GRU" || cls == "RNN") {
    const double gates = cls == "LSTM" ? 4 : cls == "GRU" ? 3 : 1;
    const auto in = get(0, "input_size"), h = get(1, "hidden_size");
    const Arg* l = args.get(2, "num_layers");
    const auto layers = l ? get(2, "num_layers") : std::optional<double>(1);
    const auto bias = flag(cls == "RNN" ? 4 : 3, "bias", true), both = flag(cls == "RNN" ? 7 : 6, "bidirectional", false);
    if (!in || !h || !layers || !bias || !both || args.keyword("proj_size")) return std::nullopt;
    const double ways = *both ? 2 : 1, rest = *layers - 1;
    return 4 * gates * *h * ways * (*in + *h + rest * (*h * ways + *h) + (*bias ? 2 * *layers : 0));
  } else if (cls == "LSTMCell" || cls == "GRUCell" || cls == "RNNCell") {
    const double gates = cls == "LSTMCell" ? 4 : cls == "GRUCell" ? 3 : 1;
    const auto in = get(0, "input_size"), h = get(1, "hidden_size");
    const auto bias = flag(2, "bias", true);
    if (in && h && bias) return 4 * gates * *h * (*in + *h + (*bias ? 2 : 0));
  }
  return std::nullopt;
}

}  // namespace flagos::lsp

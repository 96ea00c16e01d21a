#include "runtime/opencl/ops/norm.h"

#include <algorithm>

#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

constexpr size_t kLanes = 64;  // LANES of norm.cl with TILED
constexpr int64_t kMostShares = 256;  // work-groups that keep sums of their own

// Mirrors of the structs in norm.cl.
struct Data {
  int64_t off, sn, sc, s0, s1;
};
struct NormParams {
  Data x, y, g;
  int64_t n, c, p0, p1, groups;
  int64_t weight_off, weight_dt, has_weight;
  int64_t bias_off, bias_dt, has_bias;
  int64_t mean_off, var_off, stats_dt;
  int64_t running_mean_off, running_var_off, running_dt, has_running;
  int64_t grad_weight_off, grad_bias_off, has_grad_weight, has_grad_bias;
  int64_t sums_off;
  int64_t training, dt, units;
  int64_t momentum, eps;  // numberBits
  int64_t rms;
};

Result<void> start(Queue& queue, const char* function, const TensorRef& data, Variant variant, NormParams& p,
                   int64_t units, std::initializer_list<const TensorRef*> tensors, const Scratch* sums = nullptr,
                   size_t shares = 0) {
  if (units == 0) return {};
  const bool tiled = variant == Variant::tiled;
  auto kernel = tileKernel(queue, "norm", function, isDouble(data), tiled);
  if (!kernel) return kernel.error();
  p.units = units;
  const size_t groups = shares ? shares : tiled ? static_cast<size_t>(std::min<int64_t>(units, 4096))
                                         : workerCount(queue, units, data.numel() * kWorkOfElement);
  const Range range = tiled ? Range{1, {kLanes * groups}, {kLanes}} : Range{1, {groups}, {1}};
  Arg args[10];
  size_t n = 0;
  // An absent tensor is passed as the data's buffer and never touched: has_* says so. A null entry is the scratch.
  for (const TensorRef* t : tensors) args[n++] = Arg::buffer(t ? t->buffer : sums->buffer());
  args[n++] = param(p);
  return queue.launch(**kernel, range, args, n);
}

// [N,C,spatial...] with the spatial dimensions merged into at most two.
Result<Data> channelsOf(const char* op, const TensorRef& t, int64_t* p0, int64_t* p1) {
  Data d{t.offset, stride(t, 0), stride(t, 1), 0, 1};
  int64_t sizes[kMaxDims], strides[kMaxDims];
  int n = 0;
  for (int i = 2; i < t.ndim; ++i) {
    if (size(t, i) == 1) continue;
    if (n && strides[n - 1] == size(t, i) * stride(t, i)) {
      sizes[n - 1] *= size(t, i);
      strides[n - 1] = stride(t, i);
    } else {
      sizes[n] = size(t, i);
      strides[n++] = stride(t, i);
    }
  }
  if (n > 2)
    return fail("opencl " + std::string(op) + ": the strides of " + sizesText(t) + " are too scattered",
                "call .contiguous() first");
  *p0 = n == 2 ? sizes[0] : 1;
  *p1 = n ? sizes[n - 1] : 1;
  d.s0 = n == 2 ? strides[0] : 0;
  d.s1 = n ? strides[n - 1] : 1;
  return d;
}

// The data tensors of one batch norm call seen as [n][c][p0][p1], all alike.
Result<void> sameShape(const char* op, NormParams& p, const TensorRef& x, const TensorRef* y, const TensorRef* g) {
  if (x.ndim < 2) return fail("opencl " + std::string(op) + " needs [N,C,...], not " + sizesText(x));
  p.n = size(x, 0), p.c = size(x, 1), p.dt = storageCode(x.dtype);
  struct Side { const TensorRef* t; Data* d; } sides[] = {{&x, &p.x}, {y, &p.y}, {g, &p.g}};
  // If the tensors' memory orders differ, merged dimensions may too: then the unmerged last two serve all of them.
  int64_t want0 = 0, want1 = 0;
  bool alike = true;
  for (const Side& s : sides) {
    if (!s.t) continue;
    if (s.t->ndim != x.ndim) return fail("opencl " + std::string(op) + ": ranks differ");
    for (int i = 0; i < x.ndim; ++i)
      if (size(*s.t, i) != size(x, i))
        return fail("opencl " + std::string(op) + ": " + sizesText(*s.t) + " does not fit " + sizesText(x));
    int64_t p0 = 0, p1 = 0;
    auto d = channelsOf(op, *s.t, &p0, &p1);
    if (!d) return d.error();
    *s.d = *d;
    if (s.t == &x) want0 = p0, want1 = p1;
    alike = alike && p0 == want0 && p1 == want1;
  }
  p.p0 = want0, p.p1 = want1;
  if (alike) return {};
  if (x.ndim > 4) return fail("opencl " + std::string(op) + ": memory orders differ", "call .contiguous() first");
  p.p0 = x.ndim == 4 ? size(x, 2) : 1;
  p.p1 = size(x, x.ndim - 1);
  for (const Side& s : sides)
    if (s.t) *s.d = {s.t->offset, stride(*s.t, 0), stride(*s.t, 1), x.ndim == 4 ? stride(*s.t, 2) : 0, stride(*s.t, x.ndim - 1)};
  return {};
}

Result<void> checkVector(const char* op, const TensorRef* t, int64_t count) {
  if (!t) return {};
  if (auto ok = checkFloating(op, {t}); !ok) return ok;
  if (t->numel() != count || !t->contiguous())
    return fail("opencl " + std::string(op) + ": " + sizesText(*t) + " should be " + std::to_string(count) +
                " contiguous values");
  return {};
}

Result<void> checkContiguous(const char* op, std::initializer_list<const TensorRef*> tensors) {
  for (const TensorRef* t : tensors)
    if (t && !t->contiguous())
      return fail("opencl " + std::string(op) + ": " + sizesText(*t) + " is not contiguous", "call .contiguous() first");
  return {};
}

void setWeights(NormParams& p, const TensorRef* weight, const TensorRef* bias) {
  if (weight) p.has_weight = 1, p.weight_off = weight->offset, p.weight_dt = storageCode(weight->dtype);
  if (bias) p.has_bias = 1, p.bias_off = bias->offset, p.bias_dt = storageCode(bias->dtype);
}

void setStats(NormParams& p, const TensorRef& mean, const TensorRef& var) {
  p.mean_off = mean.offset, p.var_off = var.offset, p.stats_dt = storageCode(mean.dtype);
}

void setGradients(NormParams& p, const TensorRef* grad_weight, const TensorRef* grad_bias) {
  if (grad_weight) p.has_grad_weight = 1, p.grad_weight_off = grad_weight->offset, p.weight_dt = storageCode(grad_weight->dtype);
  if (grad_bias) p.has_grad_bias = 1, p.grad_bias_off = grad_bias->offset;
  if (grad_bias && !grad_weight) p.weight_dt = storageCode(grad_bias->dtype);
}

int64_t lanes(const TensorRef& data) { return isDouble(data) ? 8 : 16; }  // VL of gemm_tile.cl

// Channels beside each other in every tensor: the kernels that run along channels are right, and much faster.
bool channelsInside(const NormParams& p, bool y, bool g) {
  return p.c > 1 && p.x.sc == 1 && (!y || p.y.sc == 1) && (!g || p.g.sc == 1) && p.p0 * p.p1 * p.n > 1;
}

Result<Scratch> takeSums(Queue& queue, NormParams& p, const TensorRef& data, int64_t pairs) {
  const size_t real_bytes = isDouble(data) ? 8 : 4;
  auto scratch = Scratch::take(queue, static_cast<size_t>(std::max<int64_t>(pairs, 1)) * 2 * real_bytes);
  if (scratch) p.sums_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  return scratch;
}

// A float64 program reads everything as float64; a float32 one cannot read float64 at all.
Result<void> sameWidth(const char* op, const TensorRef& data, std::initializer_list<const TensorRef*> others) {
  for (const TensorRef* t : others)
    if (t && isDouble(*t) != isDouble(data))
      return fail("opencl " + std::string(op) + " cannot mix " + std::string(dtypeName(data.dtype)) + " and " +
                  std::string(dtypeName(t->dtype)));
  return {};
}

#define FLAGOS_TRY(expression) \
  if (auto ok = (expression); !ok) return ok.error()

}  // namespace

Result<void> batchNorm(Queue& queue, const TensorRef& x, const TensorRef& y, const BatchNormTensors& t,
                       const BatchNormArgs& args, Variant variant) {
  constexpr const char* op = "batch_norm";
  FLAGOS_TRY(checkFloating(op, {&x, &y}));
  NormParams p{};
  FLAGOS_TRY(sameShape(op, p, x, &y, nullptr));
  for (const TensorRef* v : {t.weight, t.bias, t.running_mean, t.running_var}) FLAGOS_TRY(checkVector(op, v, p.c));
  FLAGOS_TRY(sameWidth(op, x, {t.weight, t.bias, t.running_mean, t.running_var, t.save_mean, t.save_invstd}));
  setWeights(p, t.weight, t.bias);
  p.training = args.training;
  p.momentum = numberBits(args.momentum, isDouble(x)), p.eps = numberBits(args.eps, isDouble(x));
  const TensorRef* mean = args.training ? t.save_mean : t.running_mean;
  const TensorRef* var = args.training ? t.save_invstd : t.running_var;
  if (!mean || !var) return fail("opencl batch_norm: no statistics to use or to save");
  FLAGOS_TRY(checkVector(op, mean, p.c));
  FLAGOS_TRY(checkVector(op, var, p.c));
  if (x.numel() == 0) return {};
  setStats(p, *mean, *var);
  const bool columns = channelsInside(p, true, false);
  if (args.training) {
    if (t.running_mean && t.running_var) {
      p.has_running = 1, p.running_mean_off = t.running_mean->offset, p.running_var_off = t.running_var->offset;
      p.running_dt = storageCode(t.running_mean->dtype);
    }
    FLAGOS_TRY(start(queue, columns ? "bn_stats_columns" : "bn_stats", x, variant, p, columns ? ceilDiv(p.c, lanes(x)) : p.c,
                     {&x, mean, var, p.has_running ? t.running_mean : &x, p.has_running ? t.running_var : &x}));
  }
  return start(queue, columns ? "norm_apply_columns" : "norm_apply", x, variant, p,
               columns ? p.n * p.p0 * p.p1 : p.n * p.c,
               {&x, mean, var, t.weight ? t.weight : &x, t.bias ? t.bias : &x, &y});
}

Result<void> batchNormBackward(Queue& queue, const TensorRef& g, const TensorRef& x, const BatchNormTensors& t,
                               const TensorRef* grad_input, const TensorRef* grad_weight, const TensorRef* grad_bias,
                               const BatchNormArgs& args, Variant variant) {
  constexpr const char* op = "batch_norm backward";
  FLAGOS_TRY(checkFloating(op, {&g, &x}));
  NormParams p{};
  FLAGOS_TRY(sameShape(op, p, x, grad_input, &g));
  const TensorRef* mean = args.training ? t.save_mean : t.running_mean;
  const TensorRef* var = args.training ? t.save_invstd : t.running_var;
  if (!mean || !var) return fail("opencl batch_norm backward: no statistics given");
  for (const TensorRef* v : {mean, var, t.weight, grad_weight, grad_bias}) FLAGOS_TRY(checkVector(op, v, p.c));
  FLAGOS_TRY(sameWidth(op, x, {t.weight, mean, var, grad_weight, grad_bias}));
  setWeights(p, t.weight, nullptr);
  setGradients(p, grad_weight, grad_bias);
  setStats(p, *mean, *var);
  p.training = args.training, p.eps = numberBits(args.eps, isDouble(x));
  const bool columns = channelsInside(p, grad_input != nullptr, true);
  auto sums = takeSums(queue, p, x, p.c);
  if (!sums) return sums.error();
  if (args.training || grad_weight || grad_bias)
    FLAGOS_TRY(start(queue, columns ? "bn_grad_sums_columns" : "bn_grad_sums", x, variant, p,
                     columns ? ceilDiv(p.c, lanes(x)) : p.c,
                     {&g, &x, mean, var, nullptr, grad_weight ? grad_weight : &x, grad_bias ? grad_bias : &x}, &*sums));
  if (!grad_input) return {};
  return start(queue, columns ? "bn_grad_apply_columns" : "bn_grad_apply", x, variant, p,
               columns ? p.n * p.p0 * p.p1 : p.n * p.c,
               {&g, &x, mean, var, nullptr, t.weight ? t.weight : &x, grad_input}, &*sums);
}

namespace {

// Layer norm, or, without a mean, root-mean-square norm.
Result<void> rowNorm(Queue& queue, const char* op, const TensorRef& x, int64_t rows, int64_t columns, const TensorRef* weight,
                     const TensorRef* bias, double eps, const TensorRef& y, const TensorRef* mean, const TensorRef& rstd,
                     Variant variant) {
  FLAGOS_TRY(checkFloating(op, {&x, &y}));
  FLAGOS_TRY(checkContiguous(op, {&x, &y}));
  FLAGOS_TRY(checkVector(op, weight, columns));
  FLAGOS_TRY(checkVector(op, bias, columns));
  FLAGOS_TRY(checkVector(op, mean, rows));
  FLAGOS_TRY(checkVector(op, &rstd, rows));
  FLAGOS_TRY(sameWidth(op, x, {weight, bias, mean, &rstd}));
  if (x.numel() != rows * columns) return fail("opencl " + std::string(op) + ": rows x columns does not fit " + sizesText(x));
  if (columns == 0) return {};
  NormParams p{};
  p.x.off = x.offset, p.y.off = y.offset, p.n = rows, p.p1 = columns, p.dt = storageCode(x.dtype);
  p.eps = numberBits(eps, isDouble(x));
  p.rms = mean == nullptr;
  const TensorRef& centre = mean ? *mean : rstd;
  setWeights(p, weight, bias);
  setStats(p, centre, rstd);
  return start(queue, "ln_forward", x, variant, p, rows, {&x, &centre, &rstd, weight ? weight : &x, bias ? bias : &x, &y});
}

Result<void> rowNormBackward(Queue& queue, const char* op, const TensorRef& g, const TensorRef& x, int64_t rows, int64_t columns,
                             const TensorRef* mean, const TensorRef& rstd, const TensorRef* weight,
                             const TensorRef* grad_input, const TensorRef* grad_weight, const TensorRef* grad_bias,
                             Variant variant) {
  FLAGOS_TRY(checkFloating(op, {&g, &x}));
  FLAGOS_TRY(checkContiguous(op, {&g, &x, grad_input}));
  for (const TensorRef* v : {weight, grad_weight, grad_bias}) FLAGOS_TRY(checkVector(op, v, columns));
  FLAGOS_TRY(checkVector(op, mean, rows));
  FLAGOS_TRY(checkVector(op, &rstd, rows));
  FLAGOS_TRY(sameWidth(op, x, {weight, mean, &rstd, grad_weight, grad_bias}));
  if (x.numel() != rows * columns) return fail("opencl " + std::string(op) + ": rows x columns does not fit " + sizesText(x));
  if (columns == 0) return {};
  NormParams p{};
  p.x.off = x.offset, p.g.off = g.offset, p.n = rows, p.p1 = columns, p.dt = storageCode(x.dtype);
  setWeights(p, weight, nullptr);
  setGradients(p, grad_weight, grad_bias);
  p.rms = mean == nullptr;
  const TensorRef& centre = mean ? *mean : rstd;
  setStats(p, centre, rstd);
  const bool sums = grad_weight || grad_bias;
  if (!sums && !grad_input) return {};
  if (grad_input) p.groups = 1, p.y.off = grad_input->offset;
  const size_t shares = variant == Variant::tiled ? static_cast<size_t>(std::clamp<int64_t>(rows, 1, kMostShares))
                                                  : workerCount(queue, rows, x.numel() * kWorkOfElement);
  auto part = takeSums(queue, p, x, sums ? static_cast<int64_t>(shares) * columns : 1);
  if (!part) return part.error();
  FLAGOS_TRY(start(queue, "ln_backward", x, variant, p, rows,
                   {&g, &x, &centre, &rstd, weight ? weight : &x, grad_input ? grad_input : &x, nullptr}, &*part, shares));
  if (!sums) return {};
  p.n = rows ? static_cast<int64_t>(shares) : 0;   // no rows: the sums are zero
  return start(queue, "ln_finish", x, variant, p, ceilDiv(columns, lanes(x)),
               {nullptr, grad_weight ? grad_weight : &x, grad_bias ? grad_bias : &x}, &*part);
}

}  // namespace

Result<void> layerNorm(Queue& queue, const TensorRef& x, int64_t rows, int64_t columns, const TensorRef* weight,
                       const TensorRef* bias, double eps, const TensorRef& y, const TensorRef& mean,
                       const TensorRef& rstd, Variant variant) {
  return rowNorm(queue, "layer_norm", x, rows, columns, weight, bias, eps, y, &mean, rstd, variant);
}
Result<void> layerNormBackward(Queue& queue, const TensorRef& g, const TensorRef& x, int64_t rows, int64_t columns,
                               const TensorRef& mean, const TensorRef& rstd, const TensorRef* weight,
                               const TensorRef* grad_input, const TensorRef* grad_weight, const TensorRef* grad_bias,
                               Variant variant) {
  return rowNormBackward(queue, "layer_norm backward", g, x, rows, columns, &mean, rstd, weight, grad_input, grad_weight, grad_bias, variant);
}
Result<void> rmsNorm(Queue& queue, const TensorRef& x, int64_t rows, int64_t columns, const TensorRef* weight, double eps,
                     const TensorRef& y, const TensorRef& rstd, Variant variant) {
  return rowNorm(queue, "rms_norm", x, rows, columns, weight, nullptr, eps, y, nullptr, rstd, variant);
}
Result<void> rmsNormBackward(Queue& queue, const TensorRef& g, const TensorRef& x, int64_t rows, int64_t columns,
                             const TensorRef& rstd, const TensorRef* weight, const TensorRef* grad_input,
                             const TensorRef* grad_weight, Variant variant) {
  return rowNormBackward(queue, "rms_norm backward", g, x, rows, columns, nullptr, rstd, weight, grad_input, grad_weight, nullptr, variant);
}

namespace {

Result<void> describeGroups(const char* op, NormParams& p, const TensorRef& x, int64_t groups, const TensorRef& mean,
                            const TensorRef& rstd) {
  if (x.ndim < 2 || groups < 1 || size(x, 1) % groups)
    return fail("opencl " + std::string(op) + ": " + std::to_string(groups) + " groups do not fit " + sizesText(x));
  p.n = size(x, 0), p.c = size(x, 1), p.p0 = 1, p.p1 = 1, p.groups = groups;
  for (int i = 2; i < x.ndim; ++i) p.p1 *= size(x, i);
  p.dt = storageCode(x.dtype), p.training = 1;
  FLAGOS_TRY(checkVector(op, &mean, p.n * groups));
  FLAGOS_TRY(checkVector(op, &rstd, p.n * groups));
  setStats(p, mean, rstd);
  return {};
}

Data planes(const NormParams& p, const TensorRef& t) { return {t.offset, p.c * p.p1, p.p1, 0, 1}; }

}  // namespace

Result<void> groupNorm(Queue& queue, const TensorRef& x, int64_t groups, const TensorRef* weight, const TensorRef* bias,
                       double eps, const TensorRef& y, const TensorRef& mean, const TensorRef& rstd, Variant variant) {
  constexpr const char* op = "group_norm";
  FLAGOS_TRY(checkFloating(op, {&x, &y}));
  FLAGOS_TRY(checkContiguous(op, {&x, &y}));
  FLAGOS_TRY(sameWidth(op, x, {weight, bias, &mean, &rstd}));
  NormParams p{};
  FLAGOS_TRY(describeGroups(op, p, x, groups, mean, rstd));
  FLAGOS_TRY(checkVector(op, weight, p.c));
  FLAGOS_TRY(checkVector(op, bias, p.c));
  if (x.numel() == 0) return {};
  p.x = planes(p, x), p.y = planes(p, y), p.eps = numberBits(eps, isDouble(x));
  setWeights(p, weight, bias);
  NormParams rows = p;
  rows.p1 = p.c / groups * p.p1;
  FLAGOS_TRY(start(queue, "row_stats", x, variant, rows, p.n * groups, {&x, &mean, &rstd}));
  return start(queue, "norm_apply", x, variant, p, p.n * p.c,
               {&x, &mean, &rstd, weight ? weight : &x, bias ? bias : &x, &y});
}

Result<void> groupNormBackward(Queue& queue, const TensorRef& g, const TensorRef& x, int64_t groups,
                               const TensorRef& mean, const TensorRef& rstd, const TensorRef* weight,
                               const TensorRef* grad_input, const TensorRef* grad_weight, const TensorRef* grad_bias,
                               Variant variant) {
  constexpr const char* op = "group_norm backward";
  FLAGOS_TRY(checkFloating(op, {&g, &x}));
  FLAGOS_TRY(checkContiguous(op, {&g, &x, grad_input}));
  FLAGOS_TRY(sameWidth(op, x, {weight, &mean, &rstd, grad_weight, grad_bias}));
  NormParams p{};
  FLAGOS_TRY(describeGroups(op, p, x, groups, mean, rstd));
  for (const TensorRef* v : {weight, grad_weight, grad_bias}) FLAGOS_TRY(checkVector(op, v, p.c));
  p.x = planes(p, x), p.g = planes(p, g);
  setWeights(p, weight, nullptr);
  setGradients(p, grad_weight, grad_bias);
  auto sums = takeSums(queue, p, x, p.n * p.c);
  if (!sums) return sums.error();
  FLAGOS_TRY(start(queue, "gn_plane_sums", x, variant, p, p.n * p.c, {&g, &x, &mean, &rstd, nullptr}, &*sums));
  if (grad_weight || grad_bias)
    FLAGOS_TRY(start(queue, "gn_grad_weights", x, variant, p, p.c,
                     {nullptr, grad_weight ? grad_weight : &x, grad_bias ? grad_bias : &x}, &*sums));
  if (!grad_input) return {};
  p.y = planes(p, *grad_input);
  return start(queue, "gn_grad_input", x, variant, p, p.n * p.c,
               {&g, &x, &mean, &rstd, weight ? weight : &x, nullptr, grad_input}, &*sums);
}

}  // namespace flagos::ocl

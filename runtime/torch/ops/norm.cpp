// Batch, layer and group normalisation.
#include "runtime/opencl/ops/norm.h"

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool floating(const at::Tensor& t) {
  const at::ScalarType k = t.scalar_type();
  return isNpu(t) && t.layout() == at::kStrided && (k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble);
}
bool dataFits(const at::Tensor& t) { return floating(t) && t.numel() > 0; }
at::ScalarType statistics(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

// A tensor that may be missing, as the pointer the kernels take; `given` is false for None and for empty tensors.
struct Maybe {
  at::Tensor kept;  // contiguous; what is written to stays as it is
  ocl::TensorRef r;
  bool given = false;
  explicit Maybe(const at::Tensor& t, bool written = false) : given(t.defined() && t.numel() > 0) {
    if (given) r = ref(kept = written ? t : t.contiguous());
  }
  const ocl::TensorRef* get() const { return given ? &r : nullptr; }
};
bool maybeFits(const OpCall& c, size_t i, const at::Tensor& data, bool written = false) {
  if (!c.given(i) || !c.tensor(i).defined()) return true;
  const at::Tensor& t = c.tensor(i);
  return isNpu(t) && (t.scalar_type() == data.scalar_type() || t.scalar_type() == statistics(data)) && (!written || t.is_contiguous());
}

// native_batch_norm and _native_batch_norm_legit(input, weight, bias, running_mean, running_var, training, momentum, eps);
// without running statistics the last three follow the bias. _batch_norm_with_update always trains, _batch_norm_no_update
// never does: neither has the flag, and PyTorch's own kernel of the second wants memory of the CPU.
enum class Norm { flagged, no_stats, update, no_update };
template <Norm form>
bool trains(const OpCall& c) {
  return form == Norm::update || (form != Norm::no_update && c.flag(form == Norm::no_stats ? 3 : 5));
}
template <Norm form>
Result<void> batchNorm(OpCall& c) {
  const at::Tensor& input = c.tensor(0);
  constexpr bool stats = form != Norm::no_stats, reserve = form == Norm::update || form == Norm::no_update;
  constexpr size_t numbers = stats ? (reserve ? 5 : 6) : 4;
  const bool training = trains<form>(c);
  at::Tensor out = at::empty_like(input);
  const at::ScalarType stat = statistics(input);
  at::Tensor mean = c.empty({training ? input.size(1) : 0}, stat), invstd = c.empty({training ? input.size(1) : 0}, stat);
  const Maybe w(c.tensorOr(1)), b(c.tensorOr(2)), rm(stats ? c.tensorOr(3) : at::Tensor(), training), rv(stats ? c.tensorOr(4) : at::Tensor(), training), sm(mean, true), si(invstd, true);
  ocl::BatchNormTensors t{w.get(), b.get(), rm.get(), rv.get(), sm.get(), si.get()};
  ocl::BatchNormArgs a;
  a.training = training;
  a.momentum = c.number(numbers);
  a.eps = c.number(numbers + 1);
  c.result(out);
  c.result(mean);
  c.result(invstd);
  if (reserve) c.result(c.empty({0}, at::kByte));  // the reserve of cuDNN: nothing here
  return ocl::batchNorm(c.queue(), ref(input), ref(out), t, a, c.variant());
}
template <Norm form>
bool batchNormFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(0);
  if (!dataFits(input) || input.dim() < 2) return false;
  if (form == Norm::no_stats) return c.flag(3) && maybeFits(c, 1, input) && maybeFits(c, 2, input);
  if (!trains<form>(c) && !(c.given(3) && c.tensor(3).defined() && c.given(4) && c.tensor(4).defined())) return false;
  for (size_t i = 1; i <= 4; ++i)
    if (!maybeFits(c, i, input, i > 2 && trains<form>(c))) return false;  // running statistics are written in training alone
  return true;
}

// native_batch_norm_backward and batch_norm_backward:
// (grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask[, reserve])
Result<void> batchNormBackward(OpCall& c) {
  const at::Tensor& input = c.tensor(1);
  const at::Tensor grad = c.tensor(0).contiguous(), weight = c.tensorOr(2);
  const auto mask = c.value(9).toBoolList();
  const at::ScalarType param = weight.defined() ? weight.scalar_type() : statistics(input);
  at::Tensor gi = mask[0] ? at::empty_like(input) : at::Tensor();
  at::Tensor gw = mask[1] ? c.empty({input.size(1)}, param) : at::Tensor(), gb = mask[2] ? c.empty({input.size(1)}, param) : at::Tensor();
  const Maybe w(weight), rm(c.tensorOr(3)), rv(c.tensorOr(4)), sm(c.tensorOr(5)), si(c.tensorOr(6)), i(gi, true), gwm(gw, true), gbm(gb, true);
  ocl::BatchNormTensors t{w.get(), nullptr, rm.get(), rv.get(), sm.get(), si.get()};
  ocl::BatchNormArgs a;
  a.training = c.flag(7);
  a.eps = c.number(8);
  c.result(gi);
  c.result(gw);
  c.result(gb);
  return ocl::batchNormBackward(c.queue(), ref(grad), ref(input), t, i.get(), gwm.get(), gbm.get(), a, c.variant());
}
bool batchNormBackwardFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(1);
  if (!dataFits(input) || input.dim() < 2 || !dataFits(c.tensor(0)) || c.tensor(0).scalar_type() != input.scalar_type()) return false;
  for (size_t i = 2; i <= 6; ++i)
    if (!maybeFits(c, i, input)) return false;
  return c.flag(7) ? c.given(5) && c.tensor(5).defined() && c.tensor(5).numel() > 0 : c.given(3) && c.tensor(3).defined();
}

int64_t columnsOf(const OpCall& c, size_t shape) {
  int64_t n = 1;
  for (const int64_t s : c.ints(shape)) n *= s;
  return n;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
Result<void> layerNorm(OpCall& c) {
  const at::Tensor input = c.tensor(0).contiguous();
  const int64_t columns = columnsOf(c, 1), rows = input.numel() / columns;
  c10::SmallVector<int64_t, 6> sizes(input.sizes().begin(), input.sizes().end());
  for (size_t d = sizes.size() - c.ints(1).size(); d < sizes.size(); ++d) sizes[d] = 1;
  at::Tensor out = c.empty(input.sizes(), input.scalar_type());
  at::Tensor mean = c.empty(sizes, statistics(input)), rstd = c.empty(sizes, statistics(input));
  const Maybe w(c.tensorOr(2)), b(c.tensorOr(3));
  c.result(out);
  c.result(mean);
  c.result(rstd);
  if (rows == 0) return {};
  return ocl::layerNorm(c.queue(), ref(input), rows, columns, w.get(), b.get(), c.number(4), ref(out), ref(mean.view({rows})), ref(rstd.view({rows})),
                        c.variant());
}
bool layerNormFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(0);
  const auto shape = c.ints(1);
  if (!floating(input) || shape.empty() || static_cast<int64_t>(shape.size()) > input.dim() || columnsOf(c, 1) == 0) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (input.size(input.dim() - static_cast<int64_t>(shape.size() - i)) != shape[i]) return false;
  for (size_t i = 2; i <= 3; ++i)
    if (c.given(i) && c.tensor(i).defined() && (!maybeFits(c, i, input) || c.tensor(i).sizes() != at::IntArrayRef(shape))) return false;
  return true;
}

// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
Result<void> layerNormBackward(OpCall& c) {
  const at::Tensor grad = c.tensor(0).contiguous(), input = c.tensor(1).contiguous();
  const int64_t columns = columnsOf(c, 2), rows = input.numel() / columns;
  const auto mask = c.value(7).toBoolList();
  const at::Tensor weight = c.tensorOr(5), bias = c.tensorOr(6);
  const at::ScalarType param = weight.defined() ? weight.scalar_type() : input.scalar_type();
  const auto shape = c.ints(2);
  at::Tensor gi = mask[0] ? c.empty(input.sizes(), input.scalar_type()) : at::Tensor();
  at::Tensor gw = mask[1] && weight.defined() ? c.empty(shape, param) : at::Tensor();
  at::Tensor gb = mask[2] && bias.defined() ? c.empty(shape, param) : at::Tensor();
  const Maybe w(weight), i(gi, true), gwm(gw, true), gbm(gb, true);
  c.result(gi);
  c.result(gw);
  c.result(gb);
  return ocl::layerNormBackward(c.queue(), ref(grad), ref(input), rows, columns, ref(c.tensor(3).contiguous().view({rows})),
                                ref(c.tensor(4).contiguous().view({rows})), w.get(), i.get(), gwm.get(), gbm.get(), c.variant());
}
bool layerNormBackwardFits(const OpCall& c) {
  return floating(c.tensor(1)) && floating(c.tensor(0)) && columnsOf(c, 2) > 0 && c.tensor(0).scalar_type() == c.tensor(1).scalar_type() && maybeFits(c, 5, c.tensor(1)) &&
         isNpu(c.tensor(3)) && c.tensor(3).scalar_type() == statistics(c.tensor(1));
}

// _fused_rms_norm(input, normalized_shape, weight, eps): eps None is the dtype's own
Result<void> rmsNorm(OpCall& c) {
  const at::Tensor input = c.tensor(0).contiguous();
  const int64_t columns = columnsOf(c, 1), rows = input.numel() / columns;
  c10::SmallVector<int64_t, 6> sizes(input.sizes().begin(), input.sizes().end());
  for (size_t d = sizes.size() - c.ints(1).size(); d < sizes.size(); ++d) sizes[d] = 1;
  at::Tensor out = c.empty(input.sizes(), input.scalar_type()), rstd = c.empty(sizes, statistics(input));
  const Maybe w(c.tensorOr(2));
  c.result(out);
  c.result(rstd);
  if (rows == 0) return {};
  // PyTorch takes the epsilon of the type that it computes in.
  const double eps = c.given(3) ? c.number(3) : statistics(input) == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  return ocl::rmsNorm(c.queue(), ref(input), rows, columns, w.get(), eps, ref(out), ref(rstd.view({rows})), c.variant());
}
bool rmsNormFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(0);
  const auto shape = c.ints(1);
  if (!floating(input) || shape.empty() || static_cast<int64_t>(shape.size()) > input.dim() || columnsOf(c, 1) == 0) return false;
  for (size_t i = 0; i < shape.size(); ++i)
    if (input.size(input.dim() - static_cast<int64_t>(shape.size() - i)) != shape[i]) return false;
  const at::Tensor weight = c.tensorOr(2);
  return !weight.defined() || (isNpu(weight) && weight.scalar_type() == input.scalar_type() && weight.sizes() == at::IntArrayRef(shape));
}
// (grad_out, input, normalized_shape, rstd, weight, output_mask)
Result<void> rmsNormBackward(OpCall& c) {
  const at::Tensor grad = c.tensor(0).contiguous(), input = c.tensor(1).contiguous(), weight = c.tensorOr(4);
  const int64_t columns = columnsOf(c, 2), rows = input.numel() / columns;
  const auto mask = c.value(5).toBoolList();
  at::Tensor gi = mask[0] ? c.empty(input.sizes(), input.scalar_type()) : at::Tensor();
  at::Tensor gw = mask[1] && weight.defined() ? c.empty(c.ints(2), weight.scalar_type()) : at::Tensor();
  const Maybe w(weight), i(gi, true), gwm(gw, true);
  c.result(gi);
  c.result(gw);
  return ocl::rmsNormBackward(c.queue(), ref(grad), ref(input), rows, columns, ref(c.tensor(3).contiguous().view({rows})), w.get(), i.get(),
                              gwm.get(), c.variant());
}
bool rmsNormBackwardFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(1);
  return floating(input) && floating(c.tensor(0)) && columnsOf(c, 2) > 0 && c.tensor(0).scalar_type() == input.scalar_type() &&
         maybeFits(c, 4, input) && isNpu(c.tensor(3)) && c.tensor(3).scalar_type() == statistics(input);
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
Result<void> groupNorm(OpCall& c) {
  const at::Tensor input = c.tensor(0).contiguous();
  const int64_t n = c.integer(3), groups = c.integer(6);
  at::Tensor out = c.empty(input.sizes(), input.scalar_type());
  at::Tensor mean = c.empty({n, groups}, statistics(input)), rstd = c.empty({n, groups}, statistics(input));
  const Maybe w(c.tensorOr(1)), b(c.tensorOr(2));
  c.result(out);
  c.result(mean);
  c.result(rstd);
  if (n == 0) return {};
  return ocl::groupNorm(c.queue(), ref(input), groups, w.get(), b.get(), c.number(7), ref(out), ref(mean), ref(rstd), c.variant());
}
bool groupsFit(const OpCall& c, const at::Tensor& input, size_t n) {
  const int64_t channels = c.integer(n + 1), groups = c.integer(n + 3);
  return floating(input) && input.dim() >= 2 && input.size(0) == c.integer(n) && input.size(1) == channels && c.integer(n + 2) > 0 &&
         groups > 0 && channels > 0 && channels % groups == 0 && input.numel() == input.size(0) * channels * c.integer(n + 2);
}
bool groupNormFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(0);
  return groupsFit(c, input, 3) && maybeFits(c, 1, input) && maybeFits(c, 2, input);
}

// (grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask)
Result<void> groupNormBackward(OpCall& c) {
  const at::Tensor grad = c.tensor(0).contiguous(), input = c.tensor(1).contiguous(), weight = c.tensorOr(4);
  const auto mask = c.value(9).toBoolList();
  const at::ScalarType param = weight.defined() ? weight.scalar_type() : input.scalar_type();
  at::Tensor gi = mask[0] ? c.empty(input.sizes(), input.scalar_type()) : at::Tensor();
  at::Tensor gw = mask[1] ? c.empty({c.integer(6)}, param) : at::Tensor(), gb = mask[2] ? c.empty({c.integer(6)}, param) : at::Tensor();
  const Maybe w(weight), i(gi, true), gwm(gw, true), gbm(gb, true);
  c.result(gi);
  c.result(gw);
  c.result(gb);
  return ocl::groupNormBackward(c.queue(), ref(grad), ref(input), c.integer(8), ref(c.tensor(2).contiguous()), ref(c.tensor(3).contiguous()),
                                w.get(), i.get(), gwm.get(), gbm.get(), c.variant());
}
bool groupNormBackwardFits(const OpCall& c) {
  const at::Tensor& input = c.tensor(1);
  return groupsFit(c, input, 5) && input.numel() > 0 && dataFits(c.tensor(0)) && c.tensor(0).scalar_type() == input.scalar_type() &&
         c.tensor(0).sizes() == input.sizes() && maybeFits(c, 4, input) && isNpu(c.tensor(2)) &&
         c.tensor(2).scalar_type() == statistics(input);
}

const NativeOp rows[] = {
    {"aten::native_batch_norm", "norm", batchNorm<Norm::flagged>, batchNormFits<Norm::flagged>},
    {"aten::_native_batch_norm_legit", "norm", batchNorm<Norm::flagged>, batchNormFits<Norm::flagged>},
    {"aten::_native_batch_norm_legit.no_stats", "norm", batchNorm<Norm::no_stats>, batchNormFits<Norm::no_stats>},
    {"aten::_batch_norm_with_update", "norm", batchNorm<Norm::update>, batchNormFits<Norm::update>},
    {"aten::_batch_norm_no_update", "norm", batchNorm<Norm::no_update>, batchNormFits<Norm::no_update>},
    {"aten::batch_norm_backward", "norm", batchNormBackward, batchNormBackwardFits},
    {"aten::native_group_norm", "norm", groupNorm, groupNormFits},
    {"aten::native_group_norm_backward", "norm", groupNormBackward, groupNormBackwardFits},
    {"aten::native_batch_norm_backward", "norm", batchNormBackward, batchNormBackwardFits},
    {"aten::_fused_rms_norm", "norm", rmsNorm, rmsNormFits},
    {"aten::_fused_rms_norm_backward", "norm", rmsNormBackward, rmsNormBackwardFits},
    {"aten::native_layer_norm", "norm", layerNorm, layerNormFits},
    {"aten::native_layer_norm_backward", "norm", layerNormBackward, layerNormBackwardFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

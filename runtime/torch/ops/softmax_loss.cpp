// Softmax and the losses with a reduction of their own.
#include <ATen/WrapDimUtils.h>

#include "runtime/opencl/ops/loss.h"
#include "runtime/opencl/ops/softmax.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool realFits(const at::Tensor& t) {
  const at::ScalarType k = t.scalar_type();
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims &&
         (k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble);
}
int64_t dimOf(const OpCall& c, size_t i) {
  return c10::maybe_wrap_dim(c.integer(i), std::max<int64_t>(c.tensor(0).dim(), 1));
}

// (self, dim, half_to_float, *, out)
template <bool log>
Result<void> softmax(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(0).sizes());
  if (out.numel() == 0) return {};
  return ocl::softmax(c.queue(), ref(c.tensor(0)), ref(out), static_cast<int>(dimOf(c, 1)), log, c.variant());
}
// (grad, output, dim, input_dtype, *, out)
template <bool log>
Result<void> softmaxBackward(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(1).sizes());
  if (out.numel() == 0) return {};
  return ocl::softmaxBackward(c.queue(), ref(c.tensor(0)), ref(c.tensor(1)), ref(out), static_cast<int>(dimOf(c, 2)), log, c.variant());
}
bool softmaxFits(const OpCall& c) { return realFits(c.tensor(0)) && realFits(c.out()) ; }
bool softmaxBackwardFits(const OpCall& c) { return realFits(c.tensor(0)) && realFits(c.tensor(1)); }
template <size_t i>
void describe(const OpCall& c, kde::Signature& s) {
  s.scalars[0] = dimOf(c, i);
  s.nscalars = 1;
}

// (self, target, weight, reduction, ignore_index, *, output, total_weight)
Result<void> nll(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &target = c.tensor(1);
  const at::Tensor weight = c.tensorOr(2);
  const auto reduction = static_cast<ocl::Reduction>(c.integer(3));
  const at::IntArrayRef sizes = reduction == ocl::Reduction::none && self.dim() > 1 ? target.sizes() : at::IntArrayRef();
  at::Tensor out, total;
  if (c.count() > 5) {
    out = c.resizeOut(0, sizes);
    total = c.resizeOut(1, {});
  } else {
    out = c.empty(sizes, self.scalar_type());
    total = c.empty({}, self.scalar_type());
    c.result(out);
    c.result(total);
  }
  ocl::TensorRef w;
  if (weight.defined()) w = ref(weight);
  return ocl::nllLoss(c.queue(), ref(self), ref(target), weight.defined() ? &w : nullptr, reduction, c.integer(4), ref(out), ref(total), c.variant());
}
// Wrong sizes and dtypes are refused by the host route, in PyTorch's own words.
bool targetFits(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  if (!realFits(self) || self.numel() == 0 || !isNpu(target) || (target.scalar_type() != at::kLong && target.scalar_type() != at::kByte)) return false;
  if (self.dim() < 1 || target.dim() != std::max<int64_t>(self.dim() - 1, 0)) return false;
  const int64_t classes = self.size(self.dim() == 1 ? 0 : 1);
  if (weight.defined() && (!isNpu(weight) || weight.scalar_type() != self.scalar_type() || weight.numel() != classes)) return false;
  for (int64_t d = 0; d < target.dim(); ++d)
    if (target.size(d) != self.size(d == 0 ? 0 : d + 1)) return false;
  return true;
}
bool nllFits(const OpCall& c) { return targetFits(c.tensor(0), c.tensor(1), c.tensorOr(2)); }

// (grad, self, target, weight, reduction, ignore_index, total_weight, *, grad_input)
Result<void> nllBackward(OpCall& c) {
  const at::Tensor& self = c.tensor(1);
  at::Tensor grad_in = resultLike(c, self, self.sizes(), self.scalar_type());
  const at::Tensor weight = c.tensorOr(3);
  ocl::TensorRef w;
  if (weight.defined()) w = ref(weight);
  return ocl::nllLossBackward(c.queue(), ref(c.tensor(0)), ref(c.tensor(2)), weight.defined() ? &w : nullptr,
                              static_cast<ocl::Reduction>(c.integer(4)), c.integer(5), ref(c.tensor(6)), ref(grad_in), c.variant());
}
bool nllBackwardFits(const OpCall& c) { return targetFits(c.tensor(1), c.tensor(2), c.tensorOr(3)) && realFits(c.tensor(0)); }

// (self, target, reduction[, beta or delta], *, out)
template <ocl::PointwiseOp op, bool param>
Result<void> pointLoss(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &target = c.tensor(1);
  const auto reduction = static_cast<ocl::Reduction>(c.integer(2));
  at::Tensor out = resultLike(c, self, reduction == ocl::Reduction::none ? self.sizes() : at::IntArrayRef(), self.scalar_type());
  return ocl::pointLoss(c.queue(), op, ref(self), ref(target), nullptr, reduction, param ? c.number(3) : 0, ref(out), c.variant());
}
bool pointLossFits(const OpCall& c) {
  return realFits(c.tensor(0)) && realFits(c.tensor(1)) && c.tensor(0).scalar_type() == c.tensor(1).scalar_type() &&
         c.tensor(0).sizes() == c.tensor(1).sizes();
}

const NativeOp rows[] = {
    {"aten::_softmax.out", "softmax", softmax<false>, softmaxFits, describe<1>},
    {"aten::_log_softmax.out", "softmax", softmax<true>, softmaxFits, describe<1>},
    {"aten::_softmax_backward_data.out", "softmax", softmaxBackward<false>, softmaxBackwardFits, describe<2>},
    {"aten::_log_softmax_backward_data.out", "softmax", softmaxBackward<true>, softmaxBackwardFits, describe<2>},
    {"aten::nll_loss_forward.output", "loss", nll, nllFits},
    {"aten::nll_loss2d_forward", "loss", nll, nllFits},
    {"aten::nll_loss_backward.grad_input", "loss", nllBackward, nllBackwardFits},
    {"aten::nll_loss2d_backward", "loss", nllBackward, nllBackwardFits},
    {"aten::mse_loss.out", "loss", pointLoss<ocl::PointwiseOp::mse, false>, pointLossFits},
    {"aten::smooth_l1_loss.out", "loss", pointLoss<ocl::PointwiseOp::smooth_l1, true>, pointLossFits},
    {"aten::huber_loss", "loss", pointLoss<ocl::PointwiseOp::huber, true>, pointLossFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

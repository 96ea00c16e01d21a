// Elementwise operators with two results, halves or a reduction, and their gradients: log-sigmoid, gated linear units,
// prelu, dropout's gradient, binary cross-entropy.
#include <ATen/WrapDimUtils.h>

#include "runtime/opencl/ops/loss.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::PointwiseOp;

bool realFits(const at::Tensor& t) {
  const at::ScalarType k = t.scalar_type();
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims &&
         (k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble);
}
bool alike(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor& t : tensors)
    if (!t.defined() || !realFits(t) || t.scalar_type() != tensors.begin()->scalar_type() || t.sizes() != tensors.begin()->sizes()) return false;
  return true;
}

// One elementwise kernel into `out`.
Result<void> into(OpCall& c, PointwiseOp op, std::initializer_list<at::Tensor> in, const at::Tensor& out,
                  std::initializer_list<ocl::Scalar> scalars = {}) {
  if (out.numel() == 0) return {};
  c10::SmallVector<ocl::TensorRef, 3> refs;
  for (const at::Tensor& t : in) refs.push_back(ref(t, out.sizes()));
  const c10::SmallVector<ocl::Scalar, 2> numbers(scalars.begin(), scalars.end());
  return ocl::pointwise(c.queue(), op, std::span<const ocl::TensorRef>(refs.data(), refs.size()), ref(out), toDType(out.scalar_type()),
                        std::span<const ocl::Scalar>(numbers.data(), numbers.size()), c.variant());
}

// (self[, *, output, buffer]) -> (output, buffer): the CPU's gradient reads the buffer, so it is filled as there.
Result<void> logSigmoid(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  at::Tensor out, buffer;
  if (c.count() > 1) {
    out = c.resizeOut(0, self.sizes());
    buffer = c.resizeOut(1, self.sizes());
  } else {
    out = at::empty_like(self);
    buffer = at::empty_like(self);
    c.result(out);
    c.result(buffer);
  }
  if (auto ok = into(c, PointwiseOp::exp_neg_abs, {self}, buffer); !ok) return ok;
  return into(c, PointwiseOp::log_sigmoid, {self}, out);
}
bool logSigmoidFits(const OpCall& c) { return realFits(c.tensor(0)) && (c.count() == 1 || c.out().scalar_type() == c.tensor(0).scalar_type()); }
// (grad_output, self, buffer[, *, grad_input])
Result<void> logSigmoidBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1);
  return elementwise(c, PointwiseOp::log_sigmoid_backward, {grad, self}, {}, self.scalar_type(), self.scalar_type());
}
bool pairFits(const OpCall& c) { return alike({c.tensor(0), c.tensor(1)}); }

// (self, dim, *, out): sized by PyTorch's shape check.
std::pair<at::Tensor, at::Tensor> halves(const at::Tensor& t, int64_t dim) {
  const int64_t half = t.size(dim) / 2;
  return {t.narrow(dim, 0, half), t.narrow(dim, half, half)};
}
Result<void> glu(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const auto [a, b] = halves(self, c10::maybe_wrap_dim(c.integer(1), self.dim()));
  return into(c, PointwiseOp::glu, {a, b}, c.out());
}
bool gluFits(const OpCall& c) { return realFits(c.tensor(0)) && c.tensor(0).dim() > 0 && c.out().scalar_type() == c.tensor(0).scalar_type(); }
// (grad_output, self, dim[, *, grad_input])
Result<void> gluBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1);
  const int64_t dim = c10::maybe_wrap_dim(c.integer(2), self.dim());
  const at::Tensor out = resultLike(c, self, self.sizes(), self.scalar_type());
  const auto [a, b] = halves(self, dim);
  const auto [ga, gb] = halves(out, dim);
  if (auto ok = into(c, PointwiseOp::glu, {grad, b}, ga); !ok) return ok;
  return into(c, PointwiseOp::glu_backward, {grad, a, b}, gb);
}
bool gluBackwardFits(const OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1);
  return realFits(self) && self.dim() > 0 && realFits(grad) && grad.scalar_type() == self.scalar_type() && grad.numel() * 2 == self.numel();
}

// (grad_output, self, weight) -> (grad_self, grad_weight), both of self's size
Result<void> preluBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1), &weight = c.tensor(2);
  at::Tensor gs = at::empty_like(self), gw = at::empty_like(self);
  c.result(gs);
  c.result(gw);
  if (auto ok = into(c, PointwiseOp::prelu_backward, {grad, self, weight}, gs); !ok) return ok;
  return into(c, PointwiseOp::prelu_backward_weight, {grad, self}, gw);
}
bool preluBackwardFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(1), &weight = c.tensor(2);
  return alike({c.tensor(0), self}) && realFits(weight) && weight.scalar_type() == self.scalar_type() && at::is_expandable_to(weight.sizes(), self.sizes());
}

// (grad_output, mask, scale)
Result<void> dropoutBackward(OpCall& c) {
  const at::Tensor& grad = c.tensor(0);
  return elementwise(c, PointwiseOp::scale_masked, {grad, c.tensor(1)}, {ocl::Scalar(c.number(2))}, grad.scalar_type(), grad.scalar_type());
}
bool dropoutBackwardFits(const OpCall& c) {
  return realFits(c.tensor(0)) && isNpu(c.tensor(1)) && c.tensor(1).scalar_type() == at::kBool && c.tensor(0).sizes() == c.tensor(1).sizes();
}

// (self, target, weight, reduction[, *, out]). A number outside [0, 1] gives NaN, and the next wait raises.
Result<void> crossEntropy(OpCall& c) {
  const at::Tensor &self = c.tensor(0), weight = c.tensorOr(2);
  const auto reduction = static_cast<ocl::Reduction>(c.integer(3));
  const at::Tensor out = resultLike(c, self, reduction == ocl::Reduction::none ? self.sizes() : at::IntArrayRef(), self.scalar_type());
  ocl::TensorRef w;
  if (weight.defined()) w = ref(weight, self.sizes());
  if (auto ok = ocl::checkUnit(c.queue(), ref(self), ref(c.tensor(1)), c.variant()); !ok) return ok;
  return ocl::pointLoss(c.queue(), PointwiseOp::bce, ref(self), ref(c.tensor(1)), weight.defined() ? &w : nullptr, reduction, 0, ref(out),
                        c.variant());
}
bool weightFits(const at::Tensor& weight, const at::Tensor& self) {
  return !weight.defined() ||
         (realFits(weight) && weight.scalar_type() == self.scalar_type() && at::is_expandable_to(weight.sizes(), self.sizes()));
}
bool crossEntropyFits(const OpCall& c) {
  return alike({c.tensor(0), c.tensor(1)}) && c.tensor(0).numel() > 0 && weightFits(c.tensorOr(2), c.tensor(0));
}
// (grad_output, self, target, weight, reduction[, *, grad_input])
Result<void> crossEntropyBackward(OpCall& c) {
  const at::Tensor &self = c.tensor(1), weight = c.tensorOr(3);
  const double factor = c.integer(4) == 1 ? 1.0 / static_cast<double>(std::max<int64_t>(self.numel(), 1)) : 1.0;
  const at::Tensor out = resultLike(c, self, self.sizes(), self.scalar_type());
  if (auto ok = into(c, PointwiseOp::bce_backward, {c.tensor(0), self, c.tensor(2)}, out, {ocl::Scalar(factor)}); !ok || !weight.defined()) return ok;
  return into(c, PointwiseOp::mul, {out, weight}, out);
}
bool crossEntropyBackwardFits(const OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1);
  return alike({self, c.tensor(2)}) && realFits(grad) && grad.scalar_type() == self.scalar_type() &&
         at::is_expandable_to(grad.sizes(), self.sizes()) && weightFits(c.tensorOr(3), self);
}

const NativeOp rows[] = {
    {"aten::log_sigmoid_forward", "pointwise", logSigmoid, logSigmoidFits},
    {"aten::log_sigmoid_forward.output", "pointwise", logSigmoid, logSigmoidFits},
    {"aten::log_sigmoid_backward", "pointwise", logSigmoidBackward, pairFits},
    {"aten::log_sigmoid_backward.grad_input", "pointwise", logSigmoidBackward, pairFits},
    {"aten::glu.out", "pointwise", glu, gluFits},
    {"aten::glu_backward", "pointwise", gluBackward, gluBackwardFits},
    {"aten::glu_backward.grad_input", "pointwise", gluBackward, gluBackwardFits},
    {"aten::_prelu_kernel_backward", "pointwise", preluBackward, preluBackwardFits},
    {"aten::native_dropout_backward", "pointwise", dropoutBackward, dropoutBackwardFits},
    {"aten::binary_cross_entropy", "loss", crossEntropy, crossEntropyFits},
    {"aten::binary_cross_entropy.out", "loss", crossEntropy, crossEntropyFits},
    {"aten::binary_cross_entropy_backward", "loss", crossEntropyBackward, crossEntropyBackwardFits},
    {"aten::binary_cross_entropy_backward.grad_input", "loss", crossEntropyBackward, crossEntropyBackwardFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

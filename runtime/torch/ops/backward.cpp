// Gradients of elementwise operators and elementwise losses.
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::PointwiseOp;

bool pairFits(const at::Tensor& grad, const at::Tensor& saved) {
  return at::isFloatingType(grad.scalar_type()) && grad.scalar_type() == saved.scalar_type() &&
         elementwiseFits(PointwiseOp::mul, {grad, saved}, grad.scalar_type());
}

// (grad, saved, numbers ...): numbers are arguments 2, 3, ... in the schema's order.
template <PointwiseOp op, size_t N = 0>
Result<void> backward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &saved = c.tensor(1);
  const at::ScalarType t = grad.scalar_type();
  if constexpr (N == 0) return elementwise(c, op, {grad, saved}, {}, t, t);
  else if constexpr (N == 1) return elementwise(c, op, {grad, saved}, {toScalar(c.scalar(2))}, t, t);
  else return elementwise(c, op, {grad, saved}, {toScalar(c.scalar(2)), toScalar(c.scalar(3))}, t, t);
}
bool fits(const OpCall& c) { return pairFits(c.tensor(0), c.tensor(1)); }

Result<void> geluBackward(OpCall& c) {
  const at::ScalarType t = c.tensor(0).scalar_type();
  return elementwise(c, c.string(2) == "tanh" ? PointwiseOp::gelu_tanh_backward : PointwiseOp::gelu_backward, {c.tensor(0), c.tensor(1)}, {}, t, t);
}

bool geluFits(const OpCall& c) { return (c.string(2) == "tanh" || c.string(2) == "none") && fits(c); }

// (grad, alpha, scale, input_scale, is_result, self_or_result)
Result<void> eluBackward(OpCall& c) {
  const at::ScalarType t = c.tensor(0).scalar_type();
  return elementwise(c, c.flag(4) ? PointwiseOp::elu_backward_result : PointwiseOp::elu_backward, {c.tensor(0), c.tensor(5)},
                     {toScalar(c.scalar(1)), toScalar(c.scalar(2)), toScalar(c.scalar(3))}, t, t);
}
bool eluFits(const OpCall& c) { return pairFits(c.tensor(0), c.tensor(5)); }

// (grad, self, target, reduction[, beta or delta]): the mean's 1/numel is the factor.
template <PointwiseOp op, bool param>
Result<void> lossBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1), &target = c.tensor(2);
  const at::ScalarType t = self.scalar_type();
  const double factor = c.integer(3) == 1 ? 1.0 / static_cast<double>(std::max<int64_t>(self.numel(), 1)) : 1.0;
  if constexpr (param) return elementwise(c, op, {grad, self, target}, {ocl::Scalar(factor), ocl::Scalar(c.number(4))}, t, t);
  else return elementwise(c, op, {grad, self, target}, {ocl::Scalar(factor)}, t, t);
}
bool lossFits(const OpCall& c) {
  return pairFits(c.tensor(0), c.tensor(1)) && pairFits(c.tensor(1), c.tensor(2)) && c.tensor(1).sizes() == c.tensor(2).sizes();
}

// (grad, self, eps)
Result<void> logitBackward(OpCall& c) {
  const at::ScalarType t = c.tensor(0).scalar_type();
  if (c.given(2) && c.number(2) >= 0)
    return elementwise(c, PointwiseOp::logit_eps_backward, {c.tensor(0), c.tensor(1)}, {ocl::Scalar(c.number(2))}, t, t);
  return elementwise(c, PointwiseOp::logit_backward, {c.tensor(0), c.tensor(1)}, {}, t, t);
}

const NativeOp rows[] = {
    {"aten::logit_backward.grad_input", "pointwise", logitBackward, fits},
    {"aten::threshold_backward.grad_input", "pointwise", backward<PointwiseOp::threshold_backward, 1>, fits},
    {"aten::sigmoid_backward.grad_input", "pointwise", backward<PointwiseOp::sigmoid_backward>, fits},
    {"aten::tanh_backward.grad_input", "pointwise", backward<PointwiseOp::tanh_backward>, fits},
    {"aten::silu_backward.grad_input", "pointwise", backward<PointwiseOp::silu_backward>, fits},
    {"aten::mish_backward", "pointwise", backward<PointwiseOp::mish_backward>, fits},
    {"aten::hardswish_backward", "pointwise", backward<PointwiseOp::hardswish_backward>, fits},
    {"aten::hardsigmoid_backward.grad_input", "pointwise", backward<PointwiseOp::hardsigmoid_backward>, fits},
    {"aten::hardtanh_backward", "pointwise", backward<PointwiseOp::hardtanh_backward, 2>, fits},
    {"aten::hardtanh_backward.grad_input", "pointwise", backward<PointwiseOp::hardtanh_backward, 2>, fits},
    {"aten::leaky_relu_backward.grad_input", "pointwise", backward<PointwiseOp::leaky_relu_backward, 1>, fits},
    {"aten::softplus_backward.grad_input", "pointwise", backward<PointwiseOp::softplus_backward, 2>, fits},
    {"aten::softshrink_backward.grad_input", "pointwise", backward<PointwiseOp::softshrink_backward, 1>, fits},
    {"aten::hardshrink_backward.grad_input", "pointwise", backward<PointwiseOp::softshrink_backward, 1>, fits},
    {"aten::gelu_backward.grad_input", "pointwise", geluBackward, geluFits},
    {"aten::elu_backward.grad_input", "pointwise", eluBackward, eluFits},
    {"aten::mse_loss_backward", "pointwise", lossBackward<PointwiseOp::mse_backward, false>, lossFits},
    {"aten::mse_loss_backward.grad_input", "pointwise", lossBackward<PointwiseOp::mse_backward, false>, lossFits},
    {"aten::smooth_l1_loss_backward.grad_input", "pointwise", lossBackward<PointwiseOp::smooth_l1_backward, true>, lossFits},
    {"aten::huber_loss_backward.out", "pointwise", lossBackward<PointwiseOp::huber_backward, true>, lossFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

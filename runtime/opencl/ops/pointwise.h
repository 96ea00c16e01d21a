// Elementwise operators: one OpenCL template, one row of a table per operator.
//
// PyTorch's semantics (the CPU is the oracle): NaN goes through relu, clamp, maximum and minimum; float to bool is
// "not zero"; rounding is half to even. Inputs are converted to the compute dtype, the result to out's dtype;
// float16 and bfloat16 compute in float32, integers below 64 bits in int32 (wrapping at the store), bool as 0/1.
//
// Any strides, offsets, 0-dim and zero-size tensors (no launch). `in` broadcasts to `out` from the right (size 1 or
// stride 0). `out` may be the very same view as an input (in place), but must not overlap one otherwise.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/scalar.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// a, b, c = in[0..2]; s0.. = scalars. Order of inputs and scalars is PyTorch's own unless said here.
enum class PointwiseOp : uint16_t {
  // unary
  copy, neg, abs, exp, exp2, log, log2, log10, log1p, expm1, sqrt, rsqrt, sin, cos, tan, asin, acos, atan,
  sinh, cosh, tanh, asinh, acosh, atanh, sigmoid, relu, erf, erfc, lgamma, ceil, floor, round, trunc, frac, sign,
  reciprocal, square, logical_not, bitwise_not, isnan, isinf, isfinite, gelu, gelu_tanh, silu, mish, log_sigmoid,
  hardswish, hardsigmoid, relu6, softsign, tanhshrink, logit, deg2rad, rad2deg, signbit,
  exp_neg_abs,      // what log_sigmoid keeps for its gradient
  hardtanh,         // s0 = min, s1 = max
  leaky_relu,       // s0 = negative_slope
  elu,              // s0 = alpha, s1 = scale, s2 = input_scale
  softplus,         // s0 = beta, s1 = threshold
  threshold,        // s0 = threshold, s1 = value
  softshrink,       // s0 = lambda
  hardshrink,       // s0 = lambda
  clamp_scalar,     // s0 = min, s1 = max (pass -inf / +inf or the dtype's limits where one is missing)
  nan_to_num,       // s0 = nan, s1 = posinf, s2 = neginf
  add_scalar,       // a + s0 (alpha already multiplied in)
  mul_scalar, div_scalar, rsub_scalar,  // rsub: s0 - a
  pow_scalar,       // a ^ s0
  pow_base,         // s0 ^ a
  eq_scalar, ne_scalar, lt_scalar, le_scalar, gt_scalar, ge_scalar,
  fmod_scalar, remainder_scalar, floor_divide_scalar, trunc_divide_scalar, bitwise_and_scalar, bitwise_or_scalar,
  bitwise_xor_scalar, lshift_scalar, rshift_scalar,
  // binary
  add,              // a + s0 * b
  sub,              // a - s0 * b
  mul, div, floor_divide, trunc_divide, pow, maximum, minimum, fmax, fmin, fmod, remainder, atan2, hypot, copysign,
  logaddexp, xlogy, eq, ne, lt, le, gt, ge, logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor,
  lshift, rshift, heaviside,
  lerp_scalar,      // a + s0 * (b - a)
  masked_fill,      // b (mask) ? s0 : a
  prelu,            // a > 0 ? a : b * a
  clamp_min, clamp_max,   // tensor bound b, NaN propagates from both
  mse, l1,          // unreduced losses of (input, target)
  smooth_l1,        // s0 = beta
  huber,            // s0 = delta
  bce,              // logs clamped at -100
  glu,              // a * sigmoid(b)
  scale_masked,     // a * (b * s0): the gradient of dropout
  soft_margin,
  // ternary
  where,            // a (condition) ? b : c
  addcmul,          // a + s0 * b * c
  addcdiv,          // a + s0 * b / c
  lerp,             // a + c * (b - a)
  clamp,            // a between b and c
  // backward: a = grad_output, b = the saved tensor that PyTorch's schema names
  threshold_backward,    // (grad, self), s0 = threshold
  sigmoid_backward, tanh_backward,              // (grad, output)
  gelu_backward, gelu_tanh_backward, silu_backward, mish_backward, log_sigmoid_backward, hardswish_backward,
  hardsigmoid_backward,                         // (grad, self)
  hardtanh_backward,     // (grad, self), s0 = min, s1 = max
  leaky_relu_backward,   // (grad, self or result), s0 = slope
  elu_backward,          // (grad, self), s0 = alpha, s1 = scale, s2 = input_scale
  elu_backward_result,   // (grad, result), same scalars
  softplus_backward,     // (grad, self), s0 = beta, s1 = threshold
  softshrink_backward,   // (grad, self), s0 = lambda; also hardshrink_backward
  logit_backward,        // (grad, self)
  glu_backward,          // (grad, first half, second half): the gradient of the second half
  prelu_backward,        // (grad, self, weight)
  prelu_backward_weight, // (grad, self): self > 0 ? 0 : self * grad
  mse_backward, l1_backward, bce_backward,      // (grad, input, target), s0 = factor (1 or 1/numel)
  smooth_l1_backward,    // (grad, input, target), s0 = factor, s1 = beta
  huber_backward,        // (grad, input, target), s0 = factor, s1 = delta
  // further functions
  isposinf, isneginf, entr, sinc, angle,
  logit_eps,             // s0 = eps: clamped to [eps, 1 - eps] first
  round_decimals,        // s0 = 10^|decimals|
  round_tens,            // s0 = 10^|decimals|, decimals < 0
  logaddexp2, nextafter, xlog1py,
  logit_eps_backward,    // (grad, self), s0 = eps
  // special functions of float32 (kernels/special.cl)
  frexp_mantissa, frexp_exponent,
  polygamma,             // s0 = n
  digamma, erfinv, erfcx, log_ndtr, ndtri, bessel_i0, bessel_i0e, bessel_i1, bessel_i1e, bessel_j0, bessel_j1,
  bessel_y0, bessel_y1, modified_bessel_k0, modified_bessel_k1, scaled_modified_bessel_k0, scaled_modified_bessel_k1,
  spherical_bessel_j0, airy_ai,
  // of two arguments
  zeta, igamma, igammac, chebyshev_polynomial_t, chebyshev_polynomial_u, chebyshev_polynomial_v,
  chebyshev_polynomial_w, shifted_chebyshev_polynomial_t, shifted_chebyshev_polynomial_u,
  shifted_chebyshev_polynomial_v, shifted_chebyshev_polynomial_w, hermite_polynomial_h, hermite_polynomial_he,
  laguerre_polynomial_l, legendre_polynomial_p,
  count_,
};

struct PointwiseInfo {
  std::string_view name;     // the enumerator's name
  int arity = 0;             // tensors in
  int scalars = 0;           // numbers needed
  bool floats = false;       // computes in float32 / float64
  bool integers = false;     // computes in integers and bool
  bool to_bool = false;      // the result is a truth value (out is usually bool)
};

const PointwiseInfo& pointwiseInfo(PointwiseOp op) noexcept;
std::optional<PointwiseOp> pointwiseFromName(std::string_view name) noexcept;
// False for complex and unsigned 16..64-bit types, and where the operator has no expression for that kind of number.
bool pointwiseSupports(PointwiseOp op, DType compute) noexcept;

// `compute` is PyTorch's common dtype (what the inputs are promoted to). Missing scalars are an error.
Result<void> pointwise(Queue& queue, PointwiseOp op, std::span<const TensorRef> in, const TensorRef& out, DType compute,
                       std::span<const Scalar> scalars, Variant variant);

}  // namespace flagos::ocl

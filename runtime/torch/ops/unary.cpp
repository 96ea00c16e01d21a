// Elementwise operators of one tensor.
#include <cmath>
#include <limits>

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::PointwiseOp;

at::ScalarType computeOf(PointwiseOp op, const at::Tensor& t) {
  return ocl::pointwiseInfo(op).integers ? t.scalar_type() : floating(t.scalar_type());
}
at::ScalarType resultOf(PointwiseOp op, at::ScalarType compute) {
  return ocl::pointwiseInfo(op).to_bool ? at::kBool : compute;
}

template <PointwiseOp op>
Result<void> unary(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const at::ScalarType compute = computeOf(op, a);
  return elementwise(c, op, {a}, {}, compute, resultOf(op, compute));
}
template <PointwiseOp op>
bool unaryFits(const OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  return elementwiseFits(op, {a}, computeOf(op, a));
}

// op with the numbers of arguments 1, 2, ... N in the schema's order.
template <PointwiseOp op, size_t N>
Result<void> withNumbers(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const at::ScalarType compute = computeOf(op, a);
  if constexpr (N == 1) return elementwise(c, op, {a}, {toScalar(c.scalar(1))}, compute, compute);
  else if constexpr (N == 2) return elementwise(c, op, {a}, {toScalar(c.scalar(1)), toScalar(c.scalar(2))}, compute, compute);
  else return elementwise(c, op, {a}, {toScalar(c.scalar(1)), toScalar(c.scalar(2)), toScalar(c.scalar(3))}, compute, compute);
}

bool onlyFloating(const OpCall& c) {
  return at::isFloatingType(c.tensor(0).scalar_type()) && elementwiseFits(PointwiseOp::exp, {c.tensor(0)}, c.tensor(0).scalar_type());
}

Result<void> gelu(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  return elementwise(c, c.string(1) == "tanh" ? PointwiseOp::gelu_tanh : PointwiseOp::gelu, {a}, {}, a.scalar_type(), a.scalar_type());
}

// Another approximation than these two is PyTorch's to refuse.
bool geluFits(const OpCall& c) { return (c.string(1) == "tanh" || c.string(1) == "none") && onlyFloating(c); }

// clamp with numbers: a missing bound is the dtype's own.
Result<void> clamp(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const bool real = at::isFloatingType(a.scalar_type());
  const ocl::Scalar lowest = real ? ocl::Scalar(-std::numeric_limits<double>::infinity()) : ocl::Scalar(std::numeric_limits<int64_t>::min());
  const ocl::Scalar highest = real ? ocl::Scalar(std::numeric_limits<double>::infinity()) : ocl::Scalar(std::numeric_limits<int64_t>::max());
  const bool only_min = std::string_view(c.row().schema).find("clamp_min") != std::string_view::npos;
  const bool only_max = std::string_view(c.row().schema).find("clamp_max") != std::string_view::npos;
  ocl::Scalar low = lowest, high = highest;
  if (only_max) high = toScalar(c.scalar(1));
  else if (c.given(1)) low = toScalar(c.scalar(1));
  if (!only_min && !only_max && c.given(2)) high = toScalar(c.scalar(2));
  return elementwise(c, PointwiseOp::clamp_scalar, {a}, {low, high}, a.scalar_type(), a.scalar_type());
}
// Floats with floats, integers with 64-bit bounds that fit: a bound that changes the dtype goes to the host route, and so
// does a narrow integer whose bound lies outside of it.
bool clampFits(const OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const at::ScalarType t = a.scalar_type();
  if (t == at::kBool) return false;
  for (size_t i = 1; i < 3 && i < c.count() && !c.isOut(i); ++i) {
    if (!c.given(i)) continue;
    const at::Scalar s = c.scalar(i);
    if (s.isFloatingPoint() && !at::isFloatingType(t)) return false;
    if (at::isIntegralType(t, false) && t != at::kLong && (s.toLong() > 127 || s.toLong() < (t == at::kByte ? 0 : -128))) return false;
  }
  return elementwiseFits(PointwiseOp::clamp_scalar, {a}, t);
}

Result<void> nanToNum(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  double top = std::numeric_limits<float>::max(), bottom = std::numeric_limits<float>::lowest();
  if (a.scalar_type() == at::kDouble) { top = std::numeric_limits<double>::max(); bottom = -top; }
  return elementwise(c, PointwiseOp::nan_to_num, {a},
                     {ocl::Scalar(c.given(1) ? c.number(1) : 0.0), ocl::Scalar(c.given(2) ? c.number(2) : top),
                      ocl::Scalar(c.given(3) ? c.number(3) : bottom)},
                     a.scalar_type(), a.scalar_type());
}
bool nanToNumFits(const OpCall& c) {
  return onlyFloating(c) && (c.tensor(0).scalar_type() == at::kFloat || c.tensor(0).scalar_type() == at::kDouble);
}

// (self, eps)
Result<void> logit(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const at::ScalarType t = a.scalar_type();
  if (c.given(1) && c.number(1) >= 0) return elementwise(c, PointwiseOp::logit_eps, {a}, {ocl::Scalar(c.number(1))}, t, t);
  return elementwise(c, PointwiseOp::logit, {a}, {}, t, t);
}

// (self, *, decimals)
Result<void> roundDecimals(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const int64_t decimals = c.integer(1);
  const double scale = std::pow(10.0, static_cast<double>(std::abs(decimals)));
  if (decimals == 0) return elementwise(c, PointwiseOp::round, {a}, {}, a.scalar_type(), a.scalar_type());
  return elementwise(c, decimals > 0 ? PointwiseOp::round_decimals : PointwiseOp::round_tens, {a}, {ocl::Scalar(scale)}, a.scalar_type(), a.scalar_type());
}
bool roundDecimalsFits(const OpCall& c) { return onlyFloating(c) && std::abs(c.integer(1)) < 30; }

// (n, self)
Result<void> polygamma(OpCall& c) {
  const at::Tensor& a = c.tensor(1);
  const at::ScalarType t = floating(a.scalar_type());
  return elementwise(c, PointwiseOp::polygamma, {a}, {ocl::Scalar(static_cast<double>(c.integer(0)))}, t, t);
}
bool polygammaFits(const OpCall& c) {
  return c.integer(0) >= 0 && elementwiseFits(PointwiseOp::polygamma, {c.tensor(1)}, floating(c.tensor(1).scalar_type()));
}

// (self, *, mantissa, exponent)
Result<void> frexp(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  at::Tensor exponent = c.resizeOut(1, a.sizes());
  if (a.numel() > 0) {
    const ocl::TensorRef in = ref(a);
    if (auto ok = ocl::pointwise(c.queue(), PointwiseOp::frexp_exponent, {&in, 1}, ref(exponent), toDType(a.scalar_type()), {}, c.variant()); !ok)
      return ok;
  }
  return elementwise(c, PointwiseOp::frexp_mantissa, {a}, {}, a.scalar_type(), a.scalar_type());
}
bool frexpFits(const OpCall& c) {
  return onlyFloating(c) && elementwiseFits(PointwiseOp::frexp_mantissa, {c.tensor(0)}, c.tensor(0).scalar_type()) &&
         c.out(1).scalar_type() == at::kInt;
}

bool reluFits(const OpCall& c) { return c.tensor(0).scalar_type() != at::kBool && unaryFits<PointwiseOp::relu>(c); }
// A rounded number of decimals is another operator.
bool notBool(const OpCall& c) { return c.tensor(0).scalar_type() != at::kBool && unaryFits<PointwiseOp::neg>(c); }

#define FLAGOS_UNARY(name) {"aten::" #name ".out", "pointwise", unary<PointwiseOp::name>, unaryFits<PointwiseOp::name>}
#define FLAGOS_SPECIAL(name, op) {"aten::special_" #name ".out", "pointwise", unary<PointwiseOp::op>, unaryFits<PointwiseOp::op>}
const NativeOp rows[] = {
    {"aten::neg.out", "pointwise", unary<PointwiseOp::neg>, notBool},
    FLAGOS_UNARY(abs), FLAGOS_UNARY(exp), FLAGOS_UNARY(exp2), FLAGOS_UNARY(log), FLAGOS_UNARY(log2), FLAGOS_UNARY(log10),
    FLAGOS_UNARY(log1p), FLAGOS_UNARY(expm1), FLAGOS_UNARY(sqrt), FLAGOS_UNARY(rsqrt), FLAGOS_UNARY(sin), FLAGOS_UNARY(cos),
    FLAGOS_UNARY(tan), FLAGOS_UNARY(asin), FLAGOS_UNARY(acos), FLAGOS_UNARY(atan), FLAGOS_UNARY(sinh), FLAGOS_UNARY(cosh),
    FLAGOS_UNARY(tanh), FLAGOS_UNARY(asinh), FLAGOS_UNARY(acosh), FLAGOS_UNARY(atanh), FLAGOS_UNARY(sigmoid), FLAGOS_UNARY(erf),
    FLAGOS_UNARY(erfc), FLAGOS_UNARY(lgamma), FLAGOS_UNARY(ceil), FLAGOS_UNARY(floor), FLAGOS_UNARY(round), FLAGOS_UNARY(trunc),
    FLAGOS_UNARY(frac), FLAGOS_UNARY(sign), FLAGOS_UNARY(reciprocal), FLAGOS_UNARY(logical_not), FLAGOS_UNARY(bitwise_not),
    FLAGOS_UNARY(silu), FLAGOS_UNARY(mish), FLAGOS_UNARY(hardswish), FLAGOS_UNARY(hardsigmoid), FLAGOS_UNARY(signbit),
    {"aten::sgn.out", "pointwise", unary<PointwiseOp::sign>, unaryFits<PointwiseOp::sign>},
    FLAGOS_UNARY(isposinf), FLAGOS_UNARY(isneginf), FLAGOS_UNARY(sinc), FLAGOS_UNARY(angle), FLAGOS_UNARY(digamma),
    FLAGOS_UNARY(erfinv),
    {"aten::angle", "pointwise", unary<PointwiseOp::angle>, unaryFits<PointwiseOp::angle>},
    {"aten::i0.out", "pointwise", unary<PointwiseOp::bessel_i0>, unaryFits<PointwiseOp::bessel_i0>},
    FLAGOS_SPECIAL(entr, entr), FLAGOS_SPECIAL(erfcx, erfcx), FLAGOS_SPECIAL(ndtri, ndtri), FLAGOS_SPECIAL(log_ndtr, log_ndtr),
    FLAGOS_SPECIAL(i0e, bessel_i0e), FLAGOS_SPECIAL(i1, bessel_i1), FLAGOS_SPECIAL(i1e, bessel_i1e),
    FLAGOS_SPECIAL(bessel_j0, bessel_j0), FLAGOS_SPECIAL(bessel_j1, bessel_j1), FLAGOS_SPECIAL(bessel_y0, bessel_y0),
    FLAGOS_SPECIAL(bessel_y1, bessel_y1), FLAGOS_SPECIAL(modified_bessel_i0, bessel_i0), FLAGOS_SPECIAL(modified_bessel_i1, bessel_i1),
    FLAGOS_SPECIAL(modified_bessel_k0, modified_bessel_k0), FLAGOS_SPECIAL(modified_bessel_k1, modified_bessel_k1),
    FLAGOS_SPECIAL(scaled_modified_bessel_k0, scaled_modified_bessel_k0),
    FLAGOS_SPECIAL(scaled_modified_bessel_k1, scaled_modified_bessel_k1),
    FLAGOS_SPECIAL(spherical_bessel_j0, spherical_bessel_j0), FLAGOS_SPECIAL(airy_ai, airy_ai),
    {"aten::logit", "pointwise", logit, onlyFloating},
    {"aten::logit_", "pointwise", logit, onlyFloating},
    {"aten::logit.out", "pointwise", logit, onlyFloating},
    {"aten::round.decimals_out", "pointwise", roundDecimals, roundDecimalsFits},
    {"aten::polygamma.out", "pointwise", polygamma, polygammaFits},
    {"aten::frexp.Tensor_out", "pointwise", frexp, frexpFits},
    {"aten::isnan", "pointwise", unary<PointwiseOp::isnan>, unaryFits<PointwiseOp::isnan>},
    {"aten::relu", "pointwise", unary<PointwiseOp::relu>, reluFits},
    {"aten::relu_", "pointwise", unary<PointwiseOp::relu>, reluFits},
    {"aten::hardswish", "pointwise", unary<PointwiseOp::hardswish>, onlyFloating},
    {"aten::hardswish_", "pointwise", unary<PointwiseOp::hardswish>, onlyFloating},
    {"aten::gelu.out", "pointwise", gelu, geluFits},
    {"aten::hardtanh", "pointwise", withNumbers<PointwiseOp::hardtanh, 2>, onlyFloating},
    {"aten::hardtanh_", "pointwise", withNumbers<PointwiseOp::hardtanh, 2>, onlyFloating},
    {"aten::hardtanh.out", "pointwise", withNumbers<PointwiseOp::hardtanh, 2>, onlyFloating},
    {"aten::leaky_relu.out", "pointwise", withNumbers<PointwiseOp::leaky_relu, 1>, onlyFloating},
    {"aten::elu.out", "pointwise", withNumbers<PointwiseOp::elu, 3>, onlyFloating},
    {"aten::softplus.out", "pointwise", withNumbers<PointwiseOp::softplus, 2>, onlyFloating},
    {"aten::threshold.out", "pointwise", withNumbers<PointwiseOp::threshold, 2>, onlyFloating},
    {"aten::softshrink.out", "pointwise", withNumbers<PointwiseOp::softshrink, 1>, onlyFloating},
    {"aten::hardshrink.out", "pointwise", withNumbers<PointwiseOp::hardshrink, 1>, onlyFloating},
    {"aten::clamp.out", "pointwise", clamp, clampFits},
    {"aten::clamp_min.out", "pointwise", clamp, clampFits},
    {"aten::clamp_max.out", "pointwise", clamp, clampFits},
    {"aten::nan_to_num.out", "pointwise", nanToNum, nanToNumFits},
};
#undef FLAGOS_SPECIAL
#undef FLAGOS_UNARY
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

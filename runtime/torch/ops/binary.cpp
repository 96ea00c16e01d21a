// Elementwise operators of two and three tensors. A 0-dim CPU tensor takes part as a number.
#include <optional>

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::PointwiseOp;

// The form of an operator whose second (or first) operand is a number; count_ = none.
struct NumberForms { PointwiseOp op, right, left; };
constexpr NumberForms kForms[] = {
    {PointwiseOp::mul, PointwiseOp::mul_scalar, PointwiseOp::mul_scalar},
    {PointwiseOp::div, PointwiseOp::div_scalar, PointwiseOp::count_},
    {PointwiseOp::pow, PointwiseOp::pow_scalar, PointwiseOp::pow_base},
    {PointwiseOp::fmod, PointwiseOp::fmod_scalar, PointwiseOp::count_},
    {PointwiseOp::remainder, PointwiseOp::remainder_scalar, PointwiseOp::count_},
    {PointwiseOp::floor_divide, PointwiseOp::floor_divide_scalar, PointwiseOp::count_},
    {PointwiseOp::trunc_divide, PointwiseOp::trunc_divide_scalar, PointwiseOp::count_},
    {PointwiseOp::eq, PointwiseOp::eq_scalar, PointwiseOp::eq_scalar},
    {PointwiseOp::ne, PointwiseOp::ne_scalar, PointwiseOp::ne_scalar},
    {PointwiseOp::lt, PointwiseOp::lt_scalar, PointwiseOp::gt_scalar},
    {PointwiseOp::le, PointwiseOp::le_scalar, PointwiseOp::ge_scalar},
    {PointwiseOp::gt, PointwiseOp::gt_scalar, PointwiseOp::lt_scalar},
    {PointwiseOp::ge, PointwiseOp::ge_scalar, PointwiseOp::le_scalar},
    {PointwiseOp::bitwise_and, PointwiseOp::bitwise_and_scalar, PointwiseOp::bitwise_and_scalar},
    {PointwiseOp::bitwise_or, PointwiseOp::bitwise_or_scalar, PointwiseOp::bitwise_or_scalar},
    {PointwiseOp::bitwise_xor, PointwiseOp::bitwise_xor_scalar, PointwiseOp::bitwise_xor_scalar},
};

const NumberForms* formsOf(PointwiseOp op) {
  for (const NumberForms& f : kForms)
    if (f.op == op) return &f;
  return nullptr;
}

at::ScalarType computeOf(PointwiseOp op, const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType common = promote({a, b});
  return ocl::pointwiseInfo(op).integers ? common : floating(common);
}

// Half types: torch takes the number in full precision, not rounded to the tensor's dtype; so does the number form. A
// remainder jumps where its divisor's last digits decide, and there torch rounds it first.
ocl::Scalar numberFor(PointwiseOp op, const at::Tensor& number, at::ScalarType compute) {
  const bool rounded = op == PointwiseOp::fmod || op == PointwiseOp::remainder || !at::isFloatingType(compute);
  return cpuScalar(rounded ? number.to(compute) : number);
}

Result<void> binary(OpCall& c, PointwiseOp op, const at::Tensor& a, const at::Tensor& b, std::initializer_list<ocl::Scalar> scalars = {}) {
  const at::ScalarType compute = computeOf(op, a, b);
  const at::ScalarType result = ocl::pointwiseInfo(op).to_bool ? at::kBool : compute;
  if (const NumberForms* f = formsOf(op)) {
    if (isCpuScalar(b) && f->right != PointwiseOp::count_) return elementwise(c, f->right, {a}, {numberFor(op, b, compute)}, compute, result);
    if (isCpuScalar(a) && f->left != PointwiseOp::count_) return elementwise(c, f->left, {b}, {cpuScalar(a)}, compute, result);
  }
  return elementwise(c, op, {a, b}, scalars, compute, result);
}
bool binaryFits(PointwiseOp op, const at::Tensor& a, const at::Tensor& b) {
  return elementwiseFits(op, {a, b}, computeOf(op, a, b));
}

template <PointwiseOp op>
Result<void> plain(OpCall& c) { return binary(c, op, c.tensor(0), c.tensor(1)); }
template <PointwiseOp op>
bool plainFits(const OpCall& c) { return binaryFits(op, c.tensor(0), c.tensor(1)); }

// a + alpha * b and a - alpha * b.
template <PointwiseOp op>
Result<void> sum(OpCall& c) {
  const at::Tensor &a = c.tensor(0), &b = c.tensor(1);
  const ocl::Scalar alpha = toScalar(c.scalar(2));
  const at::ScalarType compute = promote({a, b});
  const double sign = op == PointwiseOp::sub ? -1 : 1;
  if (isCpuScalar(b)) {
    const ocl::Scalar s = cpuScalar(b);
    ocl::Scalar addend;
    addend.real = sign * alpha.real * s.real;
    addend.integer = static_cast<int64_t>(sign) * alpha.integer * s.integer;
    return elementwise(c, PointwiseOp::add_scalar, {a}, {addend}, compute, compute);
  }
  if (isCpuScalar(a) && op == PointwiseOp::sub && alpha.real == 1.0)
    return elementwise(c, PointwiseOp::rsub_scalar, {b}, {cpuScalar(a)}, compute, compute);
  return elementwise(c, op, {a, b}, {alpha}, compute, compute);
}
template <PointwiseOp op>
bool sumFits(const OpCall& c) {
  const at::ScalarType compute = promote({c.tensor(0), c.tensor(1)});
  // Subtraction of bool, and a fractional alpha on integers, are errors with texts of their own on the host route.
  if (compute == at::kBool && op == PointwiseOp::sub) return false;
  if (c.scalar(2).isComplex() || (c.scalar(2).isFloatingPoint() && !at::isFloatingType(compute))) return false;
  return elementwiseFits(op, {c.tensor(0), c.tensor(1)}, compute);
}

PointwiseOp divisionOf(const OpCall& c) {
  if (!c.given(2)) return PointwiseOp::div;
  return c.string(2) == "floor" ? PointwiseOp::floor_divide : PointwiseOp::trunc_divide;
}
Result<void> divide(OpCall& c) { return binary(c, divisionOf(c), c.tensor(0), c.tensor(1)); }
// Whole-number division by zero raises on the CPU; a kernel cannot: only by a number that is none.
bool neverByZero(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType common = promote({a, b});
  if (at::isFloatingType(common)) return true;
  return at::isIntegralType(common, /*includeBool=*/false) && isCpuScalar(b) && b.to(common).item<int64_t>() != 0;
}
bool divideFits(const OpCall& c) {
  const PointwiseOp op = divisionOf(c);
  return (op == PointwiseOp::div || neverByZero(c.tensor(0), c.tensor(1))) && binaryFits(op, c.tensor(0), c.tensor(1));
}
template <PointwiseOp op>
bool divisionFits(const OpCall& c) { return neverByZero(c.tensor(0), c.tensor(1)) && plainFits<op>(c); }
// In place self keeps its size: where it would have to grow, the host route raises PyTorch's own error.
template <PointwiseOp op>
bool divisionInPlaceFits(const OpCall& c) {
  const auto sizes = broadcastSizes({c.tensor(0), c.tensor(1)});
  return at::IntArrayRef(sizes) == c.tensor(0).sizes() && divisionFits<op>(c);
}
template <PointwiseOp op>
bool floatingOnly(const OpCall& c) {
  return at::isFloatingType(promote({c.tensor(0), c.tensor(1)})) && plainFits<op>(c);
}
template <PointwiseOp op>
bool noBool(const OpCall& c) { return promote({c.tensor(0), c.tensor(1)}) != at::kBool && plainFits<op>(c); }
template <PointwiseOp op>
bool wholeOnly(const OpCall& c) { return !at::isFloatingType(promote({c.tensor(0), c.tensor(1)})) && plainFits<op>(c); }

// op(tensor, number): eq.Scalar_out, pow.Tensor_Scalar_out ...
at::Tensor numberTensor(const at::Scalar& s) {
  at::Tensor t = at::scalar_tensor(s, at::TensorOptions().dtype(s.type()).device(at::kCPU));
  t.unsafeGetTensorImpl()->set_wrapped_number(true);
  return t;
}
template <PointwiseOp op>
Result<void> withNumber(OpCall& c) { return binary(c, op, c.tensor(0), numberTensor(c.scalar(1))); }
template <PointwiseOp op>
bool withNumberFits(const OpCall& c) { return !c.scalar(1).isComplex() && binaryFits(op, c.tensor(0), numberTensor(c.scalar(1))); }
bool powNumberFits(const OpCall& c) {
  return !c.scalar(1).isComplex() && at::isFloatingType(c.tensor(0).scalar_type()) && withNumberFits<PointwiseOp::pow>(c);
}
Result<void> powBase(OpCall& c) { return binary(c, PointwiseOp::pow, numberTensor(c.scalar(0)), c.tensor(1)); }
bool powBaseFits(const OpCall& c) {
  return !c.scalar(0).isComplex() && at::isFloatingType(c.tensor(1).scalar_type()) && binaryFits(PointwiseOp::pow, numberTensor(c.scalar(0)), c.tensor(1));
}

// lerp, addcmul, addcdiv.
Result<void> lerpScalar(OpCall& c) {
  const at::ScalarType t = promote({c.tensor(0), c.tensor(1)});
  return elementwise(c, PointwiseOp::lerp_scalar, {c.tensor(0), c.tensor(1)}, {toScalar(c.scalar(2))}, t, t);
}
bool lerpScalarFits(const OpCall& c) {
  const at::ScalarType t = promote({c.tensor(0), c.tensor(1)});
  return !c.scalar(2).isComplex() && at::isFloatingType(t) && elementwiseFits(PointwiseOp::lerp_scalar, {c.tensor(0), c.tensor(1)}, t);
}
template <PointwiseOp op>
Result<void> ternary(OpCall& c) {
  const at::ScalarType t = promote({c.tensor(0), c.tensor(1), c.tensor(2)});
  if constexpr (op == PointwiseOp::addcmul || op == PointwiseOp::addcdiv)
    return elementwise(c, op, {c.tensor(0), c.tensor(1), c.tensor(2)}, {toScalar(c.scalar(3))}, t, t);
  else
    return elementwise(c, op, {c.tensor(0), c.tensor(1), c.tensor(2)}, {}, t, t);
}
template <PointwiseOp op>
bool ternaryFits(const OpCall& c) {
  if (!c.given(1) || !c.given(2)) return false;
  const at::ScalarType t = promote({c.tensor(0), c.tensor(1), c.tensor(2)});
  return at::isFloatingType(t) && elementwiseFits(op, {c.tensor(0), c.tensor(1), c.tensor(2)}, t);
}

// clamp with tensors, one of which may be missing.
Result<void> clampTensor(OpCall& c) {
  const bool low = c.given(1), high = c.given(2);
  if (low && high) return ternary<PointwiseOp::clamp>(c);
  const at::Tensor& bound = c.tensor(low ? 1 : 2);
  const at::ScalarType t = promote({c.tensor(0), bound});
  return elementwise(c, low ? PointwiseOp::clamp_min : PointwiseOp::clamp_max, {c.tensor(0), bound}, {}, t, t);
}
bool clampTensorFits(const OpCall& c) {
  if (c.given(1) && c.given(2)) return ternaryFits<PointwiseOp::clamp>(c);
  if (!c.given(1) && !c.given(2)) return false;
  const at::Tensor& bound = c.tensor(c.given(1) ? 1 : 2);
  const at::ScalarType t = promote({c.tensor(0), bound});
  return at::isFloatingType(t) && elementwiseFits(PointwiseOp::clamp_min, {c.tensor(0), bound}, t);
}

// where(condition, a, b): the condition does not take part in the promotion.
Result<void> where(OpCall& c) {
  const at::ScalarType t = promote({c.tensor(1), c.tensor(2)});
  return elementwise(c, PointwiseOp::where, {c.tensor(0), c.tensor(1), c.tensor(2)}, {}, t, t);
}
bool whereFits(const OpCall& c) {
  const at::ScalarType t = promote({c.tensor(1), c.tensor(2)});
  return c.tensor(0).scalar_type() == at::kBool && isNpu(c.tensor(0)) &&
         elementwiseFits(PointwiseOp::where, {c.tensor(0), c.tensor(1), c.tensor(2)}, t);
}

Result<void> maskedFill(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  if (c.value(2).isTensor() && isNpu(c.tensor(2)))
    return elementwise(c, PointwiseOp::where, {c.tensor(1), c.tensor(2), self}, {}, self.scalar_type(), self.scalar_type());
  const ocl::Scalar value = c.value(2).isTensor() ? cpuScalar(c.tensor(2)) : toScalar(c.scalar(2));
  return elementwise(c, PointwiseOp::masked_fill, {self, c.tensor(1)}, {value}, self.scalar_type(), self.scalar_type());
}
bool maskedFillFits(const OpCall& c) {
  const at::ScalarType t = c.tensor(0).scalar_type();
  if (c.value(2).isTensor() && isNpu(c.tensor(2))) {
    const at::Tensor& v = c.tensor(2);
    if (v.dim() != 0 || v.is_alias_of(c.tensor(0)) || at::isComplexType(v.scalar_type()) || (at::isFloatingType(v.scalar_type()) && !at::isFloatingType(t)))
      return false;
  } else {
    if (c.value(2).isTensor() && !isCpuScalar(c.tensor(2))) return false;
    const at::Scalar value = c.value(2).isTensor() ? c.tensor(2).item() : c.scalar(2);
    if (value.isComplex() || (value.isFloatingPoint() && !at::isFloatingType(t))) return false;
  }
  // In place: the mask may broadcast to self, never the other way round.
  return c.tensor(1).scalar_type() == at::kBool && isNpu(c.tensor(1)) && c.tensor(1).dim() <= c.tensor(0).dim() &&
         broadcastSizes({c.tensor(0), c.tensor(1)}) == c10::SmallVector<int64_t, 6>(c.tensor(0).sizes().begin(), c.tensor(0).sizes().end()) &&
         elementwiseFits(PointwiseOp::masked_fill, {c.tensor(0), c.tensor(1)}, t);
}

#define FLAGOS_PLAIN(schema, op, fits) {"aten::" schema, "pointwise", plain<PointwiseOp::op>, fits<PointwiseOp::op>}
#define FLAGOS_COMPARE(op)                                   \
  FLAGOS_PLAIN(#op ".Tensor_out", op, plainFits),            \
  {"aten::" #op ".Scalar_out", "pointwise", withNumber<PointwiseOp::op>, withNumberFits<PointwiseOp::op>}
const NativeOp rows[] = {
    {"aten::add.out", "pointwise", sum<PointwiseOp::add>, sumFits<PointwiseOp::add>},
    {"aten::sub.out", "pointwise", sum<PointwiseOp::sub>, sumFits<PointwiseOp::sub>},
    FLAGOS_PLAIN("mul.out", mul, plainFits),
    FLAGOS_PLAIN("div.out", div, plainFits),
    {"aten::div.out_mode", "pointwise", divide, divideFits},
    FLAGOS_PLAIN("floor_divide.out", floor_divide, divisionFits),
    FLAGOS_PLAIN("floor_divide", floor_divide, divisionFits),
    FLAGOS_PLAIN("floor_divide_.Tensor", floor_divide, divisionInPlaceFits),
    FLAGOS_PLAIN("pow.Tensor_Tensor_out", pow, floatingOnly),
    {"aten::pow.Tensor_Scalar_out", "pointwise", withNumber<PointwiseOp::pow>, powNumberFits},
    {"aten::pow.Scalar_out", "pointwise", powBase, powBaseFits},
    FLAGOS_PLAIN("maximum.out", maximum, plainFits),
    FLAGOS_PLAIN("minimum.out", minimum, plainFits),
    FLAGOS_PLAIN("fmax.out", fmax, plainFits),
    FLAGOS_PLAIN("fmin.out", fmin, plainFits),
    FLAGOS_PLAIN("fmod.Tensor_out", fmod, divisionFits),
    FLAGOS_PLAIN("remainder.Tensor_out", remainder, divisionFits),
    FLAGOS_PLAIN("atan2.out", atan2, plainFits),
    FLAGOS_PLAIN("hypot.out", hypot, floatingOnly),
    FLAGOS_PLAIN("copysign.out", copysign, floatingOnly),
    FLAGOS_PLAIN("logaddexp.out", logaddexp, floatingOnly),
    FLAGOS_PLAIN("xlogy.OutTensor", xlogy, plainFits),
    FLAGOS_PLAIN("special_zeta.out", zeta, plainFits),
    FLAGOS_PLAIN("special_xlog1py.out", xlog1py, plainFits),
    FLAGOS_PLAIN("igamma.out", igamma, plainFits),
    FLAGOS_PLAIN("igammac.out", igammac, plainFits),
    FLAGOS_PLAIN("logaddexp2.out", logaddexp2, floatingOnly),
    FLAGOS_PLAIN("nextafter.out", nextafter, floatingOnly),
    FLAGOS_PLAIN("special_chebyshev_polynomial_t.out", chebyshev_polynomial_t, plainFits),
    FLAGOS_PLAIN("special_chebyshev_polynomial_u.out", chebyshev_polynomial_u, plainFits),
    FLAGOS_PLAIN("special_chebyshev_polynomial_v.out", chebyshev_polynomial_v, plainFits),
    FLAGOS_PLAIN("special_chebyshev_polynomial_w.out", chebyshev_polynomial_w, plainFits),
    FLAGOS_PLAIN("special_shifted_chebyshev_polynomial_t.out", shifted_chebyshev_polynomial_t, plainFits),
    FLAGOS_PLAIN("special_shifted_chebyshev_polynomial_u.out", shifted_chebyshev_polynomial_u, plainFits),
    FLAGOS_PLAIN("special_shifted_chebyshev_polynomial_v.out", shifted_chebyshev_polynomial_v, plainFits),
    FLAGOS_PLAIN("special_shifted_chebyshev_polynomial_w.out", shifted_chebyshev_polynomial_w, plainFits),
    FLAGOS_PLAIN("special_hermite_polynomial_h.out", hermite_polynomial_h, plainFits),
    FLAGOS_PLAIN("special_hermite_polynomial_he.out", hermite_polynomial_he, plainFits),
    FLAGOS_PLAIN("special_laguerre_polynomial_l.out", laguerre_polynomial_l, plainFits),
    FLAGOS_PLAIN("special_legendre_polynomial_p.out", legendre_polynomial_p, plainFits),
    FLAGOS_PLAIN("bitwise_left_shift.Tensor_out", lshift, wholeOnly),
    FLAGOS_PLAIN("bitwise_right_shift.Tensor_out", rshift, wholeOnly),
    FLAGOS_PLAIN("heaviside.out", heaviside, floatingOnly),
    FLAGOS_PLAIN("logical_and.out", logical_and, plainFits),
    FLAGOS_PLAIN("logical_or.out", logical_or, plainFits),
    FLAGOS_PLAIN("logical_xor.out", logical_xor, plainFits),
    FLAGOS_PLAIN("bitwise_and.Tensor_out", bitwise_and, wholeOnly),
    FLAGOS_PLAIN("bitwise_or.Tensor_out", bitwise_or, wholeOnly),
    FLAGOS_PLAIN("bitwise_xor.Tensor_out", bitwise_xor, wholeOnly),
    FLAGOS_PLAIN("_prelu_kernel", prelu, floatingOnly),
    FLAGOS_PLAIN("clamp_min.Tensor_out", clamp_min, noBool),
    FLAGOS_PLAIN("clamp_max.Tensor_out", clamp_max, noBool),
    FLAGOS_COMPARE(eq), FLAGOS_COMPARE(ne), FLAGOS_COMPARE(lt), FLAGOS_COMPARE(le), FLAGOS_COMPARE(gt), FLAGOS_COMPARE(ge),
    {"aten::lerp.Scalar_out", "pointwise", lerpScalar, lerpScalarFits},
    {"aten::lerp.Tensor_out", "pointwise", ternary<PointwiseOp::lerp>, ternaryFits<PointwiseOp::lerp>},
    {"aten::addcmul.out", "pointwise", ternary<PointwiseOp::addcmul>, ternaryFits<PointwiseOp::addcmul>},
    {"aten::addcdiv.out", "pointwise", ternary<PointwiseOp::addcdiv>, ternaryFits<PointwiseOp::addcdiv>},
    {"aten::clamp.Tensor_out", "pointwise", clampTensor, clampTensorFits},
    {"aten::where.self", "pointwise", where, whereFits},
    {"aten::where.self_out", "pointwise", where, whereFits},
    {"aten::masked_fill_.Scalar", "pointwise", maskedFill, maskedFillFits},
    {"aten::masked_fill_.Tensor", "pointwise", maskedFill, maskedFillFits},
};
#undef FLAGOS_COMPARE
#undef FLAGOS_PLAIN
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

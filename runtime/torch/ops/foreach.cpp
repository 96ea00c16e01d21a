// Many tensors in few launches: `_foreach_*` and the fused optimizer steps.
// Lists that mix dtypes or devices, and whole-number lists, take the host route.
#include "runtime/opencl/ops/foreach.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::PointwiseOp;
using Refs = std::vector<ocl::TensorRef>;

Refs refs(const std::vector<at::Tensor>& list) {
  Refs r;
  r.reserve(list.size());
  for (const at::Tensor& t : list) r.push_back(ref(t));
  return r;
}

template <class Sizes>
bool alike(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, Sizes&& fit) {
  if (a.size() != b.size() || a.empty()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!isNpu(a[i]) || !isNpu(b[i]) || a[i].scalar_type() != b[i].scalar_type() || a[i].scalar_type() != a[0].scalar_type() ||
        !fit(a[i].sizes(), b[i].sizes()) || a[i].device() != a[0].device() || b[i].device() != a[0].device())
      return false;
  return at::isFloatingType(a[0].scalar_type());
}
bool sameKind(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return alike(a, b, [](at::IntArrayRef x, at::IntArrayRef y) { return x == y; });
}
// Each b spreads over its a, whose shape is the result's: optimizers divide parameters by 0-dim tensors.
bool spreads(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return alike(a, b, [](at::IntArrayRef x, at::IntArrayRef y) { return x == y || at::is_expandable_to(y, x); });
}
bool floats(const std::vector<at::Tensor>& a) { return sameKind(a, a); }

bool inPlace(const OpCall& c) { return c.isOut(0); }

// The tensors written to: self in place, else fresh ones that become the result.
std::vector<at::Tensor> outputs(OpCall& c, const std::vector<at::Tensor>& self) {
  if (inPlace(c)) return self;
  std::vector<at::Tensor> out;
  out.reserve(self.size());
  for (const at::Tensor& t : self) out.push_back(at::empty_like(t));
  c.result(c10::IValue(out));
  return out;
}

Result<void> run(OpCall& c, PointwiseOp op, std::initializer_list<const std::vector<at::Tensor>*> in, const std::vector<ocl::Scalar>& scalars) {
  const std::vector<at::Tensor>& self = **in.begin();
  const Refs out = refs(outputs(c, self));
  std::vector<Refs> lists;
  for (const auto* l : in) lists.push_back(refs(*l));
  std::vector<ocl::TensorList> spans(lists.begin(), lists.end());
  return ocl::foreachPointwise(c.queue(), op, spans, out, scalars, c.variant());
}

std::vector<ocl::Scalar> numbers(const OpCall& c, size_t i) {
  std::vector<ocl::Scalar> v;
  if (c.value(i).isList()) {
    for (const c10::IValue& s : c.value(i).toListRef()) v.push_back(toScalar(s.toScalar()));
  } else {
    v.push_back(toScalar(c.scalar(i)));
  }
  return v;
}
bool realNumbers(const OpCall& c, size_t i) {
  if (!c.value(i).isList()) return !c.scalar(i).isComplex();
  for (const c10::IValue& s : c.value(i).toListRef())
    if (s.toScalar().isComplex()) return false;
  return true;
}

// op(self) and op(self, numbers): add.Scalar, mul.ScalarList ...
template <PointwiseOp op>
Result<void> unary(OpCall& c) {
  const auto self = c.tensors(0);
  return run(c, op, {&self}, {});
}
bool unaryFits(const OpCall& c) { return floats(c.tensors(0)); }

template <PointwiseOp op, bool negate = false>
Result<void> withNumbers(OpCall& c) {
  const auto self = c.tensors(0);
  auto s = numbers(c, 1);
  if (negate)
    for (ocl::Scalar& v : s) { v.real = -v.real; v.integer = -v.integer; }
  return run(c, op, {&self}, s);
}
bool withNumbersFits(const OpCall& c) { return floats(c.tensors(0)) && realNumbers(c, 1); }

// op(self, other list[, alpha])
template <PointwiseOp op, bool alpha>
Result<void> lists(OpCall& c) {
  const auto self = c.tensors(0), other = c.tensors(1);
  return run(c, op, {&self, &other}, alpha ? numbers(c, 2) : std::vector<ocl::Scalar>());
}
bool listsFits(const OpCall& c) { return spreads(c.tensors(0), c.tensors(1)); }
bool alphaFits(const OpCall& c) { return listsFits(c) && realNumbers(c, 2); }

// addcmul, addcdiv: op(self, t1, t2, value or values)
template <PointwiseOp op>
Result<void> three(OpCall& c) {
  const auto self = c.tensors(0), a = c.tensors(1), b = c.tensors(2);
  return run(c, op, {&self, &a, &b}, numbers(c, 3));
}
bool threeFits(const OpCall& c) { return spreads(c.tensors(0), c.tensors(1)) && spreads(c.tensors(0), c.tensors(2)) && realNumbers(c, 3); }

// GradScaler: (grads, found_inf, inv_scale)
Result<void> unscale(OpCall& c) {
  return ocl::ampUnscale(c.queue(), refs(c.tensors(0)), ref(c.tensor(1)), ref(c.tensor(2)), c.variant());
}
bool unscaleFits(const OpCall& c) {
  const auto grads = c.tensors(0);
  const auto number = [&](const at::Tensor& t) { return isNpu(t) && t.device() == grads[0].device() && t.numel() == 1 && t.scalar_type() == at::kFloat; };
  return floats(grads) && grads[0].scalar_type() != at::kDouble && number(c.tensor(1)) && number(c.tensor(2));
}

// The fused steps of torch.optim (fused=True).
const ocl::TensorRef* optional(const OpCall& c, size_t i, ocl::TensorRef& keep) {
  if (!c.given(i)) return nullptr;
  keep = ref(c.tensor(i));
  return &keep;
}
size_t position(const OpCall& c, std::string_view name) {
  for (size_t i = 0; i < c.count(); ++i)
    if (c.schema().arguments()[i].name() == name) return i;
  TORCH_INTERNAL_ASSERT(false, "no argument ", std::string(name));
}
double numberNamed(const OpCall& c, std::string_view name) { return c.number(position(c, name)); }
bool flagNamed(const OpCall& c, std::string_view name) { return c.flag(position(c, name)); }

// (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *, lr, ...)
Result<void> adam(OpCall& c) {
  ocl::AdamOptions o;
  const size_t lr = position(c, "lr");
  ocl::TensorRef lrRef, scale, inf;
  const ocl::TensorRef* lrTensor = nullptr;
  if (c.value(lr).isTensor()) {
    if (isCpuScalar(c.tensor(lr))) o.lr = c.tensor(lr).item().toDouble();
    else { lrRef = ref(c.tensor(lr)); lrTensor = &lrRef; }
  } else {
    o.lr = c.number(lr);
  }
  o.beta1 = numberNamed(c, "beta1");
  o.beta2 = numberNamed(c, "beta2");
  o.weight_decay = numberNamed(c, "weight_decay");
  o.eps = numberNamed(c, "eps");
  o.amsgrad = flagNamed(c, "amsgrad");
  o.maximize = flagNamed(c, "maximize");
  o.decoupled = std::string_view(c.row().schema).find("adamw") != std::string_view::npos;
  const Refs params = refs(c.tensors(0)), grads = refs(c.tensors(1)), m = refs(c.tensors(2)), v = refs(c.tensors(3)), vmax = refs(c.tensors(4)),
             steps = refs(c.tensors(5));
  return ocl::adamStep(c.queue(), params, grads, m, v, vmax, steps, o, lrTensor, optional(c, position(c, "grad_scale"), scale),
                       optional(c, position(c, "found_inf"), inf), c.variant());
}
bool adamFits(const OpCall& c) {
  const auto params = c.tensors(0);
  return sameKind(params, c.tensors(1)) && sameKind(params, c.tensors(2)) && sameKind(params, c.tensors(3)) && floats(c.tensors(5)) &&
         params[0].scalar_type() == at::kFloat;
}

// (self, grads, momentum_buffer_list, *, weight_decay, momentum, lr, ...)
Result<void> sgd(OpCall& c) {
  ocl::SgdOptions o;
  const size_t lr = position(c, "lr");
  ocl::TensorRef lrRef, scale, inf;
  const ocl::TensorRef* lrTensor = nullptr;
  if (c.value(lr).isTensor()) { lrRef = ref(c.tensor(lr)); lrTensor = &lrRef; }
  else o.lr = c.number(lr);
  o.momentum = numberNamed(c, "momentum");
  o.dampening = numberNamed(c, "dampening");
  o.weight_decay = numberNamed(c, "weight_decay");
  o.nesterov = flagNamed(c, "nesterov");
  o.maximize = flagNamed(c, "maximize");
  o.first_step = flagNamed(c, "is_first_step");
  const Refs params = refs(c.tensors(0)), grads = refs(c.tensors(1)), momentum = refs(c.tensors(2));
  return ocl::sgdStep(c.queue(), params, grads, momentum, o, lrTensor, optional(c, position(c, "grad_scale"), scale),
                      optional(c, position(c, "found_inf"), inf), c.variant());
}
bool sgdFits(const OpCall& c) {
  const auto params = c.tensors(0);
  return sameKind(params, c.tensors(1)) && params[0].scalar_type() == at::kFloat &&
         (!c.value(position(c, "lr")).isTensor() || isNpu(c.tensor(position(c, "lr"))));
}

void describe(const OpCall& c, kde::Signature& s) {
  const auto self = c.tensors(0);
  int64_t numel = 0;
  for (const at::Tensor& t : self) numel += t.numel();
  s.scalars[0] = static_cast<int64_t>(self.size());
  s.scalars[1] = numel;
  s.nscalars = 2;
}

#define FLAGOS_BOTH(name, overload, launch, fits) \
  {"aten::_foreach_" name overload, "foreach", launch, fits, describe}, {"aten::_foreach_" name "_" overload, "foreach", launch, fits, describe}
const NativeOp rows[] = {
    FLAGOS_BOTH("add", ".Scalar", withNumbers<PointwiseOp::add_scalar>, withNumbersFits),
    FLAGOS_BOTH("add", ".ScalarList", withNumbers<PointwiseOp::add_scalar>, withNumbersFits),
    FLAGOS_BOTH("add", ".List", (lists<PointwiseOp::add, true>), alphaFits),
    FLAGOS_BOTH("sub", ".Scalar", (withNumbers<PointwiseOp::add_scalar, true>), withNumbersFits),
    FLAGOS_BOTH("sub", ".List", (lists<PointwiseOp::sub, true>), alphaFits),
    FLAGOS_BOTH("mul", ".Scalar", withNumbers<PointwiseOp::mul_scalar>, withNumbersFits),
    FLAGOS_BOTH("mul", ".ScalarList", withNumbers<PointwiseOp::mul_scalar>, withNumbersFits),
    FLAGOS_BOTH("mul", ".List", (lists<PointwiseOp::mul, false>), listsFits),
    FLAGOS_BOTH("div", ".Scalar", withNumbers<PointwiseOp::div_scalar>, withNumbersFits),
    FLAGOS_BOTH("div", ".ScalarList", withNumbers<PointwiseOp::div_scalar>, withNumbersFits),
    FLAGOS_BOTH("div", ".List", (lists<PointwiseOp::div, false>), listsFits),
    FLAGOS_BOTH("lerp", ".Scalar", (lists<PointwiseOp::lerp_scalar, true>), alphaFits),
    FLAGOS_BOTH("maximum", ".List", (lists<PointwiseOp::maximum, false>), listsFits),
    FLAGOS_BOTH("addcmul", ".Scalar", three<PointwiseOp::addcmul>, threeFits),
    FLAGOS_BOTH("addcmul", ".ScalarList", three<PointwiseOp::addcmul>, threeFits),
    FLAGOS_BOTH("addcdiv", ".Scalar", three<PointwiseOp::addcdiv>, threeFits),
    FLAGOS_BOTH("addcdiv", ".ScalarList", three<PointwiseOp::addcdiv>, threeFits),
    FLAGOS_BOTH("sqrt", "", unary<PointwiseOp::sqrt>, unaryFits),
    FLAGOS_BOTH("neg", "", unary<PointwiseOp::neg>, unaryFits),
    FLAGOS_BOTH("reciprocal", "", unary<PointwiseOp::reciprocal>, unaryFits),
    FLAGOS_BOTH("abs", "", unary<PointwiseOp::abs>, unaryFits),
    FLAGOS_BOTH("exp", "", unary<PointwiseOp::exp>, unaryFits),
    {"aten::_amp_foreach_non_finite_check_and_unscale_", "foreach", unscale, unscaleFits, describe},
    {"aten::_fused_adam_", "foreach", adam, adamFits, describe},
    {"aten::_fused_adamw_", "foreach", adam, adamFits, describe},
    {"aten::_fused_adam_.tensor_lr", "foreach", adam, adamFits, describe},
    {"aten::_fused_adamw_.tensor_lr", "foreach", adam, adamFits, describe},
    {"aten::_fused_sgd_", "foreach", sgd, sgdFits, describe},
    {"aten::_fused_sgd_.tensor_lr", "foreach", sgd, sgdFits, describe},
};
#undef FLAGOS_BOTH
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

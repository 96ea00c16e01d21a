// Products that are one matrix product of other shapes.
#include <ATen/ExpandUtils.h>

#include "runtime/torch/ops/composed.h"

namespace flagos::glue {
namespace {

// Argument 0 broadcasts to the result; in place it must have the result's size.
bool addendFits(const OpCall& c, at::IntArrayRef sizes) {
  const at::Tensor& self = c.tensor(0);
  for (size_t i = 0; i < c.count(); ++i)
    if (c.isOut(i) && c.tensor(i).is_same(self) && self.sizes() != sizes) return false;
  return at::is_expandable_to(self.sizes(), sizes);
}

// addbmm(self, batch1, batch2, *, beta, alpha[, out]): the batch is one more dimension that is summed over.
void addbmm(OpCall& c) {
  const at::Tensor &a = c.tensor(1), &b = c.tensor(2);
  give(c, 0, at::addmm(c.tensor(0), a.permute({1, 0, 2}).reshape({a.size(1), -1}), b.reshape({-1, b.size(2)}), c.scalar(3), c.scalar(4)));
}
bool addbmmFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  if (!composedFloatFits<0>(c) || a.dim() != 3 || b.dim() != 3 || a.numel() == 0 || b.numel() == 0) return false;
  if (a.size(0) != b.size(0) || a.size(2) != b.size(1) || a.scalar_type() != b.scalar_type() || a.scalar_type() != self.scalar_type()) return false;
  return addendFits(c, {a.size(1), b.size(2)});
}

// addr(self, vec1, vec2, *, beta, alpha[, out]): PyTorch would compose it for us, without the checks of the CPU's own kernel.
void addr(OpCall& c) {
  at::Tensor out = c.tensor(1).unsqueeze(1) * c.tensor(2);
  if (c.number(4) != 1) out = out * c.scalar(4);
  if (c.number(3) != 0) out = (c.number(3) == 1 ? c.tensor(0) : c.tensor(0) * c.scalar(3)) + out;  // a factor of 0 hides nan
  give(c, 0, out);
}
bool addrFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &a = c.tensor(1), &b = c.tensor(2);
  if (!composedFloatFits<0>(c) || a.dim() != 1 || b.dim() != 1 || a.scalar_type() != self.scalar_type() || b.scalar_type() != self.scalar_type()) return false;
  return addendFits(c, {a.numel(), b.numel()});
}

// vdot(self, other[, *, out]) of real numbers
void vdot(OpCall& c) { give(c, 0, at::dot(c.tensor(0), c.tensor(1))); }
bool vdotFits(const OpCall& c) {
  const at::Tensor &a = c.tensor(0), &b = c.tensor(1);
  return composedFloatFits<0>(c) && a.dim() == 1 && b.dim() == 1 && a.numel() == b.numel() && a.scalar_type() == b.scalar_type();
}

// ---- products of halves, wanted in another type (torch.mm(a, b, out_dtype=...)) ----
// The factors are converted first, so that nothing is rounded before the sum ends. `n` matrices, then the type.
at::Tensor wide(const OpCall& c, size_t i, size_t n) { return c.tensor(i).to(*c.dtype(n)); }
template <at::Tensor (*product)(const at::Tensor&, const at::Tensor&)>
void wideProduct(OpCall& c) { give(c, 0, product(wide(c, 0, 2), wide(c, 1, 2))); }
template <at::Tensor (*product)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&, const at::Scalar&)>
void wideSum(OpCall& c) { give(c, 0, product(wide(c, 0, 3), wide(c, 1, 3), wide(c, 2, 3), c.scalar(4), c.scalar(5))); }

// What PyTorch's own kernels take: factors of one type, the result in it or in float32.
template <size_t n>
bool wideFits(const OpCall& c) {
  const at::ScalarType of = c.tensor(n - 1).scalar_type(), to = *c.dtype(n);
  if (!composedFloatFits<n - 1>(c) || c.tensor(n - 2).scalar_type() != of || (to != of && to != at::kFloat)) return false;
  if (n == 3 && c.tensor(0).scalar_type() != of && c.tensor(0).scalar_type() != to) return false;
  return c.schema().returns()[0].alias_info() == nullptr || c.out().scalar_type() == to;
}

const NativeOp rows[] = {
    {"aten::addbmm", "composed", composed<addbmm>, addbmmFits},
    {"aten::addbmm_", "composed", composed<addbmm>, addbmmFits},
    {"aten::addbmm.out", "composed", composed<addbmm>, addbmmFits},
    {"aten::addr", "composed", composed<addr>, addrFits},
    {"aten::addr.out", "composed", composed<addr>, addrFits},
    {"aten::vdot", "composed", composed<vdot>, vdotFits},
    {"aten::mm.dtype", "composed", composed<wideProduct<at::mm>>, wideFits<2>},
    {"aten::mm.dtype_out", "composed", composed<wideProduct<at::mm>>, wideFits<2>},
    {"aten::bmm.dtype", "composed", composed<wideProduct<at::bmm>>, wideFits<2>},
    {"aten::bmm.dtype_out", "composed", composed<wideProduct<at::bmm>>, wideFits<2>},
    {"aten::addmm.dtype", "composed", composed<wideSum<at::addmm>>, wideFits<3>},
    {"aten::addmm.dtype_out", "composed", composed<wideSum<at::addmm>>, wideFits<3>},
    {"aten::baddbmm.dtype", "composed", composed<wideSum<at::baddbmm>>, wideFits<3>},
    {"aten::baddbmm.dtype_out", "composed", composed<wideSum<at::baddbmm>>, wideFits<3>},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

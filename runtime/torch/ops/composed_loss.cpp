// Losses and poolings that are gathers and scatters of other operators.
#include "runtime/torch/ops/composed.h"

namespace flagos::glue {
namespace {

// ---- max_unpool2d(self, indices, output_size[, *, out]), max_unpool3d(self, indices, output_size, stride, padding[, *, out]) ----

// Every number goes to the flat place that its index names; all others are zero. An index out of range fails the next wait.
template <int64_t dims>
void maxUnpool(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &indices = c.tensor(1);
  auto sizes = self.sizes().vec();
  int64_t places = 1;
  const auto wanted = c.ints(2, dims);
  for (int64_t d = 0; d < dims; ++d) places *= sizes[sizes.size() - static_cast<size_t>(dims - d)] = wanted[static_cast<size_t>(d)];
  const int64_t planes = self.dim() == dims + 2 ? self.size(0) * self.size(1) : self.size(0);
  at::Tensor out = at::zeros({planes, places}, self.options());
  if (self.numel() > 0) out.scatter_(1, indices.reshape({planes, -1}), self.reshape({planes, -1}));
  give(c, 0, out.view(sizes));
}
template <int64_t dims>
bool maxUnpoolFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &indices = c.tensor(1);
  if (!composedFloatFits<0>(c) || indices.scalar_type() != at::kLong || self.sizes() != indices.sizes()) return false;
  if (self.dim() != dims + 1 && self.dim() != dims + 2) return false;
  for (int64_t d = 1; d < self.dim(); ++d)
    if (self.size(d) == 0) return false;  // PyTorch's own errors
  const auto wanted = c.ints(2);
  if (static_cast<int64_t>(wanted.size()) != dims) return false;
  for (const int64_t n : wanted)
    if (n <= 0) return false;
  if (dims == 2) return true;
  for (size_t i = 3; i <= 4; ++i)  // stride and padding are only checked against each other
    if (c.ints(i).size() != 3) return false;
  const auto stride = c.ints(3), padding = c.ints(4);
  for (size_t d = 0; d < 3; ++d) {
    const int64_t in = self.size(self.dim() - 3 + static_cast<int64_t>(d));
    const int64_t kernel = wanted[d] + 2 * padding[d] - (in - 1) * stride[d];
    if (stride[d] <= 0 || kernel <= 0) return false;
  }
  return true;
}

// ---- multi_margin_loss(self, target, p, margin, weight, reduction[, *, out]) ----

enum : int64_t { kNone, kMean, kSum };

// The pieces that loss and gradient share, over rows [N, C].
struct Margins {
  at::Tensor rows, target, mine, z, weight;  // mine: the place of each row's own class; z: margin - own + other
  int64_t n, classes, power;
  Margins(const OpCall& c, size_t first) {
    const at::Tensor& self = c.tensor(first);
    rows = self.dim() == 2 ? self : self.reshape({1, -1});
    target = c.tensor(first + 1).reshape({-1});
    n = rows.size(0);
    classes = rows.size(1);
    power = c.scalar(first + 2).toLong();
    const at::Tensor own = target.unsqueeze(1);
    mine = at::arange(classes, target.options()).unsqueeze(0).eq(own);
    z = rows - rows.gather(1, own) + c.number(first + 3);
    if (const at::Tensor w = c.tensorOr(first + 4); w.defined()) weight = w.index_select(0, target).unsqueeze(1);
  }
  at::Tensor zero() const { return at::zeros({}, rows.options()); }
};
void multiMargin(OpCall& c) {
  const int64_t reduction = c.integer(5);
  const Margins m(c, 0);
  at::Tensor loss = m.z.clamp_min(0);
  if (m.power == 2) loss = loss * loss;
  if (m.weight.defined()) loss = loss * m.weight;
  loss = at::where(m.mine, m.zero(), loss).sum(1) / static_cast<double>(m.classes);
  if (reduction == kMean) loss = loss.mean();
  if (reduction == kSum) loss = loss.sum();
  give(c, 0, reduction == kNone && c.tensor(1).dim() > 0 ? loss : loss.reshape({}));
}
// (grad_output, self, target, p, margin, weight, reduction[, *, grad_input])
void multiMarginBackward(OpCall& c) {
  const int64_t reduction = c.integer(6);
  const Margins m(c, 1);
  const double g = 1.0 / static_cast<double>(m.classes) / (reduction == kMean ? static_cast<double>(m.n) : 1.0);
  at::Tensor slope = m.power == 2 ? m.z * (2 * g) : at::full_like(m.z, g);
  if (m.weight.defined()) slope = slope * m.weight;
  slope = at::where(m.z.gt(0).logical_and(m.mine.logical_not()), slope, m.zero());
  const at::Tensor grad = at::where(m.mine, slope.sum({1}, true).neg(), slope);
  give(c, 0, (grad * c.tensor(0).reshape({-1, 1})).reshape(c.tensor(1).sizes()));
}
bool marginsFit(const OpCall& c, size_t first) {
  const at::Tensor &self = c.tensor(first), &target = c.tensor(first + 1);
  const at::Tensor weight = c.tensorOr(first + 4);
  const auto p = c.scalar(first + 2);
  if (!composedFits(c) || !at::isFloatingType(self.scalar_type()) || target.scalar_type() != at::kLong || self.numel() == 0) return false;
  if (!p.isIntegral(false) || (p.toLong() != 1 && p.toLong() != 2)) return false;
  if (weight.defined() && (weight.dim() != 1 || weight.size(0) != (self.dim() ? self.size(-1) : 1) || weight.scalar_type() != self.scalar_type())) return false;
  return self.dim() == 2 ? target.dim() == 1 && target.size(0) == self.size(0) : self.dim() < 2 && target.numel() == 1 && target.dim() <= 1;
}
bool multiMarginFits(const OpCall& c) { return marginsFit(c, 0); }
bool multiMarginBackwardFits(const OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &self = c.tensor(1);
  return marginsFit(c, 1) && grad.scalar_type() == self.scalar_type() && (grad.numel() == 1 || (self.dim() == 2 && grad.numel() == self.size(0)));
}

#define FLAGOS_COMPOSED(schema, steps, fits) {"aten::" schema, "composed", composed<steps>, fits}
const NativeOp rows[] = {
    FLAGOS_COMPOSED("max_unpool2d", maxUnpool<2>, maxUnpoolFits<2>),
    FLAGOS_COMPOSED("max_unpool2d.out", maxUnpool<2>, maxUnpoolFits<2>),
    FLAGOS_COMPOSED("max_unpool3d", maxUnpool<3>, maxUnpoolFits<3>),
    FLAGOS_COMPOSED("max_unpool3d.out", maxUnpool<3>, maxUnpoolFits<3>),
    FLAGOS_COMPOSED("multi_margin_loss", multiMargin, multiMarginFits),
    FLAGOS_COMPOSED("multi_margin_loss.out", multiMargin, multiMarginFits),
    FLAGOS_COMPOSED("multi_margin_loss_backward", multiMarginBackward, multiMarginBackwardFits),
    FLAGOS_COMPOSED("multi_margin_loss_backward.grad_input", multiMarginBackward, multiMarginBackwardFits),
};
#undef FLAGOS_COMPOSED
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

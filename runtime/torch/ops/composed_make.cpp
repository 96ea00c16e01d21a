// Sequences and rearrangements made of other operators.
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/UnaryOps.h>

#include "runtime/torch/ops/composed.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

// 0, 1, 2 ... as the dtype that `out` is computed in.
at::Tensor counting(const at::Tensor& out, int64_t n) {
  return at::arange(n, out.options().dtype(out.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
}
// (start, end, steps, *, out). The second half counts back from the end, as on the CPU, so that both ends are exact.
at::Tensor line(const at::Tensor& out, double start, double end, int64_t steps) {
  if (steps == 1) return at::full({1}, start, counting(out, 0).options());
  const double step = (end - start) / static_cast<double>(steps - 1);
  const at::Tensor i = counting(out, steps);
  return at::where(i.lt(static_cast<double>(steps / 2)), i * step + start, (i - static_cast<double>(steps - 1)) * step + end);
}
void linspace(OpCall& c) {
  const at::Tensor out = c.resizeOut(0, {c.integer(2)});
  if (out.numel() > 0) give(c, 0, line(out, c.number(0), c.number(1), c.integer(2)).reshape(out.sizes()));
}
// (start, end, steps, base, *, out)
void logspace(OpCall& c) {
  const at::Tensor out = c.resizeOut(0, {c.integer(2)});
  if (out.numel() > 0) give(c, 0, at::pow(at::Scalar(c.number(3)), line(out, c.number(0), c.number(1), c.integer(2))).reshape(out.sizes()));
}
bool stepsFit(const OpCall& c) {
  return composedFits(c) && at::isFloatingType(c.out().scalar_type()) && c.integer(2) >= 0 && std::isfinite(c.number(0)) && std::isfinite(c.number(1));
}
bool logStepsFit(const OpCall& c) { return stepsFit(c) && c.number(3) > 0; }

// (n[, m], *, out)
void eye(OpCall& c) {
  const int64_t n = c.integer(0), m = c.count() == 3 ? c.integer(1) : n;
  at::Tensor out = c.resizeOut(0, {n, m});
  out.zero_();
  if (out.numel() > 0) out.diagonal().fill_(1);
}
bool eyeFits(const OpCall& c) { return composedFits(c) && c.integer(0) >= 0 && (c.count() < 3 || c.integer(1) >= 0); }

// rsub(self, other, *, alpha): other - alpha * self
void rsub(OpCall& c) { give(c, 0, at::sub(c.tensor(1), c.tensor(0), c.scalar(2))); }

// _stack(tensors, dim[, out]): PyTorch's own default joins along the dimension as it is, unlike its CPU kernel.
void stack(OpCall& c) {
  const auto list = c.tensors(0);
  const int64_t dim = c10::maybe_wrap_dim(c.integer(1), list[0].dim() + 1);
  std::vector<at::Tensor> rows;
  for (const at::Tensor& t : list) rows.push_back(t.unsqueeze(dim));
  give(c, 0, at::cat(rows, dim));
}
bool stackFits(const OpCall& c) {
  const auto list = c.tensors(0);
  for (const at::Tensor& t : list)
    if (t.sizes() != list[0].sizes()) return false;
  return composedFits(c) && !list.empty();
}

// (self, groups)
void channelShuffle(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const int64_t groups = c.integer(1);
  auto split = self.sizes().vec();
  split[1] /= groups;
  split.insert(split.begin() + 1, groups);
  give(c, 0, self.reshape(split).transpose(1, 2).reshape(self.sizes()).contiguous());
}
bool channelShuffleFits(const OpCall& c) {
  return composedFits(c) && c.tensor(0).dim() > 2 && c.integer(1) > 0 && c.tensor(0).size(1) % c.integer(1) == 0;
}

// nonzero_static(self, *, size, fill_value[, out])
void nonzeroStatic(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const int64_t size = c.integer(1);
  const at::Tensor found = at::nonzero(self);
  const int64_t n = std::min(found.size(0), size);
  at::Tensor out = at::full({size, self.dim()}, c.integer(2), found.options());
  if (n > 0) out.narrow(0, 0, n).copy_(found.narrow(0, 0, n));
  give(c, 0, out);
}
bool nonzeroStaticFits(const OpCall& c) { return composedFits(c) && c.integer(1) >= 0; }

// ---- histograms ----
// Weights (or ones) added up over the bins whose edges these are; the last bin holds its upper edge.
at::Tensor binned(const at::Tensor& values, const at::Tensor& edges, const at::Tensor& weights) {
  const int64_t bins = edges.numel() - 1;
  const at::Tensor place = at::searchsorted(edges, values, false, /*right=*/true) - 1;
  const at::Tensor last = values.eq(edges[bins]);
  const at::Tensor inside = place.ge(0).logical_and(place.lt(bins)).logical_or(last);
  const at::Tensor bin = at::where(last, at::full({}, bins - 1, place.options()), place).clamp(0, bins - 1);
  return at::zeros({bins}, values.options()).scatter_add_(0, bin, at::where(inside, weights, at::zeros({}, weights.options())));
}
at::Tensor edgesOf(const OpCall& c, const at::Tensor& self, int64_t bins, size_t range) {
  double low = 0, high = 1;
  if (c.given(range)) {
    const auto r = c.value(range).toDoubleVector();
    low = r[0];
    high = r[1];
  } else if (self.numel() > 0) {
    low = self.min().item<double>();
    high = self.max().item<double>();
  }
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  return at::linspace(low, high, bins + 1, self.options());
}
// (self, bins tensor | bins count, *, [range], weight, density[, hist, bin_edges])
template <bool counted>
void histogram(OpCall& c) {
  const at::Tensor self = c.tensor(0).reshape({-1});
  const size_t weight = counted ? 3 : 2, density = weight + 1;
  const at::Tensor edges = counted ? edgesOf(c, self, c.integer(1), 2) : c.tensor(1);
  const at::Tensor weights = c.given(weight) ? c.tensor(weight).reshape({-1}) : at::ones_like(self);
  at::Tensor hist = binned(self, edges, weights);
  if (c.flag(density)) hist = hist / (hist.sum() * (edges.narrow(0, 1, edges.numel() - 1) - edges.narrow(0, 0, edges.numel() - 1)));
  give(c, 0, hist);
  give(c, 1, counted ? edges : edges.clone());
}
template <bool counted>
bool histogramFits(const OpCall& c) {
  if (!composedFloatFits<0>(c) || c.tensor(0).numel() == 0) return false;
  if (counted) return c.integer(1) > 0 && (!c.given(2) || (c.value(2).toDoubleVector().size() == 2 && c.value(2).toDoubleVector()[0] <= c.value(2).toDoubleVector()[1]));
  return c.tensor(1).dim() == 1 && c.tensor(1).numel() > 1 && c.tensor(1).scalar_type() == c.tensor(0).scalar_type();
}

#define FLAGOS_COMPOSED(schema, steps, fits) {"aten::" schema, "composed", composed<steps>, fits}

// GradScaler.update: (scale, growth_tracker, found_inf, growth, backoff, interval)
void updateScale(OpCall& c) {
  const at::Tensor &scale = c.tensor(0), &tracker = c.tensor(1);
  const at::Tensor bad = c.tensor(2).ne(0), steps = tracker + 1, due = steps.eq(c.integer(5)), grown = scale * c.number(3);
  scale.copy_(at::where(bad, scale * c.number(4), at::where(due.logical_and(grown.abs().lt(INFINITY)), grown, scale)));
  tracker.copy_(at::where(bad.logical_or(due), at::zeros_like(tracker), steps));
  c.result(c10::IValue(scale));
}
bool updateScaleFits(const OpCall& c) {
  return composedFits(c) && c.tensor(0).scalar_type() == at::kFloat && c.tensor(1).scalar_type() == at::kInt && c.tensor(0).numel() == 1 &&
         c.tensor(1).numel() == 1 && c.tensor(2).numel() == 1;
}

// torch.kaiser_window: PyTorch makes the sequence 0, 1, 2 ... itself and calls this for what only a device can do.
void kaiser(at::TensorIteratorBase& iter, int64_t n, double beta) {
  const at::Tensor x = iter.tensor(1) * (2.0 / static_cast<double>(n - 1)) - 1;
  at::Tensor root = at::special_i0((1 - x * x).clamp_min(0).sqrt() * beta);
  iter.tensor(0).copy_(root / at::special_i0(at::full({}, beta, x.options())));
}

const NativeOp rows[] = {
    FLAGOS_COMPOSED("linspace.out", linspace, stepsFit),
    FLAGOS_COMPOSED("logspace.out", logspace, logStepsFit),
    FLAGOS_COMPOSED("eye.out", eye, eyeFits),
    FLAGOS_COMPOSED("eye.m_out", eye, eyeFits),
    FLAGOS_COMPOSED("_amp_update_scale_", updateScale, updateScaleFits),
    FLAGOS_COMPOSED("_stack", stack, stackFits),
    FLAGOS_COMPOSED("_stack.out", stack, stackFits),
    FLAGOS_COMPOSED("rsub.Tensor", rsub, composedFits),
    FLAGOS_COMPOSED("channel_shuffle", channelShuffle, channelShuffleFits),
    FLAGOS_COMPOSED("nonzero_static", nonzeroStatic, nonzeroStaticFits),
    FLAGOS_COMPOSED("nonzero_static.out", nonzeroStatic, nonzeroStaticFits),
    FLAGOS_COMPOSED("histogram.bins_tensor", histogram<false>, histogramFits<false>),
    FLAGOS_COMPOSED("histogram.bin_ct", histogram<true>, histogramFits<true>),
};
#undef FLAGOS_COMPOSED
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &flagos::glue::kaiser)
}  // namespace at::native

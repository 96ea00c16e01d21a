// Reductions made of others: statistics in pairs, norms of any order, order statistics, distances.
#include <ATen/WrapDimUtils.h>

#include "runtime/opencl/ops/index.h"
#include "runtime/torch/ops/composed.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
void must(const Result<void>& r) { TORCH_CHECK(r.ok(), r.error().text()); }

std::vector<int64_t> dimsOf(const OpCall& c, size_t i, int64_t rank) {
  const auto given = c.ints(i);
  std::vector<int64_t> dims(given.begin(), given.end());
  if (dims.empty())
    for (int64_t d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

// (self, dim, *, correction, keepdim) -> (var or std, mean)
template <bool root>
void varMean(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const auto dims = dimsOf(c, 1, a.dim());
  const auto correction = c.given(2) ? std::optional<at::Scalar>(c.scalar(2)) : std::nullopt;
  give(c, 0, root ? at::std(a, dims, correction, c.flag(3)) : at::var(a, dims, correction, c.flag(3)));
  give(c, 1, at::mean(a, dims, c.flag(3)));
}

// (self, *, dim, keepdim, min, max)
void aminmax(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const auto dims = c.given(1) ? std::vector<int64_t>{c.integer(1)} : std::vector<int64_t>{};
  give(c, 0, at::amin(a, dims, c.flag(2)));
  give(c, 1, at::amax(a, dims, c.flag(2)));
}

void countNonzero(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  give(c, 0, a.ne(0).sum(dimsOf(c, 1, a.dim())));
}

at::Tensor withoutNan(const at::Tensor& a) { return at::isFloatingType(a.scalar_type()) ? at::where(a.ne(a), at::zeros({}, a.options()), a) : a; }

// (self, dim, keepdim, *, dtype)
void nansum(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  give(c, 0, at::sum(withoutNan(a), dimsOf(c, 1, a.dim()), c.flag(2), c.dtype(3)));
}

// The root of the sum over |x|^p, in the forms that PyTorch has. Powers leave the range of half precision long before the
// norm does.
at::Tensor normOf(const at::Tensor& a, double p, at::IntArrayRef dims, bool keepdim) {
  if (at::isReducedFloatingType(a.scalar_type())) return normOf(a.to(at::kFloat), p, dims, keepdim).to(a.scalar_type());
  if (p == 0) return a.ne(0).sum(dims, keepdim).to(a.scalar_type());
  if (p == kInf) return at::amax(a.abs(), dims, keepdim);
  if (p == -kInf) return at::amin(a.abs(), dims, keepdim);
  if (p == 1) return a.abs().sum(dims, keepdim);
  if (p == 2) return (a * a).sum(dims, keepdim).sqrt();
  return a.abs().pow(p).sum(dims, keepdim).pow(1 / p);
}

// (self, ord or p, dim, keepdim, *, dtype, out). Through the native norm where its order is one of the kernel's.
template <bool has_dtype>
void norm(OpCall& c) {
  at::Tensor a = c.tensor(0);
  if (has_dtype && c.dtype(4)) a = a.to(*c.dtype(4));
  const double p = c.given(1) ? c.number(1) : 2;
  const auto dims = dimsOf(c, 2, a.dim());
  if (a.numel() > 0 && (p == 1 || p == 2 || p == kInf)) {
    give(c, 0, at::linalg_vector_norm(a, p, dims, c.flag(3)));
    return;
  }
  give(c, 0, normOf(a, p, dims, c.flag(3)));
}
bool normFits(const OpCall& c) {
  return composedFloatFits<0>(c) && c.tensor(0).numel() > 0 && at::isFloatingType(c.out().scalar_type());
}

// (self, other) -> bool
void equal(OpCall& c) {
  const at::Tensor &a = c.tensor(0), &b = c.tensor(1);
  c.result(c10::IValue(a.sizes() == b.sizes() && (a.numel() == 0 || a.eq(b).all().item<bool>())));
}

// One value of each row, as (values, indices): by a kernel that counts, without sorting.
void selected(OpCall& c, ocl::Selected what, int64_t k, int64_t dim, bool keepdim) {
  const at::Tensor& a = c.tensor(0);
  auto sizes = a.sizes().vec();
  if (a.dim() > 0) sizes[static_cast<size_t>(dim)] = 1;
  const at::Tensor values = c.empty(sizes, a.scalar_type()), indices = c.empty(sizes, at::kLong);
  must(ocl::select(c.queue(), what, k, ref(a), ref(values), ref(indices), static_cast<int>(dim), c.variant()));
  give(c, 0, keepdim || a.dim() == 0 ? values : values.squeeze(dim));
  give(c, 1, keepdim || a.dim() == 0 ? indices : indices.squeeze(dim));
}
int64_t dimOf(const OpCall& c, size_t i) { return c10::maybe_wrap_dim(c.integer(i), std::max<int64_t>(c.tensor(0).dim(), 1)); }

// (self, k, dim, keepdim, *, values, indices)
void kthvalue(OpCall& c) { selected(c, ocl::Selected::kth, c.integer(1) - 1, dimOf(c, 2), c.flag(3)); }
bool kthvalueFits(const OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const int64_t length = a.dim() ? a.size(c10::maybe_wrap_dim(c.integer(2), a.dim())) : 1;
  return composedFits(c) && a.numel() > 0 && c.integer(1) >= 1 && c.integer(1) <= length;
}
// (self, dim, keepdim, *, values, indices)
template <ocl::Selected what>
void medianDim(OpCall& c) { selected(c, what, 0, dimOf(c, 1), c.flag(2)); }
template <ocl::Selected what>
void median(OpCall& c) {
  const at::Tensor flat = c.tensor(0).reshape({-1});
  const at::Tensor value = c.empty({1}, flat.scalar_type()), place = c.empty({1}, at::kLong);
  must(ocl::select(c.queue(), what, 0, ref(flat), ref(value), ref(place), 0, c.variant()));
  give(c, 0, value.reshape({}));
}
bool someFits(const OpCall& c) { return composedFits(c) && c.tensor(0).numel() > 0 && c.tensor(0).scalar_type() != at::kBool; }

// The most frequent value of each row (the smallest of them), and where it stands last: (self, dim, keepdim)
void mode(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const int64_t dim = dimOf(c, 1);
  auto sizes = a.sizes().vec();
  if (a.dim() > 0) sizes[static_cast<size_t>(dim)] = 1;
  const at::Tensor values = c.empty(sizes, a.scalar_type()), indices = c.empty(sizes, at::kLong);
  must(ocl::mode(c.queue(), ref(a), ref(values), ref(indices), static_cast<int>(dim), c.variant()));
  give(c, 0, c.flag(2) || a.dim() == 0 ? values : values.squeeze(dim));
  give(c, 1, c.flag(2) || a.dim() == 0 ? indices : indices.squeeze(dim));
}

// (self, p, dim, maxnorm, *, out)
at::Tensor renormed(const at::Tensor& a, double p, int64_t dim, double limit) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (d != dim) dims.push_back(d);
  const at::Tensor n = normOf(a, p, dims, true);
  return a * at::where(n.gt(limit), limit / (n + 1e-7), at::ones({}, n.options()));
}
void renorm(OpCall& c) { give(c, 0, renormed(c.tensor(0), c.number(1), c10::maybe_wrap_dim(c.integer(2), c.tensor(0).dim()), c.number(3))); }

// embedding_renorm_(self, indices, max_norm, norm_type): the rows that are looked up, in place.
void embeddingRenorm(OpCall& c) {
  at::Tensor self = c.tensor(0);
  const at::Tensor rows = c.tensor(1).reshape({-1});
  if (rows.numel() == 0) return;
  self.index_copy_(0, rows, renormed(self.index_select(0, rows), c.number(3), 0, c.number(2)));
}

// ---- distances ----
// d/dx of |x|_p at difference `diff`, given the distance (keepdim).
at::Tensor distanceGrad(const at::Tensor& diff, const at::Tensor& dist, double p) {
  const at::Tensor zero = at::zeros({}, diff.options());
  if (p == 0) return at::zeros_like(diff);
  if (p == 1) return diff.sign();
  if (p == kInf) return diff.sign() * diff.abs().eq(dist).to(diff.scalar_type());
  if (p == 2) return at::where(dist.eq(0), zero, diff / dist);
  const at::Tensor g = diff.sign() * diff.abs().pow(p - 1) * dist.pow(1 - p);
  return at::where(dist.eq(0).logical_or(diff.eq(0)), zero, g);
}
// (x1 [.., P, M], x2 [.., R, M], p, compute_mode) -> [.., P, R]
void cdist(OpCall& c) {
  const at::Tensor diff = c.tensor(0).unsqueeze(-2) - c.tensor(1).unsqueeze(-3);
  if (diff.size(-1) == 0) give(c, 0, at::zeros(diff.sizes().slice(0, static_cast<size_t>(diff.dim() - 1)), diff.options()));
  else give(c, 0, normOf(diff, c.number(2), {-1}, false));
}
// (grad, x1, x2, p, cdist)
void cdistBackward(OpCall& c) {
  const at::Tensor &x1 = c.tensor(1), &x2 = c.tensor(2);
  if (x1.numel() == 0 || x2.numel() == 0) {
    give(c, 0, at::zeros_like(x1));
    return;
  }
  const at::Tensor diff = x1.unsqueeze(-2) - x2.unsqueeze(-3);
  give(c, 0, (c.tensor(0).unsqueeze(-1) * distanceGrad(diff, c.tensor(4).unsqueeze(-1), c.number(3))).sum({-2}));
}
// The pairs i < j of the rows of x, as two index vectors.
std::pair<at::Tensor, at::Tensor> pairs(const at::Tensor& x) {
  const int64_t n = x.size(0);
  const at::Tensor both = at::triu_indices(n, n, 1, x.options().dtype(at::kLong));
  return {both[0], both[1]};
}
void pdist(OpCall& c) {
  const at::Tensor& x = c.tensor(0);
  if (x.size(0) <= 1) {
    give(c, 0, at::empty({0}, x.options()));
    return;
  }
  const auto [i, j] = pairs(x);
  if (x.size(1) == 0) give(c, 0, at::zeros({i.numel()}, x.options()));
  else give(c, 0, normOf(x.index_select(0, i) - x.index_select(0, j), c.number(1), {-1}, false));
}
// (grad, self, p, pdist)
void pdistBackward(OpCall& c) {
  const at::Tensor& x = c.tensor(1);
  at::Tensor out = at::zeros_like(x, at::MemoryFormat::Contiguous);
  if (x.size(0) > 1 && x.size(1) > 0) {
    const auto [i, j] = pairs(x);
    const at::Tensor g = c.tensor(0).unsqueeze(-1) *
                         distanceGrad(x.index_select(0, i) - x.index_select(0, j), c.tensor(3).unsqueeze(-1), c.number(2));
    out.index_add_(0, i, g);
    out.index_add_(0, j, g.neg());
  }
  give(c, 0, out);
}

#define FLAGOS_COMPOSED(schema, steps, fits) {"aten::" schema, "composed", composed<steps>, fits}
const NativeOp rows[] = {
    FLAGOS_COMPOSED("var_mean.correction", varMean<false>, composedFloatFits<0>),
    FLAGOS_COMPOSED("std_mean.correction", varMean<true>, composedFloatFits<0>),
    FLAGOS_COMPOSED("aminmax.out", aminmax, someFits),
    FLAGOS_COMPOSED("count_nonzero.dim_IntList", countNonzero, composedFits),
    FLAGOS_COMPOSED("nansum", nansum, composedFits),
    FLAGOS_COMPOSED("nansum.out", nansum, composedFits),
    FLAGOS_COMPOSED("norm.out", norm<false>, normFits),
    FLAGOS_COMPOSED("norm.dtype_out", norm<true>, normFits),
    FLAGOS_COMPOSED("equal", equal, composedFits),
    FLAGOS_COMPOSED("kthvalue.values", kthvalue, kthvalueFits),
    FLAGOS_COMPOSED("median", median<ocl::Selected::median>, someFits),
    FLAGOS_COMPOSED("nanmedian", median<ocl::Selected::nanmedian>, someFits),
    FLAGOS_COMPOSED("median.dim_values", medianDim<ocl::Selected::median>, someFits),
    FLAGOS_COMPOSED("nanmedian.dim_values", medianDim<ocl::Selected::nanmedian>, someFits),
    FLAGOS_COMPOSED("mode", mode, someFits),
    FLAGOS_COMPOSED("renorm.out", renorm, composedFloatFits<0>),
    FLAGOS_COMPOSED("embedding_renorm_", embeddingRenorm, composedFloatFits<0>),
    FLAGOS_COMPOSED("_cdist_forward", cdist, composedFloatFits<0>),
    FLAGOS_COMPOSED("_cdist_backward", cdistBackward, composedFloatFits<0>),
    FLAGOS_COMPOSED("_pdist_forward", pdist, composedFloatFits<0>),
    FLAGOS_COMPOSED("_pdist_backward", pdistBackward, composedFloatFits<1>),
};
#undef FLAGOS_COMPOSED
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

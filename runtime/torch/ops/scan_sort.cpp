// Scans, sorting, and the coordinates of what is not zero.
#include <ATen/WrapDimUtils.h>

#include "runtime/opencl/ops/index.h"
#include "runtime/torch/ops/composed.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool dense(const at::Tensor& t) {
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims && !at::isComplexType(t.scalar_type()) && !t.is_quantized() &&
         ocl::pointwiseSupports(ocl::PointwiseOp::copy, toDType(t.scalar_type()));
}
int dimOf(const OpCall& c, int64_t dim) { return static_cast<int>(c10::maybe_wrap_dim(dim, std::max<int64_t>(c.tensor(0).dim(), 1))); }

// (self, dim, *, dtype, out)
template <ocl::ScanOp op>
Result<void> scan(OpCall& c) {
  at::Tensor in = c.tensor(0), out = c.resizeOut(0, in.sizes());
  if (out.numel() == 0) return {};
  at::AutoDispatchBelowADInplaceOrView below;
  if (in.scalar_type() != out.scalar_type()) in = in.to(out.scalar_type());
  else if (in.is_alias_of(out) && !in.is_same(out)) in = in.clone();
  return ocl::scan(c.queue(), op, ref(in), ref(out), dimOf(c, c.integer(1)), c.variant());
}
bool scanFits(const OpCall& c) { return dense(c.tensor(0)) && dense(c.out()) && c.out().scalar_type() != at::kBool; }
// _logcumsumexp(self, dim), a functional form of its own
Result<void> logScan(OpCall& c) {
  const at::Tensor in = c.tensor(0).contiguous();
  at::Tensor out = resultLike(c, in, in.sizes(), in.scalar_type());
  if (out.numel() == 0) return {};
  return ocl::scan(c.queue(), ocl::ScanOp::logcumsumexp, ref(in), ref(out), dimOf(c, c.integer(1)), c.variant());
}
bool logScanFits(const OpCall& c) { return dense(c.tensor(0)) && at::isFloatingType(c.tensor(0).scalar_type()); }

// _cummax_helper(self, values, indices, dim)
template <bool largest>
Result<void> running(OpCall& c) {
  if (c.tensor(0).numel() == 0) return {};
  return ocl::running(c.queue(), largest, ref(c.tensor(0)), ref(c.tensor(1)), ref(c.tensor(2)), dimOf(c, c.integer(3)), c.variant());
}
bool runningFits(const OpCall& c) {
  return dense(c.tensor(0)) && c.tensor(1).scalar_type() == c.tensor(0).scalar_type() && c.tensor(1).sizes() == c.tensor(0).sizes() &&
         c.tensor(2).scalar_type() == at::kLong && c.tensor(2).sizes() == c.tensor(0).sizes();
}

// sort.values_stable(self, *, stable, dim, descending, values, indices)
Result<void> sort(OpCall& c) {
  const at::Tensor self = c.tensor(0);
  at::Tensor values = c.resizeOut(0, self.sizes()), indices = c.resizeOut(1, self.sizes());
  if (self.numel() == 0) return {};
  const at::Tensor in = values.is_alias_of(self) ? self.clone() : self;
  return ocl::sort(c.queue(), ref(in), ref(values), ref(indices), dimOf(c, c.integer(2)), c.flag(3), c.variant());
}
bool sortFits(const OpCall& c) {
  return dense(c.tensor(0)) && c.out(0).scalar_type() == c.tensor(0).scalar_type() && c.out(1).scalar_type() == at::kLong;
}

// topk.values(self, k, dim, largest, sorted, *, values, indices)
Result<void> topk(OpCall& c) {
  const at::Tensor self = c.tensor(0);
  const int dim = dimOf(c, c.integer(2));
  auto sizes = self.sizes().vec();
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = c.integer(1);
  at::Tensor values = c.resizeOut(0, sizes), indices = c.resizeOut(1, sizes);
  if (values.numel() == 0) return {};
  const at::Tensor in = values.is_alias_of(self) ? self.clone() : self;
  return ocl::topk(c.queue(), ref(in), ref(values), ref(indices), dim, c.flag(3), c.variant());
}

// nonzero(self[, out]): the number of rows is waited for.
void nonzero(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const auto o = self.options().dtype(at::kLong);
  int64_t n = 0;
  at::Tensor counts;
  if (self.numel() > 0) {
    counts = self.ne(0).contiguous().reshape({-1}).to(at::kLong).cumsum(0);
    n = counts[-1].item<int64_t>();
  }
  at::Tensor out = at::empty({n, self.dim()}, o);
  if (out.numel() > 0) {
    const Result<void> done = ocl::nonzero(c.queue(), ref(self), ref(counts), ref(out), c.variant());
    TORCH_CHECK(done.ok(), done.error().text());
  }
  give(c, 0, out);
}
bool nonzeroFits(const OpCall& c) { return dense(c.tensor(0)); }

const NativeOp rows[] = {
    {"aten::cumsum.out", "index", scan<ocl::ScanOp::cumsum>, scanFits},
    {"aten::cumprod.out", "index", scan<ocl::ScanOp::cumprod>, scanFits},
    {"aten::_logcumsumexp", "index", logScan, logScanFits},
    {"aten::_logcumsumexp.out", "index", logScan, logScanFits},
    {"aten::_cummax_helper", "index", running<true>, runningFits},
    {"aten::_cummin_helper", "index", running<false>, runningFits},
    {"aten::sort.values_stable", "index", sort, sortFits},
    {"aten::topk.values", "index", topk, sortFits},
    {"aten::nonzero", "index", composed<nonzero>, nonzeroFits},
    {"aten::nonzero.out", "index", composed<nonzero>, nonzeroFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

// histc of whole numbers: PyTorch's CPU has none, its other accelerators do, and mixture-of-experts models count with it.
#include <ATen/ATen.h>

#include "runtime/torch/ops/composed.h"

namespace flagos::glue {

at::Tensor wholeHistogram(const at::Tensor& values, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "torch.histc: bins must be > 0, got ", bins);
  const at::Tensor self = values.reshape({-1}).to(at::kLong);
  int64_t low = min.to<int64_t>(), high = max.to<int64_t>(), width = 0, widest = 0;
  const at::Tensor none = at::zeros({bins}, values.options());
  if (self.numel() == 0) return none;
  TORCH_CHECK(low <= high, "torch.histc: max must be larger than min");
  if (low == high) {
    low = self.min().item<int64_t>();
    high = self.max().item<int64_t>();
  }
  at::Tensor place, inside = self.ge(low).logical_and(self.le(high));
  if (low == high) {  // one value: in the middle of low - 1 to low + 1
    place = at::full_like(self, bins / 2);
  } else {
    TORCH_CHECK(!__builtin_sub_overflow(high, low, &width) && !__builtin_mul_overflow(width, bins, &widest),
                "torch.histc: ", bins, " bins over the range of [", low, ", ", high, "] do not fit in 64 bits");
    place = at::floor_divide(at::where(inside, self - low, at::zeros({}, self.options())) * bins, width).clamp_max(bins - 1);
  }
  return at::zeros({bins}, self.options()).scatter_add_(0, place, inside.to(at::kLong)).to(values.scalar_type());
}

}  // namespace flagos::glue

// Pooling over the last two dimensions.
#include "runtime/opencl/ops/pool.h"

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool imageFits(const at::Tensor& t) {
  const at::ScalarType k = t.scalar_type();
  return isNpu(t) && (t.dim() == 3 || t.dim() == 4) && (t.numel() > 0 || (t.dim() == 4 && t.size(0) == 0 && t.size(1) * t.size(2) * t.size(3) > 0)) &&
         (k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble);
}

std::array<int64_t, 2> pair(const OpCall& c, size_t i, std::array<int64_t, 2> missing) {
  const auto v = c.ints(i);
  if (v.empty()) return missing;
  return v.size() == 1 ? std::array<int64_t, 2>{v[0], v[0]} : std::array<int64_t, 2>{v[0], v[1]};
}

// Output size of one dimension, PyTorch's pooling_output_shape: in ceil mode a last window must start inside.
int64_t outSize(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil) {
  const int64_t span = in + 2 * padding - dilation * (kernel - 1) - 1;
  int64_t out = (span + (ceil ? stride - 1 : 0)) / stride + 1;
  if (ceil && (out - 1) * stride >= in + padding) --out;
  return out;
}

c10::SmallVector<int64_t, 4> outSizes(const at::Tensor& t, const ocl::PoolArgs& p, bool ceil) {
  c10::SmallVector<int64_t, 4> s(t.sizes().begin(), t.sizes().end());
  for (size_t d = 0; d < 2; ++d)
    s[s.size() - 2 + d] = outSize(s[s.size() - 2 + d], p.kernel[d], p.stride[d], p.padding[d], p.dilation[d], ceil);
  return s;
}

ocl::PoolArgs maxArgs(const OpCall& c, size_t first) {
  ocl::PoolArgs p;
  p.kernel = pair(c, first, {1, 1});
  p.stride = pair(c, first + 1, p.kernel);
  p.padding = pair(c, first + 2, {0, 0});
  p.dilation = pair(c, first + 3, {1, 1});
  return p;
}

// (self, kernel, stride, padding, dilation, ceil_mode, *, out, indices)
Result<void> maxPool(OpCall& c) {
  const ocl::PoolArgs p = maxArgs(c, 1);
  const auto sizes = outSizes(c.tensor(0), p, c.flag(5));
  at::Tensor out = c.resizeOut(0, sizes), indices = c.resizeOut(1, sizes);
  return ocl::maxPool2d(c.queue(), ref(c.tensor(0)), ref(out), ref(indices), p, c.variant());
}
// (grad, self, kernel, stride, padding, dilation, ceil_mode, indices, *, grad_input)
Result<void> maxPoolBackward(OpCall& c) {
  at::Tensor grad_in = c.resizeOut(0, c.tensor(1).sizes());
  return ocl::maxPool2dBackward(c.queue(), ref(c.tensor(0)), ref(c.tensor(7)), ref(grad_in), maxArgs(c, 2), c.variant());
}

ocl::PoolArgs avgArgs(const OpCall& c, size_t first) {
  ocl::PoolArgs p;
  p.kernel = pair(c, first, {1, 1});
  p.stride = pair(c, first + 1, p.kernel);
  p.padding = pair(c, first + 2, {0, 0});
  p.count_include_pad = c.flag(first + 4);
  if (c.given(first + 5)) p.divisor_override = c.integer(first + 5);
  return p;
}
// (self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, *, out)
Result<void> avgPool(OpCall& c) {
  const ocl::PoolArgs p = avgArgs(c, 1);
  at::Tensor out = c.resizeOut(0, outSizes(c.tensor(0), p, c.flag(4)));
  return ocl::avgPool2d(c.queue(), ref(c.tensor(0)), ref(out), p, c.variant());
}
// (grad, self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, *, grad_input)
Result<void> avgPoolBackward(OpCall& c) {
  at::Tensor grad_in = c.resizeOut(0, c.tensor(1).sizes());
  return ocl::avgPool2dBackward(c.queue(), ref(c.tensor(0)), ref(grad_in), avgArgs(c, 2), c.variant());
}

Result<void> adaptive(OpCall& c) {
  const auto size = c.ints(1, 2);
  c10::SmallVector<int64_t, 4> sizes(c.tensor(0).sizes().begin(), c.tensor(0).sizes().end());
  sizes[sizes.size() - 2] = size[0];
  sizes[sizes.size() - 1] = size[1];
  at::Tensor out = c.empty(sizes, c.tensor(0).scalar_type());
  c.result(out);
  return out.numel() == 0 ? Result<void>() : ocl::adaptiveAvgPool2d(c.queue(), ref(c.tensor(0)), ref(out), c.variant());
}
Result<void> adaptiveBackward(OpCall& c) {
  at::Tensor grad_in = c.empty(c.tensor(1).sizes(), c.tensor(1).scalar_type());
  c.result(grad_in);
  return ocl::adaptiveAvgPool2dBackward(c.queue(), ref(c.tensor(0)), ref(grad_in), c.variant());
}

bool forwardFits(const OpCall& c) { return imageFits(c.tensor(0)); }
bool backwardFits(const OpCall& c) { return imageFits(c.tensor(0)) && imageFits(c.tensor(1)) && c.tensor(0).scalar_type() == c.tensor(1).scalar_type(); }

template <size_t first>
void describe(const OpCall& c, kde::Signature& s) {
  const auto kernel = pair(c, first, {1, 1}), stride = pair(c, first + 1, kernel), padding = pair(c, first + 2, {0, 0});
  s.scalars = {kernel[0], kernel[1], stride[0], stride[1], padding[0], padding[1], 0, 0};
  s.nscalars = 6;
}

const NativeOp rows[] = {
    {"aten::max_pool2d_with_indices.out", "pool", maxPool, forwardFits, describe<1>},
    {"aten::max_pool2d_with_indices_backward.grad_input", "pool", maxPoolBackward, backwardFits, describe<2>},
    {"aten::avg_pool2d.out", "pool", avgPool, forwardFits, describe<1>},
    {"aten::avg_pool2d_backward.grad_input", "pool", avgPoolBackward, backwardFits, describe<2>},
    {"aten::_adaptive_avg_pool2d", "pool", adaptive, forwardFits},
    {"aten::_adaptive_avg_pool2d_backward", "pool", adaptiveBackward, backwardFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

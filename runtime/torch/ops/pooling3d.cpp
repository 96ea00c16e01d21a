// Pooling in three dimensions, and adaptive max pooling in two.
#include "runtime/opencl/ops/pool3.h"

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool volumeFits(const at::Tensor& t, int64_t dims) {
  const at::ScalarType k = t.scalar_type();
  if (!isNpu(t) || t.layout() != at::kStrided || (t.dim() != dims + 1 && t.dim() != dims + 2)) return false;
  for (int64_t d = 1; d <= dims + 1; ++d)
    if (t.size(t.dim() - d) == 0) return false;  // PyTorch's own errors; an empty batch is a batch
  return k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble;
}

std::array<int64_t, 3> triple(const OpCall& c, size_t i, std::array<int64_t, 3> missing) {
  const auto v = c.ints(i);
  if (v.empty()) return missing;
  return v.size() == 1 ? std::array<int64_t, 3>{v[0], v[0], v[0]} : std::array<int64_t, 3>{v[0], v[1], v[2]};
}

ocl::Pool3Args maxArgs(const OpCall& c, size_t first) {
  ocl::Pool3Args p;
  p.kernel = triple(c, first, {1, 1, 1});
  p.stride = triple(c, first + 1, p.kernel);
  p.padding = triple(c, first + 2, {0, 0, 0});
  p.dilation = triple(c, first + 3, {1, 1, 1});
  return p;
}

// PyTorch's pooling_output_shape: in ceil mode a last window must start inside.
c10::SmallVector<int64_t, 5> outSizes(const at::Tensor& t, const ocl::Pool3Args& p, bool ceil) {
  c10::SmallVector<int64_t, 5> s(t.sizes().begin(), t.sizes().end());
  for (size_t d = 0; d < 3; ++d) {
    int64_t& n = s[s.size() - 3 + d];
    const int64_t span = n + 2 * p.padding[d] - p.dilation[d] * (p.kernel[d] - 1) - 1;
    int64_t out = (span + (ceil ? p.stride[d] - 1 : 0)) / p.stride[d] + 1;
    if (ceil && (out - 1) * p.stride[d] >= n + p.padding[d]) --out;
    n = out;
  }
  return s;
}
// False where PyTorch refuses, so that it does so in its own words.
bool windowsFit(const OpCall& c, const at::Tensor& t, const ocl::Pool3Args& p, size_t first, size_t lists) {
  for (size_t i = first; i < first + lists; ++i)
    if (const size_t n = c.ints(i).size(); n != 0 && n != 1 && n != 3) return false;
  for (size_t d = 0; d < 3; ++d) {
    if (p.kernel[d] < 1 || p.stride[d] < 1 || p.dilation[d] < 1 || p.padding[d] < 0 || 2 * p.padding[d] > p.kernel[d]) return false;
    if (t.size(t.dim() - 3 + static_cast<int64_t>(d)) + 2 * p.padding[d] < p.dilation[d] * (p.kernel[d] - 1) + 1) return false;
  }
  return true;
}

// (self, kernel, stride, padding, dilation, ceil_mode[, *, out, indices])
Result<void> maxPool(OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  const ocl::Pool3Args p = maxArgs(c, 1);
  const auto sizes = outSizes(in, p, c.flag(5));
  at::Tensor out, indices;
  if (c.count() > 6) {
    out = c.resizeOut(0, sizes);
    indices = c.resizeOut(1, sizes);
  } else {
    out = c.empty(sizes, in.scalar_type());
    indices = c.empty(sizes, at::kLong);
    c.result(out);
    c.result(indices);
  }
  return ocl::maxPool3(c.queue(), ref(in), ref(out), ref(indices), p, c.variant());
}
bool maxPoolFits(const OpCall& c) { return volumeFits(c.tensor(0), 3) && windowsFit(c, c.tensor(0), maxArgs(c, 1), 1, 4); }

// (grad, self, kernel, stride, padding, dilation, ceil_mode, indices[, *, grad_input])
Result<void> maxPoolBackward(OpCall& c) {
  const at::Tensor& in = c.tensor(1);
  const at::Tensor grad_in = resultLike(c, in, in.sizes(), in.scalar_type());
  return ocl::maxPool3Backward(c.queue(), ref(c.tensor(0)), ref(c.tensor(7)), ref(grad_in), maxArgs(c, 2), c.variant());
}
bool sameType(const at::Tensor& a, const at::Tensor& b) { return isNpu(a) && isNpu(b) && a.scalar_type() == b.scalar_type() && a.dim() == b.dim(); }
bool maxPoolBackwardFits(const OpCall& c) {
  const at::Tensor& in = c.tensor(1);
  return volumeFits(in, 3) && sameType(c.tensor(0), in) && windowsFit(c, in, maxArgs(c, 2), 2, 4) &&
         c.tensor(0).sizes() == at::IntArrayRef(outSizes(in, maxArgs(c, 2), c.flag(6))) && c.tensor(7).sizes() == c.tensor(0).sizes();
}

ocl::Pool3Args avgArgs(const OpCall& c, size_t first) {
  ocl::Pool3Args p;
  p.kernel = triple(c, first, {1, 1, 1});
  p.stride = triple(c, first + 1, p.kernel);
  p.padding = triple(c, first + 2, {0, 0, 0});
  p.count_include_pad = c.flag(first + 4);
  if (c.given(first + 5)) p.divisor_override = c.integer(first + 5);
  return p;
}
// (self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, *, out); sized by PyTorch's shape check
Result<void> avgPool(OpCall& c) {
  const at::Tensor out = c.out();
  return ocl::avgPool3(c.queue(), ref(c.tensor(0)), ref(out), avgArgs(c, 1), c.variant());
}
bool avgPoolFits(const OpCall& c) { return volumeFits(c.tensor(0), 3) && sameType(c.tensor(0), c.out()); }
// (grad, self, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override, *, grad_input)
Result<void> avgPoolBackward(OpCall& c) {
  const at::Tensor grad_in = c.out();
  return ocl::avgPool3Backward(c.queue(), ref(c.tensor(0)), ref(grad_in), avgArgs(c, 2), c.variant());
}
bool avgPoolBackwardFits(const OpCall& c) { return volumeFits(c.tensor(1), 3) && sameType(c.tensor(0), c.tensor(1)); }

ocl::Pool3Args adaptiveArgs(int dims) {
  ocl::Pool3Args p;
  p.dims = dims;
  p.adaptive = true;
  return p;
}
// (self, output_size, *, out, indices)
template <int dims>
Result<void> adaptiveMax(OpCall& c) {
  const at::Tensor out = c.out(0), indices = c.out(1);
  return ocl::maxPool3(c.queue(), ref(c.tensor(0)), ref(out), ref(indices), adaptiveArgs(dims), c.variant());
}
template <int dims>
bool adaptiveMaxFits(const OpCall& c) { return volumeFits(c.tensor(0), dims) && sameType(c.tensor(0), c.out()) && isNpu(c.out(1)); }
// (grad, self, indices, *, grad_input)
template <int dims>
Result<void> adaptiveMaxBackward(OpCall& c) {
  const at::Tensor grad_in = c.out();
  return ocl::maxPool3Backward(c.queue(), ref(c.tensor(0)), ref(c.tensor(2)), ref(grad_in), adaptiveArgs(dims), c.variant());
}
template <int dims>
bool adaptiveMaxBackwardFits(const OpCall& c) {
  return volumeFits(c.tensor(1), dims) && sameType(c.tensor(0), c.tensor(1)) && volumeFits(c.tensor(0), dims) && c.tensor(2).sizes() == c.tensor(0).sizes();
}

// (self, output_size[, *, out])
Result<void> adaptiveAvg(OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  const auto size = c.ints(1, 3);
  c10::SmallVector<int64_t, 5> sizes(in.sizes().begin(), in.sizes().end());
  for (size_t d = 0; d < 3; ++d) sizes[sizes.size() - 3 + d] = size[d];
  const at::Tensor out = resultLike(c, in, sizes, in.scalar_type());
  return ocl::avgPool3(c.queue(), ref(in), ref(out), adaptiveArgs(3), c.variant());
}
bool adaptiveAvgFits(const OpCall& c) {
  const auto size = c.ints(1);
  return volumeFits(c.tensor(0), 3) && (size.size() == 1 || size.size() == 3) && std::all_of(size.begin(), size.end(), [](int64_t n) { return n >= 0; });
}
// (grad, self[, *, grad_input])
Result<void> adaptiveAvgBackward(OpCall& c) {
  const at::Tensor& in = c.tensor(1);
  const at::Tensor grad_in = resultLike(c, in, in.sizes(), in.scalar_type());
  return ocl::avgPool3Backward(c.queue(), ref(c.tensor(0)), ref(grad_in), adaptiveArgs(3), c.variant());
}
bool adaptiveAvgBackwardFits(const OpCall& c) { return volumeFits(c.tensor(1), 3) && volumeFits(c.tensor(0), 3) && sameType(c.tensor(0), c.tensor(1)); }

const NativeOp rows[] = {
    {"aten::max_pool3d_with_indices", "resample", maxPool, maxPoolFits},
    {"aten::max_pool3d_with_indices.out", "resample", maxPool, maxPoolFits},
    {"aten::max_pool3d_with_indices_backward", "resample", maxPoolBackward, maxPoolBackwardFits},
    {"aten::max_pool3d_with_indices_backward.grad_input", "resample", maxPoolBackward, maxPoolBackwardFits},
    {"aten::avg_pool3d.out", "resample", avgPool, avgPoolFits},
    {"aten::avg_pool3d_backward.grad_input", "resample", avgPoolBackward, avgPoolBackwardFits},
    {"aten::adaptive_max_pool2d.out", "resample", adaptiveMax<2>, adaptiveMaxFits<2>},
    {"aten::adaptive_max_pool2d_backward.grad_input", "resample", adaptiveMaxBackward<2>, adaptiveMaxBackwardFits<2>},
    {"aten::adaptive_max_pool3d.out", "resample", adaptiveMax<3>, adaptiveMaxFits<3>},
    {"aten::adaptive_max_pool3d_backward.grad_input", "resample", adaptiveMaxBackward<3>, adaptiveMaxBackwardFits<3>},
    {"aten::_adaptive_avg_pool3d", "resample", adaptiveAvg, adaptiveAvgFits},
    {"aten::adaptive_avg_pool3d.out", "resample", adaptiveAvg, adaptiveAvgFits},
    {"aten::_adaptive_avg_pool3d_backward", "resample", adaptiveAvgBackward, adaptiveAvgBackwardFits},
    {"aten::adaptive_avg_pool3d_backward.grad_input", "resample", adaptiveAvgBackward, adaptiveAvgBackwardFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

// Interpolation, reflection and replication padding, unfold and fold.
#include "runtime/opencl/ops/resample.h"

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::Resample;

bool dataFits(const at::Tensor& t) {
  const at::ScalarType k = t.scalar_type();
  return isNpu(t) && t.layout() == at::kStrided && (k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble);
}

// ---- interpolation: (self, output_size[, align_corners], scales ..., *, out) ----

template <Resample mode, int dims, bool backward>
ocl::ResampleArgs scalesOf(const OpCall& c) {
  ocl::ResampleArgs a;
  a.mode = mode;
  a.dims = dims;
  size_t at = backward ? 3 : 2;
  if (mode == Resample::linear) a.align_corners = c.flag(at++);
  for (size_t d = 0; d < dims; ++d)
    if (c.given(at + d)) a.scales[d] = c.value(at + d).toDouble();
  return a;
}
template <Resample mode, int dims>
Result<void> upsample(OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  const at::Tensor out = c.out();  // PyTorch's own shape check has sized it
  if (out.numel() == 0) return {};
  return ocl::resample(c.queue(), ref(in), ref(out), scalesOf<mode, dims, false>(c), c.variant());
}
// (grad_output, output_size, input_size[, align_corners], scales ..., *, grad_input)
template <Resample mode, int dims>
Result<void> upsampleBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), grad_in = c.out();
  if (grad_in.numel() == 0) return {};
  return ocl::resampleBackward(c.queue(), ref(grad), ref(grad_in), scalesOf<mode, dims, true>(c), c.variant());
}
bool upsampleFits(const OpCall& c) { return dataFits(c.tensor(0)) && dataFits(c.out()) && c.tensor(0).scalar_type() == c.out().scalar_type(); }

// ---- padding: (self, padding, *, out); PyTorch lists the last dimension first ----

template <Resample mode, int dims>
ocl::ResampleArgs padsOf(const OpCall& c, size_t i) {
  ocl::ResampleArgs a;
  a.mode = mode;
  a.dims = dims;
  const auto pad = c.ints(i);
  for (size_t d = 0; d < dims; ++d) a.pad[d] = pad[2 * (dims - 1 - d)];
  return a;
}
template <int dims>
c10::SmallVector<int64_t, 5> paddedSizes(const OpCall& c, const at::Tensor& in, size_t i) {
  const auto pad = c.ints(i);
  c10::SmallVector<int64_t, 5> sizes(in.sizes().begin(), in.sizes().end());
  for (size_t d = 0; d < dims; ++d) sizes[sizes.size() - 1 - d] += pad[2 * d] + pad[2 * d + 1];
  return sizes;
}
// What PyTorch refuses goes to the host route, in its words.
template <Resample mode, int dims>
bool padded(const OpCall& c, const at::Tensor& in, size_t i) {
  const auto pad = c.ints(i);
  if (!dataFits(in) || (in.dim() != dims + 1 && in.dim() != dims + 2) || pad.size() != 2 * dims) return false;
  for (int64_t d = in.dim() == dims + 2 ? 1 : 0; d < in.dim(); ++d)
    if (in.size(d) == 0) return false;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t n = in.size(in.dim() - 1 - static_cast<int64_t>(d)), a = pad[2 * d], b = pad[2 * d + 1];
    if (n + a + b < 1 || (mode == Resample::reflection && (a >= n || b >= n))) return false;
  }
  return true;
}
template <Resample mode, int dims>
Result<void> pad(OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  const at::Tensor out = resultLike(c, in, paddedSizes<dims>(c, in, 1), in.scalar_type());
  checkOverlap(out, {in});
  return ocl::resample(c.queue(), ref(in), ref(out), padsOf<mode, dims>(c, 1), c.variant());
}
template <Resample mode, int dims>
bool padFits(const OpCall& c) { return padded<mode, dims>(c, c.tensor(0), 1); }
// (grad_output, self, padding, *, grad_input)
template <Resample mode, int dims>
Result<void> padBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &in = c.tensor(1);
  const at::Tensor grad_in = resultLike(c, in, in.sizes(), in.scalar_type());
  return ocl::resampleBackward(c.queue(), ref(grad), ref(grad_in), padsOf<mode, dims>(c, 2), c.variant());
}
template <Resample mode, int dims>
bool padBackwardFits(const OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &in = c.tensor(1);
  return padded<mode, dims>(c, in, 2) && dataFits(grad) && grad.scalar_type() == in.scalar_type() &&
         grad.sizes() == at::IntArrayRef(paddedSizes<dims>(c, in, 2));
}

// ---- unfold (self, kernel, dilation, padding, stride) and fold (self, output_size, kernel, dilation, padding, stride) ----

ocl::UnfoldArgs windowsOf(const OpCall& c, size_t first) {
  const auto pair = [&](size_t i) {
    const auto v = c.ints(i, 2);
    return std::array<int64_t, 2>{v[0], v[1]};
  };
  return {pair(first), pair(first + 1), pair(first + 2), pair(first + 3)};
}
int64_t positions(const ocl::UnfoldArgs& a, size_t d, int64_t in) {
  return (in + 2 * a.padding[d] - a.dilation[d] * (a.kernel[d] - 1) - 1) / a.stride[d] + 1;
}
bool windowsFit(const OpCall& c, size_t first, int64_t h, int64_t w) {
  for (size_t i = first; i < first + 4; ++i)
    if (c.ints(i).size() > 2 || c.ints(i).empty()) return false;
  const ocl::UnfoldArgs a = windowsOf(c, first);
  for (size_t d = 0; d < 2; ++d)
    if (a.kernel[d] < 1 || a.stride[d] < 1 || a.dilation[d] < 1 || a.padding[d] < 0 ||
        (d ? w : h) + 2 * a.padding[d] < a.dilation[d] * (a.kernel[d] - 1) + 1)
      return false;
  return true;
}

Result<void> unfold(OpCall& c) {
  const at::Tensor in = c.tensor(0).dim() == 3 ? c.tensor(0).unsqueeze(0) : c.tensor(0);
  const ocl::UnfoldArgs a = windowsOf(c, 1);
  const int64_t rows = in.size(1) * a.kernel[0] * a.kernel[1], cells = positions(a, 0, in.size(2)) * positions(a, 1, in.size(3));
  const bool single = c.tensor(0).dim() == 3;
  const c10::SmallVector<int64_t, 3> sizes = single ? c10::SmallVector<int64_t, 3>{rows, cells} : c10::SmallVector<int64_t, 3>{in.size(0), rows, cells};
  const at::Tensor out = resultLike(c, c.tensor(0), sizes, in.scalar_type());
  checkOverlap(out, {in});
  if (out.numel() == 0) return {};
  return ocl::unfoldColumns(c.queue(), ref(in), ref(single ? out.unsqueeze(0) : out), a, c.variant());
}
bool unfoldFits(const OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  if (!dataFits(in) || (in.dim() != 3 && in.dim() != 4)) return false;
  for (int64_t d = in.dim() - 3; d < in.dim(); ++d)
    if (in.size(d) == 0) return false;
  return windowsFit(c, 1, in.size(in.dim() - 2), in.size(in.dim() - 1));
}

Result<void> fold(OpCall& c) {
  const bool single = c.tensor(0).dim() == 2;
  const at::Tensor columns = single ? c.tensor(0).unsqueeze(0) : c.tensor(0);
  const auto size = c.ints(1, 2);
  const ocl::UnfoldArgs a = windowsOf(c, 2);
  const int64_t channels = columns.size(1) / (a.kernel[0] * a.kernel[1]);
  const c10::SmallVector<int64_t, 4> sizes = single ? c10::SmallVector<int64_t, 4>{channels, size[0], size[1]}
                                                    : c10::SmallVector<int64_t, 4>{columns.size(0), channels, size[0], size[1]};
  const at::Tensor out = resultLike(c, c.tensor(0), sizes, columns.scalar_type());
  checkOverlap(out, {columns});
  if (out.numel() == 0) return {};
  return ocl::foldColumns(c.queue(), ref(columns), ref(single ? out.unsqueeze(0) : out), a, c.variant());
}
bool foldFits(const OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  if (!dataFits(in) || (in.dim() != 2 && in.dim() != 3) || c.ints(1).empty()) return false;
  const auto size = c.ints(1, 2);
  if (!windowsFit(c, 2, size[0], size[1])) return false;
  const ocl::UnfoldArgs a = windowsOf(c, 2);
  return in.size(in.dim() - 2) > 0 && in.size(in.dim() - 2) % (a.kernel[0] * a.kernel[1]) == 0 &&
         in.size(in.dim() - 1) == positions(a, 0, size[0]) * positions(a, 1, size[1]);
}

#define UPSAMPLE(name, mode, dims)                                                               \
  {"aten::" name ".out", "resample", upsample<Resample::mode, dims>, upsampleFits},             \
      {"aten::" name "_backward.grad_input", "resample", upsampleBackward<Resample::mode, dims>, upsampleFits}
#define PAD(name, mode, dims) {"aten::" name, "resample", pad<Resample::mode, dims>, padFits<Resample::mode, dims>}
#define PAD_BACKWARD(name, mode, dims) \
  {"aten::" name, "resample", padBackward<Resample::mode, dims>, padBackwardFits<Resample::mode, dims>}

const NativeOp rows[] = {
    UPSAMPLE("upsample_nearest1d", nearest, 1),
    UPSAMPLE("upsample_nearest2d", nearest, 2),
    UPSAMPLE("upsample_nearest3d", nearest, 3),
    UPSAMPLE("_upsample_nearest_exact1d", nearest_exact, 1),
    UPSAMPLE("_upsample_nearest_exact2d", nearest_exact, 2),
    UPSAMPLE("_upsample_nearest_exact3d", nearest_exact, 3),
    UPSAMPLE("upsample_linear1d", linear, 1),
    UPSAMPLE("upsample_bilinear2d", linear, 2),
    UPSAMPLE("upsample_trilinear3d", linear, 3),
    PAD("reflection_pad1d.out", reflection, 1),
    PAD("reflection_pad2d", reflection, 2),
    PAD("reflection_pad2d.out", reflection, 2),
    PAD("reflection_pad3d.out", reflection, 3),
    PAD("replication_pad1d.out", replication, 1),
    PAD("replication_pad2d.out", replication, 2),
    PAD("replication_pad3d.out", replication, 3),
    PAD_BACKWARD("reflection_pad1d_backward.grad_input", reflection, 1),
    PAD_BACKWARD("reflection_pad2d_backward", reflection, 2),
    PAD_BACKWARD("reflection_pad2d_backward.grad_input", reflection, 2),
    PAD_BACKWARD("reflection_pad3d_backward.grad_input", reflection, 3),
    PAD_BACKWARD("replication_pad1d_backward.grad_input", replication, 1),
    PAD_BACKWARD("replication_pad2d_backward", replication, 2),
    PAD_BACKWARD("replication_pad2d_backward.grad_input", replication, 2),
    PAD_BACKWARD("replication_pad3d_backward", replication, 3),
    PAD_BACKWARD("replication_pad3d_backward.grad_input", replication, 3),
    {"aten::im2col", "resample", unfold, unfoldFits},
    {"aten::im2col.out", "resample", unfold, unfoldFits},
    {"aten::col2im", "resample", fold, foldFits},
    {"aten::col2im.out", "resample", fold, foldFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

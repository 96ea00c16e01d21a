#include "runtime/opencl/ops/conv_plan.h"

#include <algorithm>
#include <string>

#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl::conv {
namespace {

constexpr int64_t kSlabBytes = 256 << 10;  // of a second-level cache of about 1 MiB; panel and weights want their part
constexpr int64_t kUnitPixels = 512;
constexpr int64_t kMaxCols = 512;
constexpr int64_t kSlack = 64;             // reals behind a slab or panel that vectors may touch

int64_t span(int64_t outputs, int64_t stride, int64_t taps, int64_t dilation) {
  return (outputs - 1) * stride + (taps - 1) * dilation + 1;
}

}  // namespace

TensorRef as4d(const TensorRef& t) noexcept {
  if (t.ndim != 3) return t;
  TensorRef r = t;
  r.ndim = 4;
  r.sizes[3] = t.sizes[2];
  r.strides[3] = t.strides[2];
  r.sizes[2] = 1;
  r.strides[2] = t.sizes[2] * t.strides[2];
  return r;
}

Image imageOf(const TensorRef& t, int64_t groups) noexcept {
  return {t.offset, stride(t, 0), stride(t, 1), stride(t, 2), stride(t, 3),
          size(t, 0), size(t, 1) / groups, size(t, 2), size(t, 3), storageCode(t.dtype), 1, 1};
}

Window windowOf(const TensorRef& w, const ConvArgs& a) noexcept {
  return {size(w, 2), size(w, 3), a.stride[0], a.stride[1], a.padding[0], a.padding[1], a.dilation[0], a.dilation[1],
          a.groups};
}

Result<void> check(const char* op, const TensorRef& input, const TensorRef& weight, const TensorRef& output,
                   const ConvArgs& args, bool exact_output) {
  if (auto ok = checkFloating(op, {&input, &weight, &output}); !ok) return ok;
  auto bad = [&](const std::string& why) {
    return fail("opencl " + std::string(op) + ": " + why + " (input " + sizesText(input) + ", weight " +
                sizesText(weight) + ", output " + sizesText(output) + ", groups " + std::to_string(args.groups) + ")");
  };
  if (input.ndim != 4 || weight.ndim != 4 || output.ndim != 4) return bad("only 1-d and 2-d convolutions have a kernel");
  for (size_t i = 0; i < 2; ++i)
    if (args.stride[i] < 1 || args.dilation[i] < 1) return bad("stride and dilation must be positive");
  if (args.groups < 1 || size(input, 1) % args.groups || size(output, 1) % args.groups)
    return bad("channels are not a multiple of groups");
  if (size(input, 0) != size(output, 0) || size(weight, 0) != size(output, 1) ||
      size(weight, 1) != size(input, 1) / args.groups)
    return bad("sizes do not fit");
  for (int i = 2; i < 4; ++i) {
    const auto k = static_cast<size_t>(i - 2);
    const int64_t need = span(1, 1, size(weight, i), args.dilation[k]);
    const int64_t room = size(input, i) + 2 * args.padding[k] - need;
    const int64_t expected = room < 0 ? 0 : room / args.stride[k] + 1;
    // A transposed convolution may leave input rows over (output_padding), never output rows.
    if (size(output, i) != expected && (exact_output || size(output, i) > expected)) return bad("output size does not fit");
  }
  return {};
}

int64_t slabReals(const Units& u, int64_t channels) noexcept {
  return (u.images * channels * u.slab_rows * u.slab_cols + kSlack + 15) / 16 * 16;
}

Units planUnits(const Window& win, const Image& y, int64_t channels, int64_t outputs, size_t real_bytes,
                int64_t want) noexcept {
  const int64_t panel = real_bytes == 8 ? 16 : 32;
  auto bytes = [&](int64_t images, int64_t rows, int64_t cols) {
    return images * channels * span(rows, win.stride_h, win.r, win.dil_h) * span(cols, win.stride_w, win.s, win.dil_w) *
           static_cast<int64_t>(real_bytes);
  };
  // Columns of the register tile paid for per useful one, either with rows padded to chunks of 8 pixels or with the
  // patches packed, which costs about two tile rows a panel row.
  const bool may_chunk = outputs && real_bytes == 4 && win.stride_w == 1;
  auto chunkCost = [&](int64_t images, int64_t rows, int64_t cols) {
    return static_cast<double>(ceilDiv(images * rows * (ceilDiv(cols, 8) * 8), panel) * panel) /
           static_cast<double>(images * rows * cols);
  };
  auto packCost = [&](int64_t images, int64_t rows, int64_t cols) {
    const int64_t pixels = images * rows * cols;
    return static_cast<double>(ceilDiv(pixels, panel) * panel) / static_cast<double>(pixels) *
           (1 + 3.0 / static_cast<double>(outputs));
  };
  // And the input rows gathered per row needed.
  auto cost = [&](int64_t images, int64_t rows, int64_t cols) {
    const int64_t pixels = images * rows * cols;
    double waste = 1;
    if (outputs) waste = packCost(images, rows, cols);
    if (may_chunk) waste = std::min(waste, chunkCost(images, rows, cols));
    const double halo = static_cast<double>(span(rows, win.stride_h, win.r, win.dil_h)) /
                        static_cast<double>(rows * win.stride_h);
    return waste + 0.05 * halo + 4.0 / static_cast<double>(pixels);
  };
  Units u{};
  u.images = 1;
  u.cols = y.w <= kMaxCols ? y.w : kMaxCols;
  u.rows = 1;
  double best = cost(1, 1, u.cols);
  for (int64_t rows = 2; rows <= y.h && rows * u.cols <= std::max(kUnitPixels, u.cols); ++rows) {
    if (bytes(1, rows, u.cols) > kSlabBytes) break;
    if (y.n * ceilDiv(y.h, rows) * ceilDiv(y.w, u.cols) < want) break;
    const double c = cost(1, rows, u.cols);
    if (c < best) best = c, u.rows = rows;
  }
  if (u.rows == y.h && u.cols == y.w)
    for (int64_t images = 2; images <= std::min<int64_t>(y.n, 32) && images * y.h * y.w <= kUnitPixels; ++images) {
      if (bytes(images, u.rows, u.cols) > kSlabBytes || ceilDiv(y.n, images) < want) break;
      const double c = cost(images, u.rows, u.cols);
      if (c < best - 0.02) best = c, u.images = images;
    }
  u.image_units = ceilDiv(y.n, u.images);
  u.row_units = ceilDiv(y.h, u.rows);
  u.col_units = ceilDiv(y.w, u.cols);
  u.slab_rows = span(u.rows, win.stride_h, win.r, win.dil_h);
  u.slab_cols = span(u.cols, win.stride_w, win.s, win.dil_w);
  u.chunked = may_chunk && chunkCost(u.images, u.rows, u.cols) <= packCost(u.images, u.rows, u.cols);
  return u;
}

}  // namespace flagos::ocl::conv

#include "runtime/opencl/ops/resample.h"

#include <algorithm>

#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

// Mirrors of the structs in resample.cl.
struct Volume {
  int64_t off, sn, sc, s[3], z[3];
};
struct Axis {
  int64_t mode, align, pad, in, out, first;
  int64_t scale, given;
};
struct ResampleParams {
  Volume x, y;
  Axis axis[3];
  int64_t n, c, dt, total;
};
struct UnfoldParams {
  int64_t x_off, xn, xc, xh, xw, y_off, yn, yc, yl;
  int64_t n, c, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, dt, total, each;
};

Volume volumeOf(const TensorRef& t, int dims) {
  Volume v{};
  v.off = t.offset;
  const int planes = t.ndim - dims;  // 0, 1 or 2 of them
  v.sn = planes == 2 ? stride(t, 0) : 0;
  v.sc = planes >= 1 ? stride(t, planes - 1) : 0;
  for (int d = 0; d < 3; ++d) {
    const int from = d - (3 - dims);
    v.s[d] = from < 0 ? 0 : stride(t, planes + from);
    v.z[d] = from < 0 ? 1 : size(t, planes + from);
  }
  return v;
}

Result<ResampleParams> describe(const char* op, const TensorRef& x, const TensorRef& y, const ResampleArgs& a) {
  if (auto ok = checkFloating(op, {&x, &y}); !ok) return ok.error();
  const int planes = x.ndim - a.dims;
  bool fits = a.dims >= 1 && a.dims <= 3 && planes >= 0 && planes <= 2 && y.ndim == x.ndim;
  for (int d = 0; fits && d < planes; ++d) fits = size(x, d) == size(y, d);
  if (!fits) return fail("opencl " + std::string(op) + ": " + sizesText(x) + " and " + sizesText(y) + " do not fit");
  ResampleParams p{};
  p.x = volumeOf(x, a.dims), p.y = volumeOf(y, a.dims);
  p.n = planes == 2 ? size(x, 0) : 1, p.c = planes >= 1 ? size(x, planes - 1) : 1;
  p.dt = storageCode(x.dtype);
  const bool is_double = isDouble(x);
  int64_t place = 0;
  for (int d = 0; d < 3; ++d) {
    Axis& axis = p.axis[d];
    const int from = d - (3 - a.dims);
    axis.mode = from < 0 ? int64_t{0} : static_cast<int64_t>(a.mode);
    axis.in = p.x.z[d], axis.out = p.y.z[d], axis.align = a.align_corners;
    axis.first = place;
    place += 3 * axis.out + 2 * axis.in;
    if (from < 0) continue;
    axis.pad = a.pad[static_cast<size_t>(from)];
    const double given = a.scales[static_cast<size_t>(from)];
    const bool use = given > 0 && !(a.mode == Resample::linear && a.align_corners);
    const auto in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
    double scale = use ? 1 / given : in / out;
    if (a.mode == Resample::linear && a.align_corners) scale = axis.out > 1 ? (in - 1) / (out - 1) : 0;
    // In float32 the quotient is a float's, as PyTorch has it.
    if (!is_double && !use)
      scale = a.mode == Resample::linear && a.align_corners
                  ? (axis.out > 1 ? static_cast<double>(static_cast<float>(axis.in - 1) / static_cast<float>(axis.out - 1)) : 0)
                  : static_cast<double>(static_cast<float>(axis.in) / static_cast<float>(axis.out));
    axis.scale = numberBits(scale, is_double);
    axis.given = use;
  }
  p.total = place;  // of the table, until a kernel is started
  return p;
}

Range rangeOf(Queue& queue, int64_t rows, int64_t cells, Variant variant, int64_t* total) {
  *total = variant == Variant::wide ? rows : cells;
  return variant == Variant::wide ? Range{1, {workerCount(queue, rows)}, {1}}
                                  : Range{1, {static_cast<size_t>(ceilDiv(cells, 64) * 64)}, {64}};
}

Result<void> run(Queue& queue, const char* function, const TensorRef& from, const TensorRef& to, ResampleParams& p, bool backward,
                 Variant variant) {
  const Volume& written = backward ? p.x : p.y;
  const int64_t rows = p.n * p.c * written.z[0] * written.z[1], cells = rows * written.z[2];
  if (cells == 0) return {};
  const bool is_double = isDouble(from);
  auto scratch = Scratch::take(queue, static_cast<size_t>(p.total) * 8);
  if (!scratch) return scratch.error();
  int64_t longest = 1;
  for (Axis& axis : p.axis) {
    axis.first += static_cast<int64_t>(scratch->offset() / 8);
    longest = std::max({longest, axis.in, axis.out});
  }
  auto table = tileKernel(queue, "resample", "resample_table", is_double);
  if (!table) return table.error();
  if (auto ok = queue.launch(**table, {2, {static_cast<size_t>(longest), 3}, {1, 1}}, {Arg::buffer(scratch->buffer()), param(p)}); !ok)
    return ok;
  auto kernel = tileKernel(queue, "resample", function, is_double);
  if (!kernel) return kernel.error();
  const Range range = rangeOf(queue, rows, cells, variant, &p.total);
  return queue.launch(**kernel, range,
                      {Arg::buffer(from.buffer), Arg::buffer(to.buffer), Arg::buffer(scratch->buffer()), param(p)});
}

Result<UnfoldParams> describe(const char* op, const TensorRef& x, const TensorRef& y, const UnfoldArgs& a) {
  if (auto ok = checkFloating(op, {&x, &y}); !ok) return ok.error();
  auto bad = [&] { return fail("opencl " + std::string(op) + ": image " + sizesText(x) + " and columns " + sizesText(y) + " do not fit"); };
  if (x.ndim != 4 || y.ndim != 3 || size(x, 0) != size(y, 0)) return bad();
  UnfoldParams p{};
  p.x_off = x.offset, p.xn = stride(x, 0), p.xc = stride(x, 1), p.xh = stride(x, 2), p.xw = stride(x, 3);
  p.y_off = y.offset, p.yn = stride(y, 0), p.yc = stride(y, 1), p.yl = stride(y, 2);
  p.n = size(x, 0), p.c = size(x, 1), p.h = size(x, 2), p.w = size(x, 3);
  p.kh = a.kernel[0], p.kw = a.kernel[1], p.stride_h = a.stride[0], p.stride_w = a.stride[1];
  p.pad_h = a.padding[0], p.pad_w = a.padding[1], p.dil_h = a.dilation[0], p.dil_w = a.dilation[1];
  if (p.kh < 1 || p.kw < 1 || p.stride_h < 1 || p.stride_w < 1 || p.dil_h < 1 || p.dil_w < 1) return bad();
  p.oh = (p.h + 2 * p.pad_h - p.dil_h * (p.kh - 1) - 1) / p.stride_h + 1;
  p.ow = (p.w + 2 * p.pad_w - p.dil_w * (p.kw - 1) - 1) / p.stride_w + 1;
  if (size(y, 1) != p.c * p.kh * p.kw || size(y, 2) != p.oh * p.ow) return bad();
  p.dt = storageCode(x.dtype);
  return p;
}

Result<void> start(Queue& queue, const char* function, const TensorRef& from, const TensorRef& to, UnfoldParams& p, int64_t total,
                   Variant variant) {
  if (total == 0) return {};
  auto kernel = tileKernel(queue, "resample", function, isDouble(from));
  if (!kernel) return kernel.error();
  p.total = total;
  const bool wide = variant == Variant::wide;
  const auto items = wide ? workerCount(queue, total) : static_cast<size_t>(ceilDiv(total, 64) * 64);
  p.each = wide ? ceilDiv(total, static_cast<int64_t>(items)) : 1;
  return queue.launch(**kernel, {1, {items}, {wide ? size_t{1} : size_t{64}}}, {Arg::buffer(from.buffer), Arg::buffer(to.buffer), param(p)});
}

}  // namespace

Result<void> resample(Queue& queue, const TensorRef& input, const TensorRef& output, const ResampleArgs& args, Variant variant) {
  auto p = describe("resample", input, output, args);
  if (!p) return p.error();
  return run(queue, variant == Variant::wide ? "resample_wide" : "resample_tiled", input, output, *p, false, variant);
}

Result<void> resampleBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input, const ResampleArgs& args,
                              Variant variant) {
  auto p = describe("resample backward", grad_input, grad_output, args);
  if (!p) return p.error();
  return run(queue, variant == Variant::wide ? "resample_grad_wide" : "resample_grad_tiled", grad_output, grad_input, *p, true, variant);
}

Result<void> unfoldColumns(Queue& queue, const TensorRef& image, const TensorRef& columns, const UnfoldArgs& args, Variant variant) {
  auto p = describe("unfold", image, columns, args);
  if (!p) return p.error();
  return start(queue, "unfold_columns", image, columns, *p, columns.numel(), variant);
}

Result<void> foldColumns(Queue& queue, const TensorRef& columns, const TensorRef& image, const UnfoldArgs& args, Variant variant) {
  auto p = describe("fold", image, columns, args);
  if (!p) return p.error();
  return start(queue, "fold_columns", columns, image, *p, image.numel(), variant);
}

}  // namespace flagos::ocl

#include "runtime/opencl/ops/pool.h"

#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

// Mirrors of the structs in pool.cl.
struct Plane {
  int64_t off, sn, sc, sh, sw, h, w;
};
struct PoolParams {
  Plane x, y, i;
  int64_t n, c;
  int64_t kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w;
  int64_t include_pad, divisor, adaptive;
  int64_t dt, total;
};

Plane planeOf(const TensorRef& t) {
  const int d = t.ndim - 3;  // 0: [C,H,W], 1: [N,C,H,W]
  return {t.offset, d ? stride(t, 0) : 0, stride(t, d), stride(t, d + 1), stride(t, d + 2), size(t, d + 1), size(t, d + 2)};
}

// `x` is the side of the input's size, `y` the side of the output's; indices may be null.
Result<PoolParams> describe(const char* op, const TensorRef& x, const TensorRef& y, const TensorRef* indices,
                            const PoolArgs* args) {
  if (auto ok = checkFloating(op, {&x, &y}); !ok) return ok.error();
  auto bad = [&](const std::string& why) {
    return fail("opencl " + std::string(op) + ": " + why + " (input " + sizesText(x) + ", output " + sizesText(y) + ")");
  };
  if ((x.ndim != 3 && x.ndim != 4) || y.ndim != x.ndim) return bad("needs [N,C,H,W] or [C,H,W]");
  const int d = x.ndim - 3;
  for (int k = 0; k <= d; ++k)
    if (size(x, k) != size(y, k)) return bad("batch or channels differ");
  PoolParams p{};
  p.x = planeOf(x), p.y = planeOf(y);
  p.n = d ? size(x, 0) : 1;
  p.c = size(x, d);
  p.dt = storageCode(x.dtype);
  if (indices) {
    if (indices->dtype != DType::int64) return bad("indices must be int64, not " + std::string(dtypeName(indices->dtype)));
    if (indices->ndim != y.ndim) return bad("indices must have the output's sizes");
    for (int k = 0; k < y.ndim; ++k)
      if (size(*indices, k) != size(y, k)) return bad("indices must have the output's sizes");
    p.i = planeOf(*indices);
  }
  if (y.numel() != 0 && (p.x.h == 0 || p.x.w == 0)) return bad("the input has no pixels");
  if (!args) {
    p.adaptive = 1;
    return p;
  }
  for (size_t k = 0; k < 2; ++k) {
    if (args->kernel[k] < 1 || args->stride[k] < 1 || args->dilation[k] < 1 || args->padding[k] < 0)
      return bad("kernel, stride and dilation must be positive, padding not negative");
    if (args->padding[k] > args->kernel[k] / 2) return bad("padding is more than half the kernel");
  }
  if (args->divisor_override && *args->divisor_override == 0) return bad("divisor must not be zero");
  p.kh = args->kernel[0], p.kw = args->kernel[1];
  p.stride_h = args->stride[0], p.stride_w = args->stride[1];
  p.pad_h = args->padding[0], p.pad_w = args->padding[1];
  p.dil_h = args->dilation[0], p.dil_w = args->dilation[1];
  p.include_pad = args->count_include_pad;
  p.divisor = args->divisor_override.value_or(0);
  return p;
}

// Wide: a few workers over `rows`; tiled: a work-item an element.
Result<void> start(Queue& queue, const char* function, const TensorRef& data, PoolParams& p, int64_t rows, bool one_each,
                   std::initializer_list<Arg> buffers) {
  auto kernel = tileKernel(queue, "pool", function, isDouble(data));
  if (!kernel) return kernel.error();
  p.total = rows;
  const Range range = one_each ? Range{1, {static_cast<size_t>(ceilDiv(rows, 64) * 64)}, {64}}
                               : Range{1, {workerCount(queue, rows, data.numel() * kWorkOfElement)}, {1}};
  Arg args[4];
  size_t n = 0;
  for (const Arg& a : buffers) args[n++] = a;
  args[n++] = param(p);
  return queue.launch(**kernel, range, args, n);
}

// Adding in place needs a plane per worker at least, and storage that holds a sum without rounding it each time.
bool wholePlanes(Queue& queue, const PoolParams& p) {
  return p.dt == 0 && static_cast<size_t>(p.n * p.c) >= workerCount(queue, 1 << 20);
}

Result<void> average(Queue& queue, const TensorRef& x, const TensorRef& y, PoolParams p, Variant variant) {
  if (y.numel() == 0) return {};
  const bool tiled = variant == Variant::tiled;
  return start(queue, tiled ? "pool_avg_tiled" : "pool_avg_wide", x, p, tiled ? y.numel() : p.n * p.c * p.y.h, tiled,
               {Arg::buffer(x.buffer), Arg::buffer(y.buffer)});
}

Result<void> averageBackward(Queue& queue, const TensorRef& g, const TensorRef& gx, PoolParams p, Variant variant) {
  if (gx.numel() == 0) return {};
  const bool tiled = variant == Variant::tiled;
  if (!tiled && wholePlanes(queue, p)) return start(queue, "pool_avg_grad_planes", g, p, p.n * p.c, false,
                                                    {Arg::buffer(g.buffer), Arg::buffer(gx.buffer)});
  return start(queue, tiled ? "pool_avg_grad_tiled" : "pool_avg_grad_wide", g, p, tiled ? gx.numel() : p.n * p.c * p.x.h,
               tiled, {Arg::buffer(g.buffer), Arg::buffer(gx.buffer)});
}

}  // namespace

Result<void> maxPool2d(Queue& queue, const TensorRef& input, const TensorRef& output, const TensorRef& indices,
                       const PoolArgs& args, Variant variant) {
  auto p = describe("max_pool2d", input, output, &indices, &args);
  if (!p) return p.error();
  if (output.numel() == 0) return {};
  const bool tiled = variant == Variant::tiled;
  return start(queue, tiled ? "pool_max_tiled" : "pool_max_wide", input, *p, tiled ? output.numel() : p->n * p->c * p->y.h,
               tiled, {Arg::buffer(input.buffer), Arg::buffer(output.buffer), Arg::buffer(indices.buffer)});
}

Result<void> maxPool2dBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& indices,
                               const TensorRef& grad_input, const PoolArgs& args, Variant variant) {
  auto p = describe("max_pool2d backward", grad_input, grad_output, &indices, &args);
  if (!p) return p.error();
  if (grad_input.numel() == 0) return {};
  const std::initializer_list<Arg> buffers = {Arg::buffer(grad_output.buffer), Arg::buffer(indices.buffer),
                                              Arg::buffer(grad_input.buffer)};
  if (variant == Variant::tiled)
    return start(queue, "pool_max_grad_tiled", grad_input, *p, grad_input.numel(), true, buffers);
  const int64_t planes = p->n * p->c;
  if (wholePlanes(queue, *p))
    return start(queue, "pool_max_grad_wide", grad_input, *p, planes, false, buffers);
  return start(queue, "pool_max_grad_rows", grad_input, *p, planes * p->x.h, false, buffers);
}

Result<void> avgPool2d(Queue& queue, const TensorRef& input, const TensorRef& output, const PoolArgs& args,
                       Variant variant) {
  auto p = describe("avg_pool2d", input, output, nullptr, &args);
  if (!p) return p.error();
  return average(queue, input, output, *p, variant);
}

Result<void> avgPool2dBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input,
                               const PoolArgs& args, Variant variant) {
  auto p = describe("avg_pool2d backward", grad_input, grad_output, nullptr, &args);
  if (!p) return p.error();
  return averageBackward(queue, grad_output, grad_input, *p, variant);
}

Result<void> adaptiveAvgPool2d(Queue& queue, const TensorRef& input, const TensorRef& output, Variant variant) {
  auto p = describe("adaptive_avg_pool2d", input, output, nullptr, nullptr);
  if (!p) return p.error();
  return average(queue, input, output, *p, variant);
}

Result<void> adaptiveAvgPool2dBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input,
                                       Variant variant) {
  auto p = describe("adaptive_avg_pool2d backward", grad_input, grad_output, nullptr, nullptr);
  if (!p) return p.error();
  return averageBackward(queue, grad_output, grad_input, *p, variant);
}

}  // namespace flagos::ocl

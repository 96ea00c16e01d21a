#include "runtime/opencl/ops/pool3.h"

#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

// Mirrors of the structs in pool3.cl.
struct Volume {
  int64_t off, sn, sc, s[3], z[3];
};
struct Pool3Params {
  Volume x, y, i;
  int64_t kernel_size[3], stride[3], pad[3], dil[3];
  int64_t adaptive, include_pad, divisor;
  int64_t n, c, dt, total, each;
};

Volume volumeOf(const TensorRef& t, int dims) {
  Volume v{};
  v.off = t.offset;
  const int planes = t.ndim - dims;
  v.sn = planes == 2 ? stride(t, 0) : 0, v.sc = stride(t, planes - 1);
  for (int d = 0; d < 3; ++d) {
    const int from = d - (3 - dims);
    v.s[d] = from < 0 ? 0 : stride(t, planes + from);
    v.z[d] = from < 0 ? 1 : size(t, planes + from);
  }
  return v;
}

Result<Pool3Params> describe(const char* op, const TensorRef& x, const TensorRef& y, const TensorRef* indices, const Pool3Args& a) {
  if (auto ok = checkFloating(op, {&x, &y}); !ok) return ok.error();
  auto bad = [&](const std::string& why) {
    return fail("opencl " + std::string(op) + ": " + why + " (input " + sizesText(x) + ", output " + sizesText(y) + ")");
  };
  const int planes = x.ndim - a.dims;
  if ((a.dims != 2 && a.dims != 3) || planes < 1 || planes > 2 || y.ndim != x.ndim) return bad("ranks do not fit");
  for (int d = 0; d < planes; ++d)
    if (size(x, d) != size(y, d)) return bad("batch or channels differ");
  Pool3Params p{};
  p.x = volumeOf(x, a.dims), p.y = volumeOf(y, a.dims);
  p.n = planes == 2 ? size(x, 0) : 1, p.c = size(x, planes - 1);
  for (size_t d = 0; d < 3; ++d) {
    p.kernel_size[d] = a.kernel[d], p.stride[d] = a.stride[d], p.pad[d] = a.padding[d], p.dil[d] = a.dilation[d];
    if (!a.adaptive && (p.kernel_size[d] < 1 || p.stride[d] < 1 || p.dil[d] < 1)) return bad("kernel, stride and dilation must be positive");
  }
  p.adaptive = a.adaptive, p.include_pad = a.count_include_pad, p.divisor = a.divisor_override.value_or(0);
  p.dt = storageCode(x.dtype);
  if (indices) {
    if (indices->dtype != DType::int64 || indices->ndim != y.ndim) return bad("indices must be int64 of the output's sizes");
    for (int d = 0; d < y.ndim; ++d)
      if (size(*indices, d) != size(y, d)) return bad("indices must be int64 of the output's sizes");
    p.i = volumeOf(*indices, a.dims);
  }
  return p;
}

Result<void> start(Queue& queue, const char* function, const TensorRef& data, Pool3Params& p, int64_t cells, Variant variant,
                   std::initializer_list<cl_mem> buffers) {
  if (cells == 0) return {};
  auto kernel = tileKernel(queue, "pool3", function, isDouble(data));
  if (!kernel) return kernel.error();
  const bool wide = variant == Variant::wide;
  const auto items = wide ? workerCount(queue, cells) : static_cast<size_t>(ceilDiv(cells, 64) * 64);
  p.total = cells;
  p.each = wide ? ceilDiv(cells, static_cast<int64_t>(items)) : 1;
  Arg args[4];
  size_t n = 0;
  for (cl_mem b : buffers) args[n++] = Arg::buffer(b);
  args[n++] = param(p);
  return queue.launch(**kernel, {1, {items}, {wide ? size_t{1} : size_t{64}}}, args, n);
}

}  // namespace

Result<void> maxPool3(Queue& queue, const TensorRef& input, const TensorRef& output, const TensorRef& indices, const Pool3Args& args,
                      Variant variant) {
  auto p = describe("max pool", input, output, &indices, args);
  if (!p) return p.error();
  return start(queue, "pool3_max", input, *p, output.numel(), variant, {input.buffer, output.buffer, indices.buffer});
}

Result<void> maxPool3Backward(Queue& queue, const TensorRef& grad_output, const TensorRef& indices, const TensorRef& grad_input,
                              const Pool3Args& args, Variant variant) {
  auto p = describe("max pool backward", grad_input, grad_output, &indices, args);
  if (!p) return p.error();
  return start(queue, "pool3_max_grad", grad_input, *p, grad_input.numel(), variant, {grad_output.buffer, indices.buffer, grad_input.buffer});
}

Result<void> avgPool3(Queue& queue, const TensorRef& input, const TensorRef& output, const Pool3Args& args, Variant variant) {
  auto p = describe("average pool", input, output, nullptr, args);
  if (!p) return p.error();
  return start(queue, "pool3_avg", input, *p, output.numel(), variant, {input.buffer, output.buffer});
}

Result<void> avgPool3Backward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input, const Pool3Args& args,
                              Variant variant) {
  auto p = describe("average pool backward", grad_input, grad_output, nullptr, args);
  if (!p) return p.error();
  return start(queue, "pool3_avg_grad", grad_input, *p, grad_input.numel(), variant, {grad_output.buffer, grad_input.buffer});
}

}  // namespace flagos::ocl

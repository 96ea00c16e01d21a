#include "runtime/opencl/ops/conv.h"

#include <algorithm>

#include "runtime/opencl/ops/conv_plan.h"
#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {

namespace {
constexpr int64_t kPackQ = 16;  // PACK_Q of conv.cl
}

Result<void> conv::packWeights(Queue& queue, const Problem& p, cl_mem to) {
  auto kernel = tileKernel(queue, "conv", "conv_pack_weights", isDouble(p.y));
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {static_cast<size_t>(p.win.groups * ceilDiv(p.weights.q, kPackQ))}, {1}},
                      {Arg::buffer(p.w.buffer), Arg::buffer(to), param(p.weights)});
}

namespace {

using namespace conv;

constexpr int64_t kTileRows = 8;  // MR of gemm_tile.cl
constexpr int64_t kBlockBytes = 768 << 10;  // packed weights one worker sweeps again and again
constexpr int64_t kMaxPhases = 256;

Result<void> wide(Queue& queue, Problem p) {
  if (isDepthwise(p.xi, p.yi, p.win)) return depthwise(queue, p);
  const bool is_double = isDouble(p.y);
  const size_t real_bytes = is_double ? 8 : 4;
  const int64_t panel = is_double ? 16 : 32;
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20));
  const int64_t depth = p.xi.c * p.win.r * p.win.s;
  ConvParams c{};
  c.x = p.xi, c.y = p.yi, c.win = p.win;
  c.units = planUnits(p.win, p.yi, p.xi.c, p.yi.c, real_bytes, ceilDiv(want, p.win.groups));
  if (prefersFlat(p, c.units)) return flat(queue, p);
  c.k_tiles = ceilDiv(p.yi.c, kTileRows);
  // Enough tasks for every worker, and no more weights a block than its cache can hold.
  const int64_t weight_bytes = c.k_tiles * kTileRows * depth * static_cast<int64_t>(real_bytes);
  c.k_blocks = std::max(want / (c.units.count() * p.win.groups), ceilDiv(weight_bytes, kBlockBytes));
  c.k_blocks = std::clamp<int64_t>(c.k_blocks, 1, c.k_tiles);
  c.tasks = p.win.groups * c.units.count() * c.k_blocks;
  const size_t workers = workerCount(queue, c.tasks, p.yi.n * p.yi.h * p.yi.w * p.yi.c * p.win.groups * depth);
  c.slab_size = slabReals(c.units, p.xi.c);
  c.scratch_stride = c.slab_size + (depth * panel + 64);  // the panel's room also holds the taps (eight bytes each)
  const int64_t worker_reals = static_cast<int64_t>(workers) * c.scratch_stride;
  const int64_t weight_reals = p.win.groups * c.k_tiles * kTileRows * depth;
  auto scratch = Scratch::take(queue, static_cast<size_t>(worker_reals + weight_reals) * real_bytes);
  if (!scratch) return scratch.error();
  c.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  c.weights_off = c.scratch_off + worker_reals;
  p.weights.tiles = c.k_tiles;
  p.weights.dst_off = c.weights_off;
  if (auto ok = packWeights(queue, p, scratch->buffer()); !ok) return ok;
  if (p.bias) c.use_bias = 1, c.bias_off = p.bias->offset, c.bias_stride = stride(*p.bias, 0);
  auto kernel = tileKernel(queue, "conv", "conv_wide", is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(p.x.buffer), Arg::buffer(scratch->buffer()),
                       Arg::buffer(p.bias ? p.bias->buffer : p.x.buffer), Arg::buffer(p.y.buffer),
                       Arg::buffer(scratch->buffer()), param(c)});
}

Result<void> tiled(Queue& queue, const Problem& p) {
  auto kernel = tileKernel(queue, "conv_tiled", "conv_tiled", isDouble(p.y));
  if (!kernel) return kernel.error();
  ConvParams c{};
  c.x = p.xi, c.y = p.yi, c.win = p.win;
  if (p.bias) c.use_bias = 1, c.bias_off = p.bias->offset, c.bias_stride = stride(*p.bias, 0);
  const int64_t pixels = p.yi.n * p.yi.h * p.yi.w;
  auto up = [](int64_t n) { return static_cast<size_t>(ceilDiv(n, 32) * 16); };
  return queue.launch(**kernel, {3, {up(pixels), up(p.yi.c), static_cast<size_t>(p.win.groups)}, {16, 16, 1}},
                      {Arg::buffer(p.x.buffer), Arg::buffer(p.w.buffer),
                       Arg::buffer(p.bias ? p.bias->buffer : p.x.buffer), Arg::buffer(p.y.buffer), param(c),
                       param(p.weights)});
}

Result<void> run(Queue& queue, const Problem& p, Variant variant) {
  if (p.y.numel() == 0) return {};
  return variant == Variant::wide ? wide(queue, p) : tiled(queue, p);
}

// output = conv(input, weight) as the definition has it.
Problem forwardProblem(const TensorRef& input, const TensorRef& weight, const TensorRef& output, const ConvArgs& args) {
  Problem p{input, weight, output, imageOf(input, args.groups), imageOf(output, args.groups), windowOf(weight, args)};
  p.weights = {weight.offset, p.yi.c * stride(weight, 0), stride(weight, 0), stride(weight, 1), stride(weight, 2),
               stride(weight, 3), p.yi.c, p.xi.c, p.win.r, p.win.s, 0, storageCode(weight.dtype), 0};
  return p;
}

// grad_input = conv(grad_output with stride - 1 zeros between its pixels, window flipped, channels swapped).
Problem gradientProblem(const TensorRef& grad_output, const TensorRef& weight, const TensorRef& grad_input,
                        const ConvArgs& args) {
  Problem p{grad_output, weight, grad_input, imageOf(grad_output, args.groups), imageOf(grad_input, args.groups),
            windowOf(weight, args)};
  p.xi.up_h = p.win.stride_h, p.xi.up_w = p.win.stride_w;
  p.win.pad_h = p.win.dil_h * (p.win.r - 1) - p.win.pad_h;
  p.win.pad_w = p.win.dil_w * (p.win.s - 1) - p.win.pad_w;
  p.win.stride_h = p.win.stride_w = 1;
  p.weights = {weight.offset + (p.win.r - 1) * stride(weight, 2) + (p.win.s - 1) * stride(weight, 3),
               p.xi.c * stride(weight, 0), stride(weight, 1), stride(weight, 0), -stride(weight, 2),
               -stride(weight, 3), p.yi.c, p.xi.c, p.win.r, p.win.s, 0, storageCode(weight.dtype), 0};
  return p;
}

// One direction of one phase: the input rows v with v = phase (mod stride) meet only every stride-th tap.
struct Phase {
  int64_t count, taps, first_tap, pad;
};
Phase phaseOf(int64_t phase, int64_t length, int64_t taps, int64_t stride, int64_t pad) {
  Phase f{};
  f.count = phase < length ? (length - phase - 1) / stride + 1 : 0;
  f.first_tap = (phase + pad) % stride;
  f.taps = f.first_tap < taps ? (taps - f.first_tap - 1) / stride + 1 : 0;
  f.pad = f.taps - 1 - (phase + pad - f.first_tap) / stride;
  return f;
}

// A strided gradient as stride x stride convolutions without a single stuffed zero, each making every stride-th pixel.
Result<void> runGradient(Queue& queue, const TensorRef& grad_output, const TensorRef& weight, const TensorRef& grad_input,
                         const ConvArgs& args, const TensorRef* bias, Variant variant) {
  Problem whole = gradientProblem(grad_output, weight, grad_input, args);
  whole.bias = bias;
  if (variant == Variant::wide && !bias && grad_input.numel() && fewPixels(grad_output, weight, args, false))
    return inputFew(queue, grad_output, weight, grad_input, args);
  const int64_t sh = args.stride[0], sw = args.stride[1];
  if (variant == Variant::tiled || sh * sw == 1 || sh * sw > kMaxPhases || args.dilation[0] != 1 || args.dilation[1] != 1)
    return run(queue, whole, variant);
  if (grad_input.numel() == 0) return {};
  for (int64_t a = 0; a < sh; ++a)
    for (int64_t b = 0; b < sw; ++b) {
      const Phase h = phaseOf(a, whole.yi.h, size(weight, 2), sh, args.padding[0]);
      const Phase w = phaseOf(b, whole.yi.w, size(weight, 3), sw, args.padding[1]);
      if (h.count == 0 || w.count == 0) continue;
      Problem p = whole;
      p.xi.up_h = p.xi.up_w = 1;
      p.yi.off += a * p.yi.sh + b * p.yi.sw;
      p.yi.h = h.count, p.yi.w = w.count;
      p.yi.sh *= sh, p.yi.sw *= sw;
      p.win.r = h.taps, p.win.s = w.taps;
      p.win.pad_h = h.pad, p.win.pad_w = w.pad;
      p.weights.r = h.taps, p.weights.s = w.taps;
      p.weights.off = weight.offset + (h.first_tap + (h.taps - 1) * sh) * stride(weight, 2) +
                      (w.first_tap + (w.taps - 1) * sw) * stride(weight, 3);
      p.weights.sr = -sh * stride(weight, 2), p.weights.ss = -sw * stride(weight, 3);
      if (auto ok = wide(queue, p); !ok) return ok;
    }
  return {};
}

Result<void> checkBias(const TensorRef* bias, const TensorRef& output) {
  if (!bias) return {};
  if (auto ok = checkFloating("conv", {&output, bias}); !ok) return ok;
  if (bias->ndim != 1 || size(*bias, 0) != size(output, 1))
    return fail("opencl conv: bias " + sizesText(*bias) + " does not fit output " + sizesText(output));
  return {};
}

}  // namespace

Result<void> convForward(Queue& queue, const TensorRef& input3, const TensorRef& weight3, const TensorRef* bias,
                         const TensorRef& output3, const ConvArgs& args, Variant variant) {
  const TensorRef input = as4d(input3), weight = as4d(weight3), output = as4d(output3);
  if (auto ok = args.transposed ? check("conv_transpose", output, weight, input, args, false)
                                : check("conv", input, weight, output, args, true);
      !ok)
    return ok;
  if (auto ok = checkBias(bias, output); !ok) return ok;
  if (args.transposed) return runGradient(queue, input, weight, output, args, bias, variant);
  Problem p = forwardProblem(input, weight, output, args);
  p.bias = bias;
  return run(queue, p, variant);
}

Result<void> convBackwardInput(Queue& queue, const TensorRef& grad_output3, const TensorRef& weight3,
                               const TensorRef& grad_input3, const ConvArgs& args, Variant variant) {
  const TensorRef grad_output = as4d(grad_output3), weight = as4d(weight3), grad_input = as4d(grad_input3);
  if (auto ok = args.transposed ? check("conv_transpose backward", grad_output, weight, grad_input, args, false)
                                : check("conv backward", grad_input, weight, grad_output, args, true);
      !ok)
    return ok;
  if (args.transposed) return run(queue, forwardProblem(grad_output, weight, grad_input, args), variant);
  return runGradient(queue, grad_output, weight, grad_input, args, nullptr, variant);
}

}  // namespace flagos::ocl

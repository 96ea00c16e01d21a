// Gradients of a convolution's weights and bias: sums over the batch and all pixels.
#include <algorithm>

#include "runtime/opencl/ops/conv.h"
#include "runtime/opencl/ops/conv_plan.h"
#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

using namespace conv;

constexpr int64_t kTileTaps = 8;
constexpr int64_t kTurnBlocks = 4;        // blocks of input channels from which the gradient is turned once for all
constexpr int64_t kPartReals = 64 << 10;  // sums of one task, beside its pixels in a second-level cache

WeightFinishParams finishOf(const TensorRef& w, const Image& x, const Image& g, const Window& win) {
  WeightFinishParams f{};
  f.off = w.offset;
  f.sg = g.c * stride(w, 0), f.sk = stride(w, 0), f.sc = stride(w, 1), f.sr = stride(w, 2), f.ss = stride(w, 3);
  f.groups = win.groups, f.k = g.c, f.c = x.c, f.r = win.r, f.s = win.s, f.dt = storageCode(w.dtype);
  return f;
}

// Input channels of a task: as many as its sums leave room for, cut so that the workers' shares are equal. Every block
// reads the whole gradient again, which is what more of them cost.
int64_t blockOf(int64_t channels, int64_t window, int64_t k_pad, int64_t groups, int64_t want) {
  const int64_t most = std::clamp<int64_t>(kPartReals / (window * k_pad), 1, channels), least = ceilDiv(channels, most);
  int64_t best = most;
  double best_cost = 0;
  for (int64_t n = least; n <= std::min(channels, 2 * least); ++n) {
    const int64_t block = ceilDiv(channels, n), tasks = ceilDiv(channels, block) * groups;
    const int64_t all = tasks * ceilDiv(want, tasks), taps = block * window;
    const double cost = static_cast<double>(ceilDiv(all, want) * want) / static_cast<double>(all) *
                        static_cast<double>(ceilDiv(channels, block) * block) / static_cast<double>(channels) *
                        static_cast<double>(ceilDiv(taps, kTileTaps) * kTileTaps) / static_cast<double>(taps) *
                        (1 + 0.01 * static_cast<double>(n));
    if (best_cost == 0 || cost < best_cost) best_cost = cost, best = block;
  }
  return best;
}

Result<void> wide(Queue& queue, const TensorRef& g, const TensorRef& x, const TensorRef& w, const ConvArgs& args) {
  const bool is_double = isDouble(w);
  const size_t real_bytes = is_double ? 8 : 4;
  const int64_t panel = is_double ? 16 : 32;
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20));
  ConvWeightParams c{};
  c.x = imageOf(x, args.groups), c.g = imageOf(g, args.groups), c.win = windowOf(w, args);
  // A channel is a task there: a batch of few channels is better shared out.
  if (isDepthwise(c.x, c.g, c.win) && c.win.groups >= want)
    return depthwiseWeight(queue, g, x, w, c, finishOf(w, c.x, c.g, c.win));
  if (fewPixels(g, w, args, true)) return weightFew(queue, g, x, w, args);
  const int64_t window = c.win.r * c.win.s;
  c.k_pad = ceilDiv(c.g.c, panel) * panel;
  c.c_block = blockOf(c.x.c, window, c.k_pad, c.win.groups, want);
  c.c_blocks = ceilDiv(c.x.c, c.c_block);
  const int64_t blocks = c.win.groups * c.c_blocks;
  c.units = planUnits(c.win, c.g, c.c_block + c.k_pad / 2, 0, real_bytes, ceilDiv(want, blocks));
  c.shares = std::clamp<int64_t>(ceilDiv(want, blocks), 1, std::max<int64_t>(1, c.units.count()));
  c.tasks = blocks * c.shares;
  const size_t workers = workerCount(queue, c.tasks, c.g.n * c.g.h * c.g.w * c.g.c * c.win.groups * c.x.c * window);
  c.slab_size = slabReals(c.units, c.c_block);
  c.places_off = ceilDiv(c.slab_size + c.units.pixels() * c.k_pad + 64, 16) * 16;
  c.scratch_stride = c.places_off + ceilDiv(c.c_block * window * 8 / static_cast<int64_t>(real_bytes), 16) * 16;
  c.part_stride = ceilDiv(c.c_block * window, kTileTaps) * kTileTaps * c.k_pad;
  const int64_t worker_reals = static_cast<int64_t>(workers) * c.scratch_stride;
  const int64_t units = c.units.count() * c.win.groups;
  c.turned = c.c_blocks >= kTurnBlocks ? c.units.pixels() * c.k_pad : 0;
  auto scratch =
      Scratch::take(queue, static_cast<size_t>(worker_reals + c.tasks * c.part_stride + units * c.turned) * real_bytes);
  if (!scratch) return scratch.error();
  c.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  c.part_off = c.scratch_off + worker_reals;
  c.turned_off = c.part_off + c.tasks * c.part_stride;
  if (c.turned) {
    auto turn = tileKernel(queue, "conv", "conv_weight_turn", is_double);
    if (!turn) return turn.error();
    auto ok = queue.launch(**turn, {1, {workerCount(queue, units)}, {1}},
                           {Arg::buffer(g.buffer), Arg::buffer(scratch->buffer()), param(c)});
    if (!ok) return ok;
  }
  auto sum = tileKernel(queue, "conv", "conv_weight_wide", is_double);
  if (!sum) return sum.error();
  auto ok = queue.launch(**sum, {1, {workers}, {1}},
                         {Arg::buffer(x.buffer), Arg::buffer(g.buffer), Arg::buffer(scratch->buffer()), param(c)});
  if (!ok) return ok;
  WeightFinishParams f = finishOf(w, c.x, c.g, c.win);
  f.c_block = c.c_block, f.c_blocks = c.c_blocks, f.shares = c.shares, f.k_pad = c.k_pad;
  f.part_off = c.part_off, f.part_stride = c.part_stride;
  auto finish = tileKernel(queue, "conv", "conv_weight_finish", is_double);
  if (!finish) return finish.error();
  const int64_t columns = is_double ? 8 : 16;
  return queue.launch(**finish, {1, {static_cast<size_t>(blocks * ceilDiv(c.g.c, columns))}, {1}},
                      {Arg::buffer(scratch->buffer()), Arg::buffer(w.buffer), param(f)});
}

Result<void> tiled(Queue& queue, const TensorRef& g, const TensorRef& x, const TensorRef& w, const ConvArgs& args) {
  auto kernel = tileKernel(queue, "conv_tiled", "conv_weight_tiled", isDouble(w));
  if (!kernel) return kernel.error();
  ConvWeightParams c{};
  c.x = imageOf(x, args.groups), c.g = imageOf(g, args.groups), c.win = windowOf(w, args);
  const WeightFinishParams f = finishOf(w, c.x, c.g, c.win);
  auto up = [](int64_t n) { return static_cast<size_t>(ceilDiv(n, 16) * 16); };
  return queue.launch(**kernel, {3, {up(c.x.c * c.win.r * c.win.s), up(c.g.c), static_cast<size_t>(args.groups)}, {16, 16, 1}},
                      {Arg::buffer(x.buffer), Arg::buffer(g.buffer), Arg::buffer(w.buffer), param(c), param(f)});
}

}  // namespace

Result<void> convBackwardWeight(Queue& queue, const TensorRef& grad_output3, const TensorRef& input3,
                                const TensorRef& grad_weight3, const ConvArgs& args, Variant variant) {
  const TensorRef grad_output = as4d(grad_output3), input = as4d(input3), w = as4d(grad_weight3);
  // Transposed: the roles of input and output are swapped, the sum is the same.
  const TensorRef& g = args.transposed ? input : grad_output;
  const TensorRef& x = args.transposed ? grad_output : input;
  const char* op = args.transposed ? "conv_transpose weight gradient" : "conv weight gradient";
  if (auto ok = check(op, x, w, g, args, !args.transposed); !ok) return ok;
  if (w.numel() == 0) return {};
  return variant == Variant::wide ? wide(queue, g, x, w, args) : tiled(queue, g, x, w, args);
}

Result<void> convBackwardBias(Queue& queue, const TensorRef& grad_output3, const TensorRef& grad_bias, Variant) {
  const TensorRef g = as4d(grad_output3);
  if (auto ok = checkFloating("conv bias gradient", {&g, &grad_bias}); !ok) return ok;
  if (g.ndim != 4 || grad_bias.ndim != 1 || size(grad_bias, 0) != size(g, 1))
    return fail("opencl conv bias gradient: grad_bias " + sizesText(grad_bias) + " does not fit grad_output " + sizesText(g));
  if (size(g, 1) == 0) return {};
  const bool is_double = isDouble(g);
  const size_t real_bytes = is_double ? 8 : 4;
  BiasParams b{imageOf(g, 1), 1, 0, grad_bias.offset, stride(grad_bias, 0)};
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20));
  b.shares = std::clamp<int64_t>(ceilDiv(want, b.g.c), 1, std::max<int64_t>(1, b.g.n));
  auto scratch = Scratch::take(queue, static_cast<size_t>(b.shares * b.g.c) * real_bytes);
  if (!scratch) return scratch.error();
  b.part_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  auto sum = tileKernel(queue, "conv", "conv_bias_sum", is_double);
  if (!sum) return sum.error();
  auto ok = queue.launch(**sum, {2, {static_cast<size_t>(b.g.c), static_cast<size_t>(b.shares)}, {1, 1}},
                         {Arg::buffer(g.buffer), Arg::buffer(scratch->buffer()), Arg::buffer(grad_bias.buffer), param(b)});
  if (!ok || b.shares == 1) return ok;
  auto finish = tileKernel(queue, "conv", "conv_bias_finish", is_double);
  if (!finish) return finish.error();
  return queue.launch(**finish, {1, {1}, {1}}, {Arg::buffer(scratch->buffer()), Arg::buffer(grad_bias.buffer), param(b)});
}

}  // namespace flagos::ocl

// Gradients of convolutions with few output pixels, CPU-shaped: see kernels/conv_few.cl.
#include <algorithm>

#include "runtime/opencl/ops/conv_plan.h"
#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl::conv {
namespace {

constexpr int64_t kTileRows = 8;              // MR of gemm_tile.cl
constexpr int64_t kFewPixels = 128, kMostPixels = 256;   // kMostPixels: FEW of conv_few.cl
constexpr int64_t kBlockReals = 48 << 10;     // of what a task makes or packs, beside the weights in a second-level cache

// Mirror of the struct in conv_few.cl.
struct FewParams {
  Image x, g;
  Window win;
  int64_t pixels, block, blocks, tasks;
  int64_t w_off, w_row;
  int64_t scratch_off, scratch_stride;
};

FewParams paramsOf(const TensorRef& g, const TensorRef& x, const TensorRef& w, const ConvArgs& args) {
  FewParams p{};
  p.x = imageOf(x, args.groups), p.g = imageOf(g, args.groups), p.win = windowOf(w, args);
  p.pixels = p.g.n * p.g.h * p.g.w;
  p.w_off = w.offset, p.w_row = stride(w, 0);
  return p;
}

// Blocks of `total` units so that every worker has one and each stays within kBlockReals.
void cut(FewParams& p, int64_t total, int64_t reals_a_unit, int64_t want) {
  const int64_t fair = ceilDiv(total * p.win.groups, want);
  p.block = std::clamp<int64_t>(std::min(fair, kBlockReals / std::max<int64_t>(1, reals_a_unit)), 1, total);
  p.blocks = ceilDiv(total, p.block);
  p.tasks = p.blocks * p.win.groups;
}

Result<void> launch(Queue& queue, const char* function, FewParams& p, int64_t worker_reals, bool is_double, cl_mem first,
                    cl_mem second, cl_mem third) {
  const size_t real_bytes = is_double ? 8 : 4, workers = workerCount(queue, p.tasks);
  p.scratch_stride = ceilDiv(worker_reals, 16) * 16;
  auto scratch = Scratch::take(queue, workers * static_cast<size_t>(p.scratch_stride) * real_bytes);
  if (!scratch) return scratch.error();
  p.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  auto kernel = tileKernel(queue, "conv", function, is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(first), Arg::buffer(second), Arg::buffer(third), Arg::buffer(scratch->buffer()), param(p)});
}

}  // namespace

bool fewPixels(const TensorRef& g, const TensorRef& w, const ConvArgs& args, bool of_weight) noexcept {
  // Packing the input pays for itself over many output channels.
  const int64_t most = of_weight && size(g, 1) / args.groups >= 256 ? kMostPixels : kFewPixels;
  const int64_t window = size(w, 2) * size(w, 3), pixels = size(g, 0) * size(g, 2) * size(g, 3);
  return pixels > 0 && pixels <= most && storageCode(w.dtype) == 0 && window > 0 && stride(w, 3) == 1 &&
         stride(w, 2) == size(w, 3) && stride(w, 1) == window && size(g, 1) / args.groups >= 2 * kTileRows &&
         size(w, 1) * window >= 64;
}

Result<void> inputFew(Queue& queue, const TensorRef& g, const TensorRef& w, const TensorRef& x, const ConvArgs& args) {
  FewParams p = paramsOf(g, x, w, args);
  const int64_t columns = isDouble(w) ? 16 : 32, window = p.win.r * p.win.s, tiles = ceilDiv(p.pixels, kTileRows);
  cut(p, p.x.c, tiles * kTileRows * window, static_cast<int64_t>(workerCount(queue, 1 << 20)));
  const int64_t ld = ceilDiv(p.block * window, columns) * columns;
  return launch(queue, "conv_input_few", p, tiles * kTileRows * (p.g.c + ld) + p.g.c * columns, isDouble(w), g.buffer,
                w.buffer, x.buffer);
}

Result<void> weightFew(Queue& queue, const TensorRef& g, const TensorRef& x, const TensorRef& w, const ConvArgs& args) {
  FewParams p = paramsOf(g, x, w, args);
  const int64_t columns = isDouble(w) ? 16 : 32, panels = ceilDiv(p.x.c * p.win.r * p.win.s, columns);
  cut(p, panels, p.pixels * columns, static_cast<int64_t>(workerCount(queue, 1 << 20)));
  const int64_t tiles = ceilDiv(p.g.c, kTileRows);
  return launch(queue, "conv_weight_few", p, p.pixels * (tiles * kTileRows + p.block * columns), isDouble(w), x.buffer,
                g.buffer, w.buffer);
}

}  // namespace flagos::ocl::conv

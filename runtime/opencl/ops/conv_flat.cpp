// Convolutions of small images with many channels, CPU-shaped: see kernels/conv_flat.cl.
#include <algorithm>

#include "runtime/opencl/ops/conv_plan.h"
#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl::conv {
namespace {

constexpr int64_t kTileRows = 8;      // MR of gemm_tile.cl
constexpr int64_t kDepth = 320;       // rows of a panel at once: with its neighbours it stays in a second-level cache
constexpr int64_t kGroup = 8;         // most panels for which a tile of weights is read once
constexpr int64_t kLeastTiles = 16;   // below, packing a panel for few output channels would cost more than it saves
constexpr int64_t kMaxWindow = 64;
constexpr int64_t kLeastRow = 4;      // below, too many runs for a panel

}  // namespace

bool prefersFlat(const Problem& p, const Units& units) noexcept {
  if (storageCode(p.x.dtype) != 0 || p.xi.sw != 1 || p.xi.up_h != 1 || p.xi.up_w != 1) return false;
  const int64_t window = p.win.r * p.win.s, panel = isDouble(p.x) ? 16 : 32;
  if (window < 1 || window > kMaxWindow || p.yi.c < 4 * kTileRows) return false;
  // Whole chunks of pixels need no panels at all, unless the weights no longer fit beside them.
  const bool deep = p.yi.c * p.xi.c * window > (int64_t{1} << 17);
  if (units.chunked && units.cols % 8 == 0 && units.images * units.rows * units.cols % panel == 0 && !deep) return false;
  return true;
}

Result<void> flat(Queue& queue, Problem p) {
  const bool is_double = isDouble(p.y);
  const size_t real_bytes = is_double ? 8 : 4;
  const int64_t panel = is_double ? 16 : 32, window = p.win.r * p.win.s, depth = p.xi.c * window;
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20));
  ConvParams c{};
  c.x = p.xi, c.y = p.yi, c.win = p.win;
  c.pixels = p.yi.n * p.yi.h * p.yi.w;
  c.panels = ceilDiv(c.pixels, panel);
  c.k_tiles = ceilDiv(p.yi.c, kTileRows);
  c.c_block = std::clamp<int64_t>(kDepth / window, 1, p.xi.c);
  // Equal shares of the panels, as many for every worker: a driver that hands half of few work-groups to its first thread
  // lets the other cores wait for it otherwise.
  const int64_t half = std::max<int64_t>(1, want / 2);
  c.shares = ceilDiv(c.panels, kGroup);
  if (p.win.groups < want) c.shares = std::min(c.panels, ceilDiv(c.shares, half) * half);
  c.group = ceilDiv(c.panels, c.shares);
  c.k_blocks = std::clamp<int64_t>(want / (c.shares * p.win.groups), 1, std::max<int64_t>(1, c.k_tiles / kLeastTiles));
  c.tasks = p.win.groups * c.k_blocks * c.shares;
  const size_t workers = workerCount(queue, c.tasks, c.pixels * p.yi.c * p.win.groups * depth);
  const int64_t panel_size = c.c_block * window * panel;
  c.sums_size = c.c_block < p.xi.c ? (ceilDiv(c.k_tiles, c.k_blocks) * c.group * kTileRows * panel) : 0;
  c.pieces_size = window * (1 + 3 * panel);
  // Rows gathered under a panel, see findRows.
  if (window > 1 && p.win.stride_h == 1 && p.win.stride_w == 1 && p.yi.w >= kLeastRow && p.yi.w <= panel) {
    const int64_t runs = ceilDiv(panel, p.yi.w) + 1, images = ceilDiv(panel, p.yi.h * p.yi.w) + 1;
    const int64_t rows = runs + images * (p.win.r - 1) * p.win.dil_h;
    c.units.slab_cols = p.yi.w + (p.win.s - 1) * p.win.dil_w;
    c.slab_size = ceilDiv(c.c_block * rows * c.units.slab_cols + 64, 16) * 16;
    c.pieces_size = std::max(c.pieces_size, 3 + rows + 3 * panel);
  }
  c.scratch_stride = c.group * (panel_size + c.pieces_size * 8 / static_cast<int64_t>(real_bytes)) + 16 + c.sums_size + c.slab_size + 64;
  c.scratch_stride = ceilDiv(c.scratch_stride, 16) * 16;
  const int64_t worker_reals = static_cast<int64_t>(workers) * c.scratch_stride;
  // Rows of weights that run through channels and taps are read where they lie, unless every tile row would fall into the
  // same few lines of a cache, or many panels would pay for it.
  const WeightParams& w = p.weights;
  const bool in_place = w.dt == 0 && w.ss == 1 && w.sr == p.win.s && w.sq == window && w.sm * 4 % 4096 != 0 && c.shares <= 16;
  const int64_t weight_reals = in_place ? 0 : p.win.groups * c.k_tiles * kTileRows * depth;
  auto scratch = Scratch::take(queue, static_cast<size_t>(worker_reals + weight_reals) * real_bytes);
  if (!scratch) return scratch.error();
  c.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  if (in_place) {
    c.weights_off = w.off;
    c.w_row = w.sm;
  } else {
    c.weights_off = c.scratch_off + worker_reals;
    p.weights.tiles = c.k_tiles;
    p.weights.dst_off = c.weights_off;
    if (auto ok = packWeights(queue, p, scratch->buffer()); !ok) return ok;
  }
  if (p.bias) c.use_bias = 1, c.bias_off = p.bias->offset, c.bias_stride = stride(*p.bias, 0);
  auto kernel = tileKernel(queue, "conv", "conv_flat", is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(p.x.buffer), Arg::buffer(in_place ? p.w.buffer : scratch->buffer()),
                       Arg::buffer(p.bias ? p.bias->buffer : p.x.buffer), Arg::buffer(p.y.buffer),
                       Arg::buffer(scratch->buffer()), param(c)});
}

}  // namespace flagos::ocl::conv

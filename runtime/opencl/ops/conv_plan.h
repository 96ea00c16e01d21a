// What the convolution launchers share: mirrors of the parameter structs of conv.cl and conv_tiled.cl, and how the work
// is cut into units. Internal to runtime/opencl/ops.
#pragma once
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/conv.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl::conv {

struct Image {
  int64_t off, sn, sc, sh, sw;
  int64_t n, c, h, w;  // c: channels of one group
  int64_t dt, up_h, up_w;
};
struct Window {
  int64_t r, s, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups;
};
struct Units {
  int64_t images, rows, cols;
  int64_t image_units, row_units, col_units;
  int64_t slab_rows, slab_cols;
  int64_t chunked;
  int64_t count() const noexcept { return image_units * row_units * col_units; }
  int64_t pixels() const noexcept { return images * rows * cols; }
};
struct ConvParams {
  Image x, y;
  Window win;
  Units units;
  int64_t tasks, k_blocks, k_tiles;
  int64_t weights_off, bias_off, bias_stride, use_bias;
  int64_t scratch_off, scratch_stride, slab_size;
  int64_t pixels, panels, group, shares, c_block, w_row, sums_size, pieces_size;
};
struct WeightParams {
  int64_t off, sg, sm, sq, sr, ss;
  int64_t m, q, r, s, tiles, dt, dst_off;
};
struct ConvWeightParams {
  Image x, g;
  Window win;
  Units units;
  int64_t c_block, c_blocks, shares, tasks, k_pad;
  int64_t part_off, part_stride;
  int64_t scratch_off, scratch_stride, slab_size, places_off;
  int64_t turned, turned_off;
};
struct WeightFinishParams {
  int64_t off, sg, sk, sc, sr, ss;
  int64_t groups, k, c, r, s, c_block, c_blocks, shares, k_pad, part_off, part_stride, dt;
};
struct BiasParams {
  Image g;
  int64_t shares, part_off, out_off, out_stride;
};

// A convolution as the kernels see it: y = conv(x, w), whatever the tensors mean to the caller (the gradient of an
// input is a convolution too). x and y are four-dimensional here.
struct Problem {
  TensorRef x, w, y;      // w: off/strides for the packing are in `weights`
  Image xi{}, yi{};
  Window win{};
  WeightParams weights{};
  const TensorRef* bias = nullptr;
};

// [N,C,L] becomes [N,C,1,L]; weight [K,C,S] becomes [K,C,1,S].
TensorRef as4d(const TensorRef& tensor) noexcept;
// Checks ranks, channels, groups and the output's size; `op` is named in errors. In terms of an ordinary convolution
// input -> output (a transposed one swaps the two before it gets here).
Result<void> check(const char* op, const TensorRef& input, const TensorRef& weight, const TensorRef& output,
                   const ConvArgs& args, bool exact_output);
Image imageOf(const TensorRef& tensor, int64_t groups) noexcept;
Window windowOf(const TensorRef& weight, const ConvArgs& args) noexcept;

// Cuts the output into units of up to a few hundred pixels whose gathered input (`channels` deep) stays within the
// second-level cache, so that few columns of the register tile are wasted and `want` units exist if possible.
// `outputs` is the number of channels made from each gathered pixel; 0 for the weight gradient, which has no such tile.
Units planUnits(const Window& win, const Image& y, int64_t channels, int64_t outputs, size_t real_bytes, int64_t want) noexcept;

// Reals of the slab of one unit, with room for vectors that read past its end.
int64_t slabReals(const Units& units, int64_t channels) noexcept;

// One input and one output channel a group: vectors along rows instead of a matrix product (conv_depthwise.cpp).
inline bool isDepthwise(const Image& x, const Image& y, const Window& win) noexcept {
  return win.groups > 1 && x.c == 1 && y.c == 1;
}
Result<void> depthwise(Queue& queue, const Problem& problem);
// Small images and many channels: pixels numbered through the batch (conv_flat.cpp).
bool prefersFlat(const Problem& problem, const Units& units) noexcept;
Result<void> flat(Queue& queue, Problem problem);
// Gradients where the batch has few output pixels `g`: every weight is read or written once, in place (conv_few.cpp).
bool fewPixels(const TensorRef& g, const TensorRef& w, const ConvArgs& args, bool of_weight) noexcept;
Result<void> inputFew(Queue& queue, const TensorRef& g, const TensorRef& w, const TensorRef& x, const ConvArgs& args);
Result<void> weightFew(Queue& queue, const TensorRef& g, const TensorRef& x, const TensorRef& w, const ConvArgs& args);
// Packs the weights of a problem into [group][tile][channel and tap][8] (conv.cpp).
Result<void> packWeights(Queue& queue, const Problem& problem, cl_mem to);
// Only x, g and win of `params` are read; `finish` says where the gradient goes.
Result<void> depthwiseWeight(Queue& queue, const TensorRef& g, const TensorRef& x, const TensorRef& w,
                             ConvWeightParams params, const WeightFinishParams& finish);

}  // namespace flagos::ocl::conv

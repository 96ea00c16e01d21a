// Launchers of depthwise convolution (one input and one output channel a group), CPU-shaped.
#include <algorithm>

#include "runtime/opencl/ops/conv_plan.h"
#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl::conv {

Result<void> depthwise(Queue& queue, const Problem& p) {
  const bool is_double = isDouble(p.y);
  const size_t real_bytes = is_double ? 8 : 4;
  ConvParams c{};
  c.x = p.xi, c.y = p.yi, c.win = p.win;
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20));
  c.units = planUnits(p.win, p.yi, 1, 0, real_bytes, ceilDiv(want, p.win.groups));
  c.tasks = p.win.groups * c.units.count();
  c.slab_size = slabReals(c.units, 1);
  c.scratch_stride = ceilDiv(c.slab_size + p.win.r * p.win.s, 16) * 16;
  const size_t workers = workerCount(queue, c.tasks);
  auto scratch = Scratch::take(queue, workers * static_cast<size_t>(c.scratch_stride) * real_bytes);
  if (!scratch) return scratch.error();
  c.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  if (p.bias) c.use_bias = 1, c.bias_off = p.bias->offset, c.bias_stride = stride(*p.bias, 0);
  auto kernel = tileKernel(queue, "conv_depthwise", "conv_depthwise_wide", is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(p.x.buffer), Arg::buffer(p.w.buffer),
                       Arg::buffer(p.bias ? p.bias->buffer : p.x.buffer), Arg::buffer(p.y.buffer),
                       Arg::buffer(scratch->buffer()), param(c), param(p.weights)});
}

Result<void> depthwiseWeight(Queue& queue, const TensorRef& g, const TensorRef& x, const TensorRef& w,
                             ConvWeightParams c, const WeightFinishParams& f) {
  const bool is_double = isDouble(w);
  const size_t real_bytes = is_double ? 8 : 4;
  c.units = planUnits(c.win, c.g, 2, 0, real_bytes, 1);
  c.tasks = c.win.groups;
  c.slab_size = slabReals(c.units, 1);
  const int64_t lanes = is_double ? 8 : 16;
  const int64_t padded = ceilDiv(c.units.cols, lanes) * lanes;
  c.scratch_stride = ceilDiv(c.slab_size + c.units.images * c.units.rows * padded + c.win.r * c.win.s * lanes, 16) * 16;
  const size_t workers = workerCount(queue, c.tasks);
  auto scratch = Scratch::take(queue, workers * static_cast<size_t>(c.scratch_stride) * real_bytes);
  if (!scratch) return scratch.error();
  c.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  auto kernel = tileKernel(queue, "conv_depthwise", "conv_depthwise_weight", is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(x.buffer), Arg::buffer(g.buffer), Arg::buffer(w.buffer), Arg::buffer(scratch->buffer()),
                       param(c), param(f)});
}

}  // namespace flagos::ocl::conv

// Interpolation (nearest, nearest-exact, linear in one to three dimensions), reflection and replication padding, unfold and
// fold. Data [N,C,...] or [C,...] (padding, fold) of float32, float16, bfloat16 or float64; any strides. Gradients gather:
// the same numbers in every run. Threads: any; work is only enqueued.
#pragma once
#include <array>
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

enum class Resample : uint8_t { nearest, nearest_exact, linear, reflection, replication };

struct ResampleArgs {
  Resample mode = Resample::nearest;
  int dims = 2;                              // the last 1..3 dimensions are resampled, what is before them are planes
  bool align_corners = false;                // linear
  std::array<double, 3> scales{};            // the caller's factors, slowest dimension first; <= 0: from the sizes
  std::array<int64_t, 3> pad{};              // cells in front of each of those dimensions (padding; may be negative)
};
// Sizes are the caller's: input and output differ in the last `dims` dimensions only.
Result<void> resample(Queue& queue, const TensorRef& input, const TensorRef& output, const ResampleArgs& args, Variant variant);
// grad_input is written whole.
Result<void> resampleBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input, const ResampleArgs& args,
                              Variant variant);

struct UnfoldArgs {  // {height, width}
  std::array<int64_t, 2> kernel{1, 1}, dilation{1, 1}, padding{0, 0}, stride{1, 1};
};
// image [N,C,H,W]; columns [N, C * kh * kw, positions].
Result<void> unfoldColumns(Queue& queue, const TensorRef& image, const TensorRef& columns, const UnfoldArgs& args, Variant variant);
Result<void> foldColumns(Queue& queue, const TensorRef& columns, const TensorRef& image, const UnfoldArgs& args, Variant variant);

}  // namespace flagos::ocl

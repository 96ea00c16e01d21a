// Pooling over the last three dimensions of [N,C,D,H,W] or [C,D,H,W], and adaptive max pooling over the last two; any
// strides. Output sizes are the caller's (ceil_mode is nothing but a bigger output).
// Storage float32, float16, bfloat16, float64. Threads: any; work is only enqueued.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

struct Pool3Args {  // slowest dimension first; with dims = 2 the last two places count
  int dims = 3;
  std::array<int64_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  bool adaptive = false;                            // windows follow from the two sizes: [floor(i*I/O), ceil((i+1)*I/O))
  bool count_include_pad = true;                    // average only
  std::optional<int64_t> divisor_override;          // average only
};

// indices: int64, position within the plane; the first of equal maxima, and a NaN wins.
Result<void> maxPool3(Queue& queue, const TensorRef& input, const TensorRef& output, const TensorRef& indices, const Pool3Args& args,
                      Variant variant);
// grad_input is written whole (zeros included).
Result<void> maxPool3Backward(Queue& queue, const TensorRef& grad_output, const TensorRef& indices, const TensorRef& grad_input,
                              const Pool3Args& args, Variant variant);
Result<void> avgPool3(Queue& queue, const TensorRef& input, const TensorRef& output, const Pool3Args& args, Variant variant);
Result<void> avgPool3Backward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input, const Pool3Args& args,
                              Variant variant);

}  // namespace flagos::ocl

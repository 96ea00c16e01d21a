// Pooling over the last two dimensions of [N,C,H,W] or [C,H,W]; any strides. Output sizes are the caller's
// (ceil_mode is nothing but a bigger output). A 1-d pool is H = 1.
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

struct PoolArgs {  // {height, width}
  std::array<int64_t, 2> kernel{1, 1};
  std::array<int64_t, 2> stride{1, 1};
  std::array<int64_t, 2> padding{0, 0};
  std::array<int64_t, 2> dilation{1, 1};           // max pool only
  bool count_include_pad = true;                    // average pool only
  std::optional<int64_t> divisor_override;          // average pool only
};

// indices: int64, h * W + w within the plane, the first of equal maxima; a NaN wins (the last one, as PyTorch's CPU).
Result<void> maxPool2d(Queue& queue, const TensorRef& input, const TensorRef& output, const TensorRef& indices,
                       const PoolArgs& args, Variant variant);
// grad_input is written whole (zeros included). Windows may overlap.
Result<void> maxPool2dBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& indices,
                               const TensorRef& grad_input, const PoolArgs& args, Variant variant);
Result<void> avgPool2d(Queue& queue, const TensorRef& input, const TensorRef& output, const PoolArgs& args,
                       Variant variant);
Result<void> avgPool2dBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input,
                               const PoolArgs& args, Variant variant);
// Windows follow from the two sizes: [floor(i*H/OH), ceil((i+1)*H/OH)).
Result<void> adaptiveAvgPool2d(Queue& queue, const TensorRef& input, const TensorRef& output, Variant variant);
Result<void> adaptiveAvgPool2dBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_input,
                                       Variant variant);

}  // namespace flagos::ocl

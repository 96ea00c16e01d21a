// Convolution, forward and the three gradients. Tensors are [N,C,H,W] (or [N,C,L], run as H = 1) with any strides:
// the input is gathered patch by patch inside the kernel, so no packed copy of a whole tensor is ever made.
// Scratch (a few hundred KiB a worker, from the device's pool) is taken and given back on the queue.
// Storage float32, float16, bfloat16 (sums in float32) or float64, all operands alike.
// Zero batch is legal: outputs are empty, the weight and bias gradients are zero. Threads: any; work is only enqueued.
#pragma once
#include <array>
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

struct ConvArgs {
  // {height, width}; for [N,C,L] tensors the height entries must be {1, 0, 1} (stride, padding, dilation).
  std::array<int64_t, 2> stride{1, 1};
  std::array<int64_t, 2> padding{0, 0};
  std::array<int64_t, 2> dilation{1, 1};
  int64_t groups = 1;
  // Transposed convolution: weight is [C, K/groups, R, S] and the output's own sizes carry output_padding.
  bool transposed = false;
};

// weight [K, C/groups, R, S]; bias [K] or null; output [N,K,OH,OW] with the sizes the caller computed.
Result<void> convForward(Queue& queue, const TensorRef& input, const TensorRef& weight, const TensorRef* bias,
                         const TensorRef& output, const ConvArgs& args, Variant variant);
Result<void> convBackwardInput(Queue& queue, const TensorRef& grad_output, const TensorRef& weight,
                               const TensorRef& grad_input, const ConvArgs& args, Variant variant);
Result<void> convBackwardWeight(Queue& queue, const TensorRef& grad_output, const TensorRef& input,
                                const TensorRef& grad_weight, const ConvArgs& args, Variant variant);
// grad_bias[k] = sum of grad_output over batch and pixels.
Result<void> convBackwardBias(Queue& queue, const TensorRef& grad_output, const TensorRef& grad_bias, Variant variant);

}  // namespace flagos::ocl

// Softmax and log-softmax over one dimension, forward and backward. float32, float64, and float16 / bfloat16 with
// float32 arithmetic. Any strides; in and out may differ in dtype (half_to_float).
#pragma once
#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// `dim` counts from 0; a 0-dim tensor takes 0 (the result is 1, or 0 for log). A row of -inf only gives NaN, as PyTorch.
Result<void> softmax(Queue& queue, const TensorRef& in, const TensorRef& out, int dim, bool log, Variant variant);
// softmax: (grad - sum(grad * output)) * output; log: grad - exp(output) * sum(grad).
Result<void> softmaxBackward(Queue& queue, const TensorRef& grad, const TensorRef& output, const TensorRef& grad_in, int dim,
                             bool log, Variant variant);

}  // namespace flagos::ocl

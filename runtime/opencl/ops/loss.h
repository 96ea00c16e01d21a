// Losses with a reduction of their own. Elementwise losses also exist unreduced in the pointwise table.
#pragma once
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/pointwise.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

enum class Reduction : uint8_t { none = 0, mean = 1, sum = 2 };  // PyTorch's numbers

// `input` [N, C], [C] or [N, C, d1, ...] (nll_loss, nll_loss2d); `target` int64 (or uint8) of input's sizes without C;
// `weight` [C] or null. `out` is 0-dim, or target's sizes for Reduction::none; `total_weight` 0-dim.
// A target that is neither ignore_index nor in [0, C) makes the loss NaN: the kernel cannot raise, and must not lie.
Result<void> nllLoss(Queue& queue, const TensorRef& input, const TensorRef& target, const TensorRef* weight, Reduction reduction,
                     int64_t ignore_index, const TensorRef& out, const TensorRef& total_weight, Variant variant);
// Writes every element of grad_in (zeros included).
Result<void> nllLossBackward(Queue& queue, const TensorRef& grad, const TensorRef& target, const TensorRef* weight,
                             Reduction reduction, int64_t ignore_index, const TensorRef& total_weight,
                             const TensorRef& grad_in, Variant variant);

// Both of one size, numbers in [0, 1]: any other fails the queue's next wait (Queue::faultRecord), as binary cross-entropy must.
Result<void> checkUnit(Queue& queue, const TensorRef& input, const TensorRef& target, Variant variant);

// `op` is mse, l1, smooth_l1, huber, bce or soft_margin of the pointwise table; `param` is beta or delta; `weight`
// (bce) multiplies elementwise, or is null. out: 0-dim, or input's sizes for Reduction::none.
Result<void> pointLoss(Queue& queue, PointwiseOp op, const TensorRef& input, const TensorRef& target, const TensorRef* weight,
                       Reduction reduction, double param, const TensorRef& out, Variant variant);

}  // namespace flagos::ocl

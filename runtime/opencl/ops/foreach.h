// Many tensors in few launches: `_foreach_*` and fused optimizer steps.
//
// Tensors are grouped by the buffers they live in and go to the device in tables of a dozen a launch (of hundreds
// where host and device share memory); tensors that are not
// dense (or differ in layout between the lists) take the single-tensor kernels. Same results either way.
#pragma once
#include <cstdint>
#include <span>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/pointwise.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

using TensorList = std::span<const TensorRef>;

// out[t] = op(in[0][t], in[1][t], ...) for every t, for any row of the pointwise table (add, mul, addcmul, addcdiv, lerp,
// sqrt, div, neg, clamp ...). A list of length 1 in `in` is used for every t (a Tensor argument such as a 0-dim scale).
// `scalars` holds pointwiseInfo(op).scalars numbers, or that many for each tensor, one tensor after the other.
Result<void> foreachPointwise(Queue& queue, PointwiseOp op, std::span<const TensorList> in, TensorList out,
                              std::span<const Scalar> scalars, Variant variant);
// out[t] (0-dim) = norm of in[t]; order 1, 2 or infinity.
Result<void> foreachNorm(Queue& queue, TensorList in, TensorList out, double order, Variant variant);

struct SgdOptions {
  double lr = 0, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false, first_step = false;  // first_step: momentum buffer = gradient
};
// `momentum` is empty where options.momentum is 0. grad_scale and found_inf (0-dim float32) may be null: gradients are
// divided by grad_scale (and written back), and nothing changes where found_inf is 1. lr: a 0-dim tensor wins over options.lr.
Result<void> sgdStep(Queue& queue, TensorList params, TensorList grads, TensorList momentum, const SgdOptions& options,
                     const TensorRef* lr, const TensorRef* grad_scale, const TensorRef* found_inf, Variant variant);

struct AdamOptions {
  double lr = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false, maximize = false, decoupled = false;  // decoupled: AdamW
};
// steps[t]: 0-dim float32, already incremented (as torch.optim does). max_exp_avg_sqs is empty without amsgrad.
Result<void> adamStep(Queue& queue, TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                      TensorList max_exp_avg_sqs, TensorList steps, const AdamOptions& options, const TensorRef* lr,
                      const TensorRef* grad_scale, const TensorRef* found_inf, Variant variant);

// GradScaler: grads *= inv_scale, found_inf = 1 where any is not finite.
Result<void> ampUnscale(Queue& queue, TensorList grads, const TensorRef& found_inf, const TensorRef& inv_scale, Variant variant);

}  // namespace flagos::ocl

// Batch, layer and group normalisation, forward and backward. Data tensors have one dtype (float32, float16, bfloat16,
// float64); saved statistics are float32 (float64 for float64 data), weights and running statistics have the dtype of
// the data or of the statistics. Variances are computed around the mean (two passes), never as E[x^2] - E[x]^2.
// Null pointers stand for absent weight, bias, running statistics, or a gradient nobody wants.
// Layer and group norm want contiguous data; batch norm takes any strides. Threads: any; work is only enqueued.
#pragma once
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

struct BatchNormArgs {
  bool training = true;
  double momentum = 0.1;   // new running = (1 - momentum) * old + momentum * batch (variance unbiased)
  double eps = 1e-5;
};
// input, output [N,C,...]. training: batch statistics are used, saved and folded into the running ones (if given);
// else the running ones are used and save_* are not written.
struct BatchNormTensors {
  const TensorRef* weight = nullptr;         // [C]
  const TensorRef* bias = nullptr;           // [C]
  const TensorRef* running_mean = nullptr;   // [C], updated in training
  const TensorRef* running_var = nullptr;    // [C]
  const TensorRef* save_mean = nullptr;      // [C], needed in training
  const TensorRef* save_invstd = nullptr;    // [C]
};
Result<void> batchNorm(Queue& queue, const TensorRef& input, const TensorRef& output, const BatchNormTensors& tensors,
                       const BatchNormArgs& args, Variant variant);
// save_* of the forward pass in training; else running_* are used.
Result<void> batchNormBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& input,
                               const BatchNormTensors& tensors, const TensorRef* grad_input,
                               const TensorRef* grad_weight, const TensorRef* grad_bias, const BatchNormArgs& args,
                               Variant variant);

// input seen as [rows, columns]: columns = product of the normalised sizes. weight, bias [columns]; mean, rstd [rows].
Result<void> layerNorm(Queue& queue, const TensorRef& input, int64_t rows, int64_t columns, const TensorRef* weight,
                       const TensorRef* bias, double eps, const TensorRef& output, const TensorRef& mean,
                       const TensorRef& rstd, Variant variant);
Result<void> layerNormBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& input, int64_t rows,
                               int64_t columns, const TensorRef& mean, const TensorRef& rstd, const TensorRef* weight,
                               const TensorRef* grad_input, const TensorRef* grad_weight, const TensorRef* grad_bias,
                               Variant variant);

// The same without centring: x * rstd * weight, rstd = 1 / sqrt(mean(x^2) + eps).
Result<void> rmsNorm(Queue& queue, const TensorRef& input, int64_t rows, int64_t columns, const TensorRef* weight, double eps,
                     const TensorRef& output, const TensorRef& rstd, Variant variant);
Result<void> rmsNormBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& input, int64_t rows,
                             int64_t columns, const TensorRef& rstd, const TensorRef* weight, const TensorRef* grad_input,
                             const TensorRef* grad_weight, Variant variant);

// input [N,C,...]; weight, bias [C]; mean, rstd [N,groups].
Result<void> groupNorm(Queue& queue, const TensorRef& input, int64_t groups, const TensorRef* weight,
                       const TensorRef* bias, double eps, const TensorRef& output, const TensorRef& mean,
                       const TensorRef& rstd, Variant variant);
Result<void> groupNormBackward(Queue& queue, const TensorRef& grad_output, const TensorRef& input, int64_t groups,
                               const TensorRef& mean, const TensorRef& rstd, const TensorRef* weight,
                               const TensorRef* grad_input, const TensorRef* grad_weight, const TensorRef* grad_bias,
                               Variant variant);

}  // namespace flagos::ocl

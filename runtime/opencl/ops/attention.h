// Scaled-dot-product attention, fused: softmax(q k^T * scale + bias) v without the matrix of scores in memory.
// q [B,H,Tq,D], k [B,Hk,Tk,D], v [B,Hk,Tk,Dv], out [B,H,Tq,Dv]; H is a multiple of Hk (grouped queries share keys).
// Any strides. Storage float32, float16, bfloat16 (sums in float32) or float64; one dtype for all but `lse`.
// A query that may see no key gives zeros. Errors name operator and sizes. Threads: any; work is only enqueued.
#pragma once
#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

struct AttentionArgs {
  TensorRef q, k, v, out;
  TensorRef lse;                    // [B,H,Tq] contiguous, float32 (float64 for float64 data): log of the sum of exponentials
  const TensorRef* bias = nullptr;  // [B,H,Tq,Tk], broadcast by strides of 0; added to the scaled scores
  bool causal = false;              // query i sees keys 0..i
  double scale = 1;
};
Result<void> attention(Queue& queue, const AttentionArgs& args, Variant variant);

// out and lse are the forward pass's results; grad_out has out's sizes, the gradients the sizes of q, k and v.
struct AttentionGradients { TensorRef grad_out, grad_q, grad_k, grad_v; };
Result<void> attentionBackward(Queue& queue, const AttentionArgs& args, const AttentionGradients& gradients, Variant variant);

}  // namespace flagos::ocl

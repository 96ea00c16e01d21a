// Matrix products: one entry for mm, addmm, bmm, baddbmm, mv, addmv, dot and linear.
//   out[b,m,n] = alpha * sum_k a[b,m,k] * bmat[b,k,n] + beta * self[b,m,n]
// Transposes are strides: linear(x, W) is a = x, b = W seen as [K,N] with strides {1, K}.
// Storage float32, float16, bfloat16 (sums in float32) or float64; a, b, self and out have one dtype.
// Errors name the operator, the dtypes and the sizes. Threads: any; work is only enqueued.
#pragma once
#include <optional>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

struct GemmArgs {
  TensorRef a;      // [M,K] or [B,M,K]; any strides, a broadcast batch has stride 0
  TensorRef b;      // [K,N] or [B,K,N]
  TensorRef out;    // [M,N] or [B,M,N]; must not overlap a or b; may be `self` itself (in-place baddbmm_)
  std::optional<TensorRef> self;  // already expanded to out's sizes (stride 0 where broadcast: a bias row)
  double alpha = 1;
  double beta = 1;  // 0: self is not read at all (a NaN in it does not spread), as PyTorch has it
};

// K = 0 gives beta * self (or 0). Rank 2 operands are used for every batch of a rank 3 output.
Result<void> gemm(Queue& queue, const GemmArgs& args, Variant variant);

// The same by CLBlast (gemm_clblast.cpp): float32 and float64. Any strides; a matrix without a contiguous dimension is
// copied first. The library is loaded at the first call; an error says what is missing.
Result<void> gemmByClblast(Queue& queue, const GemmArgs& args);

// Ranks, sizes and dtypes, as gemm() checks them.
Result<void> checkGemm(const GemmArgs& args);

// A vector as the one-column or one-row matrix that gemm wants (mv, dot).
TensorRef asColumn(const TensorRef& vector) noexcept;  // [K] -> [K,1]
TensorRef asRow(const TensorRef& vector) noexcept;     // [K] -> [1,K]
TensorRef transposed(const TensorRef& matrix) noexcept;  // last two dimensions swapped

}  // namespace flagos::ocl

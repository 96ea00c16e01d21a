// Reductions over any set of dimensions.
//
// Sums accumulate in float32 (float64 for float64), in blocks, so that the error stays near that of pairwise summation;
// integers and bool accumulate in int64. The split of the work depends only on shapes: same input, same bits, each run.
// NaN: amax, amin, argmax, argmin and max/min with indices propagate it (the first NaN wins), as PyTorch does.
#pragma once
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

enum class ReduceOp : uint8_t {
  sum, mean, prod, amax, amin, any, all,
  norm1, norm2, norm_inf,     // vector norms
  sum_squares,
  count_nonzero, nansum,
  logsumexp,
  argmax, argmin,             // out is int64: row-major position among the reduced dimensions, first one wins
  count_,
};

bool reduceSupports(ReduceOp op, DType in, DType out) noexcept;

// Bit d of `reduced` set: dimension d of `in` is reduced; 0 on a 0-dim tensor is right. `out` has in's dimensions with
// size 1 where reduced, or lacks them (both forms of keepdim). Zero-size reductions give the identity (sum 0, prod 1,
// mean NaN, any false ...); amax, amin, argmax and argmin of nothing are an error.
Result<void> reduce(Queue& queue, ReduceOp op, const TensorRef& in, const TensorRef& out, uint32_t reduced, Variant variant);

// max.dim / min.dim: `op` is amax or amin; `indices` is int64.
Result<void> reduceIndexed(Queue& queue, ReduceOp op, const TensorRef& in, const TensorRef& values, const TensorRef& indices,
                           int dim, Variant variant);

// Two passes (mean, then squared distances): var, or std where `root`. `mean` may be null. NaN if n - correction <= 0 as
// PyTorch: 0/0 is NaN, x/0 is inf, a negative divisor counts as 0.
Result<void> variance(Queue& queue, const TensorRef& in, const TensorRef& out, const TensorRef* mean, uint32_t reduced,
                      double correction, bool root, Variant variant);

inline constexpr uint32_t allDims(const TensorRef& t) noexcept { return (1u << t.ndim) - 1u; }

}  // namespace flagos::ocl

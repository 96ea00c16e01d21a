// Gather, scatter, indexing and joining. Index tensors are int64 or int32. An index out of range is never followed: reads
// give NaN (0 for integers), writes are dropped, and the queue's next wait fails (Queue::faultRecord).
//
// Accumulating writes (scatter, indexPut with accumulate, embeddingBackward) are deterministic: every destination
// element is summed by one work-item in the order of the sources.
#pragma once
#include <cstdint>
#include <span>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/scalar.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// out[i][j][k] = in[index[i][j][k]][j][k] for dim 0, and so on.
Result<void> gather(Queue& queue, const TensorRef& in, int dim, const TensorRef& index, const TensorRef& out, Variant variant);
// self[index[i][j][k]][j][k] = op(old, src[i][j][k]) (dim 0), in the order of the sources. Sizes are index's.
enum class ScatterOp : uint8_t { set, add, multiply, amax, amin };
Result<void> scatter(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, const TensorRef& src, ScatterOp op,
                     Variant variant);
Result<void> scatterValue(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, Scalar value, ScatterOp op,
                          Variant variant);
// out[..., i, ...] = in[..., index[i], ...].
Result<void> indexSelect(Queue& queue, const TensorRef& in, int dim, const TensorRef& index, const TensorRef& out, Variant variant);
// self[..., index[i], ...] = op(old, src[..., i, ...]).
Result<void> indexScatter(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, const TensorRef& src, ScatterOp op,
                          Variant variant);

// Advanced indexing. indices[d] is null where dimension d of `self` is not indexed; the given ones broadcast together to
// the index shape B. Result sizes: B in place of the indexed dimensions where they are neighbours, else B first.
// Negative indices count from the end. At most 4 index tensors.
Result<void> index(Queue& queue, const TensorRef& self, std::span<const TensorRef* const> indices, const TensorRef& out, Variant variant);
Result<void> indexPut(Queue& queue, const TensorRef& self, std::span<const TensorRef* const> indices, const TensorRef& values,
                      bool accumulate, Variant variant);

// out[..., :] = weight[indices[...], :].
Result<void> embedding(Queue& queue, const TensorRef& weight, const TensorRef& indices, const TensorRef& out, Variant variant);
// grad_weight is written in full; rows of padding_idx stay zero (-1: none).
Result<void> embeddingBackward(Queue& queue, const TensorRef& grad, const TensorRef& indices, const TensorRef& grad_weight,
                               int64_t padding_idx, bool scale_by_freq, Variant variant);

Result<void> cat(Queue& queue, std::span<const TensorRef> in, int dim, const TensorRef& out, Variant variant);
// Bit d of dims: dimension d is reversed.
Result<void> flip(Queue& queue, const TensorRef& in, uint32_t dims, const TensorRef& out, Variant variant);
// Keeps j - i <= diagonal (tril) or >= diagonal (triu) of the last two dimensions; zeros elsewhere.
Result<void> triangle(Queue& queue, const TensorRef& in, const TensorRef& out, int64_t diagonal, bool upper, Variant variant);

// `out` may be `in` itself.
enum class ScanOp : uint8_t { cumsum, cumprod, logcumsumexp };
Result<void> scan(Queue& queue, ScanOp op, const TensorRef& in, const TensorRef& out, int dim, Variant variant);
// The running maximum (minimum) and where it stands; `indices` int64.
Result<void> running(Queue& queue, bool largest, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim,
                     Variant variant);
// Coordinates of the elements that are not zero, row by row: out[counts.back(), in.ndim]. counts[i] = how many of the
// first i + 1 elements are not zero (int64, packed).
Result<void> nonzero(Queue& queue, const TensorRef& in, const TensorRef& counts, const TensorRef& out, Variant variant);
// Stable sort along dim; NaN is the largest. `indices` int64.
Result<void> sort(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, bool descending,
                  Variant variant);
// One value of each row and where it stands, as a stable sort upwards would have it (NaN last): the k-th (from 0), the lower
// median (the first NaN where there is one), or the lower median of what is no NaN. The results have size 1 in dim.
enum class Selected : uint8_t { kth, median, nanmedian };
Result<void> select(Queue& queue, Selected what, int64_t k, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim,
                    Variant variant);
// The most frequent value of each row (the smallest of such) and where it stands last. The results have size 1 in dim.
Result<void> mode(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, Variant variant);
// Runs of equal neighbours (NaN equals none) in a packed vector that is not empty. First how many begin before each of
// runPieces() pieces, and behind them all: before[pieces + 1] int64. Then the value of each and, where they are asked for,
// where it begins (starts [runs + 1] int64, the last is the vector's length) and the number of each element's run, at order[k]
// for element k.
int64_t runPieces(Queue& queue, int64_t n, Variant variant);
Result<void> countRuns(Queue& queue, const TensorRef& in, const TensorRef& before, Variant variant);
Result<void> writeRuns(Queue& queue, const TensorRef& in, const TensorRef& before, const TensorRef& values, const TensorRef* starts,
                       const TensorRef* numbers, const TensorRef* order, Variant variant);
// The k largest (or smallest), in order. values.sizes[dim] is k.
Result<void> topk(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, bool largest,
                  Variant variant);

}  // namespace flagos::ocl

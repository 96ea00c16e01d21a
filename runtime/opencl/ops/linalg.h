// Small dense linear algebra: LU, Cholesky, triangular systems, Householder reflections. One work-item a matrix or a
// column of the right-hand side, so batches run in parallel and one large matrix does not: callers that may use the host
// should.
//
// Every tensor is packed ([batch, rows, columns], contiguous), float32 or (with fp64) float64; pivots and info are int32
// and start at 1, as LAPACK's. Sizes are given because a packed tensor is all a kernel needs.
#pragma once
#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

struct MatrixSizes { int64_t batch = 1, rows = 0, columns = 0; };

// a = L U in place (unit lower L). pivots [batch, min]: row i was exchanged with pivots[i] - 1. info [batch]: 0, or the
// first zero pivot.
Result<void> luFactor(Queue& queue, const TensorRef& a, const TensorRef& pivots, const TensorRef& info, MatrixSizes sizes, bool pivot, Variant variant);
// places [batch, n] (int64): the row that the exchanges bring to each place.
Result<void> pivotPlaces(Queue& queue, const TensorRef& pivots, const TensorRef& places, int64_t batch, int64_t exchanges, int64_t n, Variant variant);
// a (lower triangle read) becomes its lower factor. info [batch]: 0, or the order of the first minor that is not positive.
Result<void> choleskyFactor(Queue& queue, const TensorRef& a, const TensorRef& info, MatrixSizes sizes, Variant variant);
// b [batch, n, right] becomes a^-1 b for a triangular a [batch, n, n].
Result<void> solveTriangular(Queue& queue, const TensorRef& a, const TensorRef& b, MatrixSizes sizes, int64_t right, bool upper, bool unit, Variant variant);
// a becomes R above the diagonal and the reflectors' vectors below; tau [batch, min] their factors.
Result<void> householderFactor(Queue& queue, const TensorRef& a, const TensorRef& tau, MatrixSizes sizes, Variant variant);
// c [batch, rows, right] becomes Q c, or Q^T c, with Q = H1 H2 .. of `reflectors` columns of a.
Result<void> reflect(Queue& queue, const TensorRef& a, const TensorRef& tau, const TensorRef& c, MatrixSizes sizes, int64_t reflectors, int64_t right,
                     bool transposed, Variant variant);

}  // namespace flagos::ocl

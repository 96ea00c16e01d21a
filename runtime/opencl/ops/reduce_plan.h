// How a reduction is laid out and split: shared by all reductions with a launch of their own.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/opencl/ops/layout.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// Launch data of reduce.cl, in its order.
struct ReduceMeta { int64_t v[84]; };

struct ReducePlan {
  TensorRef in, out;
  Layout kept;      // operands: in, out, then `second` if given
  Layout reduced;   // operand: in
  int64_t kept_count = 1, reduced_count = 1;
  bool index32 = true;

  bool innerRuns() const noexcept { return reduced.strides[0][static_cast<size_t>(reduced.ndim - 1)] == 1; }
  int64_t width() const noexcept { return kept.sizes[static_cast<size_t>(kept.ndim - 1)]; }
  bool columnsRun() const noexcept { return kept.strides[0][static_cast<size_t>(kept.ndim - 1)] == 1 && width() >= 4; }
  // Fills everything but split, piece, finishing number and the offsets of scratch.
  ReduceMeta meta() const noexcept;
  // The plan of the last step: [splits, kept] partial results in `from`, dense, reduced to out.
  ReducePlan second(const TensorRef& from, int64_t splits) const noexcept;
  // out as a dense run of kept_count elements of `to`'s buffer and dtype, from to.offset on.
  ReducePlan into(const TensorRef& to) const noexcept;
};

// `out` (and `other`, e.g. indices) with or without the reduced dimensions. keep_order: positions along the reduced
// dimensions count (argmax).
Result<ReducePlan> planReduce(const TensorRef& in, const TensorRef& out, const TensorRef* other, uint32_t reduced,
                              bool keep_order, std::string_view op);

// A view of `t` in the plan's kept dimensions, by the strides of operand `k`.
TensorRef keptView(const ReducePlan& plan, const TensorRef& t, size_t k) noexcept;

// Replaces $A, $X and $C( in an expression by the names for scalars or for vectors.
std::string instantiate(std::string_view expression, bool vector);

}  // namespace flagos::ocl

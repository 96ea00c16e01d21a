// What the tables of elementwise operators share: scalars that arrive as 0-dim CPU tensors, promotion, overlap checks.
#pragma once
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty_like.h>

#include "runtime/opencl/ops/pointwise.h"
#include "runtime/torch/ops/registry.h"

namespace flagos::glue {

inline ocl::Scalar toScalar(const at::Scalar& s) {
  if (s.isFloatingPoint()) return ocl::Scalar(s.toDouble());
  if (s.isBoolean()) return ocl::Scalar(s.toBool() ? 1 : 0);
  return ocl::Scalar(s.toLong());
}
inline ocl::Scalar cpuScalar(const at::Tensor& t) { return toScalar(t.item()); }

// The dtype an operator that only has floating kernels computes in.
inline at::ScalarType floating(at::ScalarType t) {
  return at::isIntegralType(t, /*includeBool=*/true) ? c10::typeMetaToScalarType(at::get_default_dtype()) : t;
}

// PyTorch's own checks and texts for a result that overlaps itself or partly overlaps an input.
inline void checkOverlap(const at::Tensor& out, std::initializer_list<at::Tensor> inputs) {
  at::assert_no_internal_overlap(out);
  for (const at::Tensor& t : inputs)
    if (isNpu(t)) at::assert_no_partial_overlap(out, t);
}

// "result type Float can't be cast to the desired output type Long".
Result<void> checkCast(at::ScalarType from, const at::Tensor& out);

// out(0) (or a fresh tensor for a functional row, given back as result) of these sizes and dtype; `like` gives the
// layout of a fresh one.
at::Tensor resultLike(OpCall& c, const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType dtype);

// op over the inputs, broadcast together; 0-dim CPU tensors take part as numbers. `dtype`: the functional result's.
Result<void> elementwise(OpCall& c, ocl::PointwiseOp op, std::initializer_list<at::Tensor> in, std::initializer_list<ocl::Scalar> scalars,
                         at::ScalarType compute, at::ScalarType dtype);

// True if every tensor is on npu or a CPU number, none is complex or quantized, and op has an expression for `compute`.
bool elementwiseFits(ocl::PointwiseOp op, std::initializer_list<at::Tensor> in, at::ScalarType compute);

}  // namespace flagos::glue

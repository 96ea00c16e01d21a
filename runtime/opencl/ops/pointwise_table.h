// The rows behind PointwiseOp: one OpenCL expression per operator and kind of number.
#pragma once
#include <string_view>

#include "runtime/opencl/ops/pointwise.h"

namespace flagos::ocl {

struct PointwiseRow {
  PointwiseOp op;
  std::string_view name;
  int arity;
  int scalars;
  std::string_view floats;     // over T, see kernels/expressions.cl; empty: not for floats
  std::string_view integers;   // empty: not for integers
  bool to_bool = false;
  bool heavy = false;          // worth smaller pieces of work
  std::string_view special{};  // a call of x and y to a function of kernels/special.cl, float32 only
};
const PointwiseRow& pointwiseRow(PointwiseOp op) noexcept;

}  // namespace flagos::ocl

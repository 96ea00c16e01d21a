// One value everywhere in a tensor of any strides.
#pragma once
#include "runtime/base/result.h"
#include "runtime/opencl/ops/scalar.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// The value is converted to out's dtype on the host. Every dtype of whole bytes; for complex the imaginary part is 0.
Result<void> fill(Queue& queue, const TensorRef& out, Scalar value, Variant variant);
// Bytes [0, dtypeBytes(out.dtype)) of `pattern` in every element: any dtype, complex values included.
Result<void> fillBits(Queue& queue, const TensorRef& out, const void* pattern, Variant variant);
// out[i] = start + i * step, in row-major order of out's sizes (arange, linspace halves, randperm's start).
Result<void> arange(Queue& queue, const TensorRef& out, Scalar start, Scalar step, Variant variant);

}  // namespace flagos::ocl

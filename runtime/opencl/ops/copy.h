// Copy between any strides and any dtypes inside one device (PyTorch's conversions).
#pragma once
#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// out[...] = in[...], broadcasting `in` to out's sizes. Equal dtypes are moved as bits (NaN payloads kept, complex too);
// otherwise real dtypes convert as PyTorch does: float to integer truncates, to bool is "not zero", to float16/bfloat16
// rounds half to even. The two must not overlap, unless they are the same view.
Result<void> copy(Queue& queue, const TensorRef& in, const TensorRef& out, Variant variant);
bool copySupports(DType from, DType to) noexcept;

}  // namespace flagos::ocl

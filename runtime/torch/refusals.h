// What the npu does not do, said in one sentence each: PyTorch's own text ("Could not run 'aten::...' with arguments from
// the 'Sparsenpu' backend ...") names neither a device that users know nor a way out.
//
// Threads: any; the GIL is not needed.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <span>
#include <string_view>

#include "runtime/opencl/device.h"

namespace flagos::glue {

// Sparse, quantized and nested tensors, and collectives on npu tensors. Once, at start.
void installRefusals();

// Throws in place of a CPU kernel's "not implemented": operator, dtypes, device, what OpenCL lacks, and what to do.
// Returns if the error says something else, which is then the caller's to pass on.
void refuseDtype(const c10::Error& error, std::string_view op, std::span<const at::Tensor> npu, const ocl::Device& device);

// Throws in place of a CPU kernel's "index out of range in self", which names neither index nor size. `args` are the call's,
// with CPU tensors. Returns if the error says something else.
void nameIndex(const c10::Error& error, std::string_view op, std::span<const c10::IValue> args, int device);

// Throws for a result that npu tensors cannot hold (sparse, quantized, nested).
void refuseResult(const at::Tensor& result, std::string_view op, int device);

}  // namespace flagos::glue

// Kernels of programs that begin with gemm_tile.cl (gemm, conv), and the small checks their launchers share.
// Internal to runtime/opencl/ops.
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/program.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// Function `function` of gemm_tile.cl + `source`.cl, in float or double. Both names must be string literals (their
// addresses are the lookup key: no hashing on the way to a launch). `tiled` defines TILED, for sources that have both
// shapes in one text.
Result<const Kernel*> tileKernel(Queue& queue, const char* source, const char* function, bool is_double,
                                 bool tiled = false);

// "float32", "float16", "bfloat16" or "float64" in all tensors; the error names the operator and the dtypes.
Result<void> checkFloating(std::string_view op, std::initializer_list<const TensorRef*> tensors);

// Work-items worth starting for `tasks` fat tasks: a few a core, so that a core taken away by another process delays
// only a part.
size_t workerCount(Queue& queue, int64_t tasks) noexcept;
// The same for what may be little work in all, in multiply-adds: a worker gets about ten microseconds of it at least, which
// is what waking its core takes.
size_t workerCount(Queue& queue, int64_t tasks, int64_t work) noexcept;
inline constexpr int64_t kWorkOfElement = 16;  // what an element of a row or a plane comes to, in multiply-adds

// "[2, 3, 4]"
std::string sizesText(const TensorRef& tensor);

inline bool isDouble(const TensorRef& t) noexcept { return t.dtype == DType::float64; }
// Storage code of the kernels: the plain type is 0 in both programs.
inline int64_t storageCode(DType d) noexcept { return d == DType::float64 ? 0 : static_cast<int64_t>(d); }
// A number for a parameter struct, as the program's realOf() reads it.
inline int64_t numberBits(double v, bool is_double) noexcept {
  return is_double ? std::bit_cast<int64_t>(v) : int64_t{std::bit_cast<int32_t>(static_cast<float>(v))};
}
inline int64_t ceilDiv(int64_t a, int64_t b) noexcept { return (a + b - 1) / b; }
inline int64_t size(const TensorRef& t, int i) noexcept { return t.sizes[static_cast<size_t>(i)]; }
inline int64_t stride(const TensorRef& t, int i) noexcept { return t.strides[static_cast<size_t>(i)]; }
template <class T>
Arg param(const T& pod) noexcept { return Arg::pointer(&pod, sizeof pod); }

}  // namespace flagos::ocl

// The launch under foreach.h's functions: lists of dense tensors through one kernel, in tables of
// kForeachTensors (an argument) or kForeachTable (in shared memory).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/opencl/ops/foreach.h"

namespace flagos::ocl {

inline constexpr size_t kForeachTensors = 12;  // with five lists the table stays under the 1 KiB every device takes
inline constexpr size_t kForeachTable = 1024;  // tensors a launch where the table may lie in memory that host and device share
inline constexpr size_t kForeachLists = 5;

struct ForeachList {
  TensorList tensors;      // one a tensor, or a single one for all (`single`)
  bool load = true, store = false;
  bool single = false;     // one element, read for every tensor
};

struct ForeachKernel {
  uint32_t op = 0;               // unique number of `body`
  std::string_view name;         // for errors
  std::string body;              // statements over T x0..x4
  std::string extra;             // further defines
  Compute compute = Compute::f32;
  bool extras = false;           // optimizer arguments: steps, lr, scale, inf
};

struct ForeachNumbers {
  std::array<uint64_t, 4> shared{};          // bits of s0..s3
  size_t each = 0;                           // numbers of each tensor's own (at most 2), replacing s0..; bits in own
  std::vector<uint64_t> own;
  std::array<uint64_t, 2 * kForeachTensors> fixed{};  // optimizer: the same numbers in every launch (N0, N1 ...)
  TensorList steps;                          // 0-dim float32, or empty
  const TensorRef* lr = nullptr;
  const TensorRef* scale = nullptr;
  const TensorRef* inf = nullptr;
};

// Tensors that are not dense are copied to scratch and back.
Result<void> foreachLaunch(Queue& queue, const ForeachKernel& kernel, std::span<const ForeachList> lists, size_t count,
                           const ForeachNumbers& numbers, Variant variant);

}  // namespace flagos::ocl

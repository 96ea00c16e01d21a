// Dimensions made few: what every strided kernel does before it launches.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/result.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

inline constexpr int kMaxOperands = 5;

// Several operands over one set of dimensions, slowest first. ndim >= 1 (a 0-dim tensor is one dimension of 1).
struct Layout {
  int ndim = 1;
  int operands = 0;
  std::array<int64_t, kMaxDims> sizes{};
  std::array<std::array<int64_t, kMaxDims>, kMaxOperands> strides{};  // [operand][dimension]
  int64_t numel() const noexcept;
};

// refs[0] gives the sizes; the others broadcast to it from the right. Drops dimensions of 1, merges neighbours that are
// regular in every operand; `reorder` also sorts dimensions so that refs[0]'s smallest stride is last (elementwise
// kernels do not care about order; kernels that use positions do).
// Fails when an operand does not broadcast; `op` is named in the error.
Result<Layout> makeLayout(std::span<const TensorRef> refs, bool reorder, const char* op);

// True if every offset and position of the layout fits a 32-bit index with room for a vector.
bool fits32(const Layout& layout) noexcept;

}  // namespace flagos::ocl

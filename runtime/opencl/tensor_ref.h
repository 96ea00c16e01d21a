// A tensor as a kernel sees it: buffer, element offset, dtype, sizes and strides. Torch-free.
#pragma once
#include <CL/cl.h>

#include <array>
#include <cstdint>

#include "runtime/base/dtype.h"

namespace flagos::ocl {

inline constexpr int kMaxDims = 12;

struct TensorRef {
  cl_mem buffer = nullptr;
  int64_t offset = 0;                          // elements (of dtype) from the start of the buffer
  char* base = nullptr;                        // the buffer's first byte in the pool's range; null = unknown
  DType dtype = DType::float32;
  int ndim = 0;
  std::array<int64_t, kMaxDims> sizes{};       // elements
  std::array<int64_t, kMaxDims> strides{};     // elements; 0 = broadcast

  int64_t numel() const noexcept {
    int64_t n = 1;
    for (int i = 0; i < ndim; ++i) n *= sizes[static_cast<size_t>(i)];
    return n;
  }
  bool contiguous() const noexcept {
    int64_t expect = 1;
    for (int i = ndim - 1; i >= 0; --i) {
      const auto k = static_cast<size_t>(i);
      if (sizes[k] == 0) return true;
      if (sizes[k] != 1 && strides[k] != expect) return false;
      expect *= sizes[k];
    }
    return true;
  }
};

}  // namespace flagos::ocl

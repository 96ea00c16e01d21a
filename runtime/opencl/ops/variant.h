// Every template exists in two shapes; they are separate routing candidates (`opencl.gemm.wide`, `opencl.gemm.tiled`).
#pragma once
#include <cstdint>

namespace flagos::ocl {

enum class Variant : uint8_t {
  wide,   // CPU-shaped: few fat work-items, wide vectors, register tiles, cache blocking
  tiled,  // GPU-shaped: many thin work-items, local memory
};

}  // namespace flagos::ocl

// Fused cells of LSTM and GRU layers, forward and backward, on contiguous tensors of one dtype: float32, float16, bfloat16
// (calculated in float32) or float64.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

enum class Cell : uint8_t { lstm, lstm_backward, gru, gru_backward };
enum CellFlags : int64_t { kCellBiased = 1, kCellGradOutput = 2, kCellGradCell = 4 };

// `buffers` in the order of the kernel's parameters (kernels/recurrent.cl); a tensor that `flags` leave out may be any other.
// Gates of a row lie side by side, each `width` wide.
Result<void> recurrentCell(Queue& queue, Cell cell, int64_t rows, int64_t width, int64_t flags,
                           std::initializer_list<TensorRef> buffers, Variant variant);

}  // namespace flagos::ocl

// PyTorch's fused attention for devices of our kind, on CPU faces: same results and same logsumexp as the OpenCL kernels,
// so a forward pass on one route and a backward pass on the other fit together. For host_kernels.cpp's table.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace flagos::glue {

void hostAttention(const c10::OperatorHandle&, torch::jit::Stack* stack);
void hostAttentionBackward(const c10::OperatorHandle&, torch::jit::Stack* stack);

}  // namespace flagos::glue

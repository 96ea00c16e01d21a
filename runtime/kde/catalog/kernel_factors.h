// How much longer than its bytes and operations say a kernel takes on CPU cores: addresses worked out element by element,
// functions that no vector unit has. Measured, not derived; source "table".
#pragma once
#include <string_view>

#include "runtime/kde/facts.h"

namespace flagos::kde {

// Of our CPU-shaped kernel, and of PyTorch's own CPU kernel (the host route). 1 where nothing was measured.
struct KernelFactor { double kernel = 1, host = 1; };

// `op` with namespace and overload ("aten::pow.Tensor_Tensor_out").
KernelFactor kernelFactor(std::string_view op) noexcept;
// Of a call: max pooling takes as long as its windows are large, but for the one kind that has a kernel in vectors.
KernelFactor kernelFactor(const Facts&);

}  // namespace flagos::kde

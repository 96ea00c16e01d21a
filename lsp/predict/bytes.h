// Sizes that follow from literals: tensors that factories make, and parameters of layers.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

namespace flagos::lsp {

struct Args;

struct TensorSize {
  std::optional<std::vector<int64_t>> shape;   // empty: not known
  DType dtype = DType::other;
  std::string why;                             // why there is no shape, where something better than the usual can be said
  std::optional<double> bytes() const;
  std::string how() const;                     // "float32 [2, 3]", or why not
};

// `name` without "torch." ("zeros"). Dtype is PyTorch's default where none is given.
TensorSize factorySize(const std::string& name, const Args& args);

// Bytes of the parameters and buffers of a torch.nn layer, as if they were float32 whatever `dtype` says; 0 for a layer without any; empty if a size is not a
// literal or the layer is not known here.
std::optional<double> layerSize(const std::string& cls, const Args& args);

}  // namespace flagos::lsp

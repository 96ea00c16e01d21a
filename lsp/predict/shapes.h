// Shapes and dtypes of results, and the operator calls behind them, from what is known of the operands. A size that is not
// known makes the result unknown: nothing is guessed.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lsp/python/value.h"

namespace flagos::lsp {

struct Args;
using Shape = std::vector<int64_t>;

struct OpOperand { Shape shape; DType dtype = DType::other; bool absent = false; };

// One operator call as the dispatch engine sees it (kde/query.h).
struct OpCall {
  std::string op;                          // "aten::linear"
  std::vector<OpOperand> operands;
  std::string scalars;                     // "kernel=2 stride=2"
  std::string shapes() const;              // "[8,64] [10,64] [10]"
  std::string dtypes() const;              // "float32,float32,float32"
  bool operator==(const OpCall&) const = default;
};
inline bool operator==(const OpOperand& a, const OpOperand& b) { return a.shape == b.shape && a.dtype == b.dtype && a.absent == b.absent; }

struct Inferred {
  bool handled = false;                    // the function is one of those known here
  std::optional<Shape> shape;
  DType dtype = DType::other;
  std::vector<OpCall> ops;                 // empty: a view, or sizes that are not known
};

// A torch.nn layer called on a tensor. `config` is a value whose `named` holds the constructor's arguments.
Inferred inferLayer(std::string_view cls, const Value& config, const Value& input);
// A function ("relu", "conv2d"), a method or an operator ("+", "@") on tensors; `receiver` may be null. The tensor operands
// are the receiver and the positional arguments, in order.
Inferred inferFunction(std::string_view name, const Value& receiver, const Args& args);

// PyTorch's rule; empty where the shapes do not fit.
std::optional<Shape> broadcast(const Shape& a, const Shape& b);
// The dtype of an operation on both; `other` where it is not known.
DType promote(DType a, DType b);
// Names of a layer's positional constructor arguments, in order; empty for a layer that is not known here.
const std::vector<std::string>& layerParameters(std::string_view cls);

}  // namespace flagos::lsp

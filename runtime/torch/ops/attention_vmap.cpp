// torch.func.vmap over the fused attention: the mapped dimension joins the batch, so one launch computes all of it. PyTorch
// has such rules for its own fused kernels and none for the operators that outside devices implement.
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <torch/library.h>

#include "runtime/torch/install.h"

namespace flagos::glue {
namespace {

using torch::jit::Stack;

// The arguments of one call, seen from below the current vmap.
struct Mapped {
  c10::IValue* args;
  int64_t level = 0, size = 1;

  Mapped(const c10::OperatorHandle& op, Stack* stack) : args(stack->data() + (stack->size() - op.schema().arguments().size())) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    TORCH_CHECK(layer, nameOf(op), ": a tensor of torch.func.vmap was used after its vmap had ended");
    level = layer->layerId();
    for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
      if (!args[i].isTensor() || !args[i].toTensor().defined()) continue;
      const auto [t, dim] = at::functorch::unwrapTensorAtLevel(args[i].toTensor(), level);
      if (dim) size = t.size(*dim);
    }
  }
  static std::string nameOf(const c10::OperatorHandle& op) { return op.schema().name(); }

  // Argument i with the mapped dimension in front: [mapped, ...], of stride 0 where all share it.
  at::Tensor front(size_t i) const {
    const auto [t, dim] = at::functorch::unwrapTensorAtLevel(args[i].toTensor(), level);
    if (dim) return t.movedim(*dim, 0);
    auto sizes = t.sizes().vec();
    sizes.insert(sizes.begin(), size);
    return t.expand(sizes);
  }
  void fold(size_t i) const { args[i] = front(i).flatten(0, 1); }
  // A mask broadcasts to [batch, heads, queries, keys]; one for all stays as it is.
  void foldMask(size_t i, int64_t batch) const {
    if (args[i].isNone() || !args[i].toTensor().defined()) return;
    const auto [t, dim] = at::functorch::unwrapTensorAtLevel(args[i].toTensor(), level);
    if (!dim && (t.dim() < 4 || t.size(0) == 1)) return;
    at::Tensor mask = front(i);
    while (mask.dim() < 5) mask = mask.unsqueeze(1);
    auto sizes = mask.sizes().vec();
    sizes[1] = batch;
    args[i] = mask.expand(sizes).flatten(0, 1);
  }
  // Result k of n on top of the stack, [mapped * batch, ...], as the caller sees it.
  void unfold(Stack* stack, size_t n, size_t k) const {
    c10::IValue& v = (*stack)[stack->size() - n + k];
    const at::Tensor t = v.toTensor();
    if (t.defined()) v = at::functorch::makeBatched(t.unflatten(0, {size, t.size(0) / size}), 0, level);
  }
  // The batch of argument i without the mapped dimension.
  int64_t batchOf(size_t i) const { return front(i).size(1); }
};

c10::impl::ExcludeDispatchKeyGuard below() { return c10::impl::ExcludeDispatchKeyGuard(c10::DispatchKey::FuncTorchBatched); }

// (query, key, value, attn_bias, ...) -> (output, logsumexp, ...)
void forward(const c10::OperatorHandle& op, Stack* stack) {
  const auto guard = below();
  const Mapped m(op, stack);
  m.foldMask(3, m.batchOf(0));
  for (size_t i = 0; i < 3; ++i) m.fold(i);
  op.callBoxed(stack);
  for (size_t k = 0; k < 2; ++k) m.unfold(stack, 9, k);
}

// (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, ...) -> (grads of query, key, value, attn_bias)
void backward(const c10::OperatorHandle& op, Stack* stack) {
  const auto guard = below();
  const Mapped m(op, stack);
  // A mask that wants a gradient goes through products and softmax, see choose() in attention.cpp.
  TORCH_CHECK(!m.args[5].toBoolList()[3], m.nameOf(op), ": no gradient of the mask under torch.func.vmap");
  m.foldMask(4, m.batchOf(1));
  for (const size_t i : {0, 1, 2, 3, 6, 7}) m.fold(i);
  op.callBoxed(stack);
  for (size_t k = 0; k < 3; ++k) m.unfold(stack, 4, k);
}

}  // namespace

void installAttentionBatching() {
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::FuncTorchBatched, __FILE__, __LINE__);
  lib.impl("_scaled_dot_product_fused_attention_overrideable", torch::CppFunction::makeFromBoxedFunction<&forward>());
  lib.impl("_scaled_dot_product_fused_attention_overrideable_backward", torch::CppFunction::makeFromBoxedFunction<&backward>());
}

}  // namespace flagos::glue

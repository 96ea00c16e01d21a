// Rows that are made of other operators on the device. The row is counted as opencl.composed; each step is a call of its
// own, with a route of its own, so nothing runs on the host unseen. Use a row like this where a kernel of its own would
// not pay; PyTorch's own composites need no row at all.
#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "runtime/torch/ops/registry.h"

namespace flagos::glue {

// `value` becomes the k-th result: the k-th tensor the operator writes to is resized to it and filled, or a functional
// operator gives it back. Results come in the schema's order.
void give(OpCall& c, size_t k, const at::Tensor& value);

// Every tensor of the call is on npu (0-dim CPU numbers apart), strided and real.
bool composedFits(const OpCall& c);
// The same, and argument `i` is floating.
template <size_t i>
bool composedFloatFits(const OpCall& c) {
  return composedFits(c) && c.value(i).isTensor() && at::isFloatingType(c.tensor(i).scalar_type());
}

// Autograd and autocast have had their turn: the steps must not meet them again.
template <void (*steps)(OpCall&)>
Result<void> composed(OpCall& c) {
  at::AutoDispatchBelowADInplaceOrView below;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  steps(c);
  return {};
}

// torch.histc of whole numbers, on any device, in exact whole arithmetic; counts in the dtype of `values`.
at::Tensor wholeHistogram(const at::Tensor& values, int64_t bins, const at::Scalar& min, const at::Scalar& max);

}  // namespace flagos::glue

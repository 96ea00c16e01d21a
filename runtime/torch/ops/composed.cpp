#include "runtime/torch/ops/composed.h"

namespace flagos::glue {

void give(OpCall& c, size_t k, const at::Tensor& value) {
  bool writes = false;
  for (size_t i = 0; i < c.count() && !writes; ++i) writes = c.isOut(i);
  if (!writes) {
    // A fresh result never shares the memory of an argument.
    bool shared = false;
    for (size_t i = 0; i < c.count() && !shared; ++i) shared = value.defined() && c.value(i).isTensor() && c.tensor(i).defined() && value.is_alias_of(c.tensor(i));
    c.result(shared ? value.clone() : value);
    return;
  }
  at::Tensor out = c.out(k);
  if (out.is_same(value)) return;
  if (out.sizes() != value.sizes()) out = c.resizeOut(k, value.sizes());
  out.copy_(value);
}

bool composedFits(const OpCall& c) {
  const auto fine = [](const at::Tensor& t) {
    return !t.defined() || ((isNpu(t) || isCpuScalar(t)) && t.layout() == at::kStrided && !at::isComplexType(t.scalar_type()) &&
                            !t.is_quantized() && t.dim() <= ocl::kMaxDims);
  };
  for (size_t i = 0; i < c.count(); ++i) {
    const c10::IValue& v = c.value(i);
    if (v.isTensor() && !fine(v.toTensor())) return false;
    if (v.isTensorList() || v.isOptionalTensorList())
      for (const auto& t : v.toListRef())
        if (t.isTensor() && !fine(t.toTensor())) return false;
    if (v.isScalar() && v.toScalar().isComplex()) return false;
  }
  return true;
}

}  // namespace flagos::glue

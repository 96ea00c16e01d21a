// Multi-tensor updates: a few launches for many tensors; every element is read and written about three times.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) {
  const auto numel = f.number(Field::numel), tensors = f.number(Field::tensors);
  if (!numel) return unknownWork(f, Field::numel);
  Work w;
  w.flops = static_cast<double>(*numel) * 4;
  w.bytes = static_cast<double>(*numel) * static_cast<double>(dtypeBytes(f.dtype())) * 3;
  w.launches = 1 + static_cast<int>(tensors.value_or(1) / 64);
  return w;
}
}  // namespace

const FamilyRow kForeachFamily{Family::foreach, 0, 12, false, true, work};

}  // namespace flagos::kde

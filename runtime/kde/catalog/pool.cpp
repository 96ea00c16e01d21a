// Pooling: one pass over the input (with indices for max pooling); a few compares per window element.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {

Work work(const Facts& f) {
  const auto numel = f.number(Field::numel);
  if (!numel) return unknownWork(f, Field::numel);
  Work w;
  w.flops = static_cast<double>(*numel);
  // Read the input, write a result and its indices; windows rarely overlap.
  w.bytes = static_cast<double>(*numel) * static_cast<double>(dtypeBytes(f.dtype())) * 1.5;
  return w;
}

}  // namespace

const FamilyRow kPoolFamily{Family::pool, 2, 4, false, true, work};

}  // namespace flagos::kde

// Reductions: the input is read once; results are few. Big ones take a second launch that folds partial results.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {

Work work(const Facts& f) {
  const auto outputs = f.number(Field::outputs), reduced = f.number(Field::reduced);
  if (!outputs) return unknownWork(f, Field::outputs);
  Work w;
  const double in = static_cast<double>(*outputs) * static_cast<double>(*reduced);
  w.flops = in;
  w.bytes = (in + static_cast<double>(*outputs)) * static_cast<double>(dtypeBytes(f.dtype()));
  w.launches = *outputs < 64 && *reduced > 65536 ? 2 : 1;
  return w;
}

}  // namespace

const FamilyRow kReduceFamily{Family::reduce, 0, 12, false, false, work};

}  // namespace flagos::kde

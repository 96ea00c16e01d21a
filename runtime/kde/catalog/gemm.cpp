// Matrix products.
#include <algorithm>

#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {

Work work(const Facts& f) {
  for (const Field need : {Field::m, Field::n, Field::k, Field::batch})
    if (!f.number(need)) return unknownWork(f, need);
  const double m = static_cast<double>(*f.number(Field::m)), n = static_cast<double>(*f.number(Field::n)),
               k = static_cast<double>(*f.number(Field::k));
  // `batch` counts matrices only where there are several; for mm and linear it repeats the rows.
  int rank = 0;
  for (int i = 0; i < f.signature().nargs && i < kMaxArgs; ++i)
    rank = std::max<int>(rank, f.signature().args[static_cast<size_t>(i)].rank);
  const bool linear = baseName(f.op()) == "aten::linear";
  const double matrices = rank >= 3 && !linear ? static_cast<double>(*f.number(Field::batch)) : 1;
  const double size = static_cast<double>(dtypeBytes(f.dtype()));
  Work w;
  w.flops = 2 * matrices * m * n * k;
  w.bytes = matrices * (m * k + k * n + m * n) * size;
  if (f.number(Field::bias).value_or(0)) {
    w.flops += matrices * m * n;
    w.bytes += n * size;
  }
  return w;
}

}  // namespace

const FamilyRow kGemmFamily{Family::gemm, 0, 6, false, false, work};

}  // namespace flagos::kde

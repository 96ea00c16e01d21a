// Attention: two products of queries and keys forward, five back; a causal mask leaves half of them.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {

Work work(const Facts& f) {
  for (const Field need : {Field::batch, Field::c, Field::m, Field::n, Field::k})
    if (!f.number(need)) return unknownWork(f, need);
  auto v = [&](Field x) { return static_cast<double>(*f.number(x)); };
  const bool backward = baseName(f.op()).find("backward") != std::string_view::npos;
  const bool causal = f.signature().nscalars > 0 && f.signature().scalars[0] != 0;
  const double heads = v(Field::batch) * v(Field::c);
  Work w;
  w.flops = 2 * heads * v(Field::m) * v(Field::n) * v(Field::k) * (backward ? 5 : 2) * (causal ? 0.5 : 1);
  w.bytes = heads * (v(Field::m) + v(Field::n)) * 2 * v(Field::k) * static_cast<double>(dtypeBytes(f.dtype())) * (backward ? 2 : 1);
  return w;
}

}  // namespace

const FamilyRow kAttentionFamily{Family::attention, 0, 4, false, true, work};

}  // namespace flagos::kde

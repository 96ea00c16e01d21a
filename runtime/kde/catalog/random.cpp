// Random numbers: a counter-based generator, about a hundred integer operations for four numbers.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) { return streaming(f, 30); }
}  // namespace

const FamilyRow kRandomFamily{Family::random, 0, 12, false, true, work};

}  // namespace flagos::kde

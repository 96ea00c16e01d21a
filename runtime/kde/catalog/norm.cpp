// Batch, layer and group normalisation: two passes for the statistics, one for the result.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) { return streaming(f, 8, 1.5, 2); }
}  // namespace

const FamilyRow kNormFamily{Family::norm, 0, 12, false, true, work};

}  // namespace flagos::kde

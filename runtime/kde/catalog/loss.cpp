// Losses with their own reduction: nll_loss picks one class per row, the others read everything once.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) { return streaming(f, 4); }
}  // namespace

const FamilyRow kLossFamily{Family::loss, 0, 12, false, true, work};

}  // namespace flagos::kde

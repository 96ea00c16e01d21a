// Gather, scatter, indexing, joining: bytes in and out once; scattered reads reach only part of the bandwidth, which the
// efficiency table covers.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) { return streaming(f, 1); }
}  // namespace

const FamilyRow kIndexFamily{Family::index, 0, 12, false, true, work};

}  // namespace flagos::kde

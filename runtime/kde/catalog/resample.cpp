// Interpolation, padding, unfolding, pooling in three dimensions: the input read once or a few times, the result written.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) { return streaming(f, 8, 1.5); }
}  // namespace

const FamilyRow kResampleFamily{Family::resample, 0, 5, false, true, work};

}  // namespace flagos::kde

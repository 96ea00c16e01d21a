// Operators without a template: only PyTorch's own CPU kernels run them, and their work cannot be counted.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) {
  Work w;
  w.why = "the work of " + std::string(f.op()) + " is not known";
  return w;
}
}  // namespace

const FamilyRow kOtherFamily{Family::other, 0, 64, false, true, work};

}  // namespace flagos::kde

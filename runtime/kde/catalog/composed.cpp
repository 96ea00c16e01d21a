// Operators made of others on the device: each step is an operator with a route of its own, so nothing is predicted here.
// Where host and device share memory PyTorch's one CPU kernel is asked first: several launches rarely beat it.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) {
  Work w;
  w.why = std::string(f.op()) + " runs as other operators, which are predicted one by one";
  return w;
}
}  // namespace

const FamilyRow kComposedFamily{Family::composed, 0, 64, false, true, work};

}  // namespace flagos::kde

// Copies and casts inside one device. Moving bits is the same on every route, so the state of the queue may choose.
#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {
Work work(const Facts& f) {
  Work w = streaming(f, 0);
  if (w.known() && f.signature().nargs >= 2) w.bytes = f.bytes_in;   // source and destination are both operands
  return w;
}
}  // namespace

const FamilyRow kCopyFamily{Family::copy, 0, 12, true, true, work};

}  // namespace flagos::kde

#include "runtime/dal/description.h"

namespace flagos::dal {

const char* kindName(Kind k) noexcept {
  switch (k) {
    case Kind::discrete: return "discrete";
    case Kind::npu: return "npu";
    case Kind::integrated: return "integrated";
    case Kind::cpu: return "cpu";
    case Kind::other: break;
  }
  return "other";
}

}  // namespace flagos::dal

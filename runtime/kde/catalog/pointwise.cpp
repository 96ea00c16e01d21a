// Elementwise operators: memory-bound, but for the transcendental ones on devices with fast memory.
#include <algorithm>

#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {

// Estimated floating-point operations per element of operators that are more than one instruction.
bool transcendental(std::string_view base) {
  static constexpr std::string_view names[] = {"exp", "log", "tanh", "gelu", "erf", "sigmoid", "pow", "sin", "cos", "tan",
                                               "silu", "softplus", "elu", "mish", "atan", "asin", "acos", "lgamma", "logit"};
  const std::string_view name = base.substr(base.rfind(':') + 1);
  return std::any_of(std::begin(names), std::end(names), [&](std::string_view n) { return name.substr(0, n.size()) == n; });
}

Work work(const Facts& f) { return streaming(f, transcendental(baseName(f.op())) ? 20 : 1); }

}  // namespace

const FamilyRow kPointwiseFamily{Family::pointwise, 0, 12, false, false, work};

}  // namespace flagos::kde

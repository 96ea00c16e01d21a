// Convolutions: forward, gradient of the input, gradient of the weight (and bias); each costs what the forward costs.
#include <algorithm>
#include <bit>

#include "runtime/kde/catalog/catalog.h"

namespace flagos::kde {
namespace {

Work work(const Facts& f) {
  for (const Field need : {Field::n, Field::c, Field::h, Field::w, Field::k, Field::r, Field::s, Field::groups})
    if (!f.number(need)) return unknownWork(f, need);
  auto v = [&](Field x) { return static_cast<double>(*f.number(x)); };
  const double stride = std::max(1.0, v(Field::stride)), dilation = v(Field::dilation), padding = v(Field::padding);
  const bool transposed = f.number(Field::transposed).value_or(0) != 0;
  auto out = [&](double in, double filter) {
    const double span = dilation * (filter - 1);
    const double o = transposed ? (in - 1) * stride - 2 * padding + span + 1 : (in + 2 * padding - span - 1) / stride + 1;
    return std::max(0.0, static_cast<double>(static_cast<int64_t>(o)));
  };
  const double oh = v(Field::h) == 1 && v(Field::r) == 1 ? 1 : out(v(Field::h), v(Field::r)), ow = out(v(Field::w), v(Field::s));
  const double groups = std::max(1.0, v(Field::groups));
  // Every filter tap meets every output pixel; a transposed one every input pixel.
  const double pixels = transposed ? v(Field::h) * v(Field::w) : oh * ow;
  const double one = 2 * v(Field::n) * v(Field::k) * (v(Field::c) / groups) * v(Field::r) * v(Field::s) * pixels;
  const double input = v(Field::n) * v(Field::c) * v(Field::h) * v(Field::w), output = v(Field::n) * v(Field::k) * oh * ow;
  const double weight = v(Field::k) * v(Field::c) / groups * v(Field::r) * v(Field::s);
  int passes = 1;
  if (baseName(f.op()).find("backward") != std::string_view::npos) {
    const int64_t flags = f.signature().nscalars > 6 ? f.signature().scalars[6] : 0;
    const auto wanted = static_cast<unsigned>(flags >> 1) & 3u;  // the bias gradient is a mere sum
    passes = wanted ? std::popcount(wanted) : 2;
  }
  Work w;
  w.flops = one * passes;
  w.bytes = (input + output + weight) * static_cast<double>(dtypeBytes(f.dtype())) * passes;
  w.launches = passes;
  return w;
}

}  // namespace

const FamilyRow kConvFamily{Family::conv, 1, 4, false, false, work};

}  // namespace flagos::kde

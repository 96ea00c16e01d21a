// grid_sampler_2d and _3d with their gradients, made of gathers and scatters: every corner (or tap) of a sample is one pass.
#include <cmath>

#include "runtime/torch/ops/composed.h"

namespace flagos::glue {
namespace {

enum Mode : int64_t { kLinear, kNearest, kCubic };
enum Padding : int64_t { kZeros, kBorder, kReflection };

// One coordinate of every sample [N, P], in elements of the input, and the factor that its gradient takes back to the grid.
struct Axis {
  at::Tensor at, factor;
  int64_t size = 0, stride = 0;
};

struct Sampler {
  at::Tensor flat;            // input as [N, C, elements]
  std::vector<Axis> axes;     // as the input's dimensions: slowest first
  int64_t mode = 0, padding = 0, points = 0;
  bool align = false;
};

void clip(Axis& a) {
  const double top = static_cast<double>(a.size - 1);
  a.factor = a.factor * a.at.gt(0).logical_and(a.at.lt(top)).to(a.at.scalar_type());
  a.at = a.at.clamp(0, top);
}
// Reflected between `low` and `high`, both doubled so that halves are exact.
void reflect(Axis& a, int64_t low, int64_t high) {
  if (low == high) {
    a.at = at::zeros_like(a.at);
    a.factor = at::zeros_like(a.factor);
    return;
  }
  const double least = static_cast<double>(low) / 2, span = static_cast<double>(high - low) / 2;
  const at::Tensor from = a.at - least, far = from.abs();
  const at::Tensor flips = (far / span).floor(), extra = far - flips * span;
  const at::Tensor even = (flips * 0.5).floor().mul(2).eq(flips);
  a.at = at::where(even, extra + least, span - extra + least);
  a.factor = a.factor * at::where(even.eq(from.ge(0)), at::ones({}, a.at.options()), at::full({}, -1, a.at.options()));
}
void pad(Axis& a, int64_t padding, bool align) {
  if (padding == kReflection) reflect(a, align ? 0 : -1, align ? 2 * (a.size - 1) : 2 * a.size - 1);
  if (padding != kZeros) clip(a);
}

Sampler samplerOf(const at::Tensor& input, const at::Tensor& grid, int64_t mode, int64_t padding, bool align) {
  Sampler s;
  const int64_t rank = input.dim() - 2, n = input.size(0);
  s.mode = mode;
  s.padding = padding;
  s.align = align;
  s.points = grid.numel() / std::max<int64_t>(n * rank, 1);
  s.flat = input.reshape({n, input.size(1), -1});
  int64_t stride = 1;
  s.axes.resize(static_cast<size_t>(rank));
  for (int64_t d = rank - 1; d >= 0; --d) {
    Axis& a = s.axes[static_cast<size_t>(d)];
    a.size = input.size(d + 2);
    a.stride = stride;
    stride *= a.size;
    const double size = static_cast<double>(a.size), scale = align ? (size - 1) / 2 : size / 2;
    a.at = (grid.select(-1, rank - 1 - d).reshape({n, s.points}) + 1) * scale - (align ? 0.0 : 0.5);   // the grid names x first
    a.factor = at::full({}, scale, a.at.options()).expand_as(a.at);
    if (mode != kCubic) pad(a, padding, align);
  }
  return s;
}

// The places around each sample along one axis: whole coordinates, their weights, and the weights' slopes.
struct Tap { at::Tensor place, weight, slope; };
std::vector<Tap> tapsOf(const Axis& a, const Sampler& s) {
  std::vector<Tap> taps;
  if (s.mode == kNearest) {
    taps.push_back({a.at.round(), at::ones_like(a.at), at::zeros_like(a.at)});
    return taps;
  }
  const at::Tensor first = a.at.floor(), t = a.at - first, one = at::ones_like(t);
  if (s.mode == kLinear) {
    taps.push_back({first, 1 - t, -one});
    taps.push_back({first + 1, t, one});
    return taps;
  }
  // Cubic convolution with A = -0.75; each tap is padded on its own.
  constexpr double A = -0.75;
  for (int k = -1; k <= 2; ++k) {
    const at::Tensor d = (t - k).abs(), sign = (t - k).sign();
    const bool inner = k == 0 || k == 1;
    Tap tap;
    tap.weight = inner ? ((A + 2) * d - (A + 3)) * d * d + 1 : ((d - 5) * d + 8) * d * A - 4 * A;
    tap.slope = sign * (inner ? (3 * (A + 2) * d - 2 * (A + 3)) * d : (3 * d - 10) * d * A + 8 * A);
    Axis place = a;
    place.at = first + k;
    pad(place, s.padding, s.align);
    tap.place = place.at;
    taps.push_back(tap);
  }
  return taps;
}

// Calls visit(places [N, 1, P], inside [N, P], combination) for every combination of the axes' taps.
template <class Visit>
void eachCorner(const Sampler& s, const std::vector<std::vector<Tap>>& taps, Visit&& visit) {
  std::vector<size_t> which(taps.size(), 0);
  while (true) {
    at::Tensor place, inside;
    for (size_t d = 0; d < taps.size(); ++d) {
      const Axis& a = s.axes[d];
      const at::Tensor& p = taps[d][which[d]].place;
      const at::Tensor in = p.ge(0).logical_and(p.le(static_cast<double>(a.size - 1)));
      const at::Tensor part = at::where(in, p, at::zeros({}, p.options())).to(at::kLong) * a.stride;
      place = place.defined() ? place + part : part;
      inside = inside.defined() ? inside.logical_and(in) : in;
    }
    visit(place.unsqueeze(1), inside.to(s.flat.scalar_type()), which);
    size_t d = 0;
    while (d < which.size() && ++which[d] == taps[d].size()) which[d++] = 0;
    if (d == which.size()) return;
  }
}
at::Tensor product(const std::vector<std::vector<Tap>>& taps, const std::vector<size_t>& which, size_t sloped) {
  at::Tensor w;
  for (size_t d = 0; d < taps.size(); ++d) {
    const Tap& t = taps[d][which[d]];
    const at::Tensor& f = d == sloped ? t.slope : t.weight;
    w = w.defined() ? w * f : f;
  }
  return w;
}

// (input, grid, interpolation_mode, padding_mode, align_corners)
void sample(OpCall& c) {
  const at::Tensor &input = c.tensor(0), &grid = c.tensor(1);
  const Sampler s = samplerOf(input, grid, c.integer(2), c.integer(3), c.flag(4));
  std::vector<std::vector<Tap>> taps;
  for (const Axis& a : s.axes) taps.push_back(tapsOf(a, s));
  const std::vector<int64_t> wide{input.size(0), input.size(1), s.points};
  at::Tensor out = at::zeros(wide, input.options());
  eachCorner(s, taps, [&](const at::Tensor& place, const at::Tensor& inside, const std::vector<size_t>& which) {
    const at::Tensor weight = product(taps, which, SIZE_MAX) * inside;
    out.add_(s.flat.gather(2, place.expand(wide)) * weight.unsqueeze(1));
  });
  std::vector<int64_t> sizes{input.size(0), input.size(1)};
  for (int64_t d = 1; d + 1 < grid.dim(); ++d) sizes.push_back(grid.size(d));
  give(c, 0, out.reshape(sizes));
}

// (grad, input, grid, interpolation_mode, padding_mode, align_corners, output_mask)
void sampleBackward(OpCall& c) {
  const at::Tensor &input = c.tensor(1), &grid = c.tensor(2);
  const Sampler s = samplerOf(input, grid, c.integer(3), c.integer(4), c.flag(5));
  const auto mask = c.value(6).toBoolList();
  std::vector<std::vector<Tap>> taps;
  for (const Axis& a : s.axes) taps.push_back(tapsOf(a, s));
  const std::vector<int64_t> wide{input.size(0), input.size(1), s.points};
  const at::Tensor grad = c.tensor(0).reshape(wide);
  at::Tensor to_input = mask[0] ? at::zeros_like(s.flat, at::MemoryFormat::Contiguous) : at::Tensor();
  std::vector<at::Tensor> to_axis(s.axes.size());
  for (at::Tensor& t : to_axis) t = at::zeros({input.size(0), s.points}, input.options());
  eachCorner(s, taps, [&](const at::Tensor& place, const at::Tensor& inside, const std::vector<size_t>& which) {
    const at::Tensor where = place.expand(wide);
    if (mask[0]) to_input.scatter_add_(2, where, grad * (product(taps, which, SIZE_MAX) * inside).unsqueeze(1));
    if (s.mode == kNearest) return;
    const at::Tensor dot = (grad * s.flat.gather(2, where)).sum(1) * inside;
    for (size_t d = 0; d < to_axis.size(); ++d) to_axis[d].add_(dot * product(taps, which, d));
  });
  std::vector<at::Tensor> parts;
  for (size_t d = to_axis.size(); d-- > 0;) parts.push_back(to_axis[d] * s.axes[d].factor);
  c.result(mask[0] ? to_input.reshape(input.sizes()) : at::Tensor());
  c.result(at::stack(parts, -1).reshape(grid.sizes()));
}

template <size_t i>
bool samplerFits(const OpCall& c) {
  const at::Tensor &input = c.tensor(i), &grid = c.tensor(i + 1);
  const int64_t mode = c.integer(i + 2);
  return composedFloatFits<i>(c) && input.numel() > 0 && grid.numel() > 0 && grid.scalar_type() == input.scalar_type() && mode >= 0 &&
         mode <= (input.dim() == 4 ? 2 : 1) && input.size(0) == grid.size(0) && input.dim() == grid.dim();
}

const NativeOp rows[] = {
    {"aten::grid_sampler_2d", "composed", composed<sample>, samplerFits<0>},
    {"aten::grid_sampler_3d", "composed", composed<sample>, samplerFits<0>},
    {"aten::grid_sampler_2d_backward", "composed", composed<sampleBackward>, samplerFits<1>},
    {"aten::grid_sampler_3d_backward", "composed", composed<sampleBackward>, samplerFits<1>},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

// Interpolation, padding, unfold, fold and 3-d pooling against plain loops. What PyTorch itself computes is compared in
// tests/conformance; here the two shapes of each kernel, strides and the gradients (as the transposed map) are.
#include "runtime/opencl/ops/resample.h"

#include "runtime/opencl/ops/pool3.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

// weight[o][i]: how much of input cell i output cell o reads, in one dimension.
using Map = std::vector<std::vector<double>>;

Map mapOf(Resample mode, int64_t in, int64_t out, bool align, int64_t pad) {
  Map m(static_cast<size_t>(out), std::vector<double>(static_cast<size_t>(in), 0));
  for (int64_t o = 0; o < out; ++o) {
    auto& row = m[static_cast<size_t>(o)];
    if (mode == Resample::linear) {
      const double x = align ? (out > 1 ? static_cast<double>(o * (in - 1)) / static_cast<double>(out - 1) : 0)
                             : std::max(0.0, static_cast<double>(in) / static_cast<double>(out) * (static_cast<double>(o) + 0.5) - 0.5);
      const int64_t i = std::min(static_cast<int64_t>(x), in - 1), next = std::min(i + 1, in - 1);
      row[static_cast<size_t>(i)] += 1 - (x - static_cast<double>(i));
      row[static_cast<size_t>(next)] += x - static_cast<double>(i);
      continue;
    }
    int64_t i = o - pad;
    if (mode == Resample::nearest) i = o * in / out;
    if (mode == Resample::nearest_exact) i = (2 * o + 1) * in / (2 * out);
    if (mode == Resample::replication) i = std::clamp<int64_t>(i, 0, in - 1);
    if (mode == Resample::reflection) i = i < 0 ? -i : i >= in ? 2 * (in - 1) - i : i;
    row[static_cast<size_t>(i)] = 1;
  }
  return m;
}

}  // namespace

TEST_CASE("resampling and its gradient are a map and its transpose", "[ops][resample]") {
  struct Case { Resample mode; int64_t h, w, oh, ow; bool align; int64_t ph, pw; };
  const Case cases[] = {
      {Resample::nearest, 4, 5, 8, 7, false, 0, 0},     {Resample::nearest, 6, 9, 3, 4, false, 0, 0},
      {Resample::nearest_exact, 4, 5, 9, 3, false, 0, 0}, {Resample::linear, 4, 5, 8, 11, false, 0, 0},
      {Resample::linear, 7, 6, 3, 2, false, 0, 0},      {Resample::linear, 4, 5, 9, 1, true, 0, 0},
      {Resample::reflection, 4, 5, 9, 8, false, 3, 1},  {Resample::replication, 3, 4, 9, 9, false, 4, 2},
      {Resample::replication, 6, 5, 3, 6, false, -2, 1},
  };
  const int64_t n = 2, c = 3;
  for (const Case& k : cases)
    for (const Variant v : kVariants) {
      INFO(static_cast<int>(k.mode) << " " << k.h << "x" << k.w << " -> " << k.oh << "x" << k.ow << " " << name(v));
      const Map rows = mapOf(k.mode, k.h, k.oh, k.align, k.ph), columns = mapOf(k.mode, k.w, k.ow, k.align, k.pw);
      const auto x = values(n * c * k.h * k.w, DType::float32, -2, 2), g = values(n * c * k.oh * k.ow, DType::float32, -2, 2, 3);
      std::vector<double> y(g.size(), 0), dx(x.size(), 0);
      for (int64_t p = 0; p < n * c; ++p)
        for (int64_t oh = 0; oh < k.oh; ++oh)
          for (int64_t ow = 0; ow < k.ow; ++ow)
            for (int64_t h = 0; h < k.h; ++h)
              for (int64_t w = 0; w < k.w; ++w) {
                const double share = rows[static_cast<size_t>(oh)][static_cast<size_t>(h)] * columns[static_cast<size_t>(ow)][static_cast<size_t>(w)];
                const auto o = static_cast<size_t>((p * k.oh + oh) * k.ow + ow), i = static_cast<size_t>((p * k.h + h) * k.w + w);
                y[o] += share * x[i];
                dx[i] += share * g[o];
              }
      ResampleArgs a;
      a.mode = k.mode, a.align_corners = k.align, a.pad = {k.ph, k.pw, 0};
      const Shape in({n, c, k.h, k.w}, {k.h * k.w * c, 1, k.w * c, c}, 2), outs({n, c, k.oh, k.ow});  // channels last in, plain out
      Tensor tx(in, DType::float32, x), ty(outs, DType::float32), tg(outs, DType::float32, g), tdx(in, DType::float32);
      ok(resample(queue(), tx.ref(), ty.ref(), a, v));
      checkClose(ty.get(), y, 1e-5, 1e-5);
      ok(resampleBackward(queue(), tg.ref(), tdx.ref(), a, v));
      checkClose(tdx.get(), dx, 1e-5, 1e-5);
      REQUIRE((ty.untouchedOutside() && tdx.untouchedOutside()));
    }
}

TEST_CASE("fold sums what unfold reads", "[ops][resample]") {
  const UnfoldArgs a{{2, 3}, {2, 1}, {1, 0}, {1, 2}};
  const int64_t n = 2, c = 2, h = 5, w = 7, oh = 5, ow = 3;  // (5 + 2 - 2 - 1) / 1 + 1, (7 - 2 - 1) / 2 + 1
  const auto x = values(n * c * h * w, DType::float32, -2, 2);
  std::vector<double> columns, folded(x.size(), 0);
  for (int64_t b = 0; b < n; ++b)
    for (int64_t row = 0; row < c * 6; ++row)
      for (int64_t l = 0; l < oh * ow; ++l) {
        const int64_t ch = row / 6, y = l / ow - 1 + row / 3 % 2 * 2, z = l % ow * 2 + row % 3;
        const bool inside = y >= 0 && y < h && z >= 0 && z < w;
        const auto i = inside ? static_cast<size_t>(((b * c + ch) * h + y) * w + z) : 0;
        columns.push_back(inside ? x[i] : 0);
        if (inside) folded[i] += x[i];
      }
  for (const Variant v : kVariants) {
    INFO(name(v));
    Tensor image(Shape({n, c, h, w}), DType::float32, x), cols(Shape({n, c * 6, oh * ow}), DType::float32), back(Shape({n, c, h, w}), DType::float32);
    ok(unfoldColumns(queue(), image.ref(), cols.ref(), a, v));
    checkClose(cols.get(), columns, 0, 0);
    ok(foldColumns(queue(), cols.ref(), back.ref(), a, v));
    checkClose(back.get(), folded, 1e-6, 1e-6);
  }
}

TEST_CASE("pooling in three dimensions, fixed and adaptive", "[ops][pool]") {
  const int64_t planes = 3, d = 4, h = 5, w = 6;
  const auto x = values(planes * d * h * w, DType::float32, -2, 2);
  struct Case { bool adaptive; int64_t od, oh, ow; };
  for (const Case& k : {Case{false, 2, 3, 6}, Case{true, 3, 2, 4}})
    for (const Variant v : kVariants) {
      INFO("adaptive " << k.adaptive << " " << name(v));
      Pool3Args a;
      a.adaptive = k.adaptive;
      if (!k.adaptive) a.kernel = {2, 3, 3}, a.stride = {2, 2, 1}, a.padding = {0, 1, 1}, a.count_include_pad = false;
      const int64_t in[3] = {d, h, w}, outs[3] = {k.od, k.oh, k.ow};
      const auto g = values(planes * k.od * k.oh * k.ow, DType::float32, -2, 2, 7);
      std::vector<double> most, where, mean, most_grad(x.size(), 0), mean_grad(x.size(), 0);
      for (int64_t o = 0; o < static_cast<int64_t>(g.size()); ++o) {
        int64_t at[3] = {o / k.ow / k.oh % k.od, o / k.ow % k.oh, o % k.ow}, from[3], to[3];
        for (int i = 0; i < 3; ++i) {
          const auto u = static_cast<size_t>(i);
          from[i] = k.adaptive ? at[i] * in[i] / outs[i] : std::max<int64_t>(0, at[i] * a.stride[u] - a.padding[u]);
          to[i] = k.adaptive ? ((at[i] + 1) * in[i] + outs[i] - 1) / outs[i]
                             : std::min(in[i], at[i] * a.stride[u] - a.padding[u] + a.kernel[u]);
        }
        const int64_t plane = o / k.ow / k.oh / k.od;
        double best = -1e9, sum = 0;
        int64_t best_at = 0, cells = 0;
        std::vector<size_t> window;
        for (int64_t z = from[0]; z < to[0]; ++z)
          for (int64_t y = from[1]; y < to[1]; ++y)
            for (int64_t q = from[2]; q < to[2]; ++q, ++cells) {
              const int64_t cell = (z * h + y) * w + q;
              const auto i = static_cast<size_t>(plane * d * h * w + cell);
              window.push_back(i);
              sum += x[i];
              if (x[i] > best) best = x[i], best_at = cell;
            }
        most.push_back(best), where.push_back(static_cast<double>(best_at)), mean.push_back(sum / static_cast<double>(cells));
        most_grad[static_cast<size_t>(plane * d * h * w + best_at)] += g[static_cast<size_t>(o)];
        for (const size_t i : window) mean_grad[i] += g[static_cast<size_t>(o)] / static_cast<double>(cells);
      }
      const Shape ins({planes, d, h, w}, {1, h * w * planes, w * planes, planes}), out_shape({planes, k.od, k.oh, k.ow});
      Tensor tx(ins, DType::float32, x), ty(out_shape, DType::float32), ti(out_shape, DType::int64), tg(out_shape, DType::float32, g), tdx(ins, DType::float32);
      ok(maxPool3(queue(), tx.ref(), ty.ref(), ti.ref(), a, v));
      checkClose(ty.get(), most, 0, 0);
      checkClose(ti.get(), where, 0, 0);
      ok(maxPool3Backward(queue(), tg.ref(), ti.ref(), tdx.ref(), a, v));
      checkClose(tdx.get(), most_grad, 1e-5, 1e-6);
      ok(avgPool3(queue(), tx.ref(), ty.ref(), a, v));
      checkClose(ty.get(), mean, 1e-5, 1e-6);
      ok(avgPool3Backward(queue(), tg.ref(), tdx.ref(), a, v));
      checkClose(tdx.get(), mean_grad, 1e-5, 1e-6);
    }
}

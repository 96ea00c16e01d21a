// Batch, layer and group normalisation against float64, in both variants. The reference gradients follow from one
// formula: with x^ = (x - mean) * invstd over a set of M elements, gx = invstd * (d - mean(d) - x^ * mean(d * x^)).
#include "runtime/opencl/ops/norm.h"

#include <cmath>
#include <functional>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

const DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};
DType statsType(DType t) { return t == DType::float64 ? DType::float64 : DType::float32; }

struct Reference {
  std::vector<double> mean, var, y, gx, gw, gb;
};

// set(i): which statistics element i belongs to; weight(i): which weight.
Reference reference(const std::vector<double>& x, const std::vector<double>& g, const std::vector<double>& w,
                    const std::vector<double>& b, size_t sets, double eps, const std::function<size_t(size_t)>& set,
                    const std::function<size_t(size_t)>& weight, const Reference* fixed = nullptr) {
  Reference r;
  std::vector<double> count(sets), sum_d(sets), sum_dx(sets);
  r.mean.resize(sets), r.var.resize(sets), r.y.resize(x.size()), r.gx.resize(x.size()), r.gw.resize(w.size()), r.gb.resize(w.size());
  for (size_t i = 0; i < x.size(); ++i) count[set(i)] += 1, r.mean[set(i)] += x[i];
  for (size_t s = 0; s < sets; ++s) r.mean[s] /= count[s];
  for (size_t i = 0; i < x.size(); ++i) r.var[set(i)] += std::pow(x[i] - r.mean[set(i)], 2) / count[set(i)];
  if (fixed) r.mean = fixed->mean, r.var = fixed->var;
  const auto hat = [&](size_t i) { return (x[i] - r.mean[set(i)]) / std::sqrt(r.var[set(i)] + eps); };
  for (size_t i = 0; i < x.size(); ++i) {
    r.y[i] = hat(i) * w[weight(i)] + b[weight(i)];
    r.gw[weight(i)] += g[i] * hat(i);
    r.gb[weight(i)] += g[i];
    sum_d[set(i)] += g[i] * w[weight(i)];
    sum_dx[set(i)] += g[i] * w[weight(i)] * hat(i);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t s = set(i);
    const double centred = fixed ? 0 : sum_d[s] / count[s] + hat(i) * sum_dx[s] / count[s];
    r.gx[i] = (g[i] * w[weight(i)] - centred) / std::sqrt(r.var[s] + eps);
  }
  return r;
}

struct Layout {
  const char* what;
  Shape shape;
};
const Layout kLayouts[] = {
    {"contiguous", Shape({4, 5, 6, 7})},
    {"channels last", Shape({4, 5, 6, 7}, {210, 1, 35, 5}, 3)},
    {"two-dimensional", Shape({9, 20})},
    {"sequence", Shape({3, 4, 50})},
    {"rows apart", Shape({2, 3, 5, 20}, {600, 200, 30, 1}, 1)},
    {"volume", Shape({2, 3, 3, 4, 5})},
};

void runBatch(const Layout& l, DType t, Variant v, bool training) {
  INFO(l.what << " " << name(v) << " " << dtypeName(t) << (training ? " training" : " evaluation"));
  const DType st = statsType(t);
  const int64_t c = l.shape.sizes[1], plane = l.shape.numel() / l.shape.sizes[0] / c;
  const auto xv = values(l.shape.numel(), t, 1, 4, 1), gv = values(l.shape.numel(), t, -1, 1, 2);
  const auto wv = values(c, st, -2, 2, 3), bv = values(c, st, -1, 1, 4), rm = values(c, st, -1, 1, 5), rv = values(c, st, 0.5, 2, 6);
  const auto channel = [&](size_t i) { return i / static_cast<size_t>(plane) % static_cast<size_t>(c); };
  Reference fixed;
  fixed.mean = rm, fixed.var = rv;
  const double eps = 1e-3, momentum = 0.3;
  const Reference r = reference(xv, gv, wv, bv, static_cast<size_t>(c), eps, channel, channel, training ? nullptr : &fixed);
  const Shape vec({c});
  Tensor x(l.shape, t, xv), g(l.shape, t, gv), y(l.shape, t), gx(l.shape, t), w(vec, st, wv), b(vec, st, bv);
  Tensor running_mean(vec, st, rm), running_var(vec, st, rv), mean(vec, st), invstd(vec, st), gw(vec, st), gb(vec, st);
  const TensorRef wr = w.ref(), br = b.ref(), rmr = running_mean.ref(), rvr = running_var.ref(), mr = mean.ref(), ir = invstd.ref();
  const TensorRef gxr = gx.ref(), gwr = gw.ref(), gbr = gb.ref();
  const BatchNormTensors tensors{&wr, &br, &rmr, &rvr, &mr, &ir};
  const BatchNormArgs args{training, momentum, eps};
  ok(batchNorm(queue(), x.ref(), y.ref(), tensors, args, v));
  ok(batchNormBackward(queue(), g.ref(), x.ref(), tensors, &gxr, &gwr, &gbr, args, v));
  const double rel = 4 * relativeFor(t), abs = st == DType::float64 ? 1e-12 : 2e-5;
  checkClose(y.get(), r.y, rel, abs);
  checkClose(gx.get(), r.gx, rel, abs);
  checkClose(gw.get(), r.gw, rel, 10 * abs);
  checkClose(gb.get(), r.gb, rel, 10 * abs);
  std::vector<double> want_mean = rm, want_var = rv, want_invstd(static_cast<size_t>(c));
  const auto count = static_cast<double>(l.shape.numel() / c);
  for (size_t k = 0; training && k < static_cast<size_t>(c); ++k) {
    want_mean[k] = (1 - momentum) * rm[k] + momentum * r.mean[k];
    want_var[k] = (1 - momentum) * rv[k] + momentum * r.var[k] * count / (count - 1);
    want_invstd[k] = 1 / std::sqrt(r.var[k] + eps);
  }
  checkClose(running_mean.get(), want_mean, 2e-6, 1e-6);
  checkClose(running_var.get(), want_var, 2e-6, 1e-6);
  if (training) checkClose(invstd.get(), want_invstd, 1e-5, 1e-6);
  CHECK(y.untouchedOutside());
  CHECK(gx.untouchedOutside());
}

}  // namespace

TEST_CASE("norm: batch norm over layouts and dtypes", "[norm]") {
  for (const Layout& l : kLayouts)
    for (DType t : kTypes)
      for (Variant v : kVariants)
        for (bool training : {true, false}) runBatch(l, t, v, training);
}

TEST_CASE("norm: batch norm without weight, bias and running statistics", "[norm]") {
  const auto xv = values(6 * 4, DType::float32, -1, 1, 1);
  const auto channel = [](size_t i) { return i % 4; };
  const Reference r = reference(xv, xv, {1, 1, 1, 1}, {0, 0, 0, 0}, 4, 1e-5, channel, channel);
  for (Variant v : kVariants) {
    Tensor x(Shape({6, 4}), DType::float32, xv), y(Shape({6, 4}), DType::float32), mean(Shape({4}), DType::float32), invstd(Shape({4}), DType::float32);
    const TensorRef m = mean.ref(), s = invstd.ref();
    BatchNormTensors tensors;
    tensors.save_mean = &m, tensors.save_invstd = &s;
    ok(batchNorm(queue(), x.ref(), y.ref(), tensors, {}, v));
    checkClose(y.get(), r.y, 1e-5, 1e-5);
    checkClose(mean.get(), r.mean, 1e-5, 1e-6);
    // In evaluation there is nothing to normalise by.
    const Result<void> refused = batchNorm(queue(), x.ref(), y.ref(), tensors, {.training = false}, v);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().text().find("no statistics") != std::string::npos);
  }
}

TEST_CASE("norm: a large mean does not eat the variance", "[norm]") {
  auto xv = values(64 * 100, DType::float32, -1, 1, 1);
  for (double& x : xv) x = rounded(DType::float32, x + 10000);
  const auto one = [](size_t) { return size_t{0}; };
  const Reference r = reference(xv, xv, {1}, {0}, 1, 1e-5, one, one);
  for (Variant v : kVariants) {
    Tensor x(Shape({64, 1, 100}), DType::float32, xv), y(Shape({64, 1, 100}), DType::float32), mean(Shape({1}), DType::float32), invstd(Shape({1}), DType::float32);
    const TensorRef m = mean.ref(), s = invstd.ref();
    BatchNormTensors tensors;
    tensors.save_mean = &m, tensors.save_invstd = &s;
    ok(batchNorm(queue(), x.ref(), y.ref(), tensors, {}, v));
    // The mean itself is known to about 1e-3 at this size; E[x^2] - E[x]^2 would lose every digit.
    checkClose(invstd.get(), {1 / std::sqrt(r.var[0] + 1e-5)}, 1e-3, 0);
  }
}

TEST_CASE("norm: layer norm", "[norm]") {
  for (auto [rows, columns] : {std::pair<int64_t, int64_t>{7, 33}, {100, 64}, {3, 1000}, {1, 5}})
    for (DType t : kTypes)
      for (Variant v : kVariants)
        for (bool affine : {true, false}) {
          INFO(rows << "x" << columns << " " << name(v) << " " << dtypeName(t) << (affine ? " affine" : ""));
          const DType st = statsType(t);
          const auto cols = static_cast<size_t>(columns);
          const auto xv = values(rows * columns, t, 1, 4, 1), gv = values(rows * columns, t, -1, 1, 2);
          const auto wv = affine ? values(columns, t, -2, 2, 3) : std::vector<double>(cols, 1);
          const auto bv = affine ? values(columns, t, -1, 1, 4) : std::vector<double>(cols, 0);
          const Reference r = reference(xv, gv, wv, bv, static_cast<size_t>(rows), 1e-3, [&](size_t i) { return i / cols; },
                                        [&](size_t i) { return i % cols; });
          const Shape s({rows, columns}), vec({columns});
          Tensor x(s, t, xv), g(s, t, gv), y(s, t), gx(s, t), w(vec, t, wv), b(vec, t, bv), gw(vec, t), gb(vec, t);
          Tensor mean(Shape({rows}), st), rstd(Shape({rows}), st);
          const TensorRef wr = w.ref(), br = b.ref(), gxr = gx.ref(), gwr = gw.ref(), gbr = gb.ref();
          ok(layerNorm(queue(), x.ref(), rows, columns, affine ? &wr : nullptr, affine ? &br : nullptr, 1e-3, y.ref(), mean.ref(), rstd.ref(), v));
          ok(layerNormBackward(queue(), g.ref(), x.ref(), rows, columns, mean.ref(), rstd.ref(), affine ? &wr : nullptr, &gxr, &gwr, &gbr, v));
          const double rel = 4 * relativeFor(t), abs = st == DType::float64 ? 1e-12 : 2e-5;
          checkClose(y.get(), r.y, rel, abs);
          checkClose(gx.get(), r.gx, rel, abs);
          checkClose(gw.get(), r.gw, rel, 10 * abs);
          checkClose(gb.get(), r.gb, rel, 10 * abs);
          checkClose(mean.get(), r.mean, 1e-6, 1e-6);
        }
}

TEST_CASE("norm: group norm", "[norm]") {
  struct Groups { Shape shape; int64_t groups; } cases[] = {{Shape({3, 8, 5, 7}), 4}, {Shape({2, 6, 9}), 6}, {Shape({2, 6, 3, 3}), 1}, {Shape({4, 12}), 3}};
  for (const Groups& c : cases)
    for (DType t : kTypes)
      for (Variant v : kVariants) {
        INFO(c.shape.text() << " groups " << c.groups << " " << name(v) << " " << dtypeName(t));
        const DType st = statsType(t);
        const int64_t n = c.shape.sizes[0], channels = c.shape.sizes[1];
        const auto plane = static_cast<size_t>(c.shape.numel() / n / channels), per = static_cast<size_t>(channels / c.groups) * plane;
        const auto xv = values(c.shape.numel(), t, 1, 4, 1), gv = values(c.shape.numel(), t, -1, 1, 2);
        const auto wv = values(channels, t, -2, 2, 3), bv = values(channels, t, -1, 1, 4);
        const Reference r = reference(xv, gv, wv, bv, static_cast<size_t>(n * c.groups), 1e-3, [&](size_t i) { return i / per; },
                                      [&](size_t i) { return i / plane % static_cast<size_t>(channels); });
        const Shape vec({channels}), stats({n * c.groups});
        Tensor x(c.shape, t, xv), g(c.shape, t, gv), y(c.shape, t), gx(c.shape, t), w(vec, t, wv), b(vec, t, bv), gw(vec, t), gb(vec, t);
        Tensor mean(stats, st), rstd(stats, st);
        const TensorRef wr = w.ref(), br = b.ref(), gxr = gx.ref(), gwr = gw.ref(), gbr = gb.ref();
        ok(groupNorm(queue(), x.ref(), c.groups, &wr, &br, 1e-3, y.ref(), mean.ref(), rstd.ref(), v));
        ok(groupNormBackward(queue(), g.ref(), x.ref(), c.groups, mean.ref(), rstd.ref(), &wr, &gxr, &gwr, &gbr, v));
        const double rel = 4 * relativeFor(t), abs = st == DType::float64 ? 1e-12 : 2e-5;
        checkClose(y.get(), r.y, rel, abs);
        checkClose(gx.get(), r.gx, rel, abs);
        checkClose(gw.get(), r.gw, rel, 10 * abs);
        checkClose(gb.get(), r.gb, rel, 10 * abs);
      }
}

TEST_CASE("norm: refusals say what does not fit", "[norm]") {
  Tensor x(Shape({2, 6, 3}), DType::float32), y(Shape({2, 6, 3}), DType::float32), turned(Shape({2, 6, 3}, {18, 1, 6}), DType::float32);
  Tensor stats(Shape({2}), DType::float32), doubles(Shape({2}), DType::float64);
  auto text = [](const Result<void>& r) {
    REQUIRE_FALSE(r);
    return r.error().text();
  };
  CHECK(text(groupNorm(queue(), x.ref(), 4, nullptr, nullptr, 1e-5, y.ref(), stats.ref(), stats.ref(), Variant::wide)).find("4 groups") != std::string::npos);
  CHECK(text(layerNorm(queue(), turned.ref(), 2, 18, nullptr, nullptr, 1e-5, y.ref(), stats.ref(), stats.ref(), Variant::wide)).find("not contiguous") != std::string::npos);
  CHECK(text(layerNorm(queue(), x.ref(), 2, 18, nullptr, nullptr, 1e-5, y.ref(), doubles.ref(), stats.ref(), Variant::wide)).find("float64") != std::string::npos);
}

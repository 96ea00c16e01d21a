// Softmax and the losses against float64 references.
#include "runtime/opencl/ops/softmax.h"

#include "runtime/opencl/ops/loss.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

// Calls f(indices along dim) for every row of a dense shape.
template <class F>
void eachRow(const std::vector<int64_t>& sizes, int dim, F f) {
  int64_t inner = 1, outer = 1;
  const int64_t n = sizes.empty() ? 1 : sizes[static_cast<size_t>(dim)];
  for (size_t d = 0; d < sizes.size(); ++d)
    (static_cast<int>(d) < dim   ? outer
     : static_cast<int>(d) > dim ? inner
                                 : outer) *= static_cast<int>(d) == dim ? 1 : sizes[d];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<size_t> at;
      for (int64_t k = 0; k < n; ++k) at.push_back(static_cast<size_t>((o * n + k) * inner + i));
      f(at);
    }
}

std::vector<double> softmaxOf(const std::vector<double>& x, const std::vector<int64_t>& sizes, int dim, bool log) {
  std::vector<double> y(x.size());
  eachRow(sizes, dim, [&](const std::vector<size_t>& at) {
    double top = -kInf, sum = 0;
    for (size_t i : at) top = std::max(top, x[i]);
    for (size_t i : at) sum += std::exp(x[i] - top);
    for (size_t i : at) y[i] = log ? x[i] - top - std::log(sum) : std::exp(x[i] - top) / sum;
  });
  return y;
}

}  // namespace

TEST_CASE("softmax over every dimension and layout", "[ops][softmax]") {
  struct Case { Shape in, out; int dim; };
  const std::vector<Case> cases = {
      {Shape({}), Shape({}), 0},
      {Shape({256, 10}), Shape({256, 10}), 1},
      {Shape({10, 33}), Shape({10, 33}), 0},
      {Shape({5, 700}), Shape({5, 700}), 1},
      {Shape({3, 5, 20}), Shape({3, 5, 20}), 1},
      {Shape({3, 5, 20}), Shape({3, 5, 20}), 0},
      {Shape({12, 40}, {1, 12}), Shape({12, 40}), 1},
      {Shape({12, 40}, {200, 2}, 3), Shape({12, 40}, {1, 12}), 1},
      {Shape({2, 3, 4, 5}, {60, 1, 15, 3}), Shape({2, 3, 4, 5}, {60, 1, 15, 3}), 1},
      {Shape({4, 1}), Shape({4, 1}), 1},
      {Shape({0, 4}), Shape({0, 4}), 1},
  };
  for (const Case& c : cases)
    for (bool log : {false, true})
      for (Variant v : kVariants) {
        INFO(c.in.text() << " dim " << c.dim << " log " << log << " " << name(v));
        const std::vector<double> x = values(c.in.numel(), DType::float32, -8, 8);
        Tensor in(c.in, DType::float32, x), out(c.out, DType::float32);
        ok(softmax(queue(), in.ref(), out.ref(), c.dim, log, v));
        const std::vector<double> y = softmaxOf(x, c.in.sizes, c.dim, log);
        checkClose(out.get(), y, 5e-6, 2e-6);
        REQUIRE(out.untouchedOutside());
        // Backward, from the kernel's own result.
        const std::vector<double> g = values(c.in.numel(), DType::float32, -1, 1, 5), o = out.get();
        std::vector<double> want(g.size());
        eachRow(c.in.sizes, c.dim, [&](const std::vector<size_t>& at) {
          double sum = 0;
          for (size_t i : at) sum += log ? g[i] : g[i] * o[i];
          for (size_t i : at) want[i] = log ? g[i] - std::exp(o[i]) * sum : (g[i] - sum) * o[i];
        });
        Tensor grad(c.in, DType::float32, g), grad_in(c.in, DType::float32);
        ok(softmaxBackward(queue(), grad.ref(), out.ref(), grad_in.ref(), c.dim, log, v));
        checkClose(grad_in.get(), want, 1e-5, 1e-5);
      }
}

TEST_CASE("softmax in place", "[ops][softmax]") {
  for (bool log : {false, true})
    for (Variant v : kVariants) {
      const std::vector<double> x = values(6 * 70, DType::float32, -8, 8);
      Tensor t(Shape({6, 70}), DType::float32, x);
      ok(softmax(queue(), t.ref(), t.ref(), 1, log, v));
      checkClose(t.get(), softmaxOf(x, {6, 70}, 1, log), 5e-6, 2e-6);
    }
}

TEST_CASE("softmax dtypes and special rows", "[ops][softmax]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    for (DType t : {DType::float16, DType::bfloat16, DType::float64}) {
      const std::vector<double> x = values(90, t, -5, 5);
      Tensor in(Shape({3, 30}), t, x), out(Shape({3, 30}), t), wide(Shape({3, 30}), DType::float32);
      ok(softmax(queue(), in.ref(), out.ref(), 1, false, v));
      checkClose(out.get(), softmaxOf(x, {3, 30}, 1, false), relativeFor(t), 1e-6);
      if (t != DType::float16) continue;
      ok(softmax(queue(), in.ref(), wide.ref(), 1, true, v));
      checkClose(wide.get(), softmaxOf(x, {3, 30}, 1, true), 5e-6, 5e-6);
    }
    Tensor in(Shape({4, 3}), DType::float32, {-kInf, -kInf, -kInf, kNan, 1, 2, 1000, 1000, -kInf, -1000, -1001, -1002});
    Tensor out(Shape({4, 3}), DType::float32);
    ok(softmax(queue(), in.ref(), out.ref(), 1, false, v));
    const double e = std::exp(-1), e2 = std::exp(-2), s = 1 + e + e2;
    checkClose(out.get(), {kNan, kNan, kNan, kNan, kNan, kNan, 0.5, 0.5, 0, 1 / s, e / s, e2 / s}, 1e-6, 0);
  }
}

TEST_CASE("nll loss: weights, ignore_index, reductions, backward", "[ops][loss]") {
  struct Case { Shape input, target; int64_t ignore; bool weighted; DType target_type; };
  const std::vector<Case> cases = {
      {Shape({256, 10}), Shape({256}), -100, false, DType::int64},
      {Shape({40, 7}, {1, 40}), Shape({40}, {2}, 1), 3, true, DType::int64},
      {Shape({10}), Shape({}), -100, true, DType::int64},
      {Shape({3, 5, 4, 6}), Shape({3, 4, 6}), 2, true, DType::int64},
      {Shape({3, 5, 4, 6}), Shape({3, 4, 6}), -100, false, DType::uint8},
      {Shape({20000, 3}), Shape({20000}), 1, true, DType::int64},
  };
  for (const Case& c : cases)
    for (Reduction red : {Reduction::none, Reduction::mean, Reduction::sum})
      for (Variant v : kVariants) {
        INFO(c.input.text() << " reduction " << static_cast<int>(red) << " " << name(v));
        const size_t cls = c.input.sizes.size() == 1 ? 0 : 1;
        const int64_t classes = c.input.sizes[cls];
        const std::vector<double> x = values(c.input.numel(), DType::float32, -4, 0);
        std::vector<double> t = values(c.target.numel(), DType::int64, 0, static_cast<double>(classes) - 1e-9);
        const std::vector<double> w = values(classes, DType::float32, 0.5, 2, 9);
        int64_t inner = 1;
        for (size_t d = cls + 1; d < c.input.sizes.size(); ++d) inner *= c.input.sizes[d];
        double loss = 0, total = 0;
        std::vector<double> each, gradWant(x.size(), 0.0);
        for (size_t i = 0; i < t.size(); ++i) {
          const auto cl = static_cast<int64_t>(t[i]);
          const double wt = c.weighted ? w[static_cast<size_t>(cl)] : 1;
          const auto at = static_cast<size_t>((static_cast<int64_t>(i) / inner * classes + cl) * inner +
                                              static_cast<int64_t>(i) % inner);
          const bool counts = cl != c.ignore;
          each.push_back(counts ? -wt * x[at] : 0);
          if (counts) total += wt, loss += -wt * x[at];
        }
        const double scale = red == Reduction::mean ? 1 / total : 1;
        const std::vector<double> g = values(red == Reduction::none ? c.target.numel() : 1, DType::float32, 0.5, 2, 4);
        for (size_t i = 0; i < t.size(); ++i) {
          const auto cl = static_cast<int64_t>(t[i]);
          if (cl == c.ignore) continue;
          const auto at = static_cast<size_t>((static_cast<int64_t>(i) / inner * classes + cl) * inner +
                                              static_cast<int64_t>(i) % inner);
          gradWant[at] =
              -(c.weighted ? w[static_cast<size_t>(cl)] : 1) * scale * (red == Reduction::none ? g[i] : g[0]);
        }
        const Shape outShape(red == Reduction::none ? c.target.sizes : std::vector<int64_t>{});
        Tensor input(c.input, DType::float32, x), target(c.target, c.target_type, t),
            weight(Shape({classes}), DType::float32, w);
        Tensor out(outShape, DType::float32), totalOut(Shape({}), DType::float32), grad(outShape, DType::float32, g),
            gradIn(c.input, DType::float32);
        const TensorRef wr = weight.ref();
        ok(nllLoss(queue(), input.ref(), target.ref(), c.weighted ? &wr : nullptr, red, c.ignore, out.ref(),
                   totalOut.ref(), v));
        checkClose(out.get(), red == Reduction::none ? each : std::vector<double>{loss * scale}, 1e-5, 1e-6);
        checkClose(totalOut.get(), {red == Reduction::none ? 0 : total}, 1e-5, 0);
        ok(nllLossBackward(queue(), grad.ref(), target.ref(), c.weighted ? &wr : nullptr, red, c.ignore, totalOut.ref(),
                           gradIn.ref(), v));
        checkClose(gradIn.get(), gradWant, 1e-5, 1e-7);
        REQUIRE(gradIn.untouchedOutside());
      }
}

TEST_CASE("nll loss reports a target out of range and never invents a number for it", "[ops][loss]") {
  for (Variant v : kVariants) {
    Tensor input(Shape({2, 3}), DType::float32, {-1, -2, -3, -1, -2, -3}), target(Shape({2}), DType::int64, {1, 3});
    Tensor out(Shape({}), DType::float32), total(Shape({}), DType::float32);
    ok(nllLoss(queue(), input.ref(), target.ref(), nullptr, Reduction::mean, -100, out.ref(), total.ref(), v));
    const Result<void> told = queue().finish();
    REQUIRE_FALSE(told);
    REQUIRE(told.error().text().find("nll_loss: index 3 is out of bounds for a dimension of size 3") != std::string::npos);
    REQUIRE(std::isnan(out.get()[0]));
    target.set({-100, -100});
    ok(nllLoss(queue(), input.ref(), target.ref(), nullptr, Reduction::mean, -100, out.ref(), total.ref(), v));
    REQUIRE(std::isnan(out.get()[0]));  // 0 / 0, as PyTorch
    ok(nllLoss(queue(), input.ref(), target.ref(), nullptr, Reduction::sum, -100, out.ref(), total.ref(), v));
    REQUIRE(out.get()[0] == 0);
  }
}

TEST_CASE("elementwise losses reduce", "[ops][loss]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    const std::vector<double> a = values(600, DType::float32, 0.05, 0.95),
                              b = values(600, DType::float32, 0.05, 0.95, 2),
                              w = values(600, DType::float32, 0.5, 2, 3);
    Tensor in(Shape({20, 30}, {1, 20}), DType::float32, a), target(Shape({20, 30}), DType::float32, b),
        weight(Shape({20, 30}), DType::float32, w);
    Tensor out(Shape({}), DType::float32), each(Shape({20, 30}), DType::float32);
    double mse = 0, bce = 0, smooth = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double d = std::fabs(a[i] - b[i]);
      mse += d * d;
      bce -= w[i] * (b[i] * std::log(a[i]) + (1 - b[i]) * std::log(1 - a[i]));
      smooth += d < 0.5 ? 0.5 * d * d / 0.5 : d - 0.25;
    }
    const TensorRef wr = weight.ref();
    ok(pointLoss(queue(), PointwiseOp::mse, in.ref(), target.ref(), nullptr, Reduction::mean, 0, out.ref(), v));
    REQUIRE(close(out.get()[0], mse / 600, 1e-5, 0));
    ok(pointLoss(queue(), PointwiseOp::bce, in.ref(), target.ref(), &wr, Reduction::sum, 0, out.ref(), v));
    REQUIRE(close(out.get()[0], bce, 1e-5, 0));
    ok(pointLoss(queue(), PointwiseOp::smooth_l1, in.ref(), target.ref(), nullptr, Reduction::sum, 0.5, out.ref(), v));
    REQUIRE(close(out.get()[0], smooth, 1e-5, 0));
    ok(pointLoss(queue(), PointwiseOp::smooth_l1, in.ref(), target.ref(), nullptr, Reduction::none, 0, each.ref(), v));
    const auto l1 = each.get();
    for (size_t i = 0; i < l1.size(); ++i) REQUIRE(close(l1[i], std::fabs(a[i] - b[i]), 1e-5, 1e-7));
  }
}

// Reductions against float64 references: every operator, layout, split and dtype, in both variants.
#include "runtime/opencl/ops/reduce.h"

#include <algorithm>
#include <functional>
#include <map>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

Shape keptShape(const Shape& in, uint32_t mask) {
  std::vector<int64_t> s;
  for (size_t d = 0; d < in.sizes.size(); ++d) s.push_back((mask >> d) & 1u ? 1 : in.sizes[d]);
  return Shape(s);
}

// The numbers that meet in each output, in row-major order.
std::vector<std::vector<double>> groups(const Shape& in, uint32_t mask, const std::vector<double>& v) {
  const Shape out = keptShape(in, mask);
  std::vector<std::vector<double>> g(static_cast<size_t>(out.numel()));
  for (int64_t i = 0; i < in.numel(); ++i) {
    int64_t left = i, at = 0;
    for (size_t d = in.sizes.size(); d-- > 0;) {
      if (!((mask >> d) & 1u)) at += left % in.sizes[d] * out.strides[d];
      left /= in.sizes[d];
    }
    g[static_cast<size_t>(at)].push_back(v[static_cast<size_t>(i)]);
  }
  return g;
}

double wantOf(ReduceOp op, const std::vector<double>& g) {
  double sum = 0, squares = 0, absolute = 0, product = 1, most = -kInf, least = kInf, nonzero = 0, exps = 0;
  size_t atMost = 0, atLeast = 0;
  for (size_t i = 0; i < g.size(); ++i) {
    sum += g[i];
    squares += g[i] * g[i];
    absolute += std::fabs(g[i]);
    product *= g[i];
    nonzero += g[i] != 0;
    exps += std::exp(g[i]);
    if (g[i] > most) most = g[i], atMost = i;
    if (g[i] < least) least = g[i], atLeast = i;
  }
  switch (op) {
    case ReduceOp::sum: case ReduceOp::nansum: return sum;
    case ReduceOp::mean: return sum / static_cast<double>(g.size());
    case ReduceOp::prod: return product;
    case ReduceOp::amax: return most;
    case ReduceOp::amin: return least;
    case ReduceOp::any: return nonzero > 0;
    case ReduceOp::all: return nonzero == static_cast<double>(g.size());
    case ReduceOp::norm1: return absolute;
    case ReduceOp::norm2: return std::sqrt(squares);
    case ReduceOp::norm_inf: return std::max(std::fabs(most), std::fabs(least));
    case ReduceOp::sum_squares: return squares;
    case ReduceOp::count_nonzero: return nonzero;
    case ReduceOp::logsumexp: return std::log(exps);
    case ReduceOp::argmax: return static_cast<double>(atMost);
    default: return static_cast<double>(atLeast);
  }
}

DType outOf(ReduceOp op, DType in) {
  if (op == ReduceOp::any || op == ReduceOp::all) return DType::bool_;
  if (op == ReduceOp::argmax || op == ReduceOp::argmin || op == ReduceOp::count_nonzero) return DType::int64;
  return in;
}

void run(ReduceOp op, const Shape& shape, uint32_t mask, DType type, Variant v, double relative, double absolute) {
  INFO("op " << static_cast<int>(op) << " " << name(v) << " " << dtypeName(type) << " " << shape.text() << " mask "
             << mask);
  const double high = op == ReduceOp::prod ? 1.2 : 3;
  const std::vector<double> in = values(shape.numel(), type, op == ReduceOp::prod ? 0.8 : -3, high);
  std::vector<double> want;
  for (const auto& g : groups(shape, mask, in)) want.push_back(wantOf(op, g));
  Tensor t(shape, type, in), out(keptShape(shape, mask), outOf(op, type));
  ok(reduce(queue(), op, t.ref(), out.ref(), mask, v));
  checkClose(out.get(), want, relative, absolute);
  REQUIRE(out.untouchedOutside());
}

}  // namespace

TEST_CASE("every reduction over rows, columns and all", "[ops][reduce]") {
  const Shape small({7, 5, 70});
  for (int i = 0; i < static_cast<int>(ReduceOp::count_); ++i)
    for (Variant v : kVariants)
      for (uint32_t mask : {0b100u, 0b001u, 0b111u, 0b101u})
        run(static_cast<ReduceOp>(i), small, mask, DType::float32, v, 2e-5, 2e-5);
}

TEST_CASE("sums over layouts", "[ops][reduce]") {
  struct Layout { Shape shape; uint32_t mask; };
  const std::vector<Layout> layouts = {
      {Shape({}), 0},
      {Shape({5}), 0},                                              // nothing reduced: a copy
      {Shape({1}), 1},
      {Shape({33, 40}, {1, 33}), 0b01},
      {Shape({33, 40}, {1, 33}), 0b10},
      {Shape({33, 70}, {200, 2}, 5), 0b10},
      {Shape({33, 70}, {200, 2}, 5), 0b01},
      {Shape({4, 6, 8, 10}), 0b1101},                               // NCHW to C
      {Shape({4, 6, 8, 10}, {480, 1, 60, 6}), 0b1101},              // the same in channels last
      {Shape({2, 3, 2, 3, 2, 3, 2}), 0b1010101},
      {Shape({3, 100}, {100, 1}), 0b01},
      {Shape({300, 10}), 0b01},
      {Shape({5000, 130}), 0b01},
      {Shape({3, 40000}), 0b10},
      {Shape({200000}), 0b1},
  };
  for (const Layout& l : layouts)
    for (Variant v : kVariants) run(ReduceOp::sum, l.shape, l.mask, DType::float32, v, 1e-5, 1e-4);
}

TEST_CASE("long float32 sums stay near the exact sum", "[ops][reduce]") {
  // One million numbers of one sign: naive summation would be off by about 1e-3 relative.
  const Shape shape({1 << 20});
  const std::vector<double> in = values(shape.numel(), DType::float32, 0.5, 1.5);
  double exact = 0;
  for (double x : in) exact += x;
  Tensor t(shape, DType::float32, in), out(Shape({}), DType::float32);
  for (Variant v : kVariants) {
    INFO(name(v));
    ok(reduce(queue(), ReduceOp::sum, t.ref(), out.ref(), 1, v));
    const double first = out.get()[0];
    REQUIRE(std::fabs(first - exact) <= 1e-6 * exact);
    ok(reduce(queue(), ReduceOp::sum, t.ref(), out.ref(), 1, v));
    REQUIRE(out.get()[0] == first);
  }
}

TEST_CASE("reductions by dtype", "[ops][reduce]") {
  const Shape shape({9, 50});
  for (Variant v : kVariants) {
    INFO(name(v));
    for (DType t : {DType::float16, DType::bfloat16, DType::float64}) {
      run(ReduceOp::sum, shape, 0b10, t, v, relativeFor(t), relativeFor(t));
      run(ReduceOp::amax, shape, 0b01, t, v, relativeFor(t), 0);
    }
    for (DType t : {DType::int8, DType::uint8, DType::int16, DType::int32, DType::int64, DType::bool_}) {
      const std::vector<double> in =
          values(450, t, t == DType::uint8 || t == DType::bool_ ? 0 : -100, t == DType::bool_ ? 1.9 : 100);
      Tensor x(shape, t, in), total(Shape({9, 1}), DType::int64), most(Shape({1, 50}), t),
          truth(Shape({9, 1}), DType::bool_);
      std::vector<double> wantSum, wantMost, wantAll;
      for (const auto& g : groups(shape, 0b10, in))
        wantSum.push_back(wantOf(ReduceOp::sum, g)), wantAll.push_back(wantOf(ReduceOp::all, g));
      for (const auto& g : groups(shape, 0b01, in)) wantMost.push_back(wantOf(ReduceOp::amax, g));
      ok(reduce(queue(), ReduceOp::sum, x.ref(), total.ref(), 0b10, v));
      ok(reduce(queue(), ReduceOp::amax, x.ref(), most.ref(), 0b01, v));
      ok(reduce(queue(), ReduceOp::all, x.ref(), truth.ref(), 0b10, v));
      REQUIRE(total.get() == wantSum);
      REQUIRE(most.get() == wantMost);
      REQUIRE(truth.get() == wantAll);
    }
    // float32 in, float64 out accumulates in float64.
    Tensor x(Shape({3}), DType::float32, {1, 0x1p-40, -1}), d(Shape({}), DType::float64);
    ok(reduce(queue(), ReduceOp::sum, x.ref(), d.ref(), 1, v));
    REQUIRE(d.get()[0] == 0x1p-40);
  }
}

TEST_CASE("variance, standard deviation and mean", "[ops][reduce]") {
  const Shape shape({6, 4, 50});
  const std::vector<double> in = values(shape.numel(), DType::float32, 99, 101);
  Tensor t(shape, DType::float32, in);
  for (Variant v : kVariants)
    for (uint32_t mask : {0b100u, 0b101u, 0b111u, 0b001u})
      for (bool root : {false, true})
        for (double correction : {0.0, 1.0}) {
          INFO(name(v) << " mask " << mask << " root " << root << " correction " << correction);
          std::vector<double> want, means;
          for (const auto& g : groups(shape, mask, in)) {
            const double mean = wantOf(ReduceOp::mean, g);
            double s = 0;
            for (double x : g) s += (x - mean) * (x - mean);
            s /= static_cast<double>(g.size()) - correction;
            want.push_back(root ? std::sqrt(s) : s);
            means.push_back(mean);
          }
          Tensor out(keptShape(shape, mask), DType::float32), mean(keptShape(shape, mask), DType::float32);
          const TensorRef m = mean.ref();
          ok(variance(queue(), t.ref(), out.ref(), &m, mask, correction, root, v));
          checkClose(out.get(), want, 2e-5, 1e-6);
          checkClose(mean.get(), means, 1e-6, 0);
        }
  for (Variant v : kVariants) {
    Tensor one(Shape({1}), DType::float32, {3}), out(Shape({}), DType::float32);
    ok(variance(queue(), one.ref(), out.ref(), nullptr, 1, 1, false, v));
    REQUIRE(std::isnan(out.get()[0]));
    Tensor two(Shape({2}), DType::float32, {3, 5});
    ok(variance(queue(), two.ref(), out.ref(), nullptr, 1, 5, false, v));
    REQUIRE(std::isinf(out.get()[0]));
  }
}

TEST_CASE("max and min with indices: the first of equals, NaN first of all", "[ops][reduce]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    Tensor t(Shape({4, 5}), DType::float32,
             {1, 3, 3, 2, 0, kNan, 9, kNan, 1, 2, -kInf, -kInf, -kInf, -kInf, -kInf, 5, 4, 3, 2, 1});
    Tensor best(Shape({4}), DType::float32), at(Shape({4}, {2}), DType::int64);
    ok(reduceIndexed(queue(), ReduceOp::amax, t.ref(), best.ref(), at.ref(), 1, v));
    checkClose(best.get(), {3, kNan, -kInf, 5}, 0, 0);
    REQUIRE(at.get() == std::vector<double>{1, 0, 0, 0});
    ok(reduceIndexed(queue(), ReduceOp::amin, t.ref(), best.ref(), at.ref(), 1, v));
    checkClose(best.get(), {0, kNan, -kInf, 1}, 0, 0);
    REQUIRE(at.get() == std::vector<double>{4, 0, 0, 4});
    Tensor first(Shape({1, 5}), DType::int64);
    ok(reduce(queue(), ReduceOp::argmax, t.ref(), first.ref(), 0b01, v));
    REQUIRE(first.get() == std::vector<double>{1, 1, 1, 0, 1});
    // Longer than a work-group, winner late, in a strided view.
    const Shape longRow({2, 1000}, {3000, 3}, 4);
    std::vector<double> x = values(2000, DType::float32, -1, 1);
    x[777] = x[900] = 5;
    x[1000 + 999] = 6;
    Tensor l(longRow, DType::float32, x), b2(Shape({2, 1}), DType::float32), a2(Shape({2, 1}), DType::int64);
    ok(reduceIndexed(queue(), ReduceOp::amax, l.ref(), b2.ref(), a2.ref(), 1, v));
    REQUIRE(b2.get() == std::vector<double>{5, 6});
    REQUIRE(a2.get() == std::vector<double>{777, 999});
  }
}

TEST_CASE("reductions: NaN, infinities and nothing", "[ops][reduce]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    Tensor t(Shape({2, 3}), DType::float32, {1, kNan, 2, -kInf, -kInf, -kInf}), out(Shape({2}), DType::float32);
    ok(reduce(queue(), ReduceOp::amax, t.ref(), out.ref(), 0b10, v));
    checkClose(out.get(), {kNan, -kInf}, 0, 0);
    ok(reduce(queue(), ReduceOp::nansum, t.ref(), out.ref(), 0b10, v));
    checkClose(out.get(), {3, -kInf}, 0, 0);
    ok(reduce(queue(), ReduceOp::logsumexp, t.ref(), out.ref(), 0b10, v));
    checkClose(out.get(), {kNan, -kInf}, 0, 0);
    Tensor none(Shape({2, 0}), DType::float32);
    const std::pair<ReduceOp, double> identities[] = {{ReduceOp::sum, 0},
                                                      {ReduceOp::prod, 1},
                                                      {ReduceOp::mean, kNan},
                                                      {ReduceOp::norm2, 0},
                                                      {ReduceOp::logsumexp, -kInf}};
    for (const auto& [op, want] : identities) {
      ok(reduce(queue(), op, none.ref(), out.ref(), 0b10, v));
      checkClose(out.get(), {want, want}, 0, 0);
    }
    const auto empty = reduce(queue(), ReduceOp::amax, none.ref(), out.ref(), 0b10, v);
    REQUIRE(!empty);
    REQUIRE(empty.error().text().find("size 0") != std::string::npos);
    const auto shape = reduce(queue(), ReduceOp::sum, t.ref(), out.ref(), 0b01, v);
    REQUIRE(!shape);
  }
  REQUIRE_FALSE(reduceSupports(ReduceOp::mean, DType::int64, DType::int64));
  REQUIRE_FALSE(reduceSupports(ReduceOp::argmax, DType::float32, DType::float32));
  REQUIRE(reduceSupports(ReduceOp::mean, DType::int64, DType::float32));
}

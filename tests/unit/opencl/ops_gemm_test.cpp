// Matrix products against a float64 reference, in both variants and by CLBlast (libclblast1), over sizes, layouts, batches
// and dtypes.
#include "runtime/opencl/ops/gemm.h"

#include <cmath>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Way { wide, tiled, clblast };
constexpr Way kWays[] = {Way::wide, Way::tiled, Way::clblast};
const char* name(Way w) { return w == Way::wide ? "wide" : w == Way::tiled ? "tiled" : "clblast"; }
Result<void> multiply(const GemmArgs& args, Way w) {
  return w == Way::clblast ? gemmByClblast(queue(), args) : gemm(queue(), args, w == Way::wide ? Variant::wide : Variant::tiled);
}

struct Case {
  int64_t batch, m, n, k;  // batch 0: rank 2
  bool a_turned = false, b_turned = false, out_turned = false;
};

// [batch,] rows x cols; turned: columns are contiguous. An offset keeps the kernels honest about it.
Shape matrix(int64_t batch, int64_t rows, int64_t cols, bool turned, int64_t offset = 0) {
  const int64_t row = turned ? 1 : cols, col = turned ? rows : 1;
  if (batch == 0) return Shape({rows, cols}, {row, col}, offset);
  return Shape({batch, rows, cols}, {rows * cols, row, col}, offset);
}

// alpha * a @ b + beta * self and, for the tolerance, the sum of |a| |b|: an element's error is measured against it.
struct Reference {
  std::vector<double> want, scale;
};
Reference reference(const Case& c, const std::vector<double>& a, const std::vector<double>& b,
                    const std::vector<double>& self, double alpha, double beta) {
  Reference r;
  for (int64_t z = 0; z < std::max<int64_t>(c.batch, 1); ++z)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < c.k; ++k) {
          const double term = a[static_cast<size_t>((z * c.m + i) * c.k + k)] * b[static_cast<size_t>((z * c.k + k) * c.n + j)];
          sum += term;
          size += std::fabs(term);
        }
        const double s = beta == 0 ? 0 : beta * self[static_cast<size_t>((z * c.m + i) * c.n + j)];
        r.want.push_back(alpha * sum + s);
        r.scale.push_back(std::fabs(alpha) * size + std::fabs(s));
      }
  return r;
}

// A float32 sum of K terms is off by a few roundings of its size; half types round once more when stored.
void checkProduct(const std::vector<double>& got, const Reference& r, DType t, int64_t k) {
  const double sums = t == DType::float64 ? 1e-15 : 1e-7;
  const double factor = sums * (2 + std::sqrt(static_cast<double>(k)));
  REQUIRE(got.size() == r.want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i << ": got " << got[i] << ", want " << r.want[i]);
    REQUIRE(close(got[i], r.want[i], relativeFor(t), factor * r.scale[i]));
  }
}

void run(const Case& c, DType t, Way v) {
  INFO(name(v) << " " << dtypeName(t) << " batch " << c.batch << " m " << c.m << " n " << c.n << " k " << c.k << " turned "
               << c.a_turned << c.b_turned << c.out_turned);
  Tensor a(matrix(c.batch, c.m, c.k, c.a_turned, 5), t), b(matrix(c.batch, c.k, c.n, c.b_turned, 3), t);
  Tensor out(matrix(c.batch, c.m, c.n, c.out_turned, 7), t);
  const int64_t z = std::max<int64_t>(c.batch, 1);
  const auto av = values(z * c.m * c.k, t, -1, 1, 1), bv = values(z * c.k * c.n, t, -1, 1, 2);
  a.set(av);
  b.set(bv);
  ok(multiply({.a = a.ref(), .b = b.ref(), .out = out.ref()}, v));
  checkProduct(out.get(), reference(c, av, bv, {}, 1, 0), t, c.k);
  CHECK(out.untouchedOutside());
}

}  // namespace

TEST_CASE("gemm: sizes and layouts", "[gemm]") {
  const Case cases[] = {{0, 1, 1, 1}, {0, 5, 7, 3}, {0, 8, 32, 16}, {0, 33, 65, 40}, {0, 16, 64, 130}, {3, 17, 40, 9},
                        {2, 1, 50, 33}, {2, 50, 1, 33}, {0, 1, 1, 5000}, {0, 200, 10, 64}, {5, 3, 2, 70}, {0, 3, 90, 200}};
  for (Case c : cases)
    for (int turned = 0; turned < 8; ++turned) {
      c.a_turned = turned & 1, c.b_turned = turned & 2, c.out_turned = turned & 4;
      for (Way v : kWays) run(c, DType::float32, v);
    }
}

TEST_CASE("gemm: dtypes", "[gemm]") {
  for (DType t : {DType::float64, DType::float16, DType::bfloat16})
    for (Way v : kWays)
      for (const Case& c : {Case{0, 33, 65, 40}, Case{2, 9, 35, 20, true, false, false}, Case{0, 12, 1, 77, true, false, false},
                            Case{0, 4, 4, 600, false, true, true}})
        if (v != Way::clblast || t == DType::float64) run(c, t, v);
}

TEST_CASE("gemm: CLBlast gets copies of matrices without a contiguous dimension, and refuses half types", "[gemm]") {
  const Case c{2, 9, 35, 20};
  const auto a = values(2 * 9 * 20, DType::float32, -1, 1, 1), b = values(2 * 20 * 35, DType::float32, -1, 1, 2);
  Tensor ta(Shape({2, 9, 20}, {500, 50, 2}, 3), DType::float32, a), tb(Shape({2, 20, 35}, {3000, 140, 3}, 1), DType::float32, b);
  Tensor out(Shape({2, 9, 35}, {1000, 100, 2}, 5), DType::float32);
  ok(gemmByClblast(queue(), {.a = ta.ref(), .b = tb.ref(), .out = out.ref()}));
  checkProduct(out.get(), reference(c, a, b, {}, 1, 0), DType::float32, c.k);
  CHECK(out.untouchedOutside());
  Tensor half(Shape({4, 4}), DType::float16);
  const auto refused = gemmByClblast(queue(), {.a = half.ref(), .b = half.ref(), .out = half.ref()});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().text().find("float16") != std::string::npos);
}

TEST_CASE("gemm: deep products, whose depth is cut into blocks", "[gemm]") {
  for (int turned = 0; turned < 8; ++turned)
    run({0, 210, 70, 1301, bool(turned & 1), bool(turned & 2), bool(turned & 4)}, DType::float32, Way::wide);
  run({2, 203, 290, 1290}, DType::float32, Way::wide);
  run({0, 230, 33, 1281, true, true, false}, DType::float64, Way::wide);
  // self comes in once, not once a block; also where it is the output.
  const Case c{0, 205, 37, 1400};
  const auto a = values(c.m * c.k, DType::float32, -1, 1, 1), b = values(c.k * c.n, DType::float32, -1, 1, 2);
  const auto self = values(c.m * c.n, DType::float32, -9, 9, 3);
  Tensor ta(Shape({c.m, c.k}), DType::float32, a), tb(Shape({c.k, c.n}), DType::float32, b);
  Tensor ts(Shape({c.m, c.n}), DType::float32, self), out(Shape({c.m, c.n}), DType::float32);
  const Reference r = reference(c, a, b, self, 0.5, 2);
  ok(gemm(queue(), {ta.ref(), tb.ref(), out.ref(), ts.ref(), 0.5, 2}, Variant::wide));
  checkProduct(out.get(), r, DType::float32, c.k);
  ok(gemm(queue(), {ta.ref(), tb.ref(), ts.ref(), ts.ref(), 0.5, 2}, Variant::wide));
  checkProduct(ts.get(), r, DType::float32, c.k);
}

TEST_CASE("gemm: alpha, beta and a broadcast self", "[gemm]") {
  const Case c{2, 11, 37, 13};
  const auto a = values(2 * 11 * 13, DType::float32, -1, 1, 1), b = values(2 * 13 * 37, DType::float32, -1, 1, 2);
  const auto row = values(37, DType::float32, -1, 1, 3), full = values(2 * 11 * 37, DType::float32, -1, 1, 4);
  std::vector<double> expanded;
  for (int i = 0; i < 22; ++i) expanded.insert(expanded.end(), row.begin(), row.end());
  for (Way v : kWays) {
    INFO(name(v));
    Tensor ta(Shape({2, 11, 13}), DType::float32, a), tb(Shape({2, 13, 37}), DType::float32, b);
    Tensor bias(Shape({37}), DType::float32, row);
    TensorRef self = bias.ref();
    self.ndim = 3, self.sizes = {2, 11, 37}, self.strides = {0, 0, 1};
    Tensor out(Shape({2, 11, 37}), DType::float32);
    ok(multiply({ta.ref(), tb.ref(), out.ref(), self, 0.5, 2}, v));
    checkProduct(out.get(), reference(c, a, b, expanded, 0.5, 2), DType::float32, c.k);
    // In place: self is the output.
    Tensor inout(Shape({2, 11, 37}), DType::float32, full);
    ok(multiply({ta.ref(), tb.ref(), inout.ref(), inout.ref(), -1.5, 0.25}, v));
    checkProduct(inout.get(), reference(c, a, b, full, -1.5, 0.25), DType::float32, c.k);
    // beta = 0: a NaN in self does not spread.
    Tensor nans(Shape({2, 11, 37}), DType::float32, std::vector<double>(2 * 11 * 37, kNan));
    ok(multiply({ta.ref(), tb.ref(), nans.ref(), nans.ref(), 1, 0}, v));
    checkProduct(nans.get(), reference(c, a, b, {}, 1, 0), DType::float32, c.k);
  }
}

TEST_CASE("gemm: a batch of one and a rank 2 operand serve every batch", "[gemm]") {
  const auto a = values(4 * 6, DType::float32, -1, 1, 1), b = values(3 * 6 * 5, DType::float32, -1, 1, 2);
  std::vector<double> repeated;
  for (int i = 0; i < 3; ++i) repeated.insert(repeated.end(), a.begin(), a.end());
  const Reference r = reference({3, 4, 5, 6}, repeated, b, {}, 1, 0);
  for (Way v : kWays)
    for (bool rank2 : {false, true}) {
      Tensor ta(rank2 ? Shape({4, 6}) : Shape({1, 4, 6}), DType::float32, a), tb(Shape({3, 6, 5}), DType::float32, b);
      Tensor out(Shape({3, 4, 5}), DType::float32);
      ok(multiply({.a = ta.ref(), .b = tb.ref(), .out = out.ref()}, v));
      checkProduct(out.get(), r, DType::float32, 6);
    }
}

TEST_CASE("gemm: nothing to sum gives beta * self, nothing to write writes nothing", "[gemm]") {
  for (Way v : kWays) {
    Tensor a(Shape({3, 0}), DType::float32), b(Shape({0, 4}), DType::float32);
    Tensor out(Shape({3, 4}), DType::float32, std::vector<double>(12, 3)), plain(Shape({3, 4}), DType::float32, std::vector<double>(12, 3));
    ok(multiply({a.ref(), b.ref(), out.ref(), out.ref(), 1, 0.5}, v));
    ok(multiply({.a = a.ref(), .b = b.ref(), .out = plain.ref()}, v));
    CHECK(out.get() == std::vector<double>(12, 1.5));
    CHECK(plain.get() == std::vector<double>(12, 0));
    Tensor none(Shape({0, 4}), DType::float32), wide(Shape({0, 7}), DType::float32), some(Shape({7, 4}), DType::float32);
    ok(multiply({.a = wide.ref(), .b = some.ref(), .out = none.ref()}, v));
    CHECK(none.untouchedOutside());
  }
}

TEST_CASE("gemm: vectors through asRow, asColumn and transposed", "[gemm]") {
  const auto x = values(70, DType::float32, -1, 1, 1), m = values(9 * 70, DType::float32, -1, 1, 2);
  for (Way v : kWays) {
    Tensor tx(Shape({70}, {2}, 1), DType::float32, x), tm(Shape({9, 70}), DType::float32, m), y(Shape({9}), DType::float32);
    Tensor dot(Shape({1, 1}), DType::float32), left(Shape({1, 9}), DType::float32);
    ok(multiply({.a = tm.ref(), .b = asColumn(tx.ref()), .out = asColumn(y.ref())}, v));
    checkProduct(y.get(), reference({0, 9, 1, 70}, m, x, {}, 1, 0), DType::float32, 70);
    ok(multiply({.a = asRow(tx.ref()), .b = transposed(tm.ref()), .out = left.ref()}, v));
    checkProduct(left.get(), reference({0, 9, 1, 70}, m, x, {}, 1, 0), DType::float32, 70);
    ok(multiply({.a = asRow(tx.ref()), .b = asColumn(tx.ref()), .out = dot.ref()}, v));
    checkProduct(dot.get(), reference({0, 1, 1, 70}, x, x, {}, 1, 0), DType::float32, 70);
  }
}

TEST_CASE("gemm: the same inputs give the same bits", "[gemm]") {
  const auto a = values(65 * 300, DType::float32, -1, 1, 1), b = values(300 * 70, DType::float32, -1, 1, 2);
  for (Way v : kWays) {
    Tensor ta(Shape({65, 300}), DType::float32, a), tb(Shape({300, 70}), DType::float32, b);
    Tensor first(Shape({65, 70}), DType::float32), second(Shape({65, 70}), DType::float32);
    ok(multiply({.a = ta.ref(), .b = tb.ref(), .out = first.ref()}, v));
    ok(multiply({.a = ta.ref(), .b = tb.ref(), .out = second.ref()}, v));
    CHECK(first.get() == second.get());
  }
}

TEST_CASE("gemm: refusals name the operator, sizes and dtypes", "[gemm]") {
  Tensor a(Shape({3, 4}), DType::float32), b(Shape({5, 2}), DType::float32), out(Shape({3, 2}), DType::float32);
  Tensor ints(Shape({4, 2}), DType::int64), halves(Shape({4, 2}), DType::float16), batched(Shape({2, 4, 2}), DType::float32);
  auto text = [&](const Tensor& right) {
    const Result<void> r = gemm(queue(), {.a = a.ref(), .b = right.ref(), .out = out.ref()}, Variant::wide);
    REQUIRE_FALSE(r);
    return r.error().text();
  };
  CHECK(text(b).find("[3, 4]") != std::string::npos);
  CHECK(text(ints).find("int64") != std::string::npos);
  CHECK(text(halves).find("float32 and float16") != std::string::npos);
  CHECK(text(batched).find("batch") != std::string::npos);
}

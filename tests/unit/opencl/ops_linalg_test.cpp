// Factorisations and solvers: products of the factors must give the matrix back, solutions must solve.
#include <algorithm>

#include "runtime/opencl/ops/linalg.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

using Matrix = std::vector<double>;
Matrix product(const Matrix& a, const Matrix& b, int64_t m, int64_t k, int64_t n) {
  Matrix c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t x = 0; x < k; ++x) c[static_cast<size_t>(i * n + j)] += a[static_cast<size_t>(i * k + x)] * b[static_cast<size_t>(x * n + j)];
  return c;
}
Matrix part(const Matrix& all, int64_t which, int64_t size) {
  return {all.begin() + which * size, all.begin() + (which + 1) * size};
}

}  // namespace

TEST_CASE("LU with row exchanges gives the matrix back, for tall, wide and singular ones") {
  struct Case { int64_t m, n; };
  for (const Variant v : kVariants)
    for (const Case& s : {Case{4, 4}, Case{5, 3}, Case{3, 5}, Case{1, 1}}) {
      const int64_t k = std::min(s.m, s.n), batch = 3;
      const auto data = values(batch * s.m * s.n, DType::float32, -1, 1);
      Tensor a(Shape({batch, s.m, s.n}), DType::float32, data), pivots(Shape({batch, k}), DType::int32), info(Shape({batch}), DType::int32);
      Tensor places(Shape({batch, s.m}), DType::int64);
      ok(luFactor(queue(), a.ref(), pivots.ref(), info.ref(), {batch, s.m, s.n}, true, v));
      ok(pivotPlaces(queue(), pivots.ref(), places.ref(), batch, k, s.m, v));
      CHECK(info.get() == std::vector<double>{0, 0, 0});
      const auto lu = a.get(), place = places.get();
      for (int64_t b = 0; b < batch; ++b) {
        Matrix l(static_cast<size_t>(s.m * k)), u(static_cast<size_t>(k * s.n)), want(static_cast<size_t>(s.m * s.n));
        for (int64_t i = 0; i < s.m; ++i)
          for (int64_t j = 0; j < s.n; ++j) {
            const double x = lu[static_cast<size_t>((b * s.m + i) * s.n + j)];
            if (j < i && j < k) { l[static_cast<size_t>(i * k + j)] = x; CHECK(std::fabs(x) <= 1); }
            if (i < k && j >= i) u[static_cast<size_t>(i * s.n + j)] = x;
            const auto from = static_cast<int64_t>(place[static_cast<size_t>(b * s.m + i)]);
            want[static_cast<size_t>(i * s.n + j)] = data[static_cast<size_t>((b * s.m + from) * s.n + j)];
          }
        for (int64_t i = 0; i < k; ++i) l[static_cast<size_t>(i * k + i)] = 1;
        checkClose(product(l, u, s.m, k, s.n), want, 1e-5, 1e-6);
      }
    }
  Tensor a(Shape({2, 2}), DType::float32, {1, 2, 2, 4}), pivots(Shape({2}), DType::int32), info(Shape({1}), DType::int32);
  ok(luFactor(queue(), a.ref(), pivots.ref(), info.ref(), {1, 2, 2}, true, Variant::wide));
  CHECK(info.get() == std::vector<double>{2});
  CHECK(pivots.get() == std::vector<double>{2, 2});
}

TEST_CASE("Cholesky factors, and says which minor is not positive") {
  for (const Variant v : kVariants) {
    Tensor a(Shape({2, 2, 2}), DType::float32, {4, 99, 2, 5, 1, 0, 2, 1}), info(Shape({2}), DType::int32);   // 99 is not read
    ok(choleskyFactor(queue(), a.ref(), info.ref(), {2, 2, 2}, v));
    checkClose(part(a.get(), 0, 4), {2, 0, 1, 2}, 1e-6, 0);
    CHECK(info.get() == std::vector<double>{0, 2});
  }
}

TEST_CASE("triangular systems, upper and lower, with and without ones on the diagonal") {
  for (const Variant v : kVariants) {
    Tensor a(Shape({2, 2}), DType::float32, {2, 3, 5, 4});
    struct Case { bool upper, unit; std::vector<double> want; };
    // lower: 2x = 8, 5x + 4y = 28; upper: 4y = 28, 2x + 3y = 8
    for (const Case& c : {Case{false, false, {4, 2}}, Case{false, true, {8, -12}}, Case{true, false, {-6.5, 7}}, Case{true, true, {-76, 28}}}) {
      Tensor b(Shape({2, 1}), DType::float32, {8, 28});
      ok(solveTriangular(queue(), a.ref(), b.ref(), {1, 2, 2}, 1, c.upper, c.unit, v));
      checkClose(b.get(), c.want, 1e-6, 0);
    }
  }
}

TEST_CASE("Householder: Q R is the matrix, and Q^T Q the identity") {
  struct Case { int64_t m, n; };
  for (const Variant v : kVariants)
    for (const Case& s : {Case{4, 3}, Case{3, 4}, Case{1, 2}}) {
      const int64_t k = std::min(s.m, s.n);
      const auto data = values(s.m * s.n, DType::float32, -1, 1);
      Tensor a(Shape({1, s.m, s.n}), DType::float32, data), tau(Shape({1, k}), DType::float32);
      ok(householderFactor(queue(), a.ref(), tau.ref(), {1, s.m, s.n}, v));
      Matrix r = a.get(), one(static_cast<size_t>(s.m * s.m));
      for (int64_t i = 0; i < s.m; ++i) {
        one[static_cast<size_t>(i * s.m + i)] = 1;
        for (int64_t j = 0; j < std::min(i, s.n); ++j) r[static_cast<size_t>(i * s.n + j)] = 0;
      }
      Tensor q(Shape({1, s.m, s.m}), DType::float32, one);
      ok(reflect(queue(), a.ref(), tau.ref(), q.ref(), {1, s.m, s.n}, k, s.m, false, v));
      checkClose(product(q.get(), r, s.m, s.m, s.n), data, 1e-5, 1e-6);
      ok(reflect(queue(), a.ref(), tau.ref(), q.ref(), {1, s.m, s.n}, k, s.m, true, v));
      checkClose(q.get(), one, 1e-5, 1e-6);
    }
}

TEST_CASE("a dtype without a kernel is refused by name") {
  Tensor a(Shape({2, 2}), DType::float16), tau(Shape({2}), DType::float16);
  const auto r = householderFactor(queue(), a.ref(), tau.ref(), {1, 2, 2}, Variant::wide);
  REQUIRE_FALSE(r);
  CHECK(r.error().text().find("float16") != std::string::npos);
}

// Gather, scatter, advanced indexing, embedding, joining, scans, topk: against plain loops over row-major positions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/opencl/ops/index.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

std::vector<double> count(int64_t n, double first = 0) {
  std::vector<double> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}
const DType kTypes[] = {DType::float32, DType::int64, DType::uint8, DType::float16};

}  // namespace

TEST_CASE("gather picks along a dimension, from strided inputs, in every size of element") {
  for (const Variant v : kVariants)
    for (const DType t : kTypes) {
      INFO(name(v) << " " << dtypeName(t));
      Tensor in(Shape({3, 4}, {5, 1}, 2), t, count(12));
      Tensor index(Shape({2, 4}), DType::int64, {0, 1, 2, 0, 2, 2, 0, 1});
      Tensor out(Shape({2, 4}), t);
      ok(gather(queue(), in.ref(), 0, index.ref(), out.ref(), v));
      CHECK(out.get() == std::vector<double>{0, 5, 10, 3, 8, 9, 2, 7});
      CHECK(out.untouchedOutside());
    }
}

TEST_CASE("a bad index is reported by the next wait, reads NaN or 0, and leaves the queue usable") {
  for (const Variant v : kVariants) {
    Tensor in(Shape({3}), DType::float32, {1, 2, 3}), whole(Shape({3}), DType::int32, {1, 2, 3});
    Tensor index(Shape({3}), DType::int64, {2, 7, 1});
    Tensor out(Shape({3}), DType::float32), outs(Shape({3}), DType::int32);
    ok(gather(queue(), in.ref(), 0, index.ref(), out.ref(), v));
    CHECK_FALSE(queue().idle());
    const Result<void> told = queue().finish();
    REQUIRE_FALSE(told);
    CHECK(told.error().text().find("gather: index 7 is out of bounds for a dimension of size 3") != std::string::npos);
    CHECK(queue().idle());
    ok(queue().finish());   // told once
    CHECK(std::isnan(out.get()[1]));
    CHECK(out.get()[2] == 2);
    ok(gather(queue(), whole.ref(), 0, index.ref(), outs.ref(), v));
    CHECK_FALSE(queue().finish());
    CHECK(outs.get() == std::vector<double>{3, 0, 2});
  }
}

TEST_CASE("every kernel that follows indices reports a bad one and writes nowhere else") {
  Tensor index(Shape({2}), DType::int64, {0, -4});
  Tensor src(Shape({2}), DType::float32, {5, 6}), out(Shape({2}), DType::float32);
  const auto reports = [&](const Result<void>& launched, const char* what) {
    ok(launched);
    const Result<void> told = queue().finish();
    REQUIRE_FALSE(told);
    INFO(told.error().text());
    CHECK(told.error().text().find(what) != std::string::npos);
    CHECK(told.error().text().find("size 3") != std::string::npos);
  };
  Tensor self(Shape({3}, {2}, 1), DType::float32, {1, 2, 3});
  const TensorRef i = index.ref();
  const TensorRef* list[] = {&i};
  reports(scatter(queue(), self.ref(), 0, i, src.ref(), ScatterOp::set, Variant::wide), "scatter: index -4");
  reports(indexScatter(queue(), self.ref(), 0, i, src.ref(), ScatterOp::add, Variant::wide), "index_add, index_copy or index_reduce: index -4");
  reports(indexSelect(queue(), self.ref(), 0, i, out.ref(), Variant::wide), "index_select: index -4");
  reports(ocl::index(queue(), self.ref(), list, out.ref(), Variant::tiled), "index: index -4");
  reports(indexPut(queue(), self.ref(), list, src.ref(), true, Variant::tiled), "index_put: index -4");
  CHECK(self.get() == std::vector<double>{15, 2, 3});   // 5, then + 5, then + 5
  CHECK(self.untouchedOutside());
  Tensor weight(Shape({3, 1}), DType::float32), grad(Shape({2, 1}), DType::float32, {1, 2});
  reports(embeddingBackward(queue(), grad.ref(), i, weight.ref(), -1, false, Variant::wide), "embedding_dense_backward: index -4");
}

TEST_CASE("index_select and embedding take rows") {
  for (const Variant v : kVariants) {
    Tensor in(Shape({4, 3}), DType::float32, count(12));
    Tensor index(Shape({5}), DType::int32, {3, 0, 0, 2, 1});
    Tensor out(Shape({5, 3}), DType::float32);
    ok(indexSelect(queue(), in.ref(), 0, index.ref(), out.ref(), v));
    CHECK(out.get() == std::vector<double>{9, 10, 11, 0, 1, 2, 0, 1, 2, 6, 7, 8, 3, 4, 5});
    Tensor cols(Shape({2}), DType::int64, {2, 0}), picked(Shape({4, 2}), DType::float32);
    ok(indexSelect(queue(), in.ref(), 1, cols.ref(), picked.ref(), v));
    CHECK(picked.get() == std::vector<double>{2, 0, 5, 3, 8, 6, 11, 9});
    Tensor words(Shape({2, 2}), DType::int64, {1, 3, 3, 0}), vectors(Shape({2, 2, 3}), DType::float32);
    ok(embedding(queue(), in.ref(), words.ref(), vectors.ref(), v));
    CHECK(vectors.get() == std::vector<double>{3, 4, 5, 9, 10, 11, 9, 10, 11, 0, 1, 2});
  }
}

TEST_CASE("embedding's gradient sums duplicates, skips padding and can divide by frequency") {
  Tensor grad(Shape({3, 2}), DType::float32, {1, 2, 10, 20, 100, 200});
  Tensor index(Shape({3}), DType::int64, {1, 3, 1});
  Tensor weight(Shape({4, 2}), DType::float32);
  ok(embeddingBackward(queue(), grad.ref(), index.ref(), weight.ref(), -1, false, Variant::wide));
  CHECK(weight.get() == std::vector<double>{0, 0, 101, 202, 0, 0, 10, 20});
  ok(embeddingBackward(queue(), grad.ref(), index.ref(), weight.ref(), 3, true, Variant::tiled));
  CHECK(weight.get() == std::vector<double>{0, 0, 50.5, 101, 0, 0, 0, 0});
}

TEST_CASE("scatter overwrites in order, scatter_add sums duplicates") {
  for (const Variant v : kVariants) {
    Tensor self(Shape({3, 2}), DType::float32, {0, 0, 0, 0, 0, 0});
    Tensor index(Shape({3, 2}), DType::int64, {0, 2, 0, 2, 1, 2});
    Tensor src(Shape({3, 2}), DType::float32, {1, 2, 3, 4, 5, 6});
    ok(scatter(queue(), self.ref(), 0, index.ref(), src.ref(), ScatterOp::add, v));
    CHECK(self.get() == std::vector<double>{4, 0, 5, 0, 0, 12});
    ok(scatter(queue(), self.ref(), 0, index.ref(), src.ref(), ScatterOp::set, v));
    CHECK(self.get() == std::vector<double>{3, 0, 5, 0, 0, 6});
    ok(scatterValue(queue(), self.ref(), 1, Tensor(Shape({1, 1}), DType::int64, {1}).ref(), Scalar(9), ScatterOp::set, v));
    CHECK(self.get() == std::vector<double>{3, 9, 5, 0, 0, 6});
  }
}

TEST_CASE("advanced indexing: one index, two neighbours, two apart, broadcast, negative") {
  for (const Variant v : kVariants) {
    Tensor self(Shape({2, 3, 4}), DType::float32, count(24));
    Tensor a(Shape({2}), DType::int64, {-1, 0}), b(Shape({2, 1}), DType::int64, {2, 0});
    const TensorRef ra = a.ref(), rb = b.ref();
    {  // self[:, a]
      Tensor out(Shape({2, 2, 4}), DType::float32);
      const TensorRef* list[] = {nullptr, &ra};
      ok(index(queue(), self.ref(), list, out.ref(), v));
      CHECK(out.get() == std::vector<double>{8, 9, 10, 11, 0, 1, 2, 3, 20, 21, 22, 23, 12, 13, 14, 15});
    }
    {  // self[a, b]: shapes [2] and [2, 1] broadcast to [2, 2]
      Tensor out(Shape({2, 2, 4}), DType::float32);
      const TensorRef* list[] = {&ra, &rb};
      ok(index(queue(), self.ref(), list, out.ref(), v));
      CHECK(out.get() == std::vector<double>{20, 21, 22, 23, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3});
    }
    {  // self[a, :, a]: apart, so the index space comes first
      Tensor out(Shape({2, 3}), DType::float32);
      const TensorRef* list[] = {&ra, nullptr, &ra};
      ok(index(queue(), self.ref(), list, out.ref(), v));
      CHECK(out.get() == std::vector<double>{15, 19, 23, 0, 4, 8});
    }
  }
}

TEST_CASE("index_put writes, accumulates duplicates, and broadcasts its values") {
  for (const Variant v : kVariants) {
    Tensor self(Shape({3, 4}), DType::float32, count(12, 0));
    Tensor rows(Shape({3}), DType::int64, {1, 1, -1});
    const TensorRef r = rows.ref();
    const TensorRef* list[] = {&r};
    Tensor one(Shape({1}), DType::float32, {100});
    ok(indexPut(queue(), self.ref(), list, one.ref(), true, v));
    CHECK(self.get() == std::vector<double>{0, 1, 2, 3, 204, 205, 206, 207, 108, 109, 110, 111});
    Tensor cols(Shape({2}), DType::int64, {3, 0});
    const TensorRef c = cols.ref();
    const TensorRef* second[] = {nullptr, &c};
    Tensor values(Shape({3, 2}), DType::float32, {1, 2, 3, 4, 5, 6});
    ok(indexPut(queue(), self.ref(), second, values.ref(), false, v));
    CHECK(self.get() == std::vector<double>{2, 1, 2, 1, 4, 205, 206, 3, 6, 109, 110, 5});
  }
}

TEST_CASE("cat joins along any dimension into strided results") {
  Tensor a(Shape({2, 1}), DType::float32, {1, 2}), b(Shape({2, 2}), DType::float32, {3, 4, 5, 6});
  Tensor out(Shape({2, 3}, {4, 1}), DType::float32);
  const TensorRef list[] = {a.ref(), b.ref()};
  ok(cat(queue(), list, 1, out.ref(), Variant::wide));
  CHECK(out.get() == std::vector<double>{1, 3, 4, 2, 5, 6});
  CHECK(out.untouchedOutside());
}

TEST_CASE("flip reverses chosen dimensions") {
  for (const Variant v : kVariants) {
    Tensor in(Shape({2, 37}), DType::float32, count(74)), out(Shape({2, 37}), DType::float32);
    ok(flip(queue(), in.ref(), 3, out.ref(), v));
    auto want = count(74);
    std::reverse(want.begin(), want.end());
    CHECK(out.get() == want);
    ok(flip(queue(), in.ref(), 1, out.ref(), v));
    CHECK(out.get()[0] == 37);
  }
}

TEST_CASE("tril and triu keep their side of the diagonal, in batches") {
  for (const Variant v : kVariants) {
    Tensor in(Shape({2, 2, 3}), DType::float32, count(12, 1)), out(Shape({2, 2, 3}), DType::float32);
    ok(triangle(queue(), in.ref(), out.ref(), 0, false, v));
    CHECK(out.get() == std::vector<double>{1, 0, 0, 4, 5, 0, 7, 0, 0, 10, 11, 0});
    ok(triangle(queue(), in.ref(), out.ref(), 1, true, v));
    CHECK(out.get() == std::vector<double>{0, 2, 3, 0, 0, 6, 0, 8, 9, 0, 0, 12});
  }
}

TEST_CASE("scans run along their dimension and keep float32's accuracy over long rows") {
  for (const Variant v : kVariants) {
    Tensor in(Shape({2, 3}), DType::int64, {1, 2, 3, 4, 5, 6}), out(Shape({2, 3}), DType::int64);
    ok(scan(queue(), ScanOp::cumsum, in.ref(), out.ref(), 1, v));
    CHECK(out.get() == std::vector<double>{1, 3, 6, 4, 9, 15});
    ok(scan(queue(), ScanOp::cumprod, in.ref(), out.ref(), 0, v));
    CHECK(out.get() == std::vector<double>{1, 2, 3, 4, 10, 18});
  }
  const auto x = values(100000, DType::float32, 0, 1);
  Tensor in(Shape({100000}), DType::float32, x), out(Shape({100000}), DType::float32);
  ok(scan(queue(), ScanOp::cumsum, in.ref(), out.ref(), 0, Variant::wide));
  CHECK(close(out.get().back(), std::accumulate(x.begin(), x.end(), 0.0), 2e-7, 0));
}

TEST_CASE("sort is stable, puts NaN last, and topk keeps the first") {
  const double nan = std::nan("");
  for (const Variant v : kVariants) {
    Tensor in(Shape({2, 4}), DType::float32, {3, 1, nan, 1, 7, 7, 8, 6}), values(Shape({2, 4}), DType::float32), places(Shape({2, 4}), DType::int64);
    ok(sort(queue(), in.ref(), values.ref(), places.ref(), 1, false, v));
    CHECK(places.get() == std::vector<double>{1, 3, 0, 2, 3, 0, 1, 2});
    CHECK(std::isnan(values.get()[3]));
    ok(sort(queue(), in.ref(), values.ref(), places.ref(), 1, true, v));
    CHECK(places.get() == std::vector<double>{2, 0, 1, 3, 2, 0, 1, 3});
    Tensor best(Shape({2, 2}), DType::float32), where(Shape({2, 2}), DType::int64);
    ok(topk(queue(), in.ref(), best.ref(), where.ref(), 1, false, v));
    CHECK(best.get() == std::vector<double>{1, 1, 6, 7});
    CHECK(where.get() == std::vector<double>{1, 3, 3, 0});
  }
}

TEST_CASE("scatter multiplies and keeps extremes, NaN included") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  struct Row { ScatterOp op; std::vector<double> want; };
  const Row rows[] = {{ScatterOp::multiply, {24, 2, nan}}, {ScatterOp::amax, {4, 2, nan}}, {ScatterOp::amin, {2, 2, nan}}};
  for (const Variant v : kVariants)
    for (const Row& r : rows) {
      Tensor self(Shape({3}), DType::float32, {3, 2, 1}), index(Shape({4}), DType::int64, {0, 2, 0, 2});
      Tensor src(Shape({4}), DType::float32, {4, nan, 2, 9});
      ok(scatter(queue(), self.ref(), 0, index.ref(), src.ref(), r.op, v));
      checkClose(self.get(), r.want, 0, 0);
    }
}

TEST_CASE("running extremes keep their last place, NaN stays, logcumsumexp does not overflow") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const Variant v : kVariants) {
    Tensor in(Shape({2, 5}, {1, 2}), DType::float32, {1, 3, 3, 2, 5, 4, 1, nan, 0, 9});
    Tensor values(Shape({2, 5}), DType::float32), places(Shape({2, 5}), DType::int64);
    ok(running(queue(), true, in.ref(), values.ref(), places.ref(), 1, v));
    checkClose(values.get(), {1, 3, 3, 3, 5, 4, 4, nan, nan, nan}, 0, 0);
    CHECK(places.get() == std::vector<double>{0, 1, 2, 2, 4, 0, 0, 2, 2, 2});
    ok(running(queue(), false, in.ref(), values.ref(), places.ref(), 1, v));
    checkClose(values.get(), {1, 1, 1, 1, 1, 4, 1, nan, nan, nan}, 0, 0);
    Tensor logs(Shape({4}), DType::float32, {-inf, 200, 200, inf}), sums(Shape({4}), DType::float32);
    ok(scan(queue(), ScanOp::logcumsumexp, logs.ref(), sums.ref(), 0, v));
    checkClose(sums.get(), {-inf, 200, 200 + std::log(2.0), inf}, 1e-6, 0);
  }
}

TEST_CASE("nonzero lists coordinates row by row") {
  for (const Variant v : kVariants) {
    Tensor in(Shape({2, 3}, {1, 2}), DType::float32, {0, 2, -0.0, 1, 0, 3});
    Tensor counts(Shape({6}), DType::int64, {0, 1, 1, 2, 2, 3});
    Tensor out(Shape({3, 2}), DType::int64);
    ok(nonzero(queue(), in.ref(), counts.ref(), out.ref(), v));
    CHECK(out.get() == std::vector<double>{0, 1, 1, 0, 1, 2});
  }
}

TEST_CASE("a long scan in pieces gives what one work-item would") {
  constexpr int64_t n = 10007;   // no multiple of the pieces
  for (const Variant v : kVariants) {
    std::vector<double> x(n), sums(n), ones(n, 1);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      x[static_cast<size_t>(i)] = static_cast<double>(i % 7 - 3);
      sums[static_cast<size_t>(i)] = sum += x[static_cast<size_t>(i)];
    }
    Tensor whole(Shape({2, n}, {1, 2}), DType::int64), out(Shape({2, n}), DType::int64);
    std::vector<double> both(x);
    both.insert(both.end(), ones.begin(), ones.end());
    whole.set(both);
    ok(scan(queue(), ScanOp::cumsum, whole.ref(), out.ref(), 1, v));
    const auto got = out.get();
    CHECK(std::equal(sums.begin(), sums.end(), got.begin()));
    CHECK(got.back() == n);
    Tensor floats(Shape({n}), DType::float32, x);
    ok(scan(queue(), ScanOp::cumsum, floats.ref(), floats.ref(), 0, v));   // in place
    CHECK(floats.get() == sums);
    std::vector<double> signs(n, 1);
    signs[5000] = -1;
    Tensor factors(Shape({n}), DType::float32, signs), products(Shape({n}), DType::float32);
    ok(scan(queue(), ScanOp::cumprod, factors.ref(), products.ref(), 0, v));
    const auto p = products.get();
    CHECK(p[4999] == 1);
    CHECK(p[5000] == -1);
    CHECK(p.back() == -1);
  }
}

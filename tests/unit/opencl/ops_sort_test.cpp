// Sorting, selecting and runs in both shapes: against std::stable_sort of the same row, by value and by place.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/opencl/ops/index.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

bool before(double a, double b, bool down) {
  return down ? a > b || (std::isnan(a) && !std::isnan(b)) : a < b || (std::isnan(b) && !std::isnan(a));
}
std::vector<int64_t> order(const std::vector<double>& row, bool down) {
  std::vector<int64_t> places(row.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(),
                   [&](int64_t a, int64_t b) { return before(row[static_cast<size_t>(a)], row[static_cast<size_t>(b)], down); });
  return places;
}
// Few values that repeat, and many that do not; floats with NaN, infinities and both zeros.
std::vector<double> row(int64_t n, DType t, int64_t spread) {
  const bool floating = t == DType::float32 || t == DType::float16 || t == DType::bfloat16 || t == DType::float64;
  std::mt19937 source(static_cast<uint32_t>(n + spread));
  std::uniform_int_distribution<int64_t> any(t == DType::uint8 || t == DType::bool_ ? 0 : -spread, spread);
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) {
    const int64_t i = any(source);
    x = static_cast<double>(i);
    if (floating && i == spread) x = std::nan("");
    if (floating && i == -spread) x = -std::numeric_limits<double>::infinity();
    if (floating && i == 1) x = -0.0;
    x = rounded(t, x);
  }
  return v;
}

}  // namespace

TEST_CASE("rows of every length and dtype are sorted stably, both ways") {
  for (const Variant v : kVariants)
    for (const DType t : {DType::float32, DType::float16, DType::bfloat16, DType::int64, DType::int32, DType::int16, DType::int8, DType::uint8, DType::bool_})
      for (const int64_t n : {1, 9, 128, 129, 1000, 20000})
        for (const int64_t spread : {2, 100}) {
          INFO(name(v) << " " << dtypeName(t) << " " << n << " of " << spread);
          const std::vector<double> data = row(n, t, spread);
          Tensor in(Shape({n}), t, data), values(Shape({n}, {2}, 1), t), places(Shape({n}), DType::int64);
          for (const bool down : {false, true}) {
            ok(sort(queue(), in.ref(), values.ref(), places.ref(), 0, down, v));
            const auto want = order(data, down);
            const auto got = places.get(), sorted = values.get();
            bool same = true;
            for (size_t k = 0; k < want.size(); ++k) {
              const double x = data[static_cast<size_t>(want[k])];
              same = same && got[k] == static_cast<double>(want[k]) && (x == sorted[k] || (std::isnan(x) && std::isnan(sorted[k])));
            }
            CHECK(same);
            CHECK(values.untouchedOutside());
          }
        }
}

TEST_CASE("one of a row is what a sorted row has there, without sorting") {
  for (const Variant v : kVariants)
    for (const DType t : {DType::float32, DType::bfloat16, DType::int64, DType::int16, DType::uint8})
      for (const int64_t n : {1, 6, 300, 20000}) {
        INFO(name(v) << " " << dtypeName(t) << " " << n);
        const std::vector<double> data = row(n, t, 50);
        const auto want = order(data, false);
        const auto nans = std::count_if(data.begin(), data.end(), [](double x) { return std::isnan(x); });
        Tensor in(Shape({n}), t, data), value(Shape({1}), t), place(Shape({1}), DType::int64);
        const auto check = [&](Selected what, int64_t k, int64_t at) {
          INFO("what " << static_cast<int>(what) << ", k " << k);
          ok(select(queue(), what, k, in.ref(), value.ref(), place.ref(), 0, v));
          CHECK(place.get()[0] == static_cast<double>(want[static_cast<size_t>(at)]));
          const double x = data[static_cast<size_t>(want[static_cast<size_t>(at)])];
          CHECK((value.get()[0] == x || (std::isnan(x) && std::isnan(value.get()[0]))));
        };
        for (const int64_t k : {int64_t{0}, n / 2, n - 1}) check(Selected::kth, k, k);
        check(Selected::median, 0, nans ? n - nans : (n - 1) / 2);
        check(Selected::nanmedian, 0, std::max<int64_t>(n - 1 - nans, 0) / 2);
      }
}

TEST_CASE("the most frequent of columns, and where it stands last") {
  for (const Variant v : kVariants) {
    const double nan = std::nan("");
    Tensor in(Shape({5, 3}), DType::float32, {2, nan, 4, 1, nan, 3, 2, nan, 2, 1, 6, 1, 7, 6, 0}), value(Shape({1, 3}), DType::float32);
    Tensor place(Shape({1, 3}), DType::int64);
    ok(mode(queue(), in.ref(), value.ref(), place.ref(), 0, v));
    CHECK(value.get() == std::vector<double>{1, 6, 0});   // of equally many the smallest; no NaN equals another
    CHECK(place.get() == std::vector<double>{3, 4, 4});
    const int64_t n = 20000;   // cut into pieces
    std::vector<double> data = row(n, DType::int32, 1000);
    for (size_t k = 0; k < 100; ++k) data[k * 7] = 17;
    Tensor many(Shape({n}), DType::int32, data), one(Shape({1}), DType::int32), at(Shape({1}), DType::int64);
    ok(mode(queue(), many.ref(), one.ref(), at.ref(), 0, v));
    CHECK(one.get()[0] == 17);
    CHECK(at.get()[0] == static_cast<double>(data.rend() - std::find(data.rbegin(), data.rend(), 17.0) - 1));
  }
}

TEST_CASE("runs have values, beginnings and numbers, also where the vector is cut") {
  for (const Variant v : kVariants) {
    const double nan = std::nan("");
    Tensor in(Shape({6}), DType::float32, {1, 1, nan, nan, 0, -0.0}), before(Shape({runPieces(queue(), 6, v) + 1}), DType::int64);
    ok(countRuns(queue(), in.ref(), before.ref(), v));
    REQUIRE(before.get() == std::vector<double>{0, 4});
    Tensor values(Shape({4}), DType::float32), starts(Shape({5}), DType::int64), numbers(Shape({6}), DType::int64);
    Tensor turned(Shape({6}), DType::int64, {5, 4, 3, 2, 1, 0});
    const TensorRef s = starts.ref(), n = numbers.ref(), o = turned.ref();
    ok(writeRuns(queue(), in.ref(), before.ref(), values.ref(), &s, &n, nullptr, v));
    CHECK(starts.get() == std::vector<double>{0, 2, 3, 4, 6});
    CHECK(numbers.get() == std::vector<double>{0, 0, 1, 2, 3, 3});
    ok(writeRuns(queue(), in.ref(), before.ref(), values.ref(), nullptr, &n, &o, v));
    CHECK(numbers.get() == std::vector<double>{3, 3, 2, 1, 0, 0});

    const int64_t count = 50000;
    std::vector<double> steps(static_cast<size_t>(count));
    for (size_t k = 0; k < steps.size(); ++k) steps[k] = static_cast<double>(k / 3);
    Tensor long_one(Shape({count}), DType::int32, steps), pieces(Shape({runPieces(queue(), count, v) + 1}), DType::int64);
    REQUIRE(pieces.get().size() > 2);
    ok(countRuns(queue(), long_one.ref(), pieces.ref(), v));
    REQUIRE(pieces.get().back() == 16667);
    Tensor all(Shape({16667}), DType::int32);
    ok(writeRuns(queue(), long_one.ref(), pieces.ref(), all.ref(), nullptr, nullptr, nullptr, v));
    const auto got = all.get();
    bool same = true;
    for (size_t k = 0; k < 16667; ++k) same = same && got[k] == static_cast<double>(k);
    CHECK(same);
  }
}

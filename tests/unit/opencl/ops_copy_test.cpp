// Copy, cast and fill: every pair of dtypes, layouts, special values.
#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/fill.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
constexpr DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int8,
                            DType::int16,   DType::int32,   DType::int64,   DType::uint8,    DType::bool_};

// PyTorch's conversion for values in range; float to uint8 and int8 wraps through int.
double converted(DType to, double v) {
  switch (to) {
    case DType::bool_: return v != 0;
    case DType::int8: return static_cast<int8_t>(static_cast<int>(v));
    case DType::uint8: return static_cast<uint8_t>(static_cast<int>(v));
    case DType::int16: case DType::int32: case DType::int64: return std::trunc(v);
    default: return rounded(to, v);
  }
}

}  // namespace

TEST_CASE("every dtype converts to every other as PyTorch does", "[ops][copy]") {
  for (DType from : kTypes)
    for (DType to : kTypes)
      for (Variant v : kVariants) {
        INFO(dtypeName(from) << " to " << dtypeName(to) << " " << name(v));
        const double low = from == DType::uint8 || from == DType::bool_ ? 0 : -120;
        const std::vector<double> in = values(53, from, low, from == DType::bool_ ? 1.99 : 120);
        std::vector<double> want;
        for (double x : in) want.push_back(converted(to, x));
        Tensor a(Shape({53}), from, in), out(Shape({53}), to);
        ok(copy(queue(), a.ref(), out.ref(), v));
        REQUIRE(out.get() == want);
        REQUIRE(out.untouchedOutside());
      }
}

TEST_CASE("copy over layouts", "[ops][copy]") {
  const std::vector<std::pair<Shape, Shape>> layouts = {
      {Shape({}), Shape({})},
      {Shape({3, 0}), Shape({3, 0})},
      {Shape({31, 45}, {1, 31}), Shape({31, 45})},
      {Shape({31, 45}), Shape({31, 45}, {1, 31})},
      {Shape({31, 45}, {1, 31}), Shape({31, 45}, {1, 31})},
      {Shape({4, 5, 6, 7}, {210, 1, 35, 5}), Shape({4, 5, 6, 7})},
      {Shape({3, 50, 37}, {1850, 1, 50}), Shape({3, 50, 37})},                       // tiles, with edges
      {Shape({2, 20, 3, 16}, {3000, 1, 1000, 40}), Shape({2, 20, 3, 16}, {960, 48, 16, 1}, 5)},
      {Shape({4, 33}, {100, 3}, 17), Shape({4, 33}, {50, 1}, 9)},
      {Shape({2, 3, 2, 3, 2, 3, 2, 3}), Shape({2, 3, 2, 3, 2, 3, 2, 3}, {1, 2, 6, 12, 36, 72, 216, 432})},
  };
  for (const auto& [from, to] : layouts)
    for (DType t : {DType::float32, DType::int64, DType::bool_, DType::bfloat16})
      for (Variant v : kVariants) {
        INFO(from.text() << " to " << to.text() << " " << dtypeName(t) << " " << name(v));
        const std::vector<double> in = values(from.numel(), t, 0, 100);
        Tensor a(from, t, in), out(to, t);
        ok(copy(queue(), a.ref(), out.ref(), v));
        REQUIRE(out.get() == in);
        REQUIRE(out.untouchedOutside());
      }
}

TEST_CASE("copy broadcasts, keeps bits, and handles special values", "[ops][copy]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    Tensor row(Shape({20}), DType::float32, values(20, DType::float32, -1, 1)), full(Shape({3, 20}), DType::float32);
    ok(copy(queue(), row.ref(), full.ref(), v));
    const auto r = row.get(), f = full.get();
    for (size_t i = 0; i < 60; ++i) REQUIRE(f[i] == r[i % 20]);
    // 0.5 is true; NaN is true; minus zero is false.
    Tensor x(Shape({4}), DType::float32, {0.5, kNan, -0.0, -3}), b(Shape({4}), DType::bool_);
    ok(copy(queue(), x.ref(), b.ref(), v));
    REQUIRE(b.get() == std::vector<double>{1, 1, 0, 1});
    // Ties go to even, both ways; overflow becomes infinity; NaN stays NaN.
    const double bf = 1.0 + 0x1p-8, bf3 = 1.0 + 3 * 0x1p-8;
    Tensor y(Shape({5}), DType::float32, {bf, bf3, 3.4e38, kNan, -kInf}), z(Shape({5}), DType::bfloat16),
        h(Shape({5}), DType::float16);
    ok(copy(queue(), y.ref(), z.ref(), v));
    checkClose(z.get(), {1.0, 1.0 + 0x1p-6, kInf, kNan, -kInf}, 0, 0);
    y.set({1.0 + 0x1p-11, 65519, 65520, 0x1p-24, 0x1p-26});
    ok(copy(queue(), y.ref(), h.ref(), v));
    checkClose(h.get(), {1.0, 65504, kInf, 0x1p-24, 0}, 0, 0);
    // Equal dtypes move bits: NaN payloads and 64-bit integers survive.
    Tensor n(Shape({3}), DType::float32), m(Shape({3}), DType::float32);
    std::vector<char> raw = n.storage();
    const uint32_t payload[] = {0x7fc01234u, 0xff812345u, 0x80000000u};
    std::memcpy(raw.data(), payload, sizeof payload);
    n.write(raw);
    ok(copy(queue(), n.ref(), m.ref(), v));
    REQUIRE(std::memcmp(m.storage().data(), payload, sizeof payload) == 0);
    // Complex numbers are moved, too; 16 bytes go as two halves, whatever the strides.
    Tensor c(Shape({12}), DType::float64, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), d(Shape({12}), DType::float64);
    TensorRef from = c.ref(), to = d.ref();
    from.dtype = to.dtype = DType::complex128;
    from.offset /= 2;
    to.offset /= 2;
    from.ndim = to.ndim = 2;
    from.sizes = to.sizes = {2, 3};
    from.strides = {3, 1};
    to.strides = {1, 2};
    ok(copy(queue(), from, to, v));
    REQUIRE(d.get() == std::vector<double>{1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12});
  }
  REQUIRE_FALSE(copySupports(DType::complex64, DType::float32));
  REQUIRE(copySupports(DType::complex64, DType::complex64));
}

TEST_CASE("fill writes one value everywhere and nowhere else", "[ops][fill]") {
  const std::vector<Shape> layouts = {Shape({}), Shape({0}), Shape({100}), Shape({7, 19}, {60, 3}, 11),
                                      Shape({3, 4, 5}, {1, 3, 12})};
  for (const Shape& s : layouts)
    for (DType t : kTypes)
      for (Variant v : kVariants) {
        INFO(s.text() << " " << dtypeName(t) << " " << name(v));
        Tensor x(s, t);
        ok(fill(queue(), x.ref(), Scalar(t == DType::bool_ ? 0.5 : 3.0), v));
        REQUIRE(x.get() == std::vector<double>(static_cast<size_t>(s.numel()), t == DType::bool_ ? 1.0 : 3.0));
        REQUIRE(x.untouchedOutside());
      }
  for (Variant v : kVariants) {
    Tensor f(Shape({3}), DType::float32);
    ok(fill(queue(), f.ref(), Scalar(kNan), v));
    checkClose(f.get(), {kNan, kNan, kNan}, 0, 0);
    Tensor i(Shape({2}), DType::int64);
    ok(fill(queue(), i.ref(), Scalar(int64_t{-9007199254740993}), v));
    int64_t raw[2];
    std::memcpy(raw, i.storage().data(), sizeof raw);
    REQUIRE((raw[0] == -9007199254740993 && raw[1] == -9007199254740993));
    Tensor a(Shape({5}), DType::int32), b(Shape({2, 3}, {1, 2}), DType::float32);
    ok(arange(queue(), a.ref(), Scalar(7), Scalar(-2), v));
    REQUIRE(a.get() == std::vector<double>{7, 5, 3, 1, -1});
    ok(arange(queue(), b.ref(), Scalar(0.5), Scalar(0.25), v));
    REQUIRE(b.get() == std::vector<double>{0.5, 0.75, 1, 1.25, 1.5, 1.75});
    Tensor big(Shape({2, 2}, {1, 2}), DType::float64);
    TensorRef complex = big.ref();
    complex.dtype = DType::complex128;
    complex.offset /= 2;
    complex.ndim = 1;
    complex.sizes = {2};
    complex.strides = {1};
    const double pair[2] = {1.5, -2.5};
    ok(fillBits(queue(), complex, pair, v));
    REQUIRE(big.get() == std::vector<double>{1.5, 1.5, -2.5, -2.5});
  }
}

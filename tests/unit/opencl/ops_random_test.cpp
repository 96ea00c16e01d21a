// Random kernels: the documented stream, the same bits in both variants, sane distributions, strided results.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "runtime/opencl/ops/random_host.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

struct Moments { double mean, variance; };
Moments moments(const std::vector<double>& v) {
  const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  double sum = 0;
  for (const double x : v) sum += (x - mean) * (x - mean);
  return {mean, sum / static_cast<double>(v.size())};
}

std::vector<double> drawn(RandomOp op, double p0, double p1, PhiloxState s, Variant v, DType t = DType::float32, int64_t n = 4099) {
  Tensor out(Shape({n}), t);
  ok(random(queue(), op, out.ref(), p0, p1, s, v));
  CHECK(out.untouchedOutside());
  return out.get();
}

}  // namespace

TEST_CASE("philox gives the published test vectors") {
  // Random123's known answers for philox4x32-10: counter 0, key 0.
  uint32_t d[4];
  philox4x32(0, 0, d);
  CHECK(d[0] == 0x6627e8d5u);
  CHECK(d[1] == 0xe169c58du);
  CHECK(d[2] == 0xbc57ac4cu);
  CHECK(d[3] == 0x9b00dbd8u);
}

TEST_CASE("uniform numbers are the documented draws, in both variants") {
  const PhiloxState s{0x123456789abcdefULL, 77};
  for (const Variant v : kVariants) {
    INFO(name(v));
    const auto got = drawn(RandomOp::uniform, 0, 1, s, v, DType::float32, 11);
    for (size_t i = 0; i < got.size(); ++i) {
      uint32_t d[4];
      philox4x32(s.seed, s.offset + i / 4, d);
      CHECK(got[i] == static_cast<double>(d[i % 4] >> 8) * 0x1.0p-24);
    }
  }
}

TEST_CASE("the same seed gives the same bits in both variants, and an offset goes on where the last call ended") {
  for (const RandomOp op : {RandomOp::uniform, RandomOp::normal, RandomOp::bernoulli, RandomOp::exponential}) {
    const double p1 = op == RandomOp::uniform ? 2 : 1.5, p0 = op == RandomOp::bernoulli ? 0.3 : op == RandomOp::exponential ? 2 : 0.25;
    const auto a = drawn(op, p0, p1, {5, 0}, Variant::wide), b = drawn(op, p0, p1, {5, 0}, Variant::tiled);
    CHECK(a == b);
    Tensor first(Shape({400}), DType::float32);
    const uint64_t blocks = philoxBlocks(op, first.ref());
    CHECK(blocks == 100);
    ok(random(queue(), op, first.ref(), p0, p1, {5, 0}, Variant::wide));
    const auto rest = drawn(op, p0, p1, {5, blocks}, Variant::wide, DType::float32, 40);
    CHECK(std::vector<double>(a.begin() + 400, a.begin() + 440) == rest);
    CHECK(a != drawn(op, p0, p1, {6, 0}, Variant::wide));
  }
}

TEST_CASE("distributions have their mean and variance") {
  struct Row { RandomOp op; double p0, p1, mean, variance; };
  const Row rows[] = {{RandomOp::uniform, -2, 4, 1, 3},       {RandomOp::normal, 1, 2, 1, 4},   {RandomOp::bernoulli, 0.3, 0, 0.3, 0.21},
                      {RandomOp::exponential, 2, 0, 0.5, 0.25}, {RandomOp::geometric, 0.25, 0, 4, 12}};
  for (const DType t : {DType::float32, DType::float64}) {
    if (t == DType::float64 && !queue().device().description().fp64) continue;
    for (const Row& r : rows) {
      INFO(dtypeName(t) << " " << static_cast<int>(r.op));
      const auto m = moments(drawn(r.op, r.p0, r.p1, {99, 3}, Variant::wide, t, 200000));
      CHECK(std::fabs(m.mean - r.mean) < 5 * std::sqrt(r.variance / 200000));
      CHECK(std::fabs(m.variance / r.variance - 1) < 0.03);
    }
  }
}

TEST_CASE("normal numbers reach into the tails and stay finite") {
  const auto v = drawn(RandomOp::normal, 0, 1, {1, 0}, Variant::wide, DType::float32, 300000);
  CHECK(std::all_of(v.begin(), v.end(), [](double x) { return std::isfinite(x) && std::fabs(x) < 6.5; }));
  const auto beyond = static_cast<double>(std::count_if(v.begin(), v.end(), [](double x) { return std::fabs(x) > 2; })) / 300000;
  CHECK(std::fabs(beyond - 0.0455) < 0.002);
}

TEST_CASE("whole numbers fill their range and nothing else") {
  for (const Variant var : kVariants)
    for (const DType t : {DType::int64, DType::int32, DType::uint8, DType::float32}) {
      Tensor out(Shape({5000}), t);
      ok(randomInt(queue(), out.ref(), 3, 13, {7, 0}, var));
      const auto v = out.get();
      CHECK(*std::min_element(v.begin(), v.end()) == 3);
      CHECK(*std::max_element(v.begin(), v.end()) == 12);
    }
  Tensor wide(Shape({1000}), DType::int64);
  ok(randomInt(queue(), wide.ref(), 0, INT64_MAX, {7, 0}, Variant::wide));
  const auto v = wide.get();
  CHECK(*std::min_element(v.begin(), v.end()) >= 0);
  CHECK(*std::max_element(v.begin(), v.end()) > 9e18 * 0.9);
  CHECK_FALSE(randomInt(queue(), wide.ref(), 5, 5, {7, 0}, Variant::wide));
}

TEST_CASE("a strided result gets the numbers of its positions and nothing outside is written") {
  const auto dense = drawn(RandomOp::normal, 0, 1, {3, 0}, Variant::wide, DType::float32, 12);
  Tensor out(Shape({3, 4}, {2, 6}, 1), DType::float32);
  ok(random(queue(), RandomOp::normal, out.ref(), 0, 1, {3, 0}, Variant::wide));
  CHECK(out.get() == dense);
  CHECK(out.untouchedOutside());
}

TEST_CASE("dropout scales what it keeps and says what it kept") {
  const auto x = values(1000, DType::float32, 1, 2);
  for (const double p : {0.0, 0.25, 1.0}) {
    Tensor in(Shape({1000}), DType::float32, x), out(Shape({1000}), DType::float32), mask(Shape({1000}), DType::bool_);
    ok(dropout(queue(), in.ref(), out.ref(), mask.ref(), p, {11, 0}, Variant::wide));
    const auto y = out.get(), m = mask.get();
    double kept = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      kept += m[i];
      CHECK(close(y[i], m[i] == 0 ? 0 : x[i] / (1 - p), 1e-6, 0));
    }
    CHECK(std::fabs(kept / 1000 - (1 - p)) < 0.05);
  }
}

TEST_CASE("bernoulli follows a tensor of probabilities, broadcast") {
  Tensor p(Shape({1, 3}), DType::float32, {0, 0.5, 1});
  Tensor out(Shape({2000, 3}), DType::float32);
  TensorRef q = p.ref();
  q.sizes[0] = 2000;
  q.strides[0] = 0;
  ok(bernoulliTensor(queue(), q, out.ref(), {21, 0}, Variant::tiled));
  const auto v = out.get();
  double sums[3] = {};
  for (size_t i = 0; i < v.size(); ++i) sums[i % 3] += v[i];
  CHECK(sums[0] == 0);
  CHECK(std::fabs(sums[1] - 1000) < 120);
  CHECK(sums[2] == 2000);
}

TEST_CASE("the host draws the kernels' numbers, bit for bit") {
  const PhiloxState s{0xfeedULL, 1234567};
  struct Case { RandomOp op; double p0, p1; };
  for (const Case& c : {Case{RandomOp::uniform, -1, 3}, Case{RandomOp::normal, 0.5, 2}, Case{RandomOp::bernoulli, 0.3, 0},
                        Case{RandomOp::exponential, 1.7, 0}, Case{RandomOp::log_normal, 0.25, 1.5}, Case{RandomOp::geometric, 0.2, 0},
                        Case{RandomOp::cauchy, 1, 2}}) {
    INFO(static_cast<int>(c.op));
    std::vector<float> host(4099);
    randomHost(c.op, c.p0, c.p1, s, 4099, host.data());
    const std::vector<double> want(host.begin(), host.end());
    for (const Variant v : kVariants) CHECK(drawn(c.op, c.p0, c.p1, s, v) == want);
  }
  for (const auto& [low, high] : {std::pair<int64_t, int64_t>{-3, 10}, std::pair<int64_t, int64_t>{0, int64_t{1} << 40}}) {
    std::vector<int64_t> host(1001);
    randomIntHost(low, high, s, 1001, host.data());
    Tensor out(Shape({1001}), DType::int64);
    ok(randomInt(queue(), out.ref(), low, high, s, Variant::wide));
    CHECK(out.get() == std::vector<double>(host.begin(), host.end()));
  }
}

TEST_CASE("a shuffle is a permutation, the same on the host") {
  for (const int64_t n : {1, 2, 1000}) {
    Tensor out(Shape({n}), DType::int64);
    ok(shuffle(queue(), out.ref(), {9, 4}));
    std::vector<int64_t> host(static_cast<size_t>(n));
    shuffleHost({9, 4}, n, host.data());
    auto got = out.get();
    CHECK(got == std::vector<double>(host.begin(), host.end()));
    std::sort(got.begin(), got.end());
    for (int64_t i = 0; i < n; ++i) CHECK(got[static_cast<size_t>(i)] == static_cast<double>(i));
  }
}

TEST_CASE("picks follow the weights, and never a category of weight 0") {
  for (const Variant v : kVariants) {
    INFO(name(v));
    Tensor totals(Shape({2, 4}), DType::float32, {0, 1, 1, 4, 2, 2, 2, 2}), out(Shape({2, 4000}), DType::int64);
    ok(pickByWeight(queue(), totals.ref(), out.ref(), {1, 2}, v));
    std::array<int, 4> first{}, second{};
    const auto got = out.get();
    for (size_t i = 0; i < 4000; ++i) ++first[static_cast<size_t>(got[i])], ++second[static_cast<size_t>(got[4000 + i])];
    CHECK(first[0] == 0);
    CHECK(first[2] == 0);
    CHECK(std::abs(first[1] - 1000) < 120);
    CHECK(second == std::array<int, 4>{4000, 0, 0, 0});
  }
}

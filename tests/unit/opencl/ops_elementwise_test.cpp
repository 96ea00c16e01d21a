// How elementwise kernels are given their operands, and launches that are made again.
#include "runtime/opencl/ops/elementwise.h"

#include "runtime/opencl/ops/pointwise.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;
using P = PointwiseOp;

namespace {

FlatOperand operandOf(const Tensor& t) {
  const TensorRef r = t.ref();
  return {r.buffer, r.base, r.offset};
}

std::vector<double> sums(const Tensor& a, const std::vector<double>& x, const std::vector<double>& y, double alpha) {
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) want.push_back(rounded(a.dtype(), x[i] + alpha * y[i]));
  return want;
}

}  // namespace

TEST_CASE("by address and by buffer, an operand is the same", "[ops][elementwise]") {
  // Flat, walked in rows, transposed in tiles; each with an offset.
  const std::pair<Shape, Shape> layouts[] = {{Shape({70}, {1}, 3), Shape({70}, {1}, 5)},
                                             {Shape({7, 10}, {10, 1}, 2), Shape({7, 10}, {24, 2}, 1)},
                                             {Shape({20, 33}), Shape({20, 33}, {1, 20}, 7)}};
  CHECK(queue().device().directAddresses() == queue().device().sharedMemory());  // PoCL: kernels run in this process
  for (const auto& [to, from] : layouts)
    for (Variant v : kVariants)
      for (const DType t : {DType::float32, DType::bfloat16, DType::int64}) {
        INFO(from.text() << " " << name(v) << " " << dtypeName(t));
        const auto x = values(from.numel(), t, -9, 9);
        Tensor in(from, t, x), direct(to, t), buffers(to, t);
        const TensorRef a[] = {in.ref()};
        ok(pointwise(queue(), P::neg, a, direct.ref(), t, {}, v));
        TensorRef b[] = {in.ref()}, out = buffers.ref();
        b[0].base = out.base = nullptr;
        ok(pointwise(queue(), P::neg, b, out, t, {}, v));
        std::vector<double> want;
        for (double value : x) want.push_back(-value);
        REQUIRE(direct.get() == want);
        REQUIRE(buffers.get() == want);
        REQUIRE(direct.untouchedOutside());
        REQUIRE(buffers.untouchedOutside());
        // One address unknown: all go by buffer.
        Tensor mixed(to, t);
        ok(pointwise(queue(), P::neg, b, mixed.ref(), t, {}, v));
        REQUIRE(mixed.get() == want);
      }
}

TEST_CASE("a flat launch is made again on other operands", "[ops][elementwise]") {
  for (Variant v : kVariants)
    for (const bool direct : {true, false}) {
      INFO(name(v) << (direct ? " by address" : " by buffer"));
      const auto x = values(50, DType::float16, -3, 3, 1), y = values(50, DType::float16, -3, 3, 2), z = values(50, DType::float16, -3, 3, 3);
      Tensor a(Shape({50}), DType::float16, x), b(Shape({50}), DType::float16, y), c(Shape({50}, {1}, 11), DType::float16, z), first(Shape({50}), DType::float16),
          second(Shape({50}, {1}, 3), DType::float16);
      TensorRef in[] = {a.ref(), b.ref()}, out = first.ref();
      if (!direct) in[0].base = in[1].base = out.base = nullptr;
      const Scalar alpha[] = {Scalar(2.0)};
      FlatRecord record;
      ok(pointwise(queue(), P::add, in, out, DType::float16, alpha, v));
      REQUIRE(record.launch.kernel);
      CHECK(record.launch.launches == 1);
      CHECK(record.launch.operands == 3);
      CHECK(record.launch.direct == (direct && queue().device().directAddresses()));
      CHECK(record.operands[1].buffer == in[0].buffer);
      CHECK(record.operands[1].offset == in[0].offset);
      checkClose(first.get(), sums(a, x, y, 2), 0, 0);
      const FlatOperand others[] = {operandOf(second), operandOf(c), operandOf(a)};
      ok(relaunch(queue(), record.launch, others));
      checkClose(second.get(), sums(a, z, x, 2), 0, 0);
      REQUIRE(second.untouchedOutside());
      checkClose(first.get(), sums(a, x, y, 2), 0, 0);
    }
}

TEST_CASE("what is not one flat launch is not noted as one", "[ops][elementwise]") {
  Tensor rows(Shape({3, 4}, {9, 2}), DType::float32, values(12, DType::float32, 0, 1)), flat(Shape({12}), DType::float32, values(12, DType::float32, 0, 1)),
      none(Shape({0}), DType::float32), wide(Shape({3, 4}), DType::float32);
  const TensorRef strided[] = {rows.ref()}, plain[] = {flat.ref()}, empty[] = {none.ref()};
  FlatRecord outer;
  {
    FlatRecord record;
    ok(pointwise(queue(), P::exp, empty, none.ref(), DType::float32, {}, Variant::wide));
    CHECK(record.launch.launches == 0);
    ok(pointwise(queue(), P::exp, strided, wide.ref(), DType::float32, {}, Variant::wide));
    CHECK(record.launch.launches == 1);
    CHECK_FALSE(record.launch.kernel);
    ok(pointwise(queue(), P::exp, plain, flat.ref(), DType::float32, {}, Variant::wide));
    CHECK(record.launch.launches == 2);
  }
  CHECK(outer.launch.launches == 0);  // the inner one had them
  ok(pointwise(queue(), P::exp, plain, flat.ref(), DType::float32, {}, Variant::wide));
  CHECK(outer.launch.launches == 1);
  CHECK(outer.launch.kernel);
}

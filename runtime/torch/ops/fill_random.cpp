// Filling with one value, counting up, and random numbers.
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/fill.h"
#include "runtime/opencl/ops/random_host.h"
#include "runtime/torch/generator.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::RandomOp;

bool denseFits(const at::Tensor& t) {
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims && !at::isComplexType(t.scalar_type()) && !t.is_quantized() &&
         toDType(t.scalar_type()) != DType::other;
}

Result<void> fillWith(OpCall& c, const at::Scalar& value) {
  const at::Tensor out = c.out();
  at::assert_no_internal_overlap(out);
  if (out.numel() == 0) return {};
  return ocl::fill(c.queue(), ref(out), toScalar(value), c.variant());
}
Result<void> fillScalar(OpCall& c) { return fillWith(c, c.scalar(1)); }
bool fillScalarFits(const OpCall& c) { return denseFits(c.tensor(0)) && !c.scalar(1).isComplex(); }
Result<void> fillTensor(OpCall& c) {
  const at::Tensor out = c.out(), &value = c.tensor(1);
  if (isCpuScalar(value)) return fillWith(c, value.item());
  at::assert_no_internal_overlap(out);
  return out.numel() == 0 ? Result<void>() : ocl::copy(c.queue(), ref(value, out.sizes()), ref(out), c.variant());
}
bool fillTensorFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &value = c.tensor(1);
  if (!denseFits(self) || value.dim() != 0 || at::isComplexType(value.scalar_type())) return false;
  return isCpuScalar(value) || (denseFits(value) && !value.is_alias_of(self) &&
                                ocl::copySupports(toDType(value.scalar_type()), toDType(self.scalar_type())));
}
Result<void> zero(OpCall& c) { return fillWith(c, 0); }
// Zero is zero bits for complex numbers too, but their fill takes another way.
bool zeroFits(const OpCall& c) { return denseFits(c.tensor(0)); }

// (start, end, step, *, out)
Result<void> arange(OpCall& c) {
  const at::Scalar start = c.scalar(0), end = c.scalar(1), step = c.scalar(2);
  // Whole numbers count exactly; otherwise PyTorch computes the length in double.
  int64_t n;
  if (start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true)) {
    const int64_t a = start.toLong(), b = end.toLong(), s = step.toLong();
    n = (b - a + s - (s > 0 ? 1 : -1)) / s;
  } else {
    n = static_cast<int64_t>(std::ceil((end.toDouble() - start.toDouble()) / step.toDouble()));
  }
  at::Tensor out = c.out();
  if (out.numel() != n) out = c.resizeOut(0, {n});
  if (n == 0) return {};
  return ocl::arange(c.queue(), ref(out), toScalar(start), toScalar(step), c.variant());
}
bool arangeFits(const OpCall& c) {
  const double a = c.number(0), b = c.number(1), s = c.number(2);
  const at::ScalarType t = c.out().scalar_type();
  // Wrong bounds raise on the host route; float16 and bfloat16 are stepped there in PyTorch's own way.
  return denseFits(c.out()) && std::isfinite(a) && std::isfinite(b) && s != 0 && (s > 0 ? b >= a : b <= a) &&
         (t == at::kFloat || t == at::kDouble || at::isIntegralType(t, false));
}

ocl::PhiloxState draw(OpCall& c, size_t generator, uint64_t blocks) {
  const auto d = drawFrom(c.generator(generator), static_cast<int>(c.device().index()), blocks);
  return {d.seed, d.offset};
}

// What the host draws instead of a kernel: the same numbers, made in ordinary memory and copied.
template <class F>
Result<void> hostDraw(const at::Tensor& out, F draw) {
  if (out.numel() == 0) return {};
  const bool wide = out.scalar_type() == at::kDouble;
  const at::Tensor numbers = at::empty(out.sizes(), wide ? at::kDouble : at::kFloat);
  if (wide) draw(numbers.mutable_data_ptr<double>());
  else draw(numbers.mutable_data_ptr<float>());
  out.copy_(numbers);
  return {};
}

// (self, p0, p1, *, generator) or (self, p0, *, generator)
template <RandomOp op, size_t N>
Result<void> distributionHost(OpCall& c) {
  const at::Tensor out = c.out();
  return hostDraw(out, [&](auto* to) {
    ocl::randomHost(op, c.number(1), N == 2 ? c.number(2) : 0, draw(c, N + 1, ocl::philoxBlocks(op, ref(out))), out.numel(), to);
  });
}
template <RandomOp op, size_t N>
Result<void> distribution(OpCall& c) {
  const at::Tensor out = c.out();
  checkOverlap(out, {});
  if (out.numel() == 0) return {};
  const ocl::TensorRef r = ref(out);
  return ocl::random(c.queue(), op, r, c.number(1), N == 2 ? c.number(2) : 0, draw(c, N + 1, ocl::philoxBlocks(op, r)), c.variant());
}
template <RandomOp op, size_t N>
bool distributionFits(const OpCall& c) {
  if (!denseFits(c.tensor(0))) return false;
  const at::ScalarType t = c.tensor(0).scalar_type();
  const double p0 = c.number(1), p1 = N == 2 ? c.number(2) : 0;
  // Wrong parameters raise on the host route.
  if (op == RandomOp::uniform && !(p0 <= p1 && std::isfinite(p1 - p0))) return false;
  if ((op == RandomOp::normal || op == RandomOp::log_normal) && !(p1 >= 0)) return false;
  if (op == RandomOp::bernoulli) return p0 >= 0 && p0 <= 1;
  if (op == RandomOp::exponential && !(p0 > 0)) return false;
  if (op == RandomOp::cauchy && !(p1 > 0)) return false;
  if (op == RandomOp::geometric) return p0 > 0 && p0 < 1 && t != at::kBool;
  return t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kDouble;
}

Result<void> bernoulliTensor(OpCall& c) {
  const at::Tensor out = c.out();
  checkOverlap(out, {});
  if (out.numel() == 0) return {};
  const ocl::TensorRef r = ref(out);
  const at::Tensor& p = c.tensor(c.isOut(0) ? 1 : 0);
  return ocl::bernoulliTensor(c.queue(), ref(p, out.sizes()), r, draw(c, c.isOut(0) ? 2 : 1, ocl::philoxBlocks(RandomOp::bernoulli, r)), c.variant());
}
Result<void> bernoulliTensorHost(OpCall& c) {
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  const at::Tensor units = at::empty(out.sizes(), at::kFloat), p = c.tensor(c.isOut(0) ? 1 : 0).cpu();
  TORCH_CHECK(p.ge(0).logical_and(p.le(1)).all().item<bool>(),
              "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli was given a probability outside [0, 1]");
  ocl::unitHost(draw(c, c.isOut(0) ? 2 : 1, ocl::philoxBlocks(RandomOp::bernoulli, ref(out))), out.numel(), units.mutable_data_ptr<float>());
  out.copy_(units.lt(p));
  return {};
}
bool bernoulliTensorFits(const OpCall& c) {
  const at::Tensor& p = c.tensor(c.isOut(0) ? 1 : 0);
  return denseFits(c.out()) && denseFits(p) && at::isFloatingType(p.scalar_type()) && (c.isOut(0) || p.sizes() == c.out().sizes());
}

// [low, high) of random_, as PyTorch: without bounds, up to the largest whole number the dtype holds exactly.
std::pair<int64_t, int64_t> limits(const OpCall& c) {
  const std::string_view schema = c.row().schema;
  const auto top = [&]() -> int64_t {
    switch (c.tensor(0).scalar_type()) {
      case at::kBool: return 2;
      case at::kByte: return 256;
      case at::kChar: return 128;
      case at::kShort: return 32768;
      case at::kInt: return int64_t{1} << 31;
      case at::kHalf: return (1 << 11) + 1;
      case at::kBFloat16: return (1 << 8) + 1;
      case at::kFloat: return (1 << 24) + 1;
      case at::kDouble: return (int64_t{1} << 53) + 1;
      default: return INT64_MAX;
    }
  };
  if (schema == "aten::random_.to") return {0, c.integer(1)};
  if (schema == "aten::random_.from") return {c.integer(1), c.given(2) ? c.integer(2) : top()};
  return {0, top()};
}
size_t generatorOf(std::string_view schema) { return schema == "aten::random_" ? 1 : schema == "aten::random_.to" ? 2 : 3; }

Result<void> randomInt(OpCall& c) {
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  const auto [low, high] = limits(c);
  const ocl::TensorRef r = ref(out);
  return ocl::randomInt(c.queue(), r, low, high, draw(c, generatorOf(c.row().schema), ocl::philoxBlocksInt(r, low, high)), c.variant());
}
Result<void> randomIntHost(OpCall& c) {
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  const auto [low, high] = limits(c);
  const at::Tensor numbers = at::empty(out.sizes(), at::kLong);
  ocl::randomIntHost(low, high, draw(c, generatorOf(c.row().schema), ocl::philoxBlocksInt(ref(out), low, high)), out.numel(),
                     numbers.mutable_data_ptr<int64_t>());
  out.copy_(numbers);
  return {};
}
bool randomIntFits(const OpCall& c) {
  const auto [low, high] = limits(c);
  const auto top = [&] {
    switch (c.tensor(0).scalar_type()) {
      case at::kBool: return std::pair<int64_t, int64_t>{0, 2};
      case at::kByte: return std::pair<int64_t, int64_t>{0, 256};
      case at::kChar: return std::pair<int64_t, int64_t>{-128, 128};
      case at::kShort: return std::pair<int64_t, int64_t>{-32768, 32768};
      case at::kInt: return std::pair<int64_t, int64_t>{-(int64_t{1} << 31), int64_t{1} << 31};
      default: return std::pair<int64_t, int64_t>{INT64_MIN, INT64_MAX};
    }
  }();
  return denseFits(c.tensor(0)) && low < high && low >= top.first && high <= top.second && (low >= 0 || high <= INT64_MAX + low);
}

// (input, p, train)
Result<void> dropout(OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  at::Tensor out = at::empty_like(in), mask = at::empty_like(in, in.options().dtype(at::kBool));
  c.result(out);
  c.result(mask);
  if (in.numel() == 0) return {};
  const ocl::TensorRef m = ref(mask);
  const auto d = drawFrom(std::nullopt, static_cast<int>(c.device().index()), ocl::philoxBlocks(RandomOp::bernoulli, m));
  return ocl::dropout(c.queue(), ref(in), ref(out), m, c.number(1), {d.seed, d.offset}, c.variant());
}
Result<void> dropoutHost(OpCall& c) {
  const at::Tensor& in = c.tensor(0);
  const double p = c.number(1);
  at::Tensor out = at::empty_like(in), mask = at::empty_like(in, in.options().dtype(at::kBool));
  c.result(out);
  c.result(mask);
  if (in.numel() == 0) return {};
  const auto d = drawFrom(std::nullopt, static_cast<int>(c.device().index()), ocl::philoxBlocks(RandomOp::bernoulli, ref(mask)));
  const at::Tensor units = at::empty(in.sizes(), at::kFloat);
  ocl::unitHost({d.seed, d.offset}, in.numel(), units.mutable_data_ptr<float>());
  const at::ScalarType t = in.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor keep = t == at::kDouble ? units.lt(1 - p) : units.lt(static_cast<float>(1 - p));
  mask.copy_(keep);
  out.copy_(at::where(keep, in.cpu().to(t) * (p < 1 ? 1 / (1 - p) : 0), at::zeros({}, t)));
  return {};
}
bool dropoutFits(const OpCall& c) {
  return denseFits(c.tensor(0)) && at::isFloatingType(c.tensor(0).scalar_type()) && c.given(2) && c.flag(2) && c.number(1) >= 0 && c.number(1) <= 1;
}

const NativeOp rows[] = {
    {"aten::fill_.Scalar", "fill", fillScalar, fillScalarFits},
    {"aten::fill_.Tensor", "fill", fillTensor, fillTensorFits},
    {"aten::zero_", "fill", zero, zeroFits},
    {"aten::arange.start_out", "fill", arange, arangeFits},
    {"aten::uniform_", "random", distribution<RandomOp::uniform, 2>, distributionFits<RandomOp::uniform, 2>, nullptr, distributionHost<RandomOp::uniform, 2>},
    {"aten::normal_", "random", distribution<RandomOp::normal, 2>, distributionFits<RandomOp::normal, 2>, nullptr, distributionHost<RandomOp::normal, 2>},
    {"aten::log_normal_", "random", distribution<RandomOp::log_normal, 2>, distributionFits<RandomOp::log_normal, 2>, nullptr, distributionHost<RandomOp::log_normal, 2>},
    {"aten::bernoulli_.float", "random", distribution<RandomOp::bernoulli, 1>, distributionFits<RandomOp::bernoulli, 1>, nullptr, distributionHost<RandomOp::bernoulli, 1>},
    {"aten::exponential_", "random", distribution<RandomOp::exponential, 1>, distributionFits<RandomOp::exponential, 1>, nullptr, distributionHost<RandomOp::exponential, 1>},
    {"aten::cauchy_", "random", distribution<RandomOp::cauchy, 2>, distributionFits<RandomOp::cauchy, 2>, nullptr, distributionHost<RandomOp::cauchy, 2>},
    {"aten::geometric_", "random", distribution<RandomOp::geometric, 1>, distributionFits<RandomOp::geometric, 1>, nullptr, distributionHost<RandomOp::geometric, 1>},
    {"aten::bernoulli_.Tensor", "random", bernoulliTensor, bernoulliTensorFits, nullptr, bernoulliTensorHost},
    {"aten::bernoulli.out", "random", bernoulliTensor, bernoulliTensorFits, nullptr, bernoulliTensorHost},
    {"aten::random_", "random", randomInt, randomIntFits, nullptr, randomIntHost},
    {"aten::random_.to", "random", randomInt, randomIntFits, nullptr, randomIntHost},
    {"aten::random_.from", "random", randomInt, randomIntFits, nullptr, randomIntHost},
    {"aten::native_dropout", "random", dropout, dropoutFits, nullptr, dropoutHost},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

// Every row of the pointwise table against a float64 reference, in both variants and over layouts and dtypes.
#include "runtime/opencl/ops/pointwise.h"

#include <algorithm>
#include <array>
#include <functional>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;
using P = PointwiseOp;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

struct Case {
  P op;
  double low, high;                     // of the inputs
  std::vector<double> scalars;
  std::function<double(double a, double b, double c)> want;
  double relative = 2e-6, absolute = 1e-6;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::max(x, 0.0); }
double clampD(double x, double lo, double hi) { return std::isnan(x) ? x : std::min(std::max(x, lo), hi); }
double cdf(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))); }
double pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }
double floorDiv(double a, double b) { return std::floor(a / b); }
double pyMod(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
double geluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double derivative(double (*f)(double), double x) { return (f(x + 1e-5) - f(x - 1e-5)) / 2e-5; }
double mish(double x) { return x * std::tanh(softplus(x)); }

#define F(expr) \
  []([[maybe_unused]] double a, [[maybe_unused]] double b, [[maybe_unused]] double c) -> double { return expr; }
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {P::copy, -3, 3, {}, F(a)},
      {P::neg, -3, 3, {}, F(-a)},
      {P::abs, -3, 3, {}, F(std::fabs(a))},
      {P::exp, -20, 20, {}, F(std::exp(a))},
      {P::exp2, -20, 20, {}, F(std::exp2(a))},
      {P::log, 0.001, 50, {}, F(std::log(a))},
      {P::log2, 0.001, 50, {}, F(std::log2(a))},
      {P::log10, 0.001, 50, {}, F(std::log10(a))},
      {P::log1p, -0.9, 50, {}, F(std::log1p(a))},
      {P::expm1, -3, 5, {}, F(std::expm1(a))},
      {P::exp_neg_abs, -9, 9, {}, F(std::exp(-std::fabs(a)))},
      {P::angle, -3, 3, {}, F(a < 0 ? M_PI : 0)},
      {P::logit_eps, -0.2, 1.2, {0.1}, F(std::log(clampD(a, 0.1, 0.9) / (1 - clampD(a, 0.1, 0.9)))), 1e-5},
      {P::logit_eps_backward, 0, 1, {0.1}, F(b < 0.1 || b > 0.9 ? 0 : a / (b * (1 - b))), 1e-5},
      {P::round_decimals, -9, 9, {10}, F(std::nearbyint(a * 10) / 10)},
      {P::round_tens, -999, 999, {10}, F(std::nearbyint(a / 10) * 10)},
      {P::scale_masked, -3, 3, {1.25}, F(a * b * 1.25)},
      {P::glu, -9, 9, {}, F(a * sigmoid(b))},
      {P::glu_backward, -3, 3, {}, F(a * b * sigmoid(c) * (1 - sigmoid(c)))},
      {P::prelu_backward, -3, 3, {}, F(b > 0 ? a : c * a)},
      {P::nextafter, -3, 3, {}, F(std::nextafter(static_cast<float>(a), static_cast<float>(b))), 0, 0},
      {P::xlog1py, 0, 3, {}, F(a == 0 ? 0 : a * std::log1p(b))},
      {P::logaddexp2, -9, 9, {}, F(std::log2(std::exp2(a) + std::exp2(b)))},
      {P::sqrt, 0, 50, {}, F(std::sqrt(a))},
      {P::rsqrt, 0.01, 50, {}, F(1 / std::sqrt(a))},
      {P::sin, -100, 100, {}, F(std::sin(a))},
      {P::cos, -100, 100, {}, F(std::cos(a))},
      {P::tan, -1.4, 1.4, {}, F(std::tan(a))},
      {P::asin, -1, 1, {}, F(std::asin(a))},
      {P::acos, -1, 1, {}, F(std::acos(a))},
      {P::atan, -30, 30, {}, F(std::atan(a))},
      {P::sinh, -6, 6, {}, F(std::sinh(a))},
      {P::cosh, -6, 6, {}, F(std::cosh(a))},
      {P::tanh, -6, 6, {}, F(std::tanh(a))},
      {P::asinh, -6, 6, {}, F(std::asinh(a))},
      {P::acosh, 1.01, 6, {}, F(std::acosh(a)), 1e-5},
      {P::atanh, -0.95, 0.95, {}, F(std::atanh(a))},
      {P::sigmoid, -20, 20, {}, F(sigmoid(a))},
      {P::relu, -3, 3, {}, F(std::max(a, 0.0))},
      {P::erf, -4, 4, {}, F(std::erf(a))},
      {P::erfc, -3, 3, {}, F(std::erfc(a)), 1e-5},
      {P::lgamma, 0.2, 20, {}, F(std::lgamma(a)), 1e-5, 1e-5},
      {P::ceil, -9, 9, {}, F(std::ceil(a))},
      {P::floor, -9, 9, {}, F(std::floor(a))},
      {P::round, -9, 9, {}, F(std::nearbyint(a))},
      {P::trunc, -9, 9, {}, F(std::trunc(a))},
      {P::frac, -9, 9, {}, F(a - std::trunc(a))},
      {P::sign, -9, 9, {}, F((a > 0) - (a < 0))},
      {P::reciprocal, 0.1, 9, {}, F(1 / a)},
      {P::square, -9, 9, {}, F(a * a)},
      {P::isnan, -9, 9, {}, F(0)},
      {P::isfinite, -9, 9, {}, F(1)},
      {P::isinf, -9, 9, {}, F(0)},
      {P::logical_not, -9, 9, {}, F(a == 0)},
      {P::gelu, -5, 5, {}, F(a * cdf(a))},
      {P::gelu_tanh, -5, 5, {}, F(geluTanh(a))},
      {P::silu, -9, 9, {}, F(a * sigmoid(a))},
      {P::mish, -9, 9, {}, F(mish(a))},
      {P::log_sigmoid, -9, 9, {}, F(-softplus(-a))},
      {P::hardswish, -5, 5, {}, F(a * clampD(a + 3, 0, 6) / 6)},
      {P::hardsigmoid, -5, 5, {}, F(clampD(a + 3, 0, 6) / 6)},
      {P::relu6, -5, 9, {}, F(clampD(a, 0, 6))},
      {P::softsign, -5, 9, {}, F(a / (1 + std::fabs(a)))},
      {P::tanhshrink, -5, 9, {}, F(a - std::tanh(a))},
      {P::logit, 0.01, 0.99, {}, F(std::log(a / (1 - a))), 1e-5},
      {P::deg2rad, -180, 180, {}, F(a * M_PI / 180)},
      {P::rad2deg, -5, 9, {}, F(a * 180 / M_PI)},
      {P::signbit, -5, 9, {}, F(std::signbit(a))},
      {P::hardtanh, -3, 3, {-1, 2}, F(clampD(a, -1, 2))},
      {P::leaky_relu, -3, 3, {0.1}, F(a > 0 ? a : 0.1 * a)},
      {P::elu, -3, 3, {1.5, 1.25, 0.5}, F(a <= 0 ? std::expm1(a * 0.5) * 1.5 * 1.25 : a * 1.25)},
      {P::softplus, -9, 30, {2, 20}, F(a * 2 > 20 ? a : std::log1p(std::exp(a * 2)) / 2)},
      {P::threshold, -3, 3, {0.5, 7}, F(a <= 0.5 ? 7 : a)},
      {P::softshrink,
       -3,
       3,
       {0.5},
       F(a > 0.5    ? a - 0.5
         : a < -0.5 ? a + 0.5
                    : 0)},
      {P::hardshrink, -3, 3, {0.5}, F(std::fabs(a) <= 0.5 ? 0 : a)},
      {P::clamp_scalar, -3, 3, {-0.5, 1.5}, F(clampD(a, -0.5, 1.5))},
      {P::nan_to_num, -3, 3, {1, 2, 3}, F(a)},
      {P::add_scalar, -3, 3, {1.5}, F(a + 1.5)},
      {P::mul_scalar, -3, 3, {1.5}, F(a * 1.5)},
      {P::div_scalar, -3, 3, {1.5}, F(a / 1.5)},
      {P::rsub_scalar, -3, 3, {1.5}, F(1.5 - a)},
      {P::pow_scalar, 0.1, 3, {2.5}, F(std::pow(a, 2.5)), 1e-5},
      {P::pow_base, -3, 3, {2.5}, F(std::pow(2.5, a)), 1e-5},
      {P::eq_scalar, -3, 3, {1.5}, F(a == 1.5)},
      {P::ne_scalar, -3, 3, {1.5}, F(a != 1.5)},
      {P::lt_scalar, -3, 3, {1.5}, F(a < 1.5)},
      {P::le_scalar, -3, 3, {1.5}, F(a <= 1.5)},
      {P::gt_scalar, -3, 3, {1.5}, F(a > 1.5)},
      {P::ge_scalar, -3, 3, {1.5}, F(a >= 1.5)},
      {P::fmod_scalar, -9, 9, {1.5}, F(std::fmod(a, 1.5))},
      {P::remainder_scalar, -9, 9, {1.5}, F(pyMod(a, 1.5))},
      {P::floor_divide_scalar, -9, 9, {1.5}, F(floorDiv(a, 1.5))},
      {P::trunc_divide_scalar, -9, 9, {1.5}, F(std::trunc(a / 1.5))},
      {P::add, -3, 3, {0.5}, F(a + 0.5 * b)},
      {P::sub, -3, 3, {0.5}, F(a - 0.5 * b)},
      {P::mul, -3, 3, {}, F(a * b)},
      {P::div, 0.5, 3, {}, F(a / b)},
      {P::floor_divide, 0.5, 9, {}, F(floorDiv(a, b))},
      {P::trunc_divide, 0.5, 9, {}, F(std::trunc(a / b))},
      {P::pow, 0.1, 4, {}, F(std::pow(a, b)), 1e-5},
      {P::maximum, -3, 3, {}, F(std::max(a, b))},
      {P::minimum, -3, 3, {}, F(std::min(a, b))},
      {P::fmax, -3, 3, {}, F(std::max(a, b))},
      {P::fmin, -3, 3, {}, F(std::min(a, b))},
      {P::fmod, 0.5, 9, {}, F(std::fmod(a, b)), 1e-5, 1e-5},
      {P::remainder, 0.5, 9, {}, F(pyMod(a, b)), 1e-5, 1e-5},
      {P::atan2, -3, 3, {}, F(std::atan2(a, b))},
      {P::hypot, -3, 3, {}, F(std::hypot(a, b))},
      {P::copysign, -3, 3, {}, F(std::copysign(a, b))},
      {P::logaddexp, -9, 9, {}, F(std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b))))},
      {P::xlogy, 0.1, 9, {}, F(a * std::log(b)), 1e-5},
      {P::eq, -3, 3, {}, F(a == b)},
      {P::ne, -3, 3, {}, F(a != b)},
      {P::lt, -3, 3, {}, F(a < b)},
      {P::le, -3, 3, {}, F(a <= b)},
      {P::gt, -3, 3, {}, F(a > b)},
      {P::ge, -3, 3, {}, F(a >= b)},
      {P::logical_and, -3, 3, {}, F(a != 0 && b != 0)},
      {P::logical_or, -3, 3, {}, F(a != 0 || b != 0)},
      {P::logical_xor, -3, 3, {}, F((a != 0) != (b != 0))},
      {P::heaviside, -3, 3, {}, F(a == 0 ? b : a > 0)},
      {P::lerp_scalar, -3, 3, {0.25}, F(a + 0.25 * (b - a))},
      {P::masked_fill, -3, 3, {9}, F(b != 0 ? 9 : a)},
      {P::prelu, -3, 3, {}, F(a > 0 ? a : a * b)},
      {P::clamp_min, -3, 3, {}, F(std::max(a, b))},
      {P::clamp_max, -3, 3, {}, F(std::min(a, b))},
      {P::mse, -3, 3, {}, F((a - b) * (a - b))},
      {P::l1, -3, 3, {}, F(std::fabs(a - b))},
      {P::smooth_l1, -3, 3, {1.5}, F(std::fabs(a - b) < 1.5 ? 0.5 * (a - b) * (a - b) / 1.5 : std::fabs(a - b) - 0.75)},
      {P::huber, -3, 3, {1.5}, F(std::fabs(a - b) <= 1.5 ? 0.5 * (a - b) * (a - b) : 1.5 * (std::fabs(a - b) - 0.75))},
      {P::bce, 0.01, 0.99, {}, F(-(b * std::log(a) + (1 - b) * std::log(1 - a))), 1e-5},
      {P::soft_margin, -3, 3, {}, F(std::log1p(std::exp(-a * b)))},
      {P::where, -3, 3, {}, F(a != 0 ? b : c)},
      {P::addcmul, -3, 3, {0.5}, F(a + 0.5 * b * c)},
      {P::addcdiv, 0.5, 3, {0.5}, F(a + 0.5 * b / c)},
      {P::lerp, -3, 3, {}, F(a + c * (b - a)), 1e-5, 1e-5},
      {P::clamp, -3, 3, {}, F(clampD(a, b, c))},
      {P::threshold_backward, -3, 3, {0.5}, F(b <= 0.5 ? 0 : a)},
      {P::sigmoid_backward, -3, 3, {}, F(a * (1 - b) * b), 2e-6, 5e-6},
      {P::tanh_backward, -3, 3, {}, F(a * (1 - b * b)), 2e-6, 5e-6},
      {P::gelu_backward, -3, 3, {}, F(a * (cdf(b) + b * pdf(b))), 1e-5},
      {P::gelu_tanh_backward, -3, 3, {}, F(a * derivative(geluTanh, b)), 1e-5, 2e-6},
      {P::silu_backward, -3, 3, {}, F(a * sigmoid(b) * (1 + b * (1 - sigmoid(b))))},
      {P::mish_backward, -3, 3, {}, F(a * derivative(mish, b)), 1e-5, 2e-6},
      {P::log_sigmoid_backward, -3, 3, {}, F(a * (1 - sigmoid(b)))},
      {P::hardswish_backward,
       -5,
       5,
       {},
       F(b <= -3 ? 0
         : b < 3 ? a * (b / 3 + 0.5)
                 : a)},
      {P::hardsigmoid_backward, -5, 5, {}, F(b > -3 && b < 3 ? a / 6 : 0)},
      {P::hardtanh_backward, -3, 3, {-1, 2}, F(b <= -1 || b >= 2 ? 0 : a)},
      {P::leaky_relu_backward, -3, 3, {0.1}, F(b > 0 ? a : 0.1 * a)},
      {P::elu_backward, -3, 3, {1.5, 1.25, 0.5}, F(b <= 0 ? a * 0.5 * 1.5 * 1.25 * std::exp(b * 0.5) : a * 1.25)},
      {P::elu_backward_result, -3, 3, {1.5, 1.25, 0.5}, F(b <= 0 ? a * 0.5 * (b + 1.5 * 1.25) : a * 1.25)},
      {P::softplus_backward, -9, 9, {2, 16}, F(b * 2 > 16 ? a : a * sigmoid(b * 2))},
      {P::softshrink_backward, -3, 3, {0.5}, F(std::fabs(b) <= 0.5 ? 0 : a)},
      {P::logit_backward, 0.02, 0.98, {}, F(a / (b * (1 - b))), 1e-5},
      {P::prelu_backward_weight, -3, 3, {}, F(b > 0 ? 0 : a * b)},
      {P::mse_backward, -3, 3, {0.5}, F(0.5 * 2 * (b - c) * a)},
      {P::l1_backward, -3, 3, {0.5}, F(0.5 * ((b > c) - (b < c)) * a)},
      {P::bce_backward, 0.05, 0.95, {0.5}, F(0.5 * a * (b - c) / std::max((1 - b) * b, 1e-12)), 1e-5},
      {P::smooth_l1_backward,
       -3,
       3,
       {0.5, 1.5},
       F(std::fabs(b - c) > 1.5 ? 0.5 * a * (b > c ? 1 : -1) : 0.5 * a * (b - c) / 1.5)},
      {P::huber_backward,
       -3,
       3,
       {0.5, 1.5},
       F(std::fabs(b - c) > 1.5 ? 0.5 * a * 1.5 * (b > c ? 1 : -1) : 0.5 * a * (b - c))},
  };
  return all;
}

// For operators on whole numbers only.
const std::vector<Case>& wholeCases() {
  static const auto I = [](double v) { return static_cast<int64_t>(v); };
  static const std::vector<Case> all = {
      {P::bitwise_not, -60, 60, {}, F(static_cast<double>(~I(a)))},
      {P::bitwise_and, -60, 60, {}, F(static_cast<double>(I(a) & I(b)))},
      {P::bitwise_or, -60, 60, {}, F(static_cast<double>(I(a) | I(b)))},
      {P::bitwise_xor, -60, 60, {}, F(static_cast<double>(I(a) ^ I(b)))},
      {P::bitwise_and_scalar, -60, 60, {12}, F(static_cast<double>(I(a) & 12))},
      {P::bitwise_or_scalar, -60, 60, {12}, F(static_cast<double>(I(a) | 12))},
      {P::bitwise_xor_scalar, -60, 60, {12}, F(static_cast<double>(I(a) ^ 12))},
      {P::lshift_scalar, 0, 7, {2}, F(a * 4)},
      {P::rshift_scalar, -60, 60, {2}, F(std::floor(a / 4))},
      {P::lshift, 0, 4, {}, F(a * std::exp2(b))},
      {P::rshift, 0, 4, {}, F(std::floor(a / std::exp2(b)))},
      {P::add, -50, 50, {3}, F(a + 3 * b)},
      {P::mul, -10, 10, {}, F(a * b)},
      {P::floor_divide, -60, 60, {}, F(b == 0 ? 0 : floorDiv(a, b))},
      {P::trunc_divide, -60, 60, {}, F(b == 0 ? 0 : std::trunc(a / b))},
      {P::remainder_scalar, -60, 60, {-7}, F(pyMod(a, -7))},
      {P::fmod_scalar, -60, 60, {7}, F(std::fmod(a, 7))},
      {P::pow_scalar, -4, 4, {3}, F(a * a * a)},
      {P::pow, -3, 4, {}, F(b < 0 ? (a == 1 ? 1 : a == -1 ? (I(b) & 1 ? -1 : 1) : 0) : std::pow(a, b))},
      {P::abs, -60, 60, {}, F(std::fabs(a))},
      {P::neg, -60, 60, {}, F(-a)},
      {P::maximum, -60, 60, {}, F(std::max(a, b))},
      {P::eq, -2, 2, {}, F(a == b)},
      {P::where, -1, 1, {}, F(a != 0 ? b : c)},
      {P::clamp_scalar, -60, 60, {-5, 9}, F(clampD(a, -5, 9))},
      {P::sign, -3, 3, {}, F((a > 0) - (a < 0))},
  };
  return all;
}
#undef F

std::vector<Scalar> scalarsOf(const Case& c) {
  std::vector<Scalar> s;
  for (double v : c.scalars) s.emplace_back(v);
  return s;
}

void run(const Case& c, DType in_type, DType out_type, DType compute, const std::vector<Shape>& shapes, Variant variant,
         double relative, double absolute) {
  const PointwiseInfo& info = pointwiseInfo(c.op);
  INFO(info.name << " " << name(variant) << " " << dtypeName(in_type) << " out " << shapes[0].text());
  const int64_t n = shapes[0].numel();
  std::vector<std::vector<double>> in(3, std::vector<double>(static_cast<size_t>(n)));
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<TensorRef> refs;
  for (int k = 0; k < info.arity; ++k) {
    in[static_cast<size_t>(k)] = values(n, in_type, c.low, c.high, static_cast<uint32_t>(7 + k));
    tensors.push_back(std::make_unique<Tensor>(shapes[1 + static_cast<size_t>(k) % (shapes.size() - 1)], in_type,
                                               in[static_cast<size_t>(k)]));
    refs.push_back(tensors.back()->ref());
  }
  std::vector<double> want(static_cast<size_t>(n));
  for (size_t i = 0; i < want.size(); ++i) want[i] = c.want(in[0][i], in[1][i], in[2][i]);
  Tensor out(shapes[0], out_type);
  ok(pointwise(queue(), c.op, refs, out.ref(), compute, scalarsOf(c), variant));
  checkClose(out.get(), want, relative, absolute);
  REQUIRE(out.untouchedOutside());
}

}  // namespace

TEST_CASE("every pointwise operator agrees with a float64 reference", "[ops][pointwise]") {
  std::array<bool, static_cast<size_t>(P::count_)> seen{};
  const Shape flat({37, 3}), part({37, 3}, {5, 1}, 2);
  for (const Case& c : cases()) {
    seen[static_cast<size_t>(c.op)] = true;
    const DType out = pointwiseInfo(c.op).to_bool ? DType::bool_ : DType::float32;
    for (Variant v : kVariants) run(c, DType::float32, out, DType::float32, {flat, flat}, v, c.relative, c.absolute);
  }
  for (const Case& c : wholeCases()) {
    seen[static_cast<size_t>(c.op)] = true;
    const bool truth = pointwiseInfo(c.op).to_bool;
    for (DType t : {DType::int64, DType::int32})
      for (Variant v : kVariants) run(c, t, truth ? DType::bool_ : t, t, {part, flat}, v, 0, 0);
  }
  for (const std::string& name : specialFunctionsTested()) seen[static_cast<size_t>(*pointwiseFromName(name))] = true;
  for (size_t i = 0; i < seen.size(); ++i) {
    INFO(pointwiseInfo(static_cast<P>(i)).name);
    REQUIRE(seen[i]);
  }
}

TEST_CASE("pointwise over layouts", "[ops][pointwise]") {
  const Case add{P::add, -3, 3, {0.5}, [](double a, double b, double) { return a + 0.5 * b; }};
  const Case where{P::where, -1, 1, {}, [](double a, double b, double c) { return a != 0 ? b : c; }};
  const std::vector<std::vector<Shape>> layouts = {
      {Shape({}), Shape({})},
      {Shape({0, 3}), Shape({0, 3})},
      {Shape({1}), Shape({1})},
      {Shape({5, 40}), Shape({5, 40}, {1, 5})},                                  // transposed input
      {Shape({5, 40}, {1, 5}), Shape({5, 40})},                                  // transposed output
      {Shape({33, 50}, {100, 2}, 7), Shape({33, 50}, {60, 1}, 3)},               // every other column
      {Shape({2, 3, 4, 5}, {60, 1, 15, 3}), Shape({2, 3, 4, 5})},                // channels last
      {Shape({4, 17, 33}), Shape({4, 17, 33}, {600, 34, 1}, 11)},
      {Shape({2, 1, 3, 1, 2, 2, 1, 2}), Shape({2, 1, 3, 1, 2, 2, 1, 2})},
      {Shape({2, 2, 2, 2, 2, 3}, {48, 24, 12, 6, 3, 1}), Shape({2, 2, 2, 2, 2, 3}, {1, 2, 4, 8, 16, 32})},
      {Shape({70000}), Shape({70000})},
  };
  for (const auto& shapes : layouts)
    for (Variant v : kVariants) {
      run(add, DType::float32, DType::float32, DType::float32, shapes, v, 2e-6, 1e-6);
      run(where, DType::int16, DType::int16, DType::int16, shapes, v, 0, 0);
    }
}

TEST_CASE("pointwise broadcasts from the right and by stride 0", "[ops][pointwise]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    Tensor a(Shape({6, 40}), DType::float32, values(240, DType::float32, -3, 3));
    Tensor row(Shape({40}), DType::float32, values(40, DType::float32, -3, 3, 2));
    Tensor column(Shape({6, 1}), DType::float32, values(6, DType::float32, -3, 3, 3));
    Tensor one(Shape({}), DType::float32, {2.5});
    Tensor out(Shape({6, 40}), DType::float32);
    const auto av = a.get(), rv = row.get(), cv = column.get();
    const Scalar alpha[] = {Scalar(1.0)};
    const auto sum = [&](const Tensor& b) {
      const TensorRef in[] = {a.ref(), b.ref()};
      ok(pointwise(queue(), P::add, in, out.ref(), DType::float32, alpha, v));
      return out.get();
    };
    const auto byRow = sum(row), byColumn = sum(column), byOne = sum(one);
    for (size_t i = 0; i < 240; ++i) {
      REQUIRE(close(byRow[i], av[i] + rv[i % 40], 1e-6, 1e-6));
      REQUIRE(close(byColumn[i], av[i] + cv[i / 40], 1e-6, 1e-6));
      REQUIRE(close(byOne[i], av[i] + 2.5, 1e-6, 1e-6));
    }
    // The input that gives the sizes may also be the small one.
    const TensorRef in[] = {one.ref(), row.ref()};
    ok(pointwise(queue(), P::sub, in, out.ref(), DType::float32, alpha, v));
    const auto got = out.get();
    for (size_t i = 0; i < 240; ++i) REQUIRE(close(got[i], 2.5 - rv[i % 40], 1e-6, 1e-6));
    // A shape that does not broadcast is an error that names both.
    Tensor wrong(Shape({7}), DType::float32, values(7, DType::float32, -3, 3));
    const TensorRef bad[] = {a.ref(), wrong.ref()};
    const auto r = pointwise(queue(), P::add, bad, out.ref(), DType::float32, alpha, v);
    REQUIRE(!r);
    REQUIRE(r.error().text().find("[7]") != std::string::npos);
    REQUIRE(r.error().text().find("[6, 40]") != std::string::npos);
  }
}

TEST_CASE("pointwise dtypes: storage rounds, arithmetic is wide enough", "[ops][pointwise]") {
  const Case mul{P::mul, -3, 3, {}, [](double a, double b, double) { return a * b; }};
  const Case tanh{P::tanh, -3, 3, {}, [](double a, double, double) { return std::tanh(a); }};
  const Shape flat({3, 37}), wide({3, 37}, {80, 2}, 1);
  for (Variant v : kVariants) {
    for (DType t : {DType::float16, DType::bfloat16, DType::float64}) {
      run(mul, t, t, t, {wide, flat}, v, relativeFor(t), 0);
      run(tanh, t, t, t, {flat, wide}, v, relativeFor(t), t == DType::float64 ? 1e-12 : 1e-3);
    }
    // int8 wraps as PyTorch does; true division of integers is calculated in the common float dtype.
    Tensor a(Shape({5}), DType::int8, {100, -100, 127, -128, 5});
    Tensor out(Shape({5}), DType::int8), quotient(Shape({5}), DType::float32);
    const TensorRef in[] = {a.ref(), a.ref()};
    const Scalar one[] = {Scalar(1)};
    ok(pointwise(queue(), P::add, in, out.ref(), DType::int8, one, v));
    REQUIRE(out.get() == std::vector<double>{-56, 56, -2, 0, 10});
    const Scalar two[] = {Scalar(2)};
    ok(pointwise(queue(), P::div_scalar, {in, 1}, quotient.ref(), DType::float32, two, v));
    REQUIRE(quotient.get() == std::vector<double>{50, -50, 63.5, -64, 2.5});
    // Mixed inputs meet in the compute dtype.
    Tensor half(Shape({5}), DType::float16, {0.5, 1.5, 2.5, 3.5, 4.5});
    const TensorRef mixed[] = {a.ref(), half.ref()};
    ok(pointwise(queue(), P::add, mixed, quotient.ref(), DType::float32, one, v));
    REQUIRE(quotient.get() == std::vector<double>{100.5, -98.5, 129.5, -124.5, 9.5});
    // Large integers keep every bit, scalars too.
    Tensor big(Shape({1}), DType::int64);
    const Scalar huge[] = {Scalar(int64_t{9007199254740993})};
    Tensor zero(Shape({1}), DType::int64, {0});
    const TensorRef z[] = {zero.ref()};
    ok(pointwise(queue(), P::add_scalar, z, big.ref(), DType::int64, huge, v));
    int64_t raw = 0;
    std::memcpy(&raw, big.storage().data(), sizeof raw);
    REQUIRE(raw == 9007199254740993);
    // Truth values.
    Tensor truth(Shape({4}), DType::bool_, {0, 1, 0, 1}), inverse(Shape({4}), DType::bool_);
    const TensorRef tr[] = {truth.ref()};
    ok(pointwise(queue(), P::bitwise_not, tr, inverse.ref(), DType::bool_, {}, v));
    REQUIRE(inverse.get() == std::vector<double>{1, 0, 1, 0});
  }
}

TEST_CASE("pointwise NaN, infinities and ties", "[ops][pointwise]") {
  struct Edge { P op; std::vector<double> a, b, scalars, want; };
  const std::vector<Edge> edges = {
      {P::relu, {kNan, -kInf, kInf, -0.0}, {}, {}, {kNan, 0, kInf, 0}},
      {P::maximum, {kNan, 1, kNan, -kInf}, {1, kNan, kNan, kInf}, {}, {kNan, kNan, kNan, kInf}},
      {P::minimum, {kNan, 1, kNan, -kInf}, {1, kNan, kNan, kInf}, {}, {kNan, kNan, kNan, -kInf}},
      {P::fmax, {kNan, 1, kNan, 3}, {1, kNan, kNan, 2}, {}, {1, 1, kNan, 3}},
      {P::fmin, {kNan, 1, kNan, 3}, {1, kNan, kNan, 2}, {}, {1, 1, kNan, 2}},
      {P::clamp_scalar, {kNan, -kInf, kInf, 0.5}, {}, {0, 1}, {kNan, 0, 1, 0.5}},
      {P::clamp_scalar, {0, 1, 2, 3}, {}, {kNan, 1}, {kNan, kNan, kNan, kNan}},
      {P::clamp_scalar, {0, 5, 2, 3}, {}, {4, 1}, {1, 1, 1, 1}},
      {P::hardtanh, {kNan, -2, 2, 0}, {}, {-1, 1}, {kNan, -1, 1, 0}},
      {P::relu6, {kNan, -2, 9, 1}, {}, {}, {kNan, 0, 6, 1}},
      {P::leaky_relu, {kNan, -2, 9, 1}, {}, {0.5}, {kNan, -1, 9, 1}},
      {P::threshold, {kNan, -2, 9, 1}, {}, {1, 3}, {kNan, 3, 9, 3}},
      {P::round, {0.5, 1.5, -2.5, -0.5}, {}, {}, {0, 2, -2, 0}},
      {P::isnan, {kNan, 1, kInf, -kInf}, {}, {}, {1, 0, 0, 0}},
      {P::isinf, {kNan, 1, kInf, -kInf}, {}, {}, {0, 0, 1, 1}},
      {P::isfinite, {kNan, 1, kInf, -kInf}, {}, {}, {0, 1, 0, 0}},
      {P::nan_to_num, {kNan, 1, kInf, -kInf}, {}, {7, 8, 9}, {7, 1, 8, 9}},
      {P::sign, {kNan, 0, 3, -3}, {}, {}, {0, 0, 1, -1}},
      {P::eq, {kNan, 1, kInf, 0}, {kNan, 1, kInf, -0.0}, {}, {0, 1, 1, 1}},
      {P::ne, {kNan, 1, kInf, 0}, {kNan, 1, kInf, -0.0}, {}, {1, 0, 0, 0}},
      {P::gelu, {kInf, kNan, 0, -40}, {}, {}, {kInf, kNan, 0, 0}},
      {P::silu, {kInf, kNan, 0, -200}, {}, {}, {kInf, kNan, 0, 0}},
      {P::sigmoid, {kInf, kNan, 0, -kInf}, {}, {}, {1, kNan, 0.5, 0}},
      {P::mish, {100, kNan, 0, -200}, {}, {}, {100, kNan, 0, 0}},
      {P::log_sigmoid, {200, kNan, -200, -kInf}, {}, {}, {0, kNan, -200, -kInf}},
      {P::softplus, {200, kNan, -200, 50}, {}, {1, 20}, {200, kNan, 0, 50}},
      {P::log, {0, -1, kInf, kNan}, {}, {}, {-kInf, kNan, kInf, kNan}},
      {P::sqrt, {0, -1, kInf, kNan}, {}, {}, {0, kNan, kInf, kNan}},
      {P::exp, {1000, -1000, kInf, kNan}, {}, {}, {kInf, 0, kInf, kNan}},
      {P::tanh, {1000, -1000, kInf, kNan}, {}, {}, {1, -1, 1, kNan}},
      {P::div, {1, -1, 0, kInf}, {0, 0, 0, kInf}, {}, {kInf, -kInf, kNan, kNan}},
      {P::floor_divide, {1, -7, 7, -1}, {0, 2, -2, kInf}, {}, {kInf, -4, -4, -1}},
      {P::remainder, {-7, 7, 7, -7}, {2, -2, 2, -2}, {}, {1, -1, 1, -1}},
      {P::fmod, {-7, 7, 7, -7}, {2, -2, 2, -2}, {}, {-1, 1, 1, -1}},
      {P::pow, {0, -2, -2, kNan}, {0, 3, 2, 0}, {}, {1, -8, 4, 1}},
      {P::pow_scalar, {-3, 2, kInf, kNan}, {}, {2}, {9, 4, kInf, kNan}},
      {P::xlogy, {0, 0, 1, 2}, {0, kNan, 0, 1}, {}, {0, kNan, -kInf, 0}},
      {P::logaddexp, {kInf, -kInf, kNan, 1}, {kInf, -kInf, 1, -kInf}, {}, {kInf, -kInf, kNan, 1}},
      {P::bce, {0, 1, 0, 1}, {0, 1, 1, 0}, {}, {0, 0, 100, 100}},
      {P::threshold_backward, {5, 6, 7, 8}, {kNan, 0, 1, -1}, {0}, {5, 0, 7, 0}},
      {P::hardswish_backward, {2, 2, 2, 2}, {-3, 3, -4, 4}, {}, {0, 2, 0, 2}},
      {P::softshrink, {kNan, 1, -1, 0.2}, {}, {0.5}, {kNan, 0.5, -0.5, 0}},
      {P::logical_and, {kNan, 0, 1, 2}, {1, 1, 0, 3}, {}, {1, 0, 0, 1}},
      {P::copysign, {1, -1, 0, 2}, {-0.0, 0.0, -1, kInf}, {}, {-1, 1, 0, 2}},
  };
  for (const Edge& e : edges)
    for (Variant v : kVariants) {
      INFO(pointwiseInfo(e.op).name << " " << name(v));
      const DType out_type = pointwiseInfo(e.op).to_bool ? DType::bool_ : DType::float32;
      Tensor a(Shape({4}), DType::float32, e.a), out(Shape({4}), out_type);
      Tensor b(Shape({4}), DType::float32, e.b.empty() ? e.a : e.b);
      const TensorRef in[] = {a.ref(), b.ref()};
      std::vector<Scalar> s;
      for (double x : e.scalars) s.emplace_back(x);
      ok(pointwise(queue(), e.op, {in, e.b.empty() ? size_t{1} : size_t{2}}, out.ref(), DType::float32, s, v));
      checkClose(out.get(), e.want, 1e-6, 1e-6);
    }
}

TEST_CASE("float64 functions are right to twelve digits", "[ops][pointwise]") {
  // Drivers differ most here: each is checked against the host's own.
  struct Function { P op; double low, high; double (*want)(double); };
  const Function functions[] = {{P::exp, -20, 20, std::exp},     {P::log, 0.001, 50, std::log},
                                {P::sin, -9, 9, std::sin},       {P::cos, -9, 9, std::cos},
                                {P::tanh, -3, 3, std::tanh},     {P::expm1, -2, 2, std::expm1},
                                {P::log1p, -0.5, 9, std::log1p}, {P::sqrt, 0, 9, std::sqrt},
                                {P::erf, -3, 3, std::erf},       {P::atan, -9, 9, std::atan}};
  for (Variant v : kVariants) {
    for (const Function& f : functions) {
      INFO(pointwiseInfo(f.op).name << " " << name(v));
      const std::vector<double> x = values(200, DType::float64, f.low, f.high);
      std::vector<double> want;
      for (double a : x) want.push_back(f.want(a));
      Tensor in(Shape({200}), DType::float64, x), out(Shape({200}), DType::float64);
      const TensorRef refs[] = {in.ref()};
      ok(pointwise(queue(), f.op, refs, out.ref(), DType::float64, {}, v));
      checkClose(out.get(), want, 1e-12, 1e-14);
    }
    INFO("pow " << name(v));
    std::vector<double> a = values(200, DType::float64, 0.01, 30), b = values(200, DType::float64, -5, 5, 2);
    const double special[][2] = {{8.9, -2.2}, {-2, 3},    {-2, 2},     {-2, 0.5},  {0, 2},     {0, 0},
                                 {0, -1},     {-0.0, 3},  {-0.0, -3},  {kInf, -1}, {-kInf, 3}, {1, kNan},
                                 {1, kInf},   {-1, kInf}, {0.5, kInf}, {kNan, 0},  {kNan, 1},  {-3, -kInf}};
    for (size_t i = 0; i < std::size(special); ++i) a[i] = special[i][0], b[i] = special[i][1];
    std::vector<double> want;
    for (size_t i = 0; i < a.size(); ++i) want.push_back(std::pow(a[i], b[i]));
    Tensor ta(Shape({200}), DType::float64, a), tb(Shape({200}), DType::float64, b), out(Shape({200}), DType::float64);
    const TensorRef refs[] = {ta.ref(), tb.ref()};
    ok(pointwise(queue(), P::pow, refs, out.ref(), DType::float64, {}, v));
    checkClose(out.get(), want, 1e-12, 0);
  }
}

TEST_CASE("pointwise in place on a view with an offset", "[ops][pointwise]") {
  for (Variant v : kVariants) {
    Tensor t(Shape({3, 20}, {50, 2}, 9), DType::float32, values(60, DType::float32, -1, 1));
    const auto before = t.get();
    const TensorRef in[] = {t.ref()};
    const Scalar s[] = {Scalar(3.0)};
    ok(pointwise(queue(), P::mul_scalar, in, t.ref(), DType::float32, s, v));
    const auto after = t.get();
    for (size_t i = 0; i < before.size(); ++i) REQUIRE(close(after[i], before[i] * 3, 1e-6, 0));
    REQUIRE(t.untouchedOutside());
  }
}

TEST_CASE("pointwise refuses what it cannot do, in words", "[ops][pointwise]") {
  Tensor t(Shape({4}), DType::float32, {1, 2, 3, 4});
  const TensorRef in[] = {t.ref(), t.ref()};
  const auto wrongCount = pointwise(queue(), P::add, {in, 1}, t.ref(), DType::float32, {}, Variant::wide);
  REQUIRE(!wrongCount);
  REQUIRE(wrongCount.error().text().find("add: wants 2 tensors and 1 scalars, got 1 and 0") != std::string::npos);
  const auto wrongType = pointwise(queue(), P::exp, {in, 1}, t.ref(), DType::int32, {}, Variant::wide);
  REQUIRE(!wrongType);
  REQUIRE(wrongType.error().text().find("exp: no OpenCL kernel computes in int32") != std::string::npos);
  REQUIRE_FALSE(pointwiseSupports(P::bitwise_and, DType::float32));
  REQUIRE_FALSE(pointwiseSupports(P::add, DType::complex64));
  REQUIRE(pointwiseSupports(P::add, DType::bool_));
  const Scalar zero[] = {Scalar(0)};
  REQUIRE_FALSE(pointwise(queue(), P::remainder_scalar, {in, 1}, t.ref(), DType::int32, zero, Variant::wide));
  REQUIRE(pointwiseFromName("addcmul") == P::addcmul);
  REQUIRE_FALSE(pointwiseFromName("no such operator"));
}

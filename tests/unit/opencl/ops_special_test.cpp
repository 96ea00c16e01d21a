// Special functions: float32 kernels against values computed to 25 digits elsewhere.
#include "runtime/opencl/ops/pointwise.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

struct Row { const char* name; std::vector<double> a, b, want; };
const double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

const Row kRows[] = {
    {"bessel_i0", {-7.5, -1.3, 0.4, 9.5}, {},
     {268.161311515, 1.46927775992, 1.04040178345, 1753.48099053}},
    {"bessel_i0e", {-7.5, 0.4, 60}, {},
     {0.148315830077, 0.697402167218, 0.0516115491736}},
    {"bessel_i1", {-7.5, -1.3, 0.4, 9.5}, {},
     {-249.584365423, -0.797329274165, 0.204026758895, 1658.45307778}},
    {"bessel_i1e", {-7.5, 0.4, 60}, {},
     {-0.138041211549, 0.1367632256, 0.051179630189}},
    {"bessel_j0", {-7.5, 0.4, 2.6, 9.5, 25}, {},
     {0.26633965788, 0.960398225491, -0.0968049094963, -0.193928747687, 0.096266783276}},
    {"bessel_j1", {-7.5, 0.4, 2.6, 9.5, 25}, {},
     {-0.13524842758, 0.196026580759, 0.470818293019, 0.161264430758, -0.12535024958}},
    {"bessel_y0", {0.02, 0.7, 1.9, 2.3, 7.9, 12.5}, {},
     {-2.56395542384, -0.190664942489, 0.496819967364, 0.5180753987, 0.206520965475, -0.171214306845}},
    {"bessel_y1", {0.02, 0.7, 1.9, 2.3, 7.9, 12.5}, {},
     {-31.8598135031, -1.10324988842, -0.16440578624, 0.0522772922243, -0.181721055391, -0.153838256538}},
    {"modified_bessel_k0", {0.02, 0.7, 1.9, 2.3, 7.9, 12.5}, {},
     {4.02845735269, 0.660519872435, 0.128845983083, 0.0791399375312, 0.0001628676512, 1.30840369678e-6}},
    {"modified_bessel_k1", {0.02, 0.7, 1.9, 2.3, 7.9, 12.5}, {},
     {49.9547189341, 1.05028356107, 0.159660158108, 0.0949824495882, 0.000172884288873, 1.35976784382e-6}},
    {"scaled_modified_bessel_k0", {0.02, 0.7, 1.9, 2.3, 7.9, 12.5}, {},
     {4.10983758762, 1.3301236656, 0.861450621664, 0.789356138759, 0.439300079324, 0.351093497667}},
    {"scaled_modified_bessel_k1", {0.02, 0.7, 1.9, 2.3, 7.9, 12.5}, {},
     {50.9638711745, 2.11501133951, 1.0674709383, 0.947372237024, 0.466317781684, 0.364876413509}},
    {"spherical_bessel_j0", {-7.5, -0.1, 0.4, 9.5}, {},
     {0.12506666357, 0.998334166419, 0.97354585499, -0.00791064425914}},
    {"airy_ai", {-12, -7.5, -3, -1.3, 0.4, 2.6, 9.5}, {},
     {-0.0665551750544, 0.321775716381, -0.378814293678, 0.512272014242, 0.25474235289, 0.0132892846813, 5.33026370462e-10}},
    {"erfcx", {-2.5, -0.3, 0, 0.4, 2.6, 50, 1000}, {},
     {1035.81484297, 1.45374925669, 1.0, 0.670787781768, 0.203613253993, 0.0112815362653, 0.000564189301453}},
    {"log_ndtr", {-20, -3, -1, 0, 0.4, 2.6}, {},
     {-203.917155371, -6.60772622151, -1.84102164501, -0.69314718056, -0.422476366879, -0.00467208653788}},
    {"erfinv", {-0.99, -0.3, 0.001, 0.4, 0.9999}, {},
     {-1.8213866009, -0.272462726106, 0.00088622719956, 0.370807164654, 2.7510354379}},
    {"ndtri", {0.001, 0.3, 0.5, 0.9}, {},
     {-3.09023229206, -0.524400478422, 0.0, 1.28155142969}},
    {"digamma", {-7.5, -1.3, 0.4, 2.6, 9.5}, {},
     {2.08009081758, 2.88254124204, -2.56138450122, 0.75104740816, 2.1977378764}},
    {"entr", {0.4, 2.6}, {},
     {0.366516292251, -2.48432957058}},
    {"sinc", {-1.3, 0.4, 2.6}, {},
     {-0.198090837552, 0.756826721968, 0.116434896935}},
    {"zeta", {1.5, 2, 6}, {0.4, 2.6, 9.5},
     {5.9956856057, 0.467806913656, 3.33577310097e-6}},
    {"igamma", {0.4, 2.6, 9.5, 3}, {0.1, 2, 12, 0.01},
     {0.436236401753, 0.423479379554, 0.803847642793, 1.65421641743e-7}},
    {"igammac", {0.4, 2.6, 9.5, 3}, {0.1, 2, 12, 9},
     {0.563763598247, 0.576520620446, 0.196152357207, 0.00623219510638}},
    {"chebyshev_polynomial_t", {0.3, 1.7, -2, 0.2}, {5, 3, 4.9, 0},
     {0.998880002956, 14.5520015106, 97.0, 1.0}},
    {"chebyshev_polynomial_u", {0.3, 1.7, -2}, {5, 3, 4},
     {1.01375998398, 32.5040031166, 209.0}},
    {"chebyshev_polynomial_v", {0.3, -0.7}, {5, 3},
     {0.96416004921, -0.903999840736}},
    {"chebyshev_polynomial_w", {0.3, -0.7}, {5, 3},
     {1.06335991875, 1.01600002575}},
    {"shifted_chebyshev_polynomial_t", {0.3, 1.2}, {5, 3},
     {-0.883840060844, 6.77600195694}},
    {"hermite_polynomial_h", {0.3, 1.7, 2}, {5, 3, 1},
     {31.757760931, 18.9040027351, 4.0}},
    {"hermite_polynomial_he", {0.3, 1.7}, {5, 3},
     {4.23243014711, -0.186999729633}},
    {"laguerre_polynomial_l", {0.3, 1.7}, {5, 3},
     {-0.0933327789421, -0.5838333021}},
    {"legendre_polynomial_p", {0.3, 1.7}, {5, 3},
     {0.345386247991, 9.73250096202}},
    {"logaddexp2", {1, -30}, {2, 4},
     {2.58496250072, 4.00000000008}},
    {"xlog1py", {2, 0}, {0.3, -0.5},
     {0.524728547275, 0.0}},
    // Edges.
    {"digamma", {0.0, -3}, {}, {-kInf, kNan}},
    {"erfinv", {1, -1, 2}, {}, {kInf, -kInf, kNan}},
    {"ndtri", {0, 1, -1}, {}, {-kInf, kInf, kNan}},
    {"bessel_y0", {0, -1}, {}, {-kInf, kNan}},
    {"entr", {0, -1}, {}, {0, -kInf}},
    {"zeta", {1, 0.5, 2}, {3, 3, -1}, {kInf, kNan, kInf}},
    {"igamma", {0, 2, -1}, {1, 0, 1}, {1, 0, kNan}},
    {"isposinf", {kInf, -kInf, kNan}, {}, {1, 0, 0}},
    {"isneginf", {kInf, -kInf, kNan}, {}, {0, 1, 0}},
    {"shifted_chebyshev_polynomial_u", {0.1, 0.35, 0.8}, {2, 3, 5},
     {1.56, 0.984, -0.82368}},
    {"shifted_chebyshev_polynomial_v", {0.1, 0.35, 0.8}, {2, 3, 5},
     {3.16, 1.624, 0.42272}},
    {"shifted_chebyshev_polynomial_w", {0.1, 0.35, 0.8}, {2, 3, 5},
     {-0.04, 0.344, -2.07008}},
    {"frexp_mantissa", {10, 0, -0.3}, {}, {0.625, 0, -0.6}},
    {"frexp_exponent", {10, 0, -0.3, kInf}, {}, {4, 0, -1, 0}},
};

}  // namespace

std::vector<std::string> flagos::ocl::test::specialFunctionsTested() {
  std::vector<std::string> names{"polygamma"};
  for (const Row& r : kRows) names.emplace_back(r.name);
  return names;
}

TEST_CASE("special functions keep float32's accuracy, in vectors and alone") {
  for (const Variant v : kVariants)
    for (const Row& r : kRows) {
      INFO(r.name << " " << name(v));
      const auto op = pointwiseFromName(r.name);
      REQUIRE(op);
      // Repeated, so that whole vectors and the rest of one are met.
      std::vector<double> a, b, want;
      for (int i = 0; i < 8; ++i) {
        a.insert(a.end(), r.a.begin(), r.a.end());
        b.insert(b.end(), r.b.begin(), r.b.end());
        want.insert(want.end(), r.want.begin(), r.want.end());
      }
      const Shape shape({static_cast<int64_t>(a.size())});
      Tensor x(shape, DType::float32, a), out(shape, DType::float32);
      Tensor y(shape, DType::float32, b.empty() ? a : b);
      const TensorRef in[] = {x.ref(), y.ref()};
      ok(pointwise(queue(), *op, {in, b.empty() ? size_t{1} : size_t{2}}, out.ref(), DType::float32, {}, v));
      checkClose(out.get(), want, 6e-6, 2e-6);
    }
}

TEST_CASE("polygamma takes its order as a number") {
  const std::vector<double> x{0.4, 2.6, 9.5};
  struct Order { double n; std::vector<double> want; };
  const Order orders[] = {
      Order{0, {-2.56138450122, 0.75104740816, 2.1977378764}},
      Order{1, {7.27535639837, 0.467806913656, 0.110997288469}},
      Order{2, {-32.2391272157, -0.215291046502, -0.0123078458077}},
      Order{4, {-2348.59109877, -0.261938305389, -0.000905225423385}}};
  for (const Order& o : orders) {
    Tensor in(Shape({3}), DType::float32, x), out(Shape({3}), DType::float32);
    const TensorRef a = in.ref();
    const Scalar n(o.n);
    ok(pointwise(queue(), PointwiseOp::polygamma, {&a, 1}, out.ref(), DType::float32, {&n, 1}, Variant::wide));
    checkClose(out.get(), o.want, 6e-6, 2e-6);
  }
}

TEST_CASE("special functions are refused where they would lose accuracy") {
  CHECK(pointwiseSupports(PointwiseOp::airy_ai, DType::float32));
  CHECK(pointwiseSupports(PointwiseOp::airy_ai, DType::bfloat16));
  CHECK_FALSE(pointwiseSupports(PointwiseOp::airy_ai, DType::float64));
  CHECK_FALSE(pointwiseSupports(PointwiseOp::airy_ai, DType::int64));
}

// Attention, forward and backward, against the composite of products and softmax in float64.
#include <cmath>

#include "runtime/opencl/ops/attention.h"
#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

struct Sizes { int64_t b, h, hk, tq, tk, d, dv; };
struct Answer { std::vector<double> out, lse, dq, dk, dv; };

// Rows of [b][h][t][size].
size_t at(int64_t heads, int64_t positions, int64_t size, int64_t b, int64_t h, int64_t t, int64_t c) {
  return static_cast<size_t>(((b * heads + h) * positions + t) * size + c);
}

Answer reference(const Sizes& s, const std::vector<double>& q, const std::vector<double>& k, const std::vector<double>& v,
                 const std::vector<double>* bias, const std::vector<double>& g, bool causal, double scale) {
  Answer a;
  a.out.assign(static_cast<size_t>(s.b * s.h * s.tq * s.dv), 0);
  a.lse.assign(static_cast<size_t>(s.b * s.h * s.tq), -std::numeric_limits<double>::infinity());
  a.dq.assign(q.size(), 0), a.dk.assign(k.size(), 0), a.dv.assign(v.size(), 0);
  for (int64_t b = 0; b < s.b; ++b)
    for (int64_t h = 0; h < s.h; ++h)
      for (int64_t i = 0; i < s.tq; ++i) {
        const int64_t hk = h / (s.h / s.hk), seen = causal ? std::min(s.tk, i + 1) : s.tk;
        std::vector<double> p(static_cast<size_t>(seen)), slope(static_cast<size_t>(seen), 0);
        double top = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double dot = 0;
          for (int64_t c = 0; c < s.d; ++c) dot += q[at(s.h, s.tq, s.d, b, h, i, c)] * k[at(s.hk, s.tk, s.d, b, hk, j, c)];
          p[static_cast<size_t>(j)] = dot * scale + (bias ? (*bias)[static_cast<size_t>(i * s.tk + j)] : 0);
          top = std::max(top, p[static_cast<size_t>(j)]);
        }
        if (std::isinf(top)) continue;  // nothing to attend to: zeros
        for (double& x : p) sum += x = std::exp(x - top);
        a.lse[static_cast<size_t>((b * s.h + h) * s.tq + i)] = top + std::log(sum);
        for (int64_t j = 0; j < seen; ++j) {
          p[static_cast<size_t>(j)] /= sum;
          for (int64_t c = 0; c < s.dv; ++c) {
            const double gc = g[at(s.h, s.tq, s.dv, b, h, i, c)], vc = v[at(s.hk, s.tk, s.dv, b, hk, j, c)];
            a.out[at(s.h, s.tq, s.dv, b, h, i, c)] += p[static_cast<size_t>(j)] * vc;
            a.dv[at(s.hk, s.tk, s.dv, b, hk, j, c)] += p[static_cast<size_t>(j)] * gc;
            slope[static_cast<size_t>(j)] += gc * vc;
          }
          delta += p[static_cast<size_t>(j)] * slope[static_cast<size_t>(j)];
        }
        for (int64_t j = 0; j < seen; ++j) {
          const double ds = p[static_cast<size_t>(j)] * (slope[static_cast<size_t>(j)] - delta) * scale;
          for (int64_t c = 0; c < s.d; ++c) {
            a.dq[at(s.h, s.tq, s.d, b, h, i, c)] += ds * k[at(s.hk, s.tk, s.d, b, hk, j, c)];
            a.dk[at(s.hk, s.tk, s.d, b, hk, j, c)] += ds * q[at(s.h, s.tq, s.d, b, h, i, c)];
          }
        }
      }
  return a;
}

// [b, h, t, size] stored as [b, t, h, size], as attention layers make it.
Shape interleaved(int64_t b, int64_t h, int64_t t, int64_t size) { return Shape({b, h, t, size}, {t * h * size, size, h * size, 1}, 3); }

}  // namespace

TEST_CASE("attention and its gradients over sizes, masks, layouts and dtypes", "[ops][attention]") {
  struct Case { Sizes s; bool causal, bias; DType dtype; };
  const Case cases[] = {
      {{1, 1, 1, 1, 1, 1, 1}, false, false, DType::float32},    {{2, 3, 3, 17, 45, 20, 36}, false, true, DType::float32},
      {{1, 2, 2, 70, 70, 64, 64}, true, false, DType::float32}, {{1, 4, 2, 33, 40, 32, 16}, true, false, DType::float32},
      {{1, 2, 1, 40, 9, 96, 128}, false, true, DType::float32}, {{1, 1, 1, 5, 7, 136, 130}, false, false, DType::float32},
      {{1, 2, 2, 20, 33, 24, 24}, true, false, DType::float64}, {{1, 2, 2, 20, 33, 32, 32}, false, true, DType::float16},
      {{1, 2, 2, 40, 40, 32, 32}, true, false, DType::bfloat16},
  };
  for (const Case& c : cases)
    for (const Variant variant : kVariants) {
      const Sizes& s = c.s;
      INFO(s.b << " " << s.h << " " << s.tq << " " << s.tk << " " << s.d << " causal " << c.causal << " " << name(variant));
      const double scale = 1 / std::sqrt(static_cast<double>(s.d));
      const auto q = values(s.b * s.h * s.tq * s.d, c.dtype, -1, 1, 1), k = values(s.b * s.hk * s.tk * s.d, c.dtype, -1, 1, 2),
                 v = values(s.b * s.hk * s.tk * s.dv, c.dtype, -1, 1, 3), g = values(s.b * s.h * s.tq * s.dv, c.dtype, -1, 1, 4);
      auto bias = values(s.tq * s.tk, c.dtype, -2, 2, 5);
      if (c.bias)
        for (int64_t j = 0; j < s.tk; ++j) bias[static_cast<size_t>(j)] = -std::numeric_limits<double>::infinity();  // query 0 sees nothing
      const Answer want = reference(s, q, k, v, c.bias ? &bias : nullptr, g, c.causal, scale);
      const DType sums = c.dtype == DType::float64 ? DType::float64 : DType::float32;
      Tensor tq(interleaved(s.b, s.h, s.tq, s.d), c.dtype, q), tk(Shape({s.b, s.hk, s.tk, s.d}), c.dtype, k),
          tv(interleaved(s.b, s.hk, s.tk, s.dv), c.dtype, v), tg(interleaved(s.b, s.h, s.tq, s.dv), c.dtype, g),
          mask(Shape({s.b, s.h, s.tq, s.tk}, {0, 0, s.tk, 1}), c.dtype), out(interleaved(s.b, s.h, s.tq, s.dv), c.dtype),
          lse(Shape({s.b, s.h, s.tq}), sums);
      if (c.bias) {
        std::vector<double> all;
        for (int64_t i = 0; i < s.b * s.h; ++i) all.insert(all.end(), bias.begin(), bias.end());
        mask.set(all);
      }
      const TensorRef mask_ref = mask.ref();
      AttentionArgs args{tq.ref(), tk.ref(), tv.ref(), out.ref(), lse.ref(), c.bias ? &mask_ref : nullptr, c.causal, scale};
      ok(attention(queue(), args, variant));
      const double near = c.dtype == DType::float64 ? 1e-12 : c.dtype == DType::float32 ? 2e-5 : c.dtype == DType::float16 ? 4e-3 : 3e-2;
      checkClose(out.get(), want.out, near, near);
      checkClose(lse.get(), want.lse, 1e-5, 1e-5);
      REQUIRE(out.untouchedOutside());
      Tensor dq(interleaved(s.b, s.h, s.tq, s.d), c.dtype), dk(Shape({s.b, s.hk, s.tk, s.d}), c.dtype), dv(interleaved(s.b, s.hk, s.tk, s.dv), c.dtype);
      ok(attentionBackward(queue(), args, {tg.ref(), dq.ref(), dk.ref(), dv.ref()}, variant));
      checkClose(dq.get(), want.dq, near, near);
      checkClose(dk.get(), want.dk, near, 2 * near);
      checkClose(dv.get(), want.dv, near, 2 * near);
      REQUIRE((dq.untouchedOutside() && dk.untouchedOutside() && dv.untouchedOutside()));
    }
}

TEST_CASE("attention refuses sizes that do not fit", "[ops][attention]") {
  Tensor q(Shape({1, 2, 3, 4}), DType::float32), k(Shape({1, 2, 3, 5}), DType::float32), lse(Shape({1, 2, 3}), DType::float32);
  const auto r = attention(queue(), {q.ref(), k.ref(), q.ref(), q.ref(), lse.ref()}, Variant::wide);
  REQUIRE(!r);
  CHECK(r.error().text().find("sizes do not fit") != std::string::npos);
}

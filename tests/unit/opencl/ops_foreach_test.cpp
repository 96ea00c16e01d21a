// Many tensors in few launches: same answers as one by one, whatever the sizes, strides and numbers.
#include "runtime/opencl/ops/foreach.h"

#include <memory>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;
using P = PointwiseOp;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Tensors of many sizes: tiny, empty, longer than a piece, strided; more of them than one table holds.
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = [] {
    std::vector<Shape> s = {Shape({}),
                            Shape({1}),
                            Shape({0}),
                            Shape({17}),
                            Shape({30, 40}),
                            Shape({9000}),
                            Shape({5, 7}, {1, 5}),
                            Shape({6, 10}, {40, 3}, 2),
                            Shape({3, 5, 7}),
                            Shape({128})};
    for (int64_t i = 0; i < 20; ++i) s.push_back(Shape({i * 13 + 2}));
    return s;
  }();
  return all;
}

struct List {
  std::vector<std::unique_ptr<Tensor>> tensors;
  std::vector<std::vector<double>> host;
  List(DType t, double low, double high, uint32_t seed) {
    for (const Shape& s : shapes()) {
      host.push_back(values(s.numel(), t, low, high, seed++));
      tensors.push_back(std::make_unique<Tensor>(s, t, host.back()));
    }
  }
  std::vector<TensorRef> refs() const {
    std::vector<TensorRef> r;
    for (const auto& t : tensors) r.push_back(t->ref());
    return r;
  }
  // Compares with want(tensor, element).
  template <class F>
  void check(F want, double relative, double absolute) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      INFO("tensor " << t << " " << tensors[t]->shape().text());
      const auto got = tensors[t]->get();
      std::vector<double> w(got.size());
      for (size_t i = 0; i < w.size(); ++i) w[i] = want(t, i);
      checkClose(got, w, relative, absolute);
      REQUIRE(tensors[t]->untouchedOutside());
    }
  }
};

}  // namespace

TEST_CASE("foreach pointwise: lists, shared and own scalars, one tensor for all", "[ops][foreach]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    List a(DType::float32, -3, 3, 1), b(DType::float32, 0.5, 3, 100), c(DType::float32, 0.5, 3, 200),
        out(DType::float32, 0, 0, 300);
    const auto ar = a.refs(), br = b.refs(), cr = c.refs(), outr = out.refs();
    const TensorList three[] = {ar, br, cr};
    const Scalar alpha[] = {Scalar(0.5)};
    ok(foreachPointwise(queue(), P::add, {three, 2}, outr, alpha, v));
    out.check([&](size_t t, size_t i) { return a.host[t][i] + 0.5 * b.host[t][i]; }, 2e-6, 1e-6);
    ok(foreachPointwise(queue(), P::addcdiv, three, outr, alpha, v));
    out.check([&](size_t t, size_t i) { return a.host[t][i] + 0.5 * b.host[t][i] / c.host[t][i]; }, 2e-6, 1e-6);
    ok(foreachPointwise(queue(), P::sqrt, {three + 1, 1}, outr, {}, v));
    out.check([&](size_t t, size_t i) { return std::sqrt(b.host[t][i]); }, 2e-6, 0);
    std::vector<Scalar> own;
    for (size_t t = 0; t < outr.size(); ++t) own.emplace_back(static_cast<double>(t) + 0.25);
    ok(foreachPointwise(queue(), P::mul_scalar, {three, 1}, outr, own, v));
    out.check([&](size_t t, size_t i) { return a.host[t][i] * (static_cast<double>(t) + 0.25); }, 2e-6, 0);
    ok(foreachPointwise(queue(), P::pow_scalar, {three + 1, 1}, outr, own, v));
    out.check([&](size_t t, size_t i) { return std::pow(b.host[t][i], static_cast<double>(t) + 0.25); }, 2e-5, 0);
    Tensor scale(Shape({}), DType::float32, {3});
    const TensorRef sr[] = {scale.ref()};
    const TensorList byOne[] = {ar, sr};
    ok(foreachPointwise(queue(), P::mul, byOne, outr, {}, v));
    out.check([&](size_t t, size_t i) { return a.host[t][i] * 3; }, 2e-6, 0);
    // In place.
    const TensorList self[] = {outr, br};
    ok(foreachPointwise(queue(), P::sub, self, outr, alpha, v));
    out.check([&](size_t t, size_t i) { return a.host[t][i] * 3 - 0.5 * b.host[t][i]; }, 2e-6, 1e-6);
    const auto wrong = foreachPointwise(queue(), P::add, {three, 1}, outr, alpha, v);
    REQUIRE(!wrong);
    REQUIRE(wrong.error().text().find("add: wants 2 lists, got 1") != std::string::npos);
  }
}

TEST_CASE("foreach: few tensors go as an argument, many as a table in memory; both give the same", "[ops][foreach]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    List a(DType::float32, -3, 3, 1), b(DType::float32, 0.5, 3, 100), few(DType::float32, 0, 0, 300), many(DType::float32, 0, 0, 300);
    const auto ar = a.refs(), br = b.refs(), fr = few.refs(), mr = many.refs();
    std::vector<Scalar> own;
    for (size_t t = 0; t < ar.size(); ++t) own.emplace_back(1.0 / static_cast<double>(t + 1));
    const TensorList all[] = {ar, br};
    // Twice at once: the second launch must not write over the first one's table.
    ok(foreachPointwise(queue(), P::add, all, mr, own, v));
    const TensorList again[] = {mr, br};
    ok(foreachPointwise(queue(), P::add, again, mr, own, v));
    for (size_t t = 0; t < ar.size(); t += 5) {
      const size_t n = std::min<size_t>(5, ar.size() - t);
      const TensorList part[] = {TensorList(ar).subspan(t, n), TensorList(br).subspan(t, n)};
      const TensorList next[] = {TensorList(fr).subspan(t, n), TensorList(br).subspan(t, n)};
      ok(foreachPointwise(queue(), P::add, part, TensorList(fr).subspan(t, n), std::span(own).subspan(t, n), v));
      ok(foreachPointwise(queue(), P::add, next, TensorList(fr).subspan(t, n), std::span(own).subspan(t, n), v));
    }
    for (size_t t = 0; t < ar.size(); ++t) REQUIRE(few.tensors[t]->get() == many.tensors[t]->get());
    many.check([&](size_t t, size_t i) { return a.host[t][i] + 2.0 / static_cast<double>(t + 1) * b.host[t][i]; }, 2e-6, 1e-6);
  }
}

TEST_CASE("foreach by dtype and norms", "[ops][foreach]") {
  for (Variant v : kVariants)
    for (DType d : {DType::float16, DType::bfloat16, DType::float64, DType::int32}) {
      INFO(name(v) << " " << dtypeName(d));
      List a(d, -9, 9, 1), b(d, 1, 9, 100), out(d, 0, 0, 300);
      const auto ar = a.refs(), br = b.refs(), outr = out.refs();
      const TensorList two[] = {ar, br};
      ok(foreachPointwise(queue(), P::mul, two, outr, {}, v));
      out.check([&](size_t t, size_t i) { return a.host[t][i] * b.host[t][i]; }, relativeFor(d), 0);
    }
  for (Variant v : kVariants) {
    List a(DType::float32, -3, 3, 1);
    std::vector<std::unique_ptr<Tensor>> norms;
    std::vector<TensorRef> nr;
    for (size_t t = 0; t < shapes().size(); ++t) {
      norms.push_back(std::make_unique<Tensor>(Shape({}), DType::float32));
      nr.push_back(norms.back()->ref());
    }
    const auto ar = a.refs();
    for (double order : {1.0, 2.0, kInf}) {
      ok(foreachNorm(queue(), ar, nr, order, v));
      for (size_t t = 0; t < nr.size(); ++t) {
        double sum = 0, squares = 0, most = 0;
        for (double x : a.host[t]) sum += std::fabs(x), squares += x * x, most = std::max(most, std::fabs(x));
        REQUIRE(close(norms[t]->get()[0], order == 1.0 ? sum : order == 2.0 ? std::sqrt(squares) : most, 1e-5, 0));
      }
    }
    REQUIRE_FALSE(foreachNorm(queue(), ar, nr, 3.0, v));
  }
}

TEST_CASE("SGD steps follow PyTorch's formula", "[ops][foreach]") {
  struct Case { double momentum, dampening, decay; bool nesterov, maximize; };
  const Case cases[] = {
      {0, 0, 0, false, false}, {0.9, 0, 0, false, false}, {0.9, 0, 0.01, true, false}, {0.8, 0.1, 0.1, false, true}};
  for (const Case& c : cases)
    for (Variant v : kVariants) {
      INFO(name(v) << " momentum " << c.momentum << " decay " << c.decay);
      List p(DType::float32, -1, 1, 1), g(DType::float32, -1, 1, 100), m(DType::float32, 0, 0, 200);
      const auto pr = p.refs(), gr = g.refs(), mr = m.refs();
      auto want = p.host, buffer = m.host;
      for (int step = 0; step < 3; ++step) {
        SgdOptions o{0.1, c.momentum, c.dampening, c.decay, c.nesterov, c.maximize, step == 0};
        ok(sgdStep(queue(), pr, gr, c.momentum != 0 ? TensorList(mr) : TensorList(), o, nullptr, nullptr, nullptr, v));
        for (size_t t = 0; t < want.size(); ++t)
          for (size_t i = 0; i < want[t].size(); ++i) {
            double d = (c.maximize ? -1 : 1) * g.host[t][i] + c.decay * want[t][i];
            if (c.momentum != 0) {
              double& b = buffer[t][i];
              b = step == 0 ? d : c.momentum * b + (1 - c.dampening) * d;
              d = c.nesterov ? d + c.momentum * b : b;
            }
            want[t][i] -= 0.1 * d;
          }
      }
      p.check([&](size_t t, size_t i) { return want[t][i]; }, 1e-5, 1e-6);
    }
}

TEST_CASE("Adam steps follow PyTorch's formula", "[ops][foreach]") {
  struct Case { double decay; bool amsgrad, maximize, decoupled; };
  const Case cases[] = {{0, false, false, false}, {0.01, true, false, false}, {0.1, false, true, true}};
  for (const Case& c : cases)
    for (Variant v : kVariants) {
      INFO(name(v) << " decay " << c.decay << " amsgrad " << c.amsgrad);
      List p(DType::float32, -1, 1, 1), g(DType::float32, -1, 1, 100), m(DType::float32, 0, 0, 200),
          s(DType::float32, 0, 0, 300), most(DType::float32, 0, 0, 400);
      const auto pr = p.refs(), gr = g.refs(), mr = m.refs(), sr = s.refs(), xr = most.refs();
      std::vector<std::unique_ptr<Tensor>> steps;
      std::vector<TensorRef> stepRefs;
      for (size_t t = 0; t < pr.size(); ++t) {
        steps.push_back(std::make_unique<Tensor>(Shape({}), DType::float32));
        stepRefs.push_back(steps.back()->ref());
      }
      Tensor lr(Shape({}), DType::float32, {0.01});
      const TensorRef lrRef = lr.ref();
      auto want = p.host, mh = m.host, vh = s.host, xh = most.host;
      for (int step = 1; step <= 3; ++step) {
        for (auto& t : steps) t->set({static_cast<double>(step)});
        AdamOptions o;
        o.lr = step == 2 ? 99 : 0.01;  // the tensor wins in step 2
        o.weight_decay = c.decay;
        o.amsgrad = c.amsgrad;
        o.maximize = c.maximize;
        o.decoupled = c.decoupled;
        ok(adamStep(queue(), pr, gr, mr, sr, c.amsgrad ? TensorList(xr) : TensorList(), stepRefs, o,
                    step == 2 ? &lrRef : nullptr, nullptr, nullptr, v));
        const double b1 = 1 - std::pow(0.9, step), b2 = 1 - std::pow(0.999, step);
        for (size_t t = 0; t < want.size(); ++t)
          for (size_t i = 0; i < want[t].size(); ++i) {
            double d = (c.maximize ? -1 : 1) * g.host[t][i];
            if (c.decoupled) want[t][i] *= 1 - 0.01 * c.decay;
            else d += c.decay * want[t][i];
            mh[t][i] = 0.9 * mh[t][i] + 0.1 * d;
            vh[t][i] = 0.999 * vh[t][i] + 0.001 * d * d;
            xh[t][i] = std::max(xh[t][i], vh[t][i]);
            want[t][i] -= 0.01 / b1 * mh[t][i] / (std::sqrt(c.amsgrad ? xh[t][i] : vh[t][i]) / std::sqrt(b2) + 1e-8);
          }
      }
      p.check([&](size_t t, size_t i) { return want[t][i]; }, 2e-5, 2e-6);
      m.check([&](size_t t, size_t i) { return mh[t][i]; }, 1e-5, 1e-6);
      s.check([&](size_t t, size_t i) { return vh[t][i]; }, 1e-5, 1e-7);
    }
}

TEST_CASE("gradient scaling: unscale, find infinities, skip the step", "[ops][foreach]") {
  for (Variant v : kVariants) {
    INFO(name(v));
    List p(DType::float32, -1, 1, 1), g(DType::float32, -1, 1, 100);
    const auto pr = p.refs(), gr = g.refs();
    Tensor found(Shape({}), DType::float32, {0}), inverse(Shape({}), DType::float32, {0.5}),
        scale(Shape({}), DType::float32, {4});
    ok(ampUnscale(queue(), gr, found.ref(), inverse.ref(), v));
    REQUIRE(found.get()[0] == 0);
    g.check([&](size_t t, size_t i) { return g.host[t][i] * 0.5; }, 1e-6, 0);
    const TensorRef foundRef = found.ref(), scaleRef = scale.ref();
    SgdOptions o;
    o.lr = 1;
    ok(sgdStep(queue(), pr, gr, {}, o, nullptr, &scaleRef, &foundRef, v));
    p.check([&](size_t t, size_t i) { return p.host[t][i] - g.host[t][i] / 8; }, 1e-5, 1e-6);
    g.check([&](size_t t, size_t i) { return g.host[t][i] / 8; }, 1e-6, 0);
    // One infinity in the last element of one tensor is found, and then nothing moves.
    std::vector<double> bad = g.tensors[5]->get();
    bad.back() = -kInf;
    g.tensors[5]->set(bad);
    ok(ampUnscale(queue(), gr, found.ref(), inverse.ref(), v));
    REQUIRE(found.get()[0] == 1);
    const auto before = p.tensors[4]->get();
    ok(sgdStep(queue(), pr, gr, {}, o, nullptr, nullptr, &foundRef, v));
    REQUIRE(p.tensors[4]->get() == before);
  }
}

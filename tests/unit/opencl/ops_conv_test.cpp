// Convolution and its gradients against the definition in float64, in both variants, over a table of shapes.
#include "runtime/opencl/ops/conv.h"

#include <cmath>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

struct Case {
  const char* what;
  int64_t n, c, h, w, k, r, s;
  ConvArgs args = {};
  int64_t extra = 0;  // output_padding of a transposed convolution, both ways
};

int64_t outSize(const Case& c, size_t d) {
  const int64_t in = d ? c.w : c.h, taps = d ? c.s : c.r;
  const int64_t stride = c.args.stride[d], reach = c.args.dilation[d] * (taps - 1);
  return c.args.transposed ? (in - 1) * stride - 2 * c.args.padding[d] + reach + 1 + c.extra
                           : (in + 2 * c.args.padding[d] - reach - 1) / stride + 1;
}

// Calls visit(x index, w index, y index) for every product of the definition, all row-major. A transposed convolution
// is the same set of products with the roles of x and y swapped.
template <class F>
void products(const Case& c, F visit) {
  const bool turned = c.args.transposed;
  const int64_t g = c.args.groups, oh = outSize(c, 0), ow = outSize(c, 1);
  // Seen as an ordinary convolution: `big` is slid over, `small` is the result.
  const int64_t bc = turned ? c.k : c.c, bh = turned ? oh : c.h, bw = turned ? ow : c.w;
  const int64_t sc = turned ? c.c : c.k, sh = turned ? c.h : oh, sw = turned ? c.w : ow;
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t k = 0; k < sc; ++k)
      for (int64_t y = 0; y < sh; ++y)
        for (int64_t x = 0; x < sw; ++x)
          for (int64_t q = 0; q < bc / g; ++q)
            for (int64_t r = 0; r < c.r; ++r)
              for (int64_t s = 0; s < c.s; ++s) {
                const int64_t iy = y * c.args.stride[0] - c.args.padding[0] + r * c.args.dilation[0];
                const int64_t ix = x * c.args.stride[1] - c.args.padding[1] + s * c.args.dilation[1];
                if (iy < 0 || iy >= bh || ix < 0 || ix >= bw) continue;
                const int64_t channel = k / (sc / g) * (bc / g) + q;
                const auto big = static_cast<size_t>(((n * bc + channel) * bh + iy) * bw + ix);
                const auto small = static_cast<size_t>(((n * sc + k) * sh + y) * sw + x);
                const auto weight = static_cast<size_t>(((k * (bc / g) + q) * c.r + r) * c.s + s);
                turned ? visit(small, weight, big) : visit(big, weight, small);
              }
}

struct Reference {
  std::vector<double> want, scale;  // scale: the sum of the products' sizes; errors are measured against it
  explicit Reference(size_t n) : want(n), scale(n) {}
  void add(size_t i, double v) { want[i] += v, scale[i] += std::fabs(v); }
};

void checkSums(const std::vector<double>& got, const Reference& r, DType t, const char* part) {
  const double sums = t == DType::float64 ? 2e-15 : 5e-7;
  REQUIRE(got.size() == r.want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(part << ", element " << i << ": got " << got[i] << ", want " << r.want[i]);
    REQUIRE(close(got[i], r.want[i], relativeFor(t), sums * r.scale[i]));
  }
}

// Row-major, or channels last.
Shape image(int64_t n, int64_t c, int64_t h, int64_t w, bool channels_last) {
  if (channels_last) return Shape({n, c, h, w}, {c * h * w, 1, w * c, c}, 2);
  return Shape({n, c, h, w}, {c * h * w, h * w, w, 1}, 9);
}

void run(const Case& c, DType t, Variant v, bool channels_last) {
  INFO(c.what << " " << name(v) << " " << dtypeName(t) << (channels_last ? " channels last" : ""));
  const int64_t oh = outSize(c, 0), ow = outSize(c, 1), g = c.args.groups;
  const Shape ws = c.args.transposed ? Shape({c.c, c.k / g, c.r, c.s}) : Shape({c.k, c.c / g, c.r, c.s});
  const Shape xs = image(c.n, c.c, c.h, c.w, channels_last), ys = image(c.n, c.k, oh, ow, channels_last);
  const auto xv = values(xs.numel(), t, -1, 1, 1), wv = values(ws.numel(), t, -1, 1, 2), bv = values(c.k, t, -1, 1, 3);
  const auto gv = values(ys.numel(), t, -1, 1, 4);
  Reference y(gv.size()), gx(xv.size()), gw(wv.size()), gb(bv.size());
  products(c, [&](size_t xi, size_t wi, size_t yi) {
    y.add(yi, xv[xi] * wv[wi]);
    gx.add(xi, gv[yi] * wv[wi]);
    gw.add(wi, gv[yi] * xv[xi]);
  });
  for (size_t i = 0; i < gv.size(); ++i) {
    const size_t k = i / static_cast<size_t>(oh * ow) % static_cast<size_t>(c.k);
    y.add(i, bv[k]);
    gb.add(k, gv[i]);
  }
  Tensor x(xs, t, xv), w(ws, t, wv), b(Shape({c.k}), t, bv), grad(ys, t, gv);
  Tensor out(ys, t), grad_x(xs, t), grad_w(ws, t), grad_b(Shape({c.k}), t);
  const TensorRef bias = b.ref();
  ok(convForward(queue(), x.ref(), w.ref(), &bias, out.ref(), c.args, v));
  ok(convBackwardInput(queue(), grad.ref(), w.ref(), grad_x.ref(), c.args, v));
  ok(convBackwardWeight(queue(), grad.ref(), x.ref(), grad_w.ref(), c.args, v));
  ok(convBackwardBias(queue(), grad.ref(), grad_b.ref(), v));
  checkSums(out.get(), y, t, "forward");
  checkSums(grad_x.get(), gx, t, "input gradient");
  checkSums(grad_w.get(), gw, t, "weight gradient");
  checkSums(grad_b.get(), gb, t, "bias gradient");
  CHECK(out.untouchedOutside());
  CHECK(grad_x.untouchedOutside());
  CHECK(grad_w.untouchedOutside());
}

const Case kCases[] = {
    {"digits first layer", 3, 1, 8, 8, 16, 3, 3, {.padding = {1, 1}}},
    {"digits second layer", 3, 16, 8, 8, 32, 3, 3, {.padding = {1, 1}}},
    {"odd sizes, mixed strides and dilations", 3, 5, 9, 7, 11, 3, 2, {{2, 1}, {1, 0}, {1, 2}}},
    {"grouped, strided", 2, 8, 10, 10, 12, 3, 3, {.stride = {2, 2}, .padding = {1, 1}, .groups = 4}},
    {"depthwise", 2, 6, 12, 11, 6, 3, 3, {.padding = {1, 1}, .groups = 6}},
    {"depthwise, two outputs a channel", 2, 3, 6, 6, 6, 3, 3, {.padding = {1, 1}, .groups = 3}},
    {"depthwise, many channels", 3, 20, 9, 37, 20, 3, 3, {.padding = {1, 1}, .groups = 20}},
    {"depthwise, strided", 2, 16, 15, 40, 16, 5, 3, {.stride = {2, 2}, .padding = {2, 1}, .groups = 16}},
    {"depthwise, stride 3, dilated", 2, 9, 20, 20, 9, 3, 3, {{3, 3}, {1, 1}, {1, 2}, 9}},
    {"depthwise, many images", 37, 8, 7, 7, 8, 3, 3, {.padding = {1, 1}, .groups = 8}},
    {"1x1", 2, 4, 7, 7, 6, 1, 1},
    {"1x1 strided", 2, 4, 7, 7, 6, 1, 1, {.stride = {2, 3}}},
    {"long rows", 1, 2, 3, 700, 3, 1, 5, {{1, 2}, {0, 2}, {1, 1}}},
    {"window as large as the image", 4, 3, 5, 4, 7, 5, 4},
    {"more padding than window", 3, 2, 5, 5, 2, 3, 3, {.padding = {3, 4}}},
    {"tiny images", 9, 3, 2, 2, 4, 2, 2},
    {"stride beyond the window", 2, 3, 11, 12, 4, 2, 2, {.stride = {3, 4}}},
    {"many channels", 1, 40, 4, 4, 70, 3, 3, {.padding = {1, 1}}},
    {"more images than workers", 37, 3, 8, 8, 5, 3, 3, {.padding = {1, 1}}},
    {"more images than workers, strided", 37, 3, 9, 6, 5, 3, 3, {.stride = {2, 2}, .padding = {1, 1}}},
    {"rows of 14", 3, 4, 14, 14, 20, 3, 3, {.padding = {1, 1}}},
    {"rows of 7", 11, 4, 7, 7, 9, 3, 3, {.padding = {1, 1}}},
    {"rows of 30, strips of rows", 2, 3, 33, 30, 4, 3, 3, {.padding = {1, 1}}},
    {"weights beyond one block", 2, 160, 4, 4, 160, 3, 3, {.padding = {1, 1}}},
    {"stride 4, beyond the phases", 2, 3, 21, 22, 4, 5, 5, {.stride = {5, 4}, .padding = {2, 1}}},
    {"transposed", 2, 4, 5, 6, 3, 3, 3, {.padding = {1, 1}, .transposed = true}},
    {"transposed, strided, grouped, padded output", 2, 4, 5, 6, 6, 3, 3,
     {{2, 2}, {1, 1}, {1, 1}, 2, true}, 1},
    {"transposed, dilated", 1, 3, 4, 5, 2, 2, 3, {{1, 2}, {0, 1}, {2, 2}, 1, true}},
    {"many channels: panels through rows and images", 3, 20, 14, 14, 40, 3, 3, {.padding = {1, 1}}},
    {"many channels: strided by 2", 2, 3, 33, 35, 64, 7, 7, {.stride = {2, 2}, .padding = {3, 3}}},
    {"many channels: strided by 3, grouped, dilated", 2, 8, 20, 21, 72, 2, 2, {{3, 3}, {0, 1}, {2, 1}, 2}},
    {"many channels: 1x1", 3, 33, 5, 9, 130, 1, 1},
    {"few pixels", 4, 50, 4, 4, 72, 3, 3, {.padding = {1, 1}}},
    {"few pixels, strided, grouped", 4, 64, 5, 5, 96, 3, 3, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
    {"few pixels, dilated, more padding than window", 2, 24, 3, 4, 20, 2, 3, {{1, 1}, {3, 2}, {2, 1}}},
    {"few pixels, many output channels", 3, 8, 8, 8, 257, 3, 3, {.padding = {1, 1}}},
    {"few pixels, transposed", 2, 40, 4, 4, 20, 3, 3, {.stride = {2, 2}, .padding = {1, 1}, .transposed = true}, 1},
    {"many channels: several blocks of depth", 2, 80, 9, 9, 66, 3, 3, {.padding = {1, 1}}},
    {"many channels: gradients turned once for many blocks of them", 5, 150, 7, 7, 136, 3, 3, {.padding = {1, 1}}},
};

}  // namespace

TEST_CASE("conv: forward and gradients over the table", "[conv]") {
  for (const Case& c : kCases)
    for (Variant v : kVariants)
      for (bool channels_last : {false, true}) run(c, DType::float32, v, channels_last);
}

TEST_CASE("conv: dtypes", "[conv]") {
  for (DType t : {DType::float64, DType::float16, DType::bfloat16})
    for (Variant v : kVariants)
      for (size_t i : {size_t{0}, size_t{2}, size_t{3}, size_t{7}, size_t{18}, size_t{20}, size_t{26}, std::size(kCases) - 1, std::size(kCases) - 2, std::size(kCases) - 5})
        run(kCases[i], t, v, false);
}

TEST_CASE("conv: one-dimensional tensors", "[conv]") {
  // y[k][i] = sum over c, s of x[c][i * 2 + s - 1] * w[k][c][s]
  const auto x = values(2 * 3 * 9, DType::float32, -1, 1, 1), w = values(4 * 3 * 3, DType::float32, -1, 1, 2);
  Reference y(2 * 4 * 5);
  for (size_t n = 0; n < 2; ++n)
    for (size_t k = 0; k < 4; ++k)
      for (size_t i = 0; i < 5; ++i)
        for (size_t c = 0; c < 3; ++c)
          for (size_t s = 0; s < 3; ++s)
            if (const size_t at = 2 * i + s; at >= 1 && at <= 9)
              y.add((n * 4 + k) * 5 + i, x[(n * 3 + c) * 9 + at - 1] * w[(k * 3 + c) * 3 + s]);
  for (Variant v : kVariants) {
    Tensor tx(Shape({2, 3, 9}), DType::float32, x), tw(Shape({4, 3, 3}), DType::float32, w), ty(Shape({2, 4, 5}), DType::float32);
    ok(convForward(queue(), tx.ref(), tw.ref(), nullptr, ty.ref(), {.stride = {1, 2}, .padding = {0, 1}}, v));
    checkSums(ty.get(), y, DType::float32, "forward");
  }
}

TEST_CASE("conv: an empty batch gives zero weight and bias gradients", "[conv]") {
  for (Variant v : kVariants) {
    const ConvArgs args{.padding = {1, 1}};
    Tensor x(Shape({0, 3, 5, 5}), DType::float32), y(Shape({0, 4, 5, 5}), DType::float32), w(Shape({4, 3, 3, 3}), DType::float32);
    Tensor gw(Shape({4, 3, 3, 3}), DType::float32), gb(Shape({4}), DType::float32);
    ok(convForward(queue(), x.ref(), w.ref(), nullptr, y.ref(), args, v));
    ok(convBackwardInput(queue(), y.ref(), w.ref(), x.ref(), args, v));
    ok(convBackwardWeight(queue(), y.ref(), x.ref(), gw.ref(), args, v));
    ok(convBackwardBias(queue(), y.ref(), gb.ref(), v));
    CHECK(gw.get() == std::vector<double>(108, 0));
    CHECK(gb.get() == std::vector<double>(4, 0));
    CHECK(x.untouchedOutside());
    CHECK(y.untouchedOutside());
  }
}

TEST_CASE("conv: the same inputs give the same bits", "[conv]") {
  const auto xv = values(20 * 5 * 64, DType::float32, -1, 1, 1), gv = values(20 * 7 * 64, DType::float32, -1, 1, 2);
  for (Variant v : kVariants) {
    Tensor x(Shape({20, 5, 8, 8}), DType::float32, xv), g(Shape({20, 7, 8, 8}), DType::float32, gv);
    Tensor first(Shape({7, 5, 3, 3}), DType::float32), second(Shape({7, 5, 3, 3}), DType::float32);
    for (Tensor* w : {&first, &second}) ok(convBackwardWeight(queue(), g.ref(), x.ref(), w->ref(), {.padding = {1, 1}}, v));
    CHECK(first.get() == second.get());
  }
}

TEST_CASE("conv: refusals name the operator and the sizes", "[conv]") {
  Tensor x(Shape({1, 4, 5, 5}), DType::float32), w(Shape({6, 4, 3, 3}), DType::float32), y(Shape({1, 6, 5, 5}), DType::float32);
  Tensor w3(Shape({6, 3, 3, 3}), DType::float32), volume(Shape({1, 4, 5, 5, 5}), DType::float32);
  auto text = [&](const Tensor& in, const Tensor& weight, const ConvArgs& args) {
    const Result<void> r = convForward(queue(), in.ref(), weight.ref(), nullptr, y.ref(), args, Variant::wide);
    REQUIRE_FALSE(r);
    return r.error().text();
  };
  CHECK(text(x, w, {}).find("output size does not fit") != std::string::npos);
  CHECK(text(x, w3, {.padding = {1, 1}}).find("[6, 3, 3, 3]") != std::string::npos);
  CHECK(text(x, w, {.padding = {1, 1}, .groups = 4}).find("groups") != std::string::npos);
  CHECK(text(x, w, {.stride = {0, 1}}).find("stride") != std::string::npos);
  CHECK(text(volume, w, {}).find("1-d and 2-d") != std::string::npos);
  Tensor ints(Shape({1, 4, 5, 5}), DType::int32);
  CHECK(text(ints, w, {}).find("int32") != std::string::npos);
}

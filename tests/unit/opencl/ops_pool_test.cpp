// Pooling against the definition in float64, in both variants.
#include "runtime/opencl/ops/pool.h"

#include <algorithm>
#include <cmath>

#include "tests/unit/opencl/ops_fixture.h"

using namespace flagos;
using namespace flagos::ocl;
using namespace flagos::ocl::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

struct Case {
  const char* what;
  int64_t n, c, h, w, oh, ow;
  PoolArgs args;
};

Shape image(int64_t n, int64_t c, int64_t h, int64_t w, bool channels_last) {
  if (channels_last) return Shape({n, c, h, w}, {c * h * w, 1, w * c, c}, 3);
  return Shape({n, c, h, w}, {c * h * w, h * w, w, 1}, 3);
}

// Calls visit(output index, plane-relative input index) for every input element under every window, row by row.
template <class F>
void windows(const Case& c, F visit) {
  for (int64_t p = 0; p < c.n * c.c; ++p)
    for (int64_t y = 0; y < c.oh; ++y)
      for (int64_t x = 0; x < c.ow; ++x)
        for (int64_t r = 0; r < c.args.kernel[0]; ++r)
          for (int64_t s = 0; s < c.args.kernel[1]; ++s) {
            const int64_t iy = y * c.args.stride[0] - c.args.padding[0] + r * c.args.dilation[0];
            const int64_t ix = x * c.args.stride[1] - c.args.padding[1] + s * c.args.dilation[1];
            if (iy >= 0 && iy < c.h && ix >= 0 && ix < c.w)
              visit(static_cast<size_t>((p * c.oh + y) * c.ow + x), static_cast<size_t>(p * c.h * c.w), iy * c.w + ix);
          }
}

void runMax(const Case& c, DType t, Variant v, bool channels_last) {
  INFO(c.what << " " << name(v) << " " << dtypeName(t) << (channels_last ? " channels last" : ""));
  const Shape xs = image(c.n, c.c, c.h, c.w, channels_last), ys = image(c.n, c.c, c.oh, c.ow, channels_last);
  auto xv = values(xs.numel(), t, -1, 1, 1);
  if (xv.size() > 40) xv[7] = kNan, xv[20] = -kInf, xv[33] = kInf;
  const auto gv = values(ys.numel(), t, -1, 1, 2);
  std::vector<double> y(gv.size(), -kInf), gx(xv.size());
  std::vector<double> index(gv.size(), -1);
  windows(c, [&](size_t o, size_t plane, int64_t i) {
    const double value = xv[plane + static_cast<size_t>(i)];
    if (index[o] < 0 || value > y[o] || std::isnan(value)) y[o] = value, index[o] = static_cast<double>(i);
  });
  for (size_t o = 0; o < gv.size(); ++o)
    gx[o / static_cast<size_t>(c.oh * c.ow) * static_cast<size_t>(c.h * c.w) + static_cast<size_t>(index[o])] += gv[o];
  Tensor x(xs, t, xv), out(ys, t), indices(ys, DType::int64), grad(ys, t, gv), grad_x(xs, t);
  ok(maxPool2d(queue(), x.ref(), out.ref(), indices.ref(), c.args, v));
  ok(maxPool2dBackward(queue(), grad.ref(), indices.ref(), grad_x.ref(), c.args, v));
  checkClose(out.get(), y, 0, 0);
  CHECK(indices.get() == index);
  checkClose(grad_x.get(), gx, relativeFor(t), 1e-6);
  CHECK(out.untouchedOutside());
  CHECK(indices.untouchedOutside());
  CHECK(grad_x.untouchedOutside());
}

// PyTorch's divisor: the window clipped to the padded image, or to the image itself, or the caller's own.
double divisorOf(const Case& c, size_t o) {
  if (c.args.divisor_override) return static_cast<double>(*c.args.divisor_override);
  double size = 1;
  const int64_t at[2] = {static_cast<int64_t>(o) / c.ow % c.oh, static_cast<int64_t>(o) % c.ow}, in[2] = {c.h, c.w};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t from = at[d] * c.args.stride[d] - c.args.padding[d];
    const int64_t to = std::min(from + c.args.kernel[d], in[d] + c.args.padding[d]);
    size *= static_cast<double>(c.args.count_include_pad ? to - from : std::min(to, in[d]) - std::max<int64_t>(from, 0));
  }
  return size;
}

void runAverage(const Case& c, DType t, Variant v, bool channels_last) {
  INFO(c.what << " " << name(v) << " " << dtypeName(t) << (channels_last ? " channels last" : ""));
  const Shape xs = image(c.n, c.c, c.h, c.w, channels_last), ys = image(c.n, c.c, c.oh, c.ow, channels_last);
  const auto xv = values(xs.numel(), t, -1, 1, 1), gv = values(ys.numel(), t, -1, 1, 2);
  std::vector<double> y(gv.size()), gx(xv.size());
  windows(c, [&](size_t o, size_t plane, int64_t i) {
    y[o] += xv[plane + static_cast<size_t>(i)] / divisorOf(c, o);
    gx[plane + static_cast<size_t>(i)] += gv[o] / divisorOf(c, o);
  });
  Tensor x(xs, t, xv), out(ys, t), grad(ys, t, gv), grad_x(xs, t);
  ok(avgPool2d(queue(), x.ref(), out.ref(), c.args, v));
  ok(avgPool2dBackward(queue(), grad.ref(), grad_x.ref(), c.args, v));
  checkClose(out.get(), y, relativeFor(t), 2e-6);
  checkClose(grad_x.get(), gx, relativeFor(t), 2e-6);
  CHECK(out.untouchedOutside());
  CHECK(grad_x.untouchedOutside());
}

const DType kTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};

}  // namespace

TEST_CASE("pool: max, indices and gradient", "[pool]") {
  const Case cases[] = {
      {"2x2 halves, as in the digits network", 5, 6, 8, 8, 4, 4, {.kernel = {2, 2}, .stride = {2, 2}}},
      {"2x2 halves, odd image", 3, 4, 9, 11, 4, 5, {.kernel = {2, 2}, .stride = {2, 2}}},
      {"overlapping, padded, ceil mode", 2, 3, 9, 12, 5, 7, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {"dilated, uneven", 2, 3, 8, 9, 6, 4, {{3, 2}, {1, 2}, {0, 1}, {1, 3}}},
      {"window of the whole image", 4, 5, 3, 4, 1, 1, {.kernel = {3, 4}, .stride = {3, 4}}},
      {"one plane", 1, 1, 30, 20, 30, 20, {.kernel = {3, 3}, .padding = {1, 1}}},
      {"empty batch", 0, 3, 8, 8, 4, 4, {.kernel = {2, 2}, .stride = {2, 2}}},
  };
  for (const Case& c : cases)
    for (DType t : kTypes)
      for (Variant v : kVariants)
        for (bool channels_last : {false, true}) runMax(c, t, v, channels_last);
}

TEST_CASE("pool: average and its gradient", "[pool]") {
  const Case cases[] = {
      {"2x2 halves", 3, 4, 8, 8, 4, 4, {.kernel = {2, 2}, .stride = {2, 2}}},
      {"padding counted, ceil mode", 2, 3, 9, 12, 5, 7, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}},
      {"padding not counted", 2, 3, 9, 12, 5, 7,
       {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .count_include_pad = false}},
      {"own divisor", 2, 3, 7, 9, 6, 4, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}, .divisor_override = 5}},
      {"wide windows", 1, 2, 30, 50, 5, 3, {.kernel = {10, 30}, .stride = {5, 10}}},
  };
  for (const Case& c : cases)
    for (DType t : kTypes)
      for (Variant v : kVariants)
        for (bool channels_last : {false, true}) runAverage(c, t, v, channels_last);
}

TEST_CASE("pool: adaptive average and its gradient", "[pool]") {
  struct Adaptive { int64_t n, c, h, w, oh, ow; } cases[] = {{2, 3, 8, 8, 1, 1}, {2, 3, 9, 7, 4, 3}, {1, 2, 5, 6, 7, 8}, {1, 2, 20, 40, 1, 2}};
  for (const Adaptive& c : cases)
    for (DType t : kTypes)
      for (Variant v : kVariants) {
        INFO(c.h << "x" << c.w << " to " << c.oh << "x" << c.ow << " " << name(v) << " " << dtypeName(t));
        const Shape xs({c.n, c.c, c.h, c.w}), ys({c.n, c.c, c.oh, c.ow});
        const auto xv = values(xs.numel(), t, -1, 1, 1), gv = values(ys.numel(), t, -1, 1, 2);
        std::vector<double> y(gv.size()), gx(xv.size());
        for (size_t o = 0; o < gv.size(); ++o) {
          const auto i = static_cast<int64_t>(o);
          const int64_t p = i / c.ow / c.oh, oy = i / c.ow % c.oh, ox = i % c.ow;
          const int64_t h0 = oy * c.h / c.oh, h1 = ((oy + 1) * c.h + c.oh - 1) / c.oh;
          const int64_t w0 = ox * c.w / c.ow, w1 = ((ox + 1) * c.w + c.ow - 1) / c.ow;
          const auto size = static_cast<double>((h1 - h0) * (w1 - w0));
          for (int64_t h = h0; h < h1; ++h)
            for (int64_t w = w0; w < w1; ++w) {
              const auto at = static_cast<size_t>((p * c.h + h) * c.w + w);
              y[o] += xv[at] / size;
              gx[at] += gv[o] / size;
            }
        }
        Tensor x(xs, t, xv), out(ys, t), grad(ys, t, gv), grad_x(xs, t);
        ok(adaptiveAvgPool2d(queue(), x.ref(), out.ref(), v));
        ok(adaptiveAvgPool2dBackward(queue(), grad.ref(), grad_x.ref(), v));
        checkClose(out.get(), y, relativeFor(t), 2e-6);
        checkClose(grad_x.get(), gx, relativeFor(t), 2e-6);
      }
}

TEST_CASE("pool: tensors without a batch", "[pool]") {
  for (Variant v : kVariants) {
    Tensor x(Shape({2, 2, 4}), DType::float32, {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, -6, -7, -8});
    Tensor y(Shape({2, 1, 2}), DType::float32), i(Shape({2, 1, 2}), DType::int64);
    ok(maxPool2d(queue(), x.ref(), y.ref(), i.ref(), {.kernel = {2, 2}, .stride = {2, 2}}, v));
    CHECK(y.get() == std::vector<double>{6, 8, -1, -3});
    CHECK(i.get() == std::vector<double>{5, 7, 0, 2});
  }
}

TEST_CASE("pool: refusals name the operator and the reason", "[pool]") {
  Tensor x(Shape({1, 2, 4, 4}), DType::float32), y(Shape({1, 2, 2, 2}), DType::float32), i(Shape({1, 2, 2, 2}), DType::int64);
  Tensor i32(Shape({1, 2, 2, 2}), DType::int32), flat(Shape({4, 4}), DType::float32), other(Shape({1, 3, 2, 2}), DType::float32);
  const PoolArgs half{.kernel = {2, 2}, .stride = {2, 2}};
  auto text = [](const Result<void>& r) {
    REQUIRE_FALSE(r);
    return r.error().text();
  };
  CHECK(text(maxPool2d(queue(), x.ref(), y.ref(), i32.ref(), half, Variant::wide)).find("int32") != std::string::npos);
  CHECK(text(avgPool2d(queue(), flat.ref(), y.ref(), half, Variant::wide)).find("[N,C,H,W]") != std::string::npos);
  CHECK(text(avgPool2d(queue(), x.ref(), other.ref(), half, Variant::wide)).find("channels differ") != std::string::npos);
  CHECK(text(avgPool2d(queue(), x.ref(), y.ref(), {.kernel = {2, 2}, .padding = {2, 2}}, Variant::wide)).find("half the kernel") !=
        std::string::npos);
}

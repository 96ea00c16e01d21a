// Built with contraction off (see CMakeLists.txt): the same operations in the same order as kernels/random.cl.
#include "runtime/opencl/ops/random_host.h"

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace flagos::ocl {
namespace {

float exactLog(float x) {
  int e = static_cast<int>(std::bit_cast<uint32_t>(x) >> 23) - 126;
  float m = std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  if (m < 0.707106781186547524f) {
    e -= 1;
    m = m + m;
  }
  m = m - 1.0f;
  const float z = m * m;
  float y = 7.0376836292E-2f;
  for (const float k : {-1.1514610310E-1f, 1.1676998740E-1f, -1.2420140846E-1f, 1.4249322787E-1f, -1.6668057665E-1f, 2.0000714765E-1f,
                        -2.4999993993E-1f, 3.3333331174E-1f})
    y = y * m + k;
  y = y * m * z;
  y = y - 0.5f * z;
  y = y + static_cast<float>(e) * -2.12194440e-4f;
  return m + y + static_cast<float>(e) * 0.693359375f;
}
float exactSqrt(float x) {
  if (x <= 0.0f) return 0.0f;
  float r = std::bit_cast<float>(0x5f3759dfu - (std::bit_cast<uint32_t>(x) >> 1));
  for (int i = 0; i < 4; ++i) r = r * (1.5f - 0.5f * x * r * r);
  return x * r;
}
struct Turn { float sine, cosine; };
Turn exactTurn(float t) {
  const float q4 = t * 4.0f;
  const int q = static_cast<int>(q4 + 0.5f);
  const float x = (q4 - static_cast<float>(q)) * 1.57079632679489662f, z = x * x;
  const float s = ((-1.9515295891E-4f * z + 8.3321608736E-3f) * z - 1.6666654611E-1f) * z * x + x;
  const float c = ((2.443315711809948E-5f * z - 1.388731625493765E-3f) * z + 4.166664568298827E-2f) * z * z - 0.5f * z + 1.0f;
  switch (q & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}
float exactReciprocal(float x) {
  float r = std::bit_cast<float>(0x7ef311c7u - std::bit_cast<uint32_t>(x));
  for (int i = 0; i < 4; ++i) r = r * (2.0f - x * r);
  return r;
}
float exactExp(float x) {
  if (x != x) return x;
  if (x > 88.72f) return std::numeric_limits<float>::infinity();
  if (x < -87.3f) return 0.0f;
  const float n = std::nearbyint(x * 1.44269504088896341f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float y = 1.9875691500E-4f;
  for (const float k : {1.3981999507E-3f, 8.3334519073E-3f, 4.1665795894E-2f, 1.6666665459E-1f, 5.0000001201E-1f}) y = y * r + k;
  y = y * (r * r) + r + 1.0f;
  const int whole = static_cast<int>(n), half = whole / 2;
  return y * std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23) * std::bit_cast<float>(static_cast<uint32_t>(whole - half + 127) << 23);
}

// One block: four draws of 32 bits, or two of 64.
struct Block {
  uint32_t d[4];
  Block(PhiloxState s, int64_t k) { philox4x32(s.seed, s.offset + static_cast<uint64_t>(k), d); }
  uint64_t wide(int i) const { return i == 0 ? (uint64_t{d[1]} << 32 | d[0]) : (uint64_t{d[3]} << 32 | d[2]); }
};

// The two widths differ in how a draw becomes a number, and in the functions used.
struct Single {
  using Real = float;
  static constexpr int64_t per = 4;
  static float unit(const Block& b, int i) { return static_cast<float>(b.d[i] >> 8) * 0x1.0p-24f; }
  static float unitUp(const Block& b, int i) { return static_cast<float>((b.d[i] >> 8) + 1u) * 0x1.0p-24f; }
  static float log(float x) { return exactLog(x); }
  static float exp(float x) { return exactExp(x); }
  static float cauchy(float u) {
    const Turn turn = exactTurn(u * 0.5f);
    return turn.sine > 0.0f ? -turn.cosine * exactReciprocal(turn.sine) : std::numeric_limits<float>::infinity();
  }
  static float normal(const Block& b, int i) {
    const int pair = i & 2;
    const float radius = exactSqrt(-2.0f * exactLog(unitUp(b, pair)));
    const Turn turn = exactTurn(unit(b, pair + 1));
    return radius * ((i & 1) ? turn.sine : turn.cosine);
  }
};
struct Double {
  using Real = double;
  static constexpr int64_t per = 2;
  static double unit(const Block& b, int i) { return static_cast<double>(b.wide(i) >> 11) * 0x1.0p-53; }
  static double unitUp(const Block& b, int i) { return static_cast<double>((b.wide(i) >> 11) + 1) * 0x1.0p-53; }
  static double log(double x) { return std::log(x); }
  static double exp(double x) { return std::exp(x); }
  static double cauchy(double u) { return std::tan(std::numbers::pi * (u - 0.5)); }
  static double normal(const Block& b, int i) {
    const double radius = std::sqrt(-2.0 * std::log(unitUp(b, 0))), turn = 2.0 * std::numbers::pi * unit(b, 1);
    return radius * (i == 0 ? std::cos(turn) : std::sin(turn));
  }
};

template <class W>
typename W::Real valueOf(RandomOp op, const Block& b, int i, typename W::Real p0, typename W::Real p1) {
  using R = typename W::Real;
  switch (op) {
    case RandomOp::uniform: return p0 + (p1 - p0) * W::unit(b, i);
    case RandomOp::normal: return p0 + p1 * W::normal(b, i);
    case RandomOp::log_normal: return W::exp(p0 + p1 * W::normal(b, i));
    case RandomOp::bernoulli: return W::unit(b, i) < p0 ? R(1) : R(0);
    case RandomOp::exponential: return -W::log(W::unitUp(b, i)) * p1;
    case RandomOp::geometric: return p0 >= R(1) ? R(1) : std::fmax(R(1), std::ceil(W::log(W::unitUp(b, i)) * p1));
    case RandomOp::cauchy: return p0 + p1 * W::cauchy(W::unitUp(b, i));
    default: return R(0);
  }
}

template <class W>
void fill(RandomOp op, double p0, double p1, PhiloxState state, int64_t n, typename W::Real* out) {
  using R = typename W::Real;
  if (op == RandomOp::exponential || op == RandomOp::geometric) p1 = inverseOf(op, p0);
  for (int64_t k = 0; k * W::per < n; ++k) {
    const Block b(state, k);
    for (int64_t i = 0; i < W::per && k * W::per + i < n; ++i)
      out[k * W::per + i] = valueOf<W>(op, b, static_cast<int>(i), static_cast<R>(p0), static_cast<R>(p1));
  }
}

}  // namespace

void randomHost(RandomOp op, double p0, double p1, PhiloxState state, int64_t n, float* out) noexcept { fill<Single>(op, p0, p1, state, n, out); }
void randomHost(RandomOp op, double p0, double p1, PhiloxState state, int64_t n, double* out) noexcept { fill<Double>(op, p0, p1, state, n, out); }
void unitHost(PhiloxState state, int64_t n, float* out) noexcept { fill<Single>(RandomOp::uniform, 0, 1, state, n, out); }

void randomIntHost(int64_t low, int64_t high, PhiloxState state, int64_t n, int64_t* out) noexcept {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const bool wide = width > (uint64_t{1} << 32);
  const int64_t per = wide ? 2 : 4;
  for (int64_t k = 0; k * per < n; ++k) {
    const Block b(state, k);
    for (int i = 0; i < per && k * per + i < n; ++i) {
      const uint64_t draw = wide ? b.wide(i) % width : uint64_t{b.d[i]} % width;
      out[k * per + i] = static_cast<int64_t>(static_cast<uint64_t>(low) + draw);
    }
  }
}

void shuffleHost(PhiloxState state, int64_t n, int64_t* out) noexcept {
  for (int64_t k = 0; k < n; ++k) out[k] = k;
  for (int64_t k = 0; k + 1 < n; ++k) {
    const Block b(state, k / 2);
    std::swap(out[k], out[k + static_cast<int64_t>(b.wide(static_cast<int>(k % 2)) % static_cast<uint64_t>(n - k))]);
  }
}

}  // namespace flagos::ocl

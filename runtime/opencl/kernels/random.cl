// Philox4x32-10 random numbers. The head defines S (float, double or long), KO (storage kind of out) and
// DRAW_<operator>. One block of four draws gives PER elements: 4 of 32 bits, or 2 of 64 bits (DRAW64).
// Launch data, longs: [0] low, [1] range (whole numbers), [2] p0, [3] p1 (bits of S), [4] n, [5] blocks per work-item,
// [6] element offset of out, [7] seed, [8] first block, [9] element offset of the second operand, [10] that of the third.
//
// Contraction is off and no built-in transcendental is used for float: every device rounds the same operations the
// same way, so the same seed gives the same bits everywhere.
#pragma OPENCL FP_CONTRACT OFF
typedef struct { long v[12]; } Meta;

static uint4 philox(ulong block, ulong seed) {
  uint4 c = (uint4)((uint)block, (uint)(block >> 32), 0u, 0u);
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  for (int i = 0; i < 10; ++i) {
    const uint hi0 = mul_hi(0xD2511F53u, c.x), lo0 = 0xD2511F53u * c.x;
    const uint hi1 = mul_hi(0xCD9E8D57u, c.z), lo1 = 0xCD9E8D57u * c.z;
    c = (uint4)(hi1 ^ c.y ^ k0, lo1, hi0 ^ c.w ^ k1, lo0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// [0, 1): the top 24 (float) or 53 (double) bits. (0, 1]: one step up.
#ifdef DRAW64
#define PER 2
static ulong bits64(uint4 d, int i) { return i == 0 ? ((ulong)d.y << 32 | d.x) : ((ulong)d.w << 32 | d.z); }
#ifdef NEED_F64
#define UNIT(d, i) ((double)(bits64(d, i) >> 11) * 0x1.0p-53)
#define UNIT_UP(d, i) ((double)((bits64(d, i) >> 11) + 1) * 0x1.0p-53)
#endif
#else
#define PER 4
#define LANE(d, i) ((i) == 0 ? (d).x : (i) == 1 ? (d).y : (i) == 2 ? (d).z : (d).w)
#define UNIT(d, i) ((float)(LANE(d, i) >> 8) * 0x1.0p-24f)
#define UNIT_UP(d, i) ((float)((LANE(d, i) >> 8) + 1u) * 0x1.0p-24f)
#endif

#ifndef DRAW64
// Polynomials of the Cephes single-precision library (S. Moshier), which need no division.
static float exactLog(float x) {
  int e = (int)(as_uint(x) >> 23) - 126;
  float m = as_float((as_uint(x) & 0x007fffffu) | 0x3f000000u);   // [0.5, 1)
  if (m < 0.707106781186547524f) { e -= 1; m = m + m; }
  m = m - 1.0f;
  const float z = m * m;
  float y = 7.0376836292E-2f;
  y = y * m - 1.1514610310E-1f;
  y = y * m + 1.1676998740E-1f;
  y = y * m - 1.2420140846E-1f;
  y = y * m + 1.4249322787E-1f;
  y = y * m - 1.6668057665E-1f;
  y = y * m + 2.0000714765E-1f;
  y = y * m - 2.4999993993E-1f;
  y = y * m + 3.3333331174E-1f;
  y = y * m * z;
  y = y - 0.5f * z;
  y = y + (float)e * -2.12194440E-4f;
  return m + y + (float)e * 0.693359375f;
}
// Newton steps on the reciprocal root: products and sums only.
static float exactSqrt(float x) {
  if (x <= 0.0f) return 0.0f;
  float r = as_float(0x5f3759dfu - (as_uint(x) >> 1));
  for (int i = 0; i < 4; ++i) r = r * (1.5f - 0.5f * x * r * r);
  return x * r;
}
// sin and cos of a whole turn times t, t in [0, 1).
static float2 exactTurn(float t) {
  const float q4 = t * 4.0f;
  const int q = (int)(q4 + 0.5f);
  const float x = (q4 - (float)q) * 1.57079632679489662f, z = x * x;
  const float s = ((-1.9515295891E-4f * z + 8.3321608736E-3f) * z - 1.6666654611E-1f) * z * x + x;
  const float c = ((2.443315711809948E-5f * z - 1.388731625493765E-3f) * z + 4.166664568298827E-2f) * z * z - 0.5f * z + 1.0f;
  switch (q & 3) {
    case 0: return (float2)(s, c);
    case 1: return (float2)(c, -s);
    case 2: return (float2)(-s, -c);
    default: return (float2)(-c, s);
  }
}
// Newton steps on the reciprocal of a positive number.
static float exactReciprocal(float x) {
  float r = as_float(0x7ef311c7u - as_uint(x));
  for (int i = 0; i < 4; ++i) r = r * (2.0f - x * r);
  return r;
}
static float exactExp(float x) {
  if (x != x) return x;
  if (x > 88.72f) return INFINITY;
  if (x < -87.3f) return 0.0f;
  const float n = rint(x * 1.44269504088896341f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float y = 1.9875691500E-4f;
  y = y * r + 1.3981999507E-3f;
  y = y * r + 8.3334519073E-3f;
  y = y * r + 4.1665795894E-2f;
  y = y * r + 1.6666665459E-1f;
  y = y * r + 5.0000001201E-1f;
  y = y * (r * r) + r + 1.0f;
  const int low = (int)n / 2;  // in two steps: 2^128 is no float
  return y * as_float((uint)(low + 127) << 23) * as_float((uint)((int)n - low + 127) << 23);
}
// tan(pi * (u - 1/2)) for u in (0, 1].
static float exactCauchy(float u) {
  const float2 turn = exactTurn(u * 0.5f);
  return turn.x > 0.0f ? -turn.y * exactReciprocal(turn.x) : INFINITY;
}
static float normalOf(uint4 d, int i) {
  const int pair = i & 2;
  const float radius = exactSqrt(-2.0f * exactLog(UNIT_UP(d, pair)));
  const float2 turn = exactTurn(UNIT(d, pair + 1));
  return radius * ((i & 1) ? turn.x : turn.y);
}
#define LOG exactLog
#define EXP exactExp
#define CAUCHY(u) exactCauchy(u)
#else
#define LOG log
#define EXP exp
#define CAUCHY(u) tanpi((u) - 0.5)
#ifdef NEED_F64
static double normalOf(uint4 d, int i) {
  const double radius = sqrt(-2.0 * log(UNIT_UP(d, 0)));
  return radius * (i == 0 ? cospi(2.0 * UNIT(d, 1)) : sinpi(2.0 * UNIT(d, 1)));
}
#endif
#endif

#ifdef FLOATING
#define P0 SCALAR(2)
#define P1 SCALAR(3)
#endif

#if defined(DRAW_uniform)
#define VALUE(d, i) (P0 + (P1 - P0) * UNIT(d, i))
#elif defined(DRAW_normal)
#define VALUE(d, i) (P0 + P1 * normalOf(d, i))
#elif defined(DRAW_log_normal)
#define VALUE(d, i) EXP(P0 + P1 * normalOf(d, i))
#elif defined(DRAW_bernoulli)
#define VALUE(d, i) ((S)(UNIT(d, i) < P0))
#elif defined(DRAW_exponential)
#define VALUE(d, i) (-LOG(UNIT_UP(d, i)) * P1)      // P1 = 1 / rate
#elif defined(DRAW_geometric)
#define VALUE(d, i) (P0 >= (S)1 ? (S)1 : fmax((S)1, ceil(LOG(UNIT_UP(d, i)) * P1)))  // P1 = 1 / log(1 - P0)
#elif defined(DRAW_cauchy)
#define VALUE(d, i) (P0 + P1 * CAUCHY(UNIT_UP(d, i)))
#elif defined(DRAW_whole)
#ifdef DRAW64
#define VALUE(d, i) (m.v[0] + (long)(m.v[1] == 0 ? bits64(d, i) & 0x7fffffffffffffffUL : bits64(d, i) % (ulong)m.v[1]))
#else
#define VALUE(d, i) (m.v[0] + (long)((ulong)LANE(d, i) % (ulong)m.v[1]))
#endif
#endif

#define ST1(v, p, i) CAT2(ST1_, KO)(v, p, i)
#define EACH_BLOCK                                                                    \
  const long per = m.v[5], n = m.v[4];                                                \
  const long first = (long)get_global_id(0) * per;                                    \
  for (long k = first; k < first + per && k * PER < n; ++k) {                         \
    const uint4 d = philox((ulong)m.v[8] + (ulong)k, (ulong)m.v[7]);                  \
    for (int i = 0; i < PER && k * PER + i < n; ++i) {                                \
      const long e = k * PER + i;
#define END_BLOCK } }

#ifdef VALUE
kernel void draw(global CAT2(PTR_, KO)* out, const Meta m) {
  global CAT2(PTR_, KO)* p = out + m.v[6];
  EACH_BLOCK
    ST1(VALUE(d, i), p, e);
  END_BLOCK
}
#endif

#ifdef DRAW_tensor
kernel void drawTensor(global CAT2(PTR_, KO)* out, global const CAT2(PTR_, K0)* probability, const Meta m) {
  global CAT2(PTR_, KO)* p = out + m.v[6];
  global const CAT2(PTR_, K0)* q = probability + m.v[9];
  EACH_BLOCK
    ST1((S)(UNIT(d, i) < CAT2(LD1_, K0)(q, e)), p, e);
  END_BLOCK
}
#endif

#ifdef DRAW_dropout
// P0 = probability to keep, P1 = 1 / P0 (0 where nothing is kept).
kernel void dropout(global CAT2(PTR_, KO)* out, global const CAT2(PTR_, KO)* in, global uchar* mask, const Meta m) {
  global CAT2(PTR_, KO)* p = out + m.v[6];
  global const CAT2(PTR_, KO)* x = in + m.v[9];
  global uchar* kept = mask + m.v[10];
  EACH_BLOCK
    const int keep = UNIT(d, i) < P0;
    kept[e] = (uchar)keep;
    ST1(keep ? CAT2(LD1_, KO)(x, e) * P1 : (S)0, p, e);
  END_BLOCK
}
#endif

#ifdef DRAW_pick
// The first category whose running total exceeds a draw times the whole: rows of [10] weights from running totals, [11]
// picks a row.
kernel void pick(global long* out, global const float* totals, const Meta m) {
  global long* p = out + m.v[6];
  EACH_BLOCK
    global const float* row = totals + m.v[9] + e / m.v[11] * m.v[10];
    const float level = UNIT(d, i) * row[m.v[10] - 1];
    long low = 0, high = m.v[10] - 1;
    while (low < high) {
      const long middle = (low + high) / 2;
      if (row[middle] > level) high = middle;
      else low = middle + 1;
    }
    p[e] = low;
  END_BLOCK
}
#endif

#ifdef DRAW_shuffle
// A permutation of 0 .. n - 1, drawn in order: one work-item, for every swap depends on those before it.
kernel void permutation(global long* out, const Meta m) {
  global long* p = out + m.v[6];
  const long n = m.v[4];
  for (long k = 0; k < n; ++k) p[k] = k;
  for (long k = 0; k + 1 < n; ++k) {
    const uint4 d = philox((ulong)m.v[8] + (ulong)(k / 2), (ulong)m.v[7]);
    const long other = k + (long)(bits64(d, (int)(k % 2)) % (ulong)(n - k)), t = p[k];
    p[k] = p[other];
    p[other] = t;
  }
}
#endif

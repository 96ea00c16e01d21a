// Philox4x32-10 random numbers. The head defines S (float, double or long), KO (storage kind of out) and
// DRAW_<operator>. One block of four draws gives four elements, or two of 64 bits (DRAW64). WIDE: sixteen blocks at once,
// a lane each, with the same numbers.
// Launch data, longs: [0] low, [1] range (whole numbers), [2] p0, [3] p1 (bits of S), [4] n, [5] blocks per work-item,
// [6] element offset of out, [7] seed, [8] first block, [9] element offset of the second operand, [10] that of the third,
// [11] of a sum table's rows, or the sentence for a bad probability.
//
// Contraction is off and no built-in transcendental is used for float: every device rounds the same operations the
// same way, lanes as scalars, so the same seed gives the same bits everywhere.
#pragma OPENCL FP_CONTRACT OFF
typedef struct { long v[12]; } Meta;

// F, I, U: float, int and uint, or lanes of them; L: their 64-bit whole numbers.
#ifdef WIDE
#define LANES 16
#else
#define LANES 1
#endif
#define F VECTOR(float)
#define I VECTOR(int)
#define U VECTOR(uint)
#define L VECTOR(ulong)
#ifdef WIDE
#define VECTOR(t) CAT2(t, 16)
#else
#define VECTOR(t) t
#endif
#define AS_F VECTOR(as_float)
#define AS_U VECTOR(as_uint)
#define TO_F VECTOR(convert_float)
#define TO_I VECTOR(convert_int)
#define TO_U VECTOR(convert_uint)
#define TO_L VECTOR(convert_ulong)

// The four draws of the blocks from `block` on.
typedef struct { U x, y, z, w; } Draws;
static Draws philox(ulong block, ulong seed) {
  // 32-bit words in 64-bit lanes, so that a product is one instruction; what stands above a word does not matter.
  const L low = 0xffffffffu;
#ifdef WIDE
  const L number = (L)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) + block;
#else
  const L number = block;
#endif
  L x = number, y = number >> 32, z = 0, w = 0;
  uint k0 = (uint)seed, k1 = (uint)(seed >> 32);
  for (int i = 0; i < 10; ++i) {
    const L p0 = (x & low) * (L)0xD2511F53u, p1 = (z & low) * (L)0xCD9E8D57u;
    x = (p1 >> 32) ^ y ^ (L)k0;
    z = (p0 >> 32) ^ w ^ (L)k1;
    y = p1;
    w = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  Draws d;
  d.x = TO_U(x & low), d.y = TO_U(y & low), d.z = TO_U(z & low), d.w = TO_U(w & low);
  return d;
}

// [0, 1): the top 24 (float) or 53 (double) bits. (0, 1]: one step up.
#ifdef DRAW64
#define PER 2
static ulong bits64(Draws d, int i) { return i == 0 ? ((ulong)d.y << 32 | d.x) : ((ulong)d.w << 32 | d.z); }
#ifdef NEED_F64
#define UNIT(u) ((double)((u) >> 11) * 0x1.0p-53)
#define UNIT_UP(u) ((double)(((u) >> 11) + 1) * 0x1.0p-53)
#endif
#else
#define PER 4
#define UNIT(u) (TO_F((u) >> 8) * 0x1.0p-24f)
#define UNIT_UP(u) (TO_F(((u) >> 8) + 1u) * 0x1.0p-24f)
#endif

#ifndef DRAW64
// Polynomials of the Cephes single-precision library (S. Moshier), which need no division.
static F exactLog(F x) {
  I e = TO_I(AS_U(x) >> 23) - 126;
  F m = AS_F((AS_U(x) & 0x007fffffu) | 0x3f000000u);   // [0.5, 1)
  const I small = m < 0.707106781186547524f;
  e = select(e, e - 1, small);
  m = select(m, m + m, small);
  m = m - 1.0f;
  const F z = m * m;
  F y = 7.0376836292E-2f;
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
  y = y + TO_F(e) * -2.12194440E-4f;
  return m + y + TO_F(e) * 0.693359375f;
}
// Newton steps on the reciprocal root: products and sums only.
static F exactSqrt(F x) {
  F r = AS_F(0x5f3759dfu - (AS_U(x) >> 1));
  for (int i = 0; i < 4; ++i) r = r * (1.5f - 0.5f * x * r * r);
  return select(x * r, (F)0.0f, (I)(x <= 0.0f));
}
// sin and cos of a whole turn times t, t in [0, 1).
static void exactTurn(F t, F* sine, F* cosine) {
  const F q4 = t * 4.0f;
  const I q = TO_I(q4 + 0.5f);
  const F x = (q4 - TO_F(q)) * 1.57079632679489662f, z = x * x;
  const F s = ((-1.9515295891E-4f * z + 8.3321608736E-3f) * z - 1.6666654611E-1f) * z * x + x;
  const F c = ((2.443315711809948E-5f * z - 1.388731625493765E-3f) * z + 4.166664568298827E-2f) * z * z - 0.5f * z + 1.0f;
  // Quarters 0 to 3: (s, c), (c, -s), (-s, -c), (-c, s).
  const I odd = (q & 1) != 0, minus_s = (q & 2) != 0, minus_c = ((q + 1) & 2) != 0;
  const F one = select(s, c, odd), two = select(c, s, odd);
  *sine = select(one, -one, minus_s);
  *cosine = select(two, -two, minus_c);
}
// Newton steps on the reciprocal of a positive number.
static F exactReciprocal(F x) {
  F r = AS_F(0x7ef311c7u - AS_U(x));
  for (int i = 0; i < 4; ++i) r = r * (2.0f - x * r);
  return r;
}
static F exactExp(F given) {
  const F x = clamp(given, -87.3f, 88.72f);
  const F n = rint(x * 1.44269504088896341f);
  const F r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  F y = 1.9875691500E-4f;
  y = y * r + 1.3981999507E-3f;
  y = y * r + 8.3334519073E-3f;
  y = y * r + 4.1665795894E-2f;
  y = y * r + 1.6666665459E-1f;
  y = y * r + 5.0000001201E-1f;
  y = y * (r * r) + r + 1.0f;
  const I whole = TO_I(n), half_way = whole / 2;  // in two steps: 2^128 is no float
  y = y * AS_F((half_way + 127) << 23) * AS_F((whole - half_way + 127) << 23);
  y = select(y, (F)INFINITY, (I)(given > 88.72f));
  y = select(y, (F)0.0f, (I)(given < -87.3f));
  return select(y, given, (I)(given != given));
}
// tan(pi * (u - 1/2)) for u in (0, 1].
static F exactCauchy(F u) {
  F sine, cosine;
  exactTurn(u * 0.5f, &sine, &cosine);
  return select((F)INFINITY, -cosine * exactReciprocal(sine), (I)(sine > 0.0f));
}
// Two numbers from two draws.
static void normalPair(U up, U turn, F* first, F* second) {
  F sine, cosine;
  const F radius = exactSqrt(-2.0f * exactLog(UNIT_UP(up)));
  exactTurn(UNIT(turn), &sine, &cosine);
  *first = radius * cosine;
  *second = radius * sine;
}
#define LOG exactLog
#define EXP exactExp
#define CAUCHY(u) exactCauchy(u)
#define NUMBER F
#else
#define LOG log
#define EXP exp
#define CAUCHY(u) tanpi((u) - 0.5)
#ifdef NEED_F64
static void normalPair(ulong up, ulong turn, double* first, double* second) {
  const double radius = sqrt(-2.0 * log(UNIT_UP(up))), t = 2.0 * UNIT(turn);
  *first = radius * cospi(t);
  *second = radius * sinpi(t);
}
#endif
#define NUMBER double
#endif

#ifdef FLOAT32
#define P0 as_float((int)m->v[2])
#define P1 as_float((int)m->v[3])
#elif defined(FLOATING)
#define P0 as_double(m->v[2])
#define P1 as_double(m->v[3])
#endif

// VALUE: of one draw u.
#if defined(DRAW_uniform)
#define VALUE(u) (P0 + (P1 - P0) * UNIT(u))
#elif defined(DRAW_bernoulli)
#define VALUE(u) KEEPS(UNIT(u), P0)
#elif defined(DRAW_exponential)
#define VALUE(u) (-LOG(UNIT_UP(u)) * P1)      // P1 = 1 / rate
#elif defined(DRAW_geometric)
#define VALUE(u) (P0 >= (S)1 ? (NUMBER)1 : fmax((NUMBER)1, ceil(LOG(UNIT_UP(u)) * P1)))  // P1 = 1 / log(1 - P0)
#elif defined(DRAW_cauchy)
#define VALUE(u) (P0 + P1 * CAUCHY(UNIT_UP(u)))
#elif defined(DRAW_whole)
#ifdef DRAW64
#define VALUE(u) (m->v[0] + (long)(m->v[1] == 0 ? (u) & 0x7fffffffffffffffUL : (u) % (ulong)m->v[1]))
#elif defined(WIDE)
// The remainder by a product with 2^32 / range, which is at most one range too high.
static long16 wholeOf(uint16 u, long low, ulong range) {
  const ulong16 d = convert_ulong16(u), r = d - (d * (ulong16)(0x100000000UL / range) >> 32) * (ulong16)range;
  return low + convert_long16(r - select((ulong16)0, (ulong16)range, r >= (ulong16)range));
}
#define VALUE(u) wholeOf(u, m->v[0], (ulong)m->v[1])
#else
#define VALUE(u) (m->v[0] + (long)((ulong)(u) % (ulong)m->v[1]))
#endif
#endif

// 1 where a draw lies below the probability. (A lane's comparison is -1.)
#ifdef WIDE
#define KEEPS(u, p) convert_float16(-((u) < (p)))
#else
#define KEEPS(u, p) ((NUMBER)((u) < (p)))
#endif

// The PER values of a block, or of sixteen.
#ifdef DRAW64
typedef struct { S v[2]; } Values;
#define RAW0 bits64(d, 0)
#define RAW1 bits64(d, 1)
#else
typedef struct { T v[4]; } Values;
#define RAW0 d.x
#define RAW1 d.y
#endif

#if defined(VALUE)
static Values valuesOf(Draws d, const Meta* m) {
  Values r;
  r.v[0] = VALUE(RAW0);
  r.v[1] = VALUE(RAW1);
#ifndef DRAW64
  r.v[2] = VALUE(d.z);
  r.v[3] = VALUE(d.w);
#endif
  return r;
}
#elif defined(DRAW_normal) || defined(DRAW_log_normal)
#define HAS_VALUES
static Values valuesOf(Draws d, const Meta* m) {
  NUMBER n[PER];
  Values r;
  normalPair(RAW0, RAW1, &n[0], &n[1]);
#ifndef DRAW64
  normalPair(d.z, d.w, &n[2], &n[3]);
#endif
  for (int i = 0; i < PER; ++i)
#ifdef DRAW_log_normal
    r.v[i] = EXP(P0 + P1 * n[i]);
#else
    r.v[i] = P0 + P1 * n[i];
#endif
  return r;
}
#endif

#define ST1(v, p, i) CAT2(ST1_, KO)(v, p, i)
#define LD1(p, i) CAT2(LD1_, KO)(p, i)
#define STV(v, p, i) CAT2(STV_, KO)(v, p, i)

#ifdef WIDE
// Four vectors of a lane a block <-> four vectors of neighbours: element e is lane e / 4 of vector e % 4.
#ifdef FLOATING
#define PLACES uint16
#else
#define PLACES ulong16
#endif
#define PAIRS_LOW (PLACES)(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PAIRS_HIGH (PLACES)(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define EVEN (PLACES)(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD (PLACES)(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
static Values neighbours(Values a) {
  const T x = shuffle2(a.v[0], a.v[2], PAIRS_LOW), y = shuffle2(a.v[0], a.v[2], PAIRS_HIGH);
  const T z = shuffle2(a.v[1], a.v[3], PAIRS_LOW), w = shuffle2(a.v[1], a.v[3], PAIRS_HIGH);
  Values r;
  r.v[0] = shuffle2(x, z, PAIRS_LOW), r.v[1] = shuffle2(x, z, PAIRS_HIGH);
  r.v[2] = shuffle2(y, w, PAIRS_LOW), r.v[3] = shuffle2(y, w, PAIRS_HIGH);
  return r;
}
static void storeLanes(Values a, global CAT2(PTR_, KO)* p, long e, long n) {
  const Values r = neighbours(a);
  if (e + 64 <= n) {
    STV(r.v[0], p, e);
    STV(r.v[1], p, e + 16);
    STV(r.v[2], p, e + 32);
    STV(r.v[3], p, e + 48);
    return;
  }
  S lanes[64];
  for (int i = 0; i < 4; ++i) vstore16(r.v[i], i, lanes);
  for (long i = 0; e + i < n; ++i) ST1(lanes[i], p, e + i);
}
#endif

// `d`: the draws of block k and of those that share its vectors.
#define EACH_BLOCK                                                              \
  const long per = m->v[5], n = m->v[4];                                          \
  const long first = (long)get_global_id(0) * per;                              \
  for (long k = first; k < first + per && k * PER < n; k += LANES) {            \
    const Draws d = philox((ulong)m->v[8] + (ulong)k, (ulong)m->v[7]);
#define EACH_ELEMENT                                                            \
  for (int i = 0; i < PER && k * PER + i < n; ++i) {                            \
    const long e = k * PER + i;
#define LANE(d, i) ((i) == 0 ? (d).x : (i) == 1 ? (d).y : (i) == 2 ? (d).z : (d).w)

#if defined(VALUE) || defined(HAS_VALUES)
kernel void draw(global CAT2(PTR_, KO)* out, const Meta meta) {
  const Meta* m = &meta;
  global CAT2(PTR_, KO)* p = out + m->v[6];
  EACH_BLOCK
    const Values r = valuesOf(d, m);
#ifdef WIDE
    storeLanes(r, p, k * PER, n);
#else
    EACH_ELEMENT
      ST1(r.v[i], p, e);
    }
#endif
  }
}
#endif

#if defined(WIDE) && defined(FLOATING)
// The draws as numbers in [0, 1), in the order of the elements.
static Values unitsOf(Draws d) {
  Values r;
  r.v[0] = UNIT(d.x), r.v[1] = UNIT(d.y), r.v[2] = UNIT(d.z), r.v[3] = UNIT(d.w);
  return neighbours(r);
}
#endif

#ifdef DRAW_tensor
#define BAD_PROBABILITY(q) (!((q) >= (S)0 && (q) <= (S)1))
kernel void drawTensor(global CAT2(PTR_, KO)* out, global const CAT2(PTR_, K0)* probability, global int* fault, const Meta meta) {
  const Meta* m = &meta;
  global CAT2(PTR_, KO)* p = out + m->v[6];
  global const CAT2(PTR_, K0)* q = probability + m->v[9];
  EACH_BLOCK
#ifdef WIDE
    const Values u = unitsOf(d);
    for (int i = 0; i < 4; ++i) {
      const long e = k * PER + i * 16;
      if (e + 16 <= n) {
        const T chance = CAT2(LDV_, K0)(q, e);
        if (any(BAD_PROBABILITY(chance))) badIndex(fault, e, -1, m->v[11]);
        STV(KEEPS(u.v[i], chance), p, e);
        continue;
      }
      S lanes[16];
      vstore16(u.v[i], 0, lanes);
      for (long j = 0; e + j < n; ++j) {
        const S chance = CAT2(LD1_, K0)(q, e + j);
        if (BAD_PROBABILITY(chance)) badIndex(fault, e + j, -1, m->v[11]);
        ST1((S)(lanes[j] < chance), p, e + j);
      }
    }
#else
    EACH_ELEMENT
      const S unit = UNIT(LANE(d, i));
      if (BAD_PROBABILITY(CAT2(LD1_, K0)(q, e))) badIndex(fault, e, -1, m->v[11]);
      ST1((S)(unit < CAT2(LD1_, K0)(q, e)), p, e);
    }
#endif
  }
}
#endif

#ifdef DRAW_dropout
// P0 = probability to keep, P1 = 1 / P0 (0 where nothing is kept).
kernel void dropout(global CAT2(PTR_, KO)* out, global const CAT2(PTR_, KO)* in, global uchar* mask, const Meta meta) {
  const Meta* m = &meta;
  global CAT2(PTR_, KO)* p = out + m->v[6];
  global const CAT2(PTR_, KO)* x = in + m->v[9];
  global uchar* kept = mask + m->v[10];
  EACH_BLOCK
#ifdef WIDE
    const Values u = unitsOf(d);
    for (int i = 0; i < 4; ++i) {
      const long e = k * PER + i * 16;
      const int16 keep = u.v[i] < P0;
      if (e + 16 <= n) {
        vstore16(convert_uchar16(keep & 1), 0, kept + e);
        STV(select((T)(0), (T)(CAT2(LDV_, KO)(x, e) * P1), keep), p, e);
        continue;
      }
      S lanes[16];
      vstore16(u.v[i], 0, lanes);
      for (long j = 0; e + j < n; ++j) {
        const int one = lanes[j] < P0;
        kept[e + j] = (uchar)one;
        ST1(one ? LD1(x, e + j) * P1 : (S)0, p, e + j);
      }
    }
#else
    EACH_ELEMENT
      const int keep = UNIT(LANE(d, i)) < P0;
      kept[e] = (uchar)keep;
      ST1(keep ? LD1(x, e) * P1 : (S)0, p, e);
    }
#endif
  }
}
#endif

#ifdef DRAW_pick
// The first category whose running total exceeds a draw times the whole: rows of [10] weights from running totals, [11]
// picks a row.
kernel void pick(global long* out, global const float* totals, const Meta meta) {
  const Meta* m = &meta;
  global long* p = out + m->v[6];
  EACH_BLOCK
    EACH_ELEMENT
      global const float* row = totals + m->v[9] + e / m->v[11] * m->v[10];
      const float level = UNIT(LANE(d, i)) * row[m->v[10] - 1];
      long low = 0, high = m->v[10] - 1;
      while (low < high) {
        const long middle = (low + high) / 2;
        if (row[middle] > level) high = middle;
        else low = middle + 1;
      }
      p[e] = low;
    }
  }
}
#endif

#ifdef DRAW_shuffle
// A permutation of 0 .. n - 1, drawn in order: one work-item, for every swap depends on those before it.
kernel void permutation(global long* out, const Meta meta) {
  const Meta* m = &meta;
  global long* p = out + m->v[6];
  const long n = m->v[4];
  for (long k = 0; k < n; ++k) p[k] = k;
  for (long k = 0; k + 1 < n; ++k) {
    const Draws d = philox((ulong)m->v[8] + (ulong)(k / 2), (ulong)m->v[7]);
    const long other = k + (long)(bits64(d, (int)(k % 2)) % (ulong)(n - k)), t = p[k];
    p[k] = p[other];
    p[other] = t;
  }
}
#endif

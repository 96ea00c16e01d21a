// Shared by gemm.cl and conv.cl (their launchers put this text in front): element types and the CPU-shaped register tile.
// REAL_DOUBLE: sums and storage in double. Otherwise sums in float, storage float, half or bfloat16 (a run-time code,
// because a second program would cost more to build than a uniform branch costs to run).
#ifdef REAL_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
typedef double8 vec;
#define VL 8
#define VLOAD(p) vload8(0, p)
#define VSTORE(v, p) vstore8(v, 0, p)
#else
typedef float real;
typedef float16 vec;
#define VL 16
#define VLOAD(p) vload16(0, p)
#define VSTORE(v, p) vstore16(v, 0, p)
#endif
// A number in a parameter struct: eight bytes whatever the program's real is (no double without fp64 on the device).
typedef long number;
inline real realOf(number n) {
#ifdef REAL_DOUBLE
  return as_double(n);
#else
  return as_float((int)n);
#endif
}

#define MR 8         // rows of a register tile
#define NR (2 * VL)  // columns of a register tile

// Storage codes, as runtime/base/dtype.h numbers them.
#define DT_REAL 0
#define DT_HALF 2
#define DT_BF16 3

inline real loadElem(global const void* base, long i, long dt) {
#ifndef REAL_DOUBLE
  if (dt == DT_HALF) return vload_half(i, (global const half*)base);
  if (dt == DT_BF16) return as_float((uint)((global const ushort*)base)[i] << 16);
#endif
  return ((global const real*)base)[i];
}

inline void storeElem(global void* base, long i, real v, long dt) {
#ifndef REAL_DOUBLE
  if (dt == DT_HALF) {
    vstore_half_rte(v, i, (global half*)base);
    return;
  }
  if (dt == DT_BF16) {
    const uint u = as_uint(v);
    const uint rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    ((global ushort*)base)[i] = (ushort)(isnan(v) ? 0x7fc0u : rounded);
    return;
  }
#endif
  ((global real*)base)[i] = v;
}

// VL neighbours at once.
inline vec loadVec(global const void* base, long i, long dt) {
#ifndef REAL_DOUBLE
  if (dt == DT_HALF) return vload_half16(0, (global const half*)base + i);
  if (dt == DT_BF16) return as_float16(convert_uint16(vload16(0, (global const ushort*)base + i)) << 16);
#endif
  return VLOAD((global const real*)base + i);
}

inline void storeVec(global void* base, long i, vec v, long dt) {
#ifndef REAL_DOUBLE
  if (dt == DT_HALF) {
    vstore_half16_rte(v, 0, (global half*)base + i);
    return;
  }
  if (dt == DT_BF16) {
    const uint16 u = as_uint16(v);
    const uint16 rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    vstore16(convert_ushort16((u & 0x7fffffffu) > (uint16)(0x7f800000u) ? (uint16)(0x7fc0u) : rounded), 0, (global ushort*)base + i);
    return;
  }
#endif
  VSTORE(v, (global real*)base + i);
}

// acc[2r], acc[2r+1] = the 8 x NR tile of sum_k a[r,k] * b[k, 0..NR). Named accumulators, so that they stay in registers.
#define TILE_DECLARE \
  vec c00 = 0, c01 = 0, c10 = 0, c11 = 0, c20 = 0, c21 = 0, c30 = 0, c31 = 0; \
  vec c40 = 0, c41 = 0, c50 = 0, c51 = 0, c60 = 0, c61 = 0, c70 = 0, c71 = 0;
#define TILE_ROW(r, value)     \
  {                            \
    const vec x = (vec)(value); \
    c##r##0 += x * b0;         \
    c##r##1 += x * b1;         \
  }
#define TILE_KEEP(acc)                                                     \
  acc[0] = c00, acc[1] = c01, acc[2] = c10, acc[3] = c11, acc[4] = c20;    \
  acc[5] = c21, acc[6] = c30, acc[7] = c31, acc[8] = c40, acc[9] = c41;    \
  acc[10] = c50, acc[11] = c51, acc[12] = c60, acc[13] = c61, acc[14] = c70; \
  acc[15] = c71;

// Rows lie beside each other (a[k * lda + r]): packed panels, and matrices whose rows are contiguous in memory.
inline void tilePacked(vec* acc, global const real* a, long lda, global const real* b, long ldb, long depth) {
  TILE_DECLARE
  for (long k = 0; k < depth; ++k) {
    const vec b0 = VLOAD(b), b1 = VLOAD(b + VL);
    TILE_ROW(0, a[0]) TILE_ROW(1, a[1]) TILE_ROW(2, a[2]) TILE_ROW(3, a[3])
    TILE_ROW(4, a[4]) TILE_ROW(5, a[5]) TILE_ROW(6, a[6]) TILE_ROW(7, a[7])
    a += lda;
    b += ldb;
  }
  TILE_KEEP(acc)
}

// Rows far apart: row r starts at a + min(r, rows - 1) * am, its elements are ak apart.
inline void tileRows(vec* acc, global const real* a, long am, long ak, long rows, global const real* b, long ldb,
                     long depth) {
  const long last = rows - 1;
  global const real* a1 = a + min(1L, last) * am;
  global const real* a2 = a + min(2L, last) * am;
  global const real* a3 = a + min(3L, last) * am;
  global const real* a4 = a + min(4L, last) * am;
  global const real* a5 = a + min(5L, last) * am;
  global const real* a6 = a + min(6L, last) * am;
  global const real* a7 = a + min(7L, last) * am;
  TILE_DECLARE
  long i = 0;
  for (long k = 0; k < depth; ++k) {
    const vec b0 = VLOAD(b), b1 = VLOAD(b + VL);
    TILE_ROW(0, a[i]) TILE_ROW(1, a1[i]) TILE_ROW(2, a2[i]) TILE_ROW(3, a3[i])
    TILE_ROW(4, a4[i]) TILE_ROW(5, a5[i]) TILE_ROW(6, a6[i]) TILE_ROW(7, a7[i])
    i += ak;
    b += ldb;
  }
  TILE_KEEP(acc)
}

// Blocks of 8 x 8 are turned in registers.
#define TURN_PAIR(a, b, lo, hi)                                  \
  lo = shuffle2(a, b, (MASK)(0, 8, 1, 9, 2, 10, 3, 11));         \
  hi = shuffle2(a, b, (MASK)(4, 12, 5, 13, 6, 14, 7, 15));
#ifdef REAL_DOUBLE
typedef double8 block;
#define MASK ulong8
#else
typedef float8 block;
#define MASK uint8
#endif
// Three rounds of perfect shuffles: rows i and i + 4 interleave each time.
#define TURN_ROWS                                                                                     \
  block a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7;                               \
  TURN_PAIR(r0, r4, a0, a1) TURN_PAIR(r1, r5, a2, a3) TURN_PAIR(r2, r6, a4, a5) TURN_PAIR(r3, r7, a6, a7) \
  TURN_PAIR(a0, a4, b0, b1) TURN_PAIR(a1, a5, b2, b3) TURN_PAIR(a2, a6, b4, b5) TURN_PAIR(a3, a7, b6, b7) \
  TURN_PAIR(b0, b4, a0, a1) TURN_PAIR(b1, b5, a2, a3) TURN_PAIR(b2, b6, a4, a5) TURN_PAIR(b3, b7, a6, a7)
#define TURN_STORE(d, step)                                                                           \
  vstore8(a0, 0, d), vstore8(a1, 0, d + step), vstore8(a2, 0, d + 2 * step), vstore8(a3, 0, d + 3 * step); \
  vstore8(a4, 0, d + 4 * step), vstore8(a5, 0, d + 5 * step), vstore8(a6, 0, d + 6 * step), vstore8(a7, 0, d + 7 * step);
// dst[pixel][plane] = src[plane][pixel], rows of NR in dst.
inline void turnPixels(global real* dst, global const real* src, long plane, long planes, long pixels) {
  long p = 0;
  for (; p + 8 <= pixels; p += 8) {
    long k = 0;
    for (; k + 8 <= planes; k += 8) {
      global const real* s = src + k * plane + p;
      global real* d = dst + p * NR + k;
      const block r0 = vload8(0, s), r1 = vload8(0, s + plane), r2 = vload8(0, s + 2 * plane), r3 = vload8(0, s + 3 * plane);
      const block r4 = vload8(0, s + 4 * plane), r5 = vload8(0, s + 5 * plane), r6 = vload8(0, s + 6 * plane),
                  r7 = vload8(0, s + 7 * plane);
      TURN_ROWS
      TURN_STORE(d, NR)
    }
    for (; k < planes; ++k)
      for (long i = 0; i < 8; ++i) dst[(p + i) * NR + k] = src[k * plane + p + i];
  }
  for (; p < pixels; ++p)
    for (long k = 0; k < planes; ++k) dst[p * NR + k] = src[k * plane + p];
}

// Eight neighbours at once.
inline block loadBlock(global const void* base, long i, long dt) {
#ifndef REAL_DOUBLE
  if (dt == DT_HALF) return vload_half8(0, (global const half*)base + i);
  if (dt == DT_BF16) return as_float8(convert_uint8(vload8(0, (global const ushort*)base + i)) << 16);
#endif
  return vload8(0, (global const real*)base + i);
}

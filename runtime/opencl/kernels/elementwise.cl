// The one template of all elementwise operators. A generated head defines: NIN (0..3), K0..K2 and KO (storage kinds),
// S and WIDE (see types.cl), IDX (int or long), EXPR (in T: a, b, c, s0..s3, ix), BCAST0..2 (flat: the input is one
// element), INDEXED if EXPR uses ix (row-major position).
//
// All launch data is one struct of longs: scalars' bits [0..3], n [4], chunk [5], element offsets of out and inputs
// [6..9]; for `rows` also ndim [10], sizes [11..22], strides of out and inputs [23 + 12 k ..], slowest first.
#ifdef WIDE
#define T CAT2(S, 16)
#else
#define T S
#endif
typedef struct { long v[META_LONGS]; } Meta;

#define SCALARS const T s0 = SCALAR(0), s1 = SCALAR(1), s2 = SCALAR(2), s3 = SCALAR(3);
#define LD1(k, p, i) CONV1(CAT2(LD1_, k)(p, i))
#define LDV(k, p, i) CONVV(CAT2(LDV_, k)(p, i))
#define ST1(v, p, i) CAT2(ST1_, KO)(v, p, i)
#define STV(v, p, i) CAT2(STV_, KO)(v, p, i)

#ifdef ADDRESSES  // [6..9] are where the elements lie: no buffers to keep books about
#define AT(k, buffer, i) (global CAT2(PTR_, k)*)m.v[i]
#define PARAMS const Meta m
#else
#define AT(k, buffer, i) buffer + m.v[i]
#if NIN > 0
#define PARAM_A , global const CAT2(PTR_, K0)* in0
#else
#define PARAM_A
#endif
#if NIN > 1
#define PARAM_B , global const CAT2(PTR_, K1)* in1
#else
#define PARAM_B
#endif
#if NIN > 2
#define PARAM_C , global const CAT2(PTR_, K2)* in2
#else
#define PARAM_C
#endif
#define PARAMS global CAT2(PTR_, KO)* out0 PARAM_A PARAM_B PARAM_C, const Meta m
#endif

#if NIN > 0
#define BASE_A global const CAT2(PTR_, K0)* pa = AT(K0, in0, 7);
#else
#define BASE_A
#endif
#if NIN > 1
#define BASE_B global const CAT2(PTR_, K1)* pb = AT(K1, in1, 8);
#else
#define BASE_B
#endif
#if NIN > 2
#define BASE_C global const CAT2(PTR_, K2)* pc = AT(K2, in2, 9);
#else
#define BASE_C
#endif
#define BASES global CAT2(PTR_, KO)* po = AT(KO, out0, 6); BASE_A BASE_B BASE_C

#ifdef WIDE

#ifdef INDEXED
#define INDEX(pos) const T ix = CONVV((long16)(pos) + (long16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
#else
#define INDEX(pos)
#endif

#ifdef FLAT
#if NIN > 0
#if BCAST0
#define FLAT_A const T a = (T)(LD1(K0, pa, 0));
#else
#define FLAT_A const T a = LDV(K0, pa, i);
#endif
#endif
#if NIN > 1
#if BCAST1
#define FLAT_B const T b = (T)(LD1(K1, pb, 0));
#else
#define FLAT_B const T b = LDV(K1, pb, i);
#endif
#endif
#if NIN > 2
#if BCAST2
#define FLAT_C const T c = (T)(LD1(K2, pc, 0));
#else
#define FLAT_C const T c = LDV(K2, pc, i);
#endif
#endif

// Broadcast operands are read once, before the loop: in place on one of them would be an overlap, which callers exclude.
kernel void flat(PARAMS) {
  BASES
  SCALARS
  const IDX n = (IDX)m.v[4], chunk = (IDX)m.v[5];
  IDX i = (IDX)get_global_id(0) * chunk;
  const IDX end = min(i + chunk, n);
#if NIN > 0 && BCAST0
  FLAT_A
#endif
#if NIN > 1 && BCAST1
  FLAT_B
#endif
#if NIN > 2 && BCAST2
  FLAT_C
#endif
  for (; i + 16 <= end; i += 16) {
#if NIN > 0 && !BCAST0
    FLAT_A
#endif
#if NIN > 1 && !BCAST1
    FLAT_B
#endif
#if NIN > 2 && !BCAST2
    FLAT_C
#endif
    INDEX(i)
    STV((EXPR), po, i);
  }
  if (i < end) {
    // The rest goes through private arrays: one vector expression serves whole and part vectors.
    const int rest = (int)(end - i);
    S r[16];
#if NIN > 0 && !BCAST0
    S ta[16] = {0};
    for (int j = 0; j < rest; ++j) ta[j] = LD1(K0, pa, i + j);
    const T a = vload16(0, ta);
#endif
#if NIN > 1 && !BCAST1
    S tb[16] = {0};
    for (int j = 0; j < rest; ++j) tb[j] = LD1(K1, pb, i + j);
    const T b = vload16(0, tb);
#endif
#if NIN > 2 && !BCAST2
    S tc[16] = {0};
    for (int j = 0; j < rest; ++j) tc[j] = LD1(K2, pc, i + j);
    const T c = vload16(0, tc);
#endif
    INDEX(i)
    vstore16((T)(EXPR), 0, r);
    for (int j = 0; j < rest; ++j) ST1(r[j], po, i + j);
  }
}
#endif  // FLAT

#ifdef ROWS
#define GATHER(k, p, s)                                                                                             \
  (T)(LD1(k, p, 0), LD1(k, p, (s)), LD1(k, p, 2 * (s)), LD1(k, p, 3 * (s)), LD1(k, p, 4 * (s)), LD1(k, p, 5 * (s)), \
      LD1(k, p, 6 * (s)), LD1(k, p, 7 * (s)), LD1(k, p, 8 * (s)), LD1(k, p, 9 * (s)), LD1(k, p, 10 * (s)),          \
      LD1(k, p, 11 * (s)), LD1(k, p, 12 * (s)), LD1(k, p, 13 * (s)), LD1(k, p, 14 * (s)), LD1(k, p, 15 * (s)))
#define FETCH(k, p, s, j) ((s) == 1 ? LDV(k, p, j) : (s) == 0 ? (T)(LD1(k, p, 0)) : GATHER(k, (p) + (j) * (s), s))

// One work-item walks the elements [id * chunk, id * chunk + chunk) in row-major order, a run of the innermost
// dimension at a time; only the first run is found by division.
kernel void rows(PARAMS) {
  BASES
  SCALARS
  const IDX n = (IDX)m.v[4], chunk = (IDX)m.v[5];
  const int nd = (int)m.v[10];
  IDX pos = (IDX)get_global_id(0) * chunk;
  const IDX end = min(pos + chunk, n);
  const IDX inner = (IDX)m.v[11 + nd - 1];
  const IDX so = (IDX)m.v[23 + nd - 1];
#if NIN > 0
  const IDX sa = (IDX)m.v[35 + nd - 1];
#endif
#if NIN > 1
  const IDX sb = (IDX)m.v[47 + nd - 1];
#endif
#if NIN > 2
  const IDX sc = (IDX)m.v[59 + nd - 1];
#endif
  IDX at[12];
  IDX rest_index = pos;
  for (int d = nd - 1; d >= 0; --d) {
    const IDX size = (IDX)m.v[11 + d];
    at[d] = rest_index % size;
    rest_index /= size;
  }
  while (pos < end) {
    IDX oo = 0, oa = 0, ob = 0, oc = 0;
    for (int d = 0; d < nd; ++d) {
      oo += at[d] * (IDX)m.v[23 + d];
#if NIN > 0
      oa += at[d] * (IDX)m.v[35 + d];
#endif
#if NIN > 1
      ob += at[d] * (IDX)m.v[47 + d];
#endif
#if NIN > 2
      oc += at[d] * (IDX)m.v[59 + d];
#endif
    }
    const IDX run = min(inner - at[nd - 1], end - pos);
    IDX j = 0;
    for (; j + 16 <= run; j += 16) {
#if NIN > 0
      const T a = FETCH(K0, pa + oa, sa, j);
#endif
#if NIN > 1
      const T b = FETCH(K1, pb + ob, sb, j);
#endif
#if NIN > 2
      const T c = FETCH(K2, pc + oc, sc, j);
#endif
      INDEX(pos + j)
      const T r = (EXPR);
      if (so == 1) {
        STV(r, po + oo, j);
      } else {
        S t[16];
        vstore16(r, 0, t);
        for (int k = 0; k < 16; ++k) ST1(t[k], po + oo, (j + k) * so);
      }
    }
    if (j < run) {
      const int rest = (int)(run - j);
      S r[16];
#if NIN > 0
      S ta[16] = {0};
      for (int k = 0; k < rest; ++k) ta[k] = LD1(K0, pa + oa, (j + k) * sa);
      const T a = vload16(0, ta);
#endif
#if NIN > 1
      S tb[16] = {0};
      for (int k = 0; k < rest; ++k) tb[k] = LD1(K1, pb + ob, (j + k) * sb);
      const T b = vload16(0, tb);
#endif
#if NIN > 2
      S tc[16] = {0};
      for (int k = 0; k < rest; ++k) tc[k] = LD1(K2, pc + oc, (j + k) * sc);
      const T c = vload16(0, tc);
#endif
      INDEX(pos + j)
      vstore16((T)(EXPR), 0, r);
      for (int k = 0; k < rest; ++k) ST1(r[k], po + oo, (j + k) * so);
    }
    pos += run;
    at[nd - 1] = 0;
    for (int d = nd - 2; d >= 0; --d) {
      if (++at[d] < (IDX)m.v[11 + d]) break;
      at[d] = 0;
    }
  }
}
#endif  // ROWS

#ifdef TILES
// One input that runs along the second last dimension, out along the last: 16 x 16 elements at a time go through a
// private tile, so that both sides are read and written by whole vectors. Work-items take `chunk` tiles.
kernel void tiles(PARAMS) {
  BASES
  SCALARS
  const int nd = (int)m.v[10];
  const IDX columns = (IDX)m.v[11 + nd - 1], rows_ = (IDX)m.v[11 + nd - 2];
  const IDX so = (IDX)m.v[23 + nd - 2], sa = (IDX)m.v[35 + nd - 1];
  const IDX across = (columns + 15) / 16, down = (rows_ + 15) / 16, chunk = (IDX)m.v[5];
  const IDX total = (IDX)m.v[4] / (columns * rows_) * across * down;
  const IDX end = min(((IDX)get_global_id(0) + 1) * chunk, total);
  for (IDX tile = (IDX)get_global_id(0) * chunk; tile < end; ++tile) {
    // Neighbouring tiles follow the input's run.
    const IDX r0 = tile % down * 16, c0 = tile / down % across * 16;
    IDX left = tile / (down * across), oo = r0 * so + c0, oa = r0 + c0 * sa;
    for (int d = nd - 3; d >= 0; --d) {
      const IDX at = left % (IDX)m.v[11 + d];
      left /= (IDX)m.v[11 + d];
      oo += at * (IDX)m.v[23 + d];
      oa += at * (IDX)m.v[35 + d];
    }
    const int height = (int)min(rows_ - r0, (IDX)16), width = (int)min(columns - c0, (IDX)16);
    S t[256];
    if (height == 16) {
      for (int c_ = 0; c_ < width; ++c_) vstore16(LDV(K0, pa, oa + c_ * sa), c_, t);
    } else {
      for (int c_ = 0; c_ < width; ++c_)
        for (int r = 0; r < height; ++r) t[c_ * 16 + r] = LD1(K0, pa, oa + c_ * sa + r);
    }
    for (int c_ = width; c_ < 16; ++c_) vstore16((T)(0), c_, t);
    for (int r = 0; r < height; ++r) {
      const T a = (T)(t[r], t[r + 16], t[r + 32], t[r + 48], t[r + 64], t[r + 80], t[r + 96], t[r + 112], t[r + 128], t[r + 144],
                      t[r + 160], t[r + 176], t[r + 192], t[r + 208], t[r + 224], t[r + 240]);
      const T v = (EXPR);
      if (width == 16) {
        STV(v, po, oo + r * so);
      } else {
        S e[16];
        vstore16(v, 0, e);
        for (int c_ = 0; c_ < width; ++c_) ST1(e[c_], po, oo + r * so + c_);
      }
    }
  }
}
#endif  // TILES

#else  // one thin work-item per element

#ifdef INDEXED
#define INDEX(pos) const T ix = CONV1((long)(pos));
#else
#define INDEX(pos)
#endif

#ifdef FLAT
kernel void flat(PARAMS) {
  BASES
  SCALARS
  const IDX n = (IDX)m.v[4];
  const IDX i = (IDX)get_global_id(0);
  if (i >= n) return;
#if NIN > 0
  const T a = LD1(K0, pa, BCAST0 ? 0 : i);
#endif
#if NIN > 1
  const T b = LD1(K1, pb, BCAST1 ? 0 : i);
#endif
#if NIN > 2
  const T c = LD1(K2, pc, BCAST2 ? 0 : i);
#endif
  INDEX(i)
  ST1((EXPR), po, i);
}
#endif

#ifdef ROWS
kernel void rows(PARAMS) {
  BASES
  SCALARS
  const IDX n = (IDX)m.v[4];
  const int nd = (int)m.v[10];
  const IDX i = (IDX)get_global_id(0);
  if (i >= n) return;
  IDX oo = 0, oa = 0, ob = 0, oc = 0, left = i;
  for (int d = nd - 1; d >= 0; --d) {
    const IDX size = (IDX)m.v[11 + d];
    const IDX next = d ? left / size : 0;
    const IDX at = left - next * size;
    left = next;
    oo += at * (IDX)m.v[23 + d];
#if NIN > 0
    oa += at * (IDX)m.v[35 + d];
#endif
#if NIN > 1
    ob += at * (IDX)m.v[47 + d];
#endif
#if NIN > 2
    oc += at * (IDX)m.v[59 + d];
#endif
  }
#if NIN > 0
  const T a = LD1(K0, pa, oa);
#endif
#if NIN > 1
  const T b = LD1(K1, pb, ob);
#endif
#if NIN > 2
  const T c = LD1(K2, pc, oc);
#endif
  INDEX(i)
  ST1((EXPR), po, oo);
}
#endif

#endif  // WIDE

// Softmax and log-softmax over one dimension. A generated head defines A (float or double), AV (16 of them), KI, KO, KG
// (storage kinds of in, out and, backward, the gradient written), LOGARITHM, BACKWARD and one of ROWS, COLUMNS, GROUP,
// THREAD. Forward: in -> out. Backward: in = grad_output, out0 = the forward result (read), grad (written).
//
// Longs of Meta: 0 rows, 1 n (size of the dimension), 2 rows (or column blocks) a work-item, 3 kept dims, 4..6 offsets of
// in, out, grad, 7..9 their strides along the dimension, 10.. kept sizes, 22.., 34.., 46.. kept strides.
typedef struct { long v[58]; } Meta;

#define MAXN(x, y) ((((x) > (y)) | ((x) != (x))) ? (x) : (y))
#define IN1(i) CONVA1(CAT2(LD1_, KI)(pi, (i) * si))
#define OUT1(i) CONVA1(CAT2(LD1_, KO)(po, (i) * so))

#ifdef BACKWARD
#define PARAMS global const CAT2(PTR_, KI)* in0, global const CAT2(PTR_, KO)* out0, global CAT2(PTR_, KG)* grad0, const Meta m
#define PUT1(i, value) CAT2(ST1_, KG)((value), pg, (i) * sg)
#define PUTV(i, value) CAT2(STV_, KG)((value), pg, i)
#define PUTAT(i, value) CAT2(ST1_, KG)((value), pg, i)
#define OUTPTR global const CAT2(PTR_, KO)*
#else
#define PARAMS global const CAT2(PTR_, KI)* in0, global CAT2(PTR_, KO)* out0, const Meta m
#define PUT1(i, value) CAT2(ST1_, KO)((value), po, (i) * so)
#define PUTV(i, value) CAT2(STV_, KO)((value), po, i)
#define PUTAT(i, value) CAT2(ST1_, KO)((value), po, i)
#define OUTPTR global CAT2(PTR_, KO)*
#endif

// Positions of row `row` in all operands.
#define PLACE(row)                                        \
  IDX oi = 0, oo = 0, og = 0;                             \
  {                                                       \
    IDX left_ = (row);                                    \
    for (int d_ = (int)m.v[3] - 1; d_ >= 0; --d_) {       \
      const IDX size_ = (IDX)m.v[10 + d_];                \
      const IDX next_ = d_ ? left_ / size_ : 0;           \
      const IDX at_ = left_ - next_ * size_;              \
      left_ = next_;                                      \
      oi += at_ * (IDX)m.v[22 + d_];                      \
      oo += at_ * (IDX)m.v[34 + d_];                      \
      og += at_ * (IDX)m.v[46 + d_];                      \
    }                                                     \
  }                                                       \
  global const CAT2(PTR_, KI)* pi = in0 + m.v[4] + oi;    \
  OUTPTR po = out0 + m.v[5] + oo;                         \
  GRADPTR

#ifdef BACKWARD
#define GRADPTR global CAT2(PTR_, KG)* pg = grad0 + m.v[6] + og;
#else
#define GRADPTR (void)og;
#endif

// One element of the answer. Forward: x, the row's maximum and sum of exponentials. Backward: gradient g, result y, sum.
#ifdef LOGARITHM
#define FORWARD(x) ((x) - top - log(sum))
#define PRODUCT(g, y) (g)
#define GRADIENT(g, y) ((g) - exp(y) * (sum))
#else
#define FORWARD(x) (exp((x) - top) / (sum))
#define PRODUCT(g, y) ((g) * (y))
#define GRADIENT(g, y) (((g) - (sum)) * (y))
#endif

static A sumLanes(AV v) {
  const A t[16] = {v.s0, v.s1, v.s2, v.s3, v.s4, v.s5, v.s6, v.s7, v.s8, v.s9, v.sa, v.sb, v.sc, v.sd, v.se, v.sf};
  A r[8];
  for (int i = 0; i < 8; ++i) r[i] = t[i] + t[i + 8];
  for (int i = 0; i < 4; ++i) r[i] += r[i + 4];
  return (r[0] + r[2]) + (r[1] + r[3]);
}
static A maxLanes(AV v) {
  A t[16];
  vstore16(v, 0, t);
  for (int w = 8; w > 0; w >>= 1)
    for (int i = 0; i < w; ++i) t[i] = MAXN(t[i], t[i + w]);
  return t[0];
}

#ifdef ROWS
// Up to 16 numbers, `filler` beyond `count`.
static AV partIn(global const CAT2(PTR_, KI)* p, IDX step, int count, A filler) {
  A t[16];
  for (int k = 0; k < 16; ++k) t[k] = k < count ? CONVA1(CAT2(LD1_, KI)(p, k * step)) : filler;
  return vload16(0, t);
}
static AV partOut(OUTPTR p, IDX step, int count) {
  A t[16];
  for (int k = 0; k < 16; ++k) t[k] = k < count ? CONVA1(CAT2(LD1_, KO)(p, k * step)) : (A)0;
  return vload16(0, t);
}
#define VECTOR_IN(i) ((si == 1 && (i) + 16 <= n) ? CONVAV(CAT2(LDV_, KI)(pi, i)) : partIn(pi + (i) * si, si, (int)min(n - (i), (IDX)16), FILLER))
#define VECTOR_OUT(i) ((so == 1 && (i) + 16 <= n) ? CONVAV(CAT2(LDV_, KO)(po, i)) : partOut(po + (i) * so, so, (int)min(n - (i), (IDX)16)))

kernel void rows(PARAMS) {
  const IDX rows_ = (IDX)m.v[0], n = (IDX)m.v[1], per = (IDX)m.v[2];
  const IDX si = (IDX)m.v[7], so = (IDX)m.v[8], sg = (IDX)m.v[9];
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, rows_);
  for (IDX row = (IDX)get_global_id(0) * per; row < last; ++row) {
    PLACE(row)
#ifdef BACKWARD
#define FILLER 0
    AV sums = (AV)(0);
    for (IDX i = 0; i < n; i += 16) {
      const AV g = VECTOR_IN(i);
#ifdef LOGARITHM
      sums += g;
#else
      sums += g * VECTOR_OUT(i);
#endif
    }
    const A sum = sumLanes(sums);
    const IDX step = sg;
#define ANSWER(i) GRADIENT(VECTOR_IN(i), VECTOR_OUT(i))
#else
#define FILLER (-(A)INFINITY)
    AV tops = (AV)(-(A)INFINITY);
    for (IDX i = 0; i < n; i += 16) {
      const AV x = VECTOR_IN(i);
      tops = MAXN(tops, x);
    }
    const A top = maxLanes(tops);
    AV sums = (AV)(0);
    const IDX step = so;
#ifdef KEEP
    // The exponentials wait in the result itself: each is calculated once.
    const bool keep = so == 1 && n >= 16;
    if (keep) {
      IDX i = 0;
      for (; i + 16 <= n; i += 16) {
        const AV e = exp(VECTOR_IN(i) - (AV)(top));
        PUTV(i, e);
        sums += e;
      }
      if (i < n) sums += exp(VECTOR_IN(i) - (AV)(top));
      const AV over = (AV)((A)1 / sumLanes(sums));
      IDX k = 0;
      for (; k + 16 <= n; k += 16) {
        const AV e = CONVAV(CAT2(LDV_, KO)(po, k));
        PUTV(k, e * over);
      }
      for (; k < n; ++k) PUT1(k, exp(IN1(k) - top) * over.s0);
      continue;
    }
#endif
    for (IDX i = 0; i < n; i += 16) sums += exp(VECTOR_IN(i) - (AV)(top));
    const A sum = sumLanes(sums);
#define ANSWER(i) FORWARD(VECTOR_IN(i))
#endif
    for (IDX i = 0; i < n; i += 16) {
      const AV r = ANSWER(i);
      if (step == 1 && i + 16 <= n) {
        PUTV(i, r);
      } else {
        A t[16];
        vstore16(r, 0, t);
        for (int k = 0; k < 16 && i + k < n; ++k) PUT1(i + k, t[k]);
      }
    }
  }
}
#endif

#ifdef COLUMNS
// Neighbouring rows are neighbours in memory: sixteen of them at a time, one in each lane.
static AV laneIn(global const CAT2(PTR_, KI)* p, int lanes) {
  if (lanes == 16) return CONVAV(CAT2(LDV_, KI)(p, 0));
  A t[16] = {0};
  for (int k = 0; k < lanes; ++k) t[k] = CONVA1(CAT2(LD1_, KI)(p, k));
  return vload16(0, t);
}
static AV laneOut(OUTPTR p, int lanes) {
  if (lanes == 16) return CONVAV(CAT2(LDV_, KO)(p, 0));
  A t[16] = {0};
  for (int k = 0; k < lanes; ++k) t[k] = CONVA1(CAT2(LD1_, KO)(p, k));
  return vload16(0, t);
}
kernel void columns(PARAMS) {
  const int nd = (int)m.v[3];
  const IDX n = (IDX)m.v[1], per = (IDX)m.v[2], width = (IDX)m.v[10 + nd - 1];
  const IDX si = (IDX)m.v[7], so = (IDX)m.v[8], sg = (IDX)m.v[9];
  const IDX blocks = (width + 15) / 16;
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, (IDX)m.v[0] / width * blocks);
  for (IDX item = (IDX)get_global_id(0) * per; item < last; ++item) {
    const IDX outer = item / blocks, first = (item - outer * blocks) * 16;
    const int lanes = (int)min(width - first, (IDX)16);
    PLACE(outer * width + first)
#ifdef BACKWARD
    AV sum = (AV)(0);
    for (IDX i = 0; i < n; ++i) {
      const AV g = laneIn(pi + i * si, lanes);
#ifdef LOGARITHM
      sum += g;
#else
      sum += g * laneOut(po + i * so, lanes);
#endif
    }
#else
    AV top = (AV)(-(A)INFINITY), sum = (AV)(0);
    for (IDX i = 0; i < n; ++i) {
      const AV x = laneIn(pi + i * si, lanes);
      top = MAXN(top, x);
    }
    for (IDX i = 0; i < n; ++i) sum += exp(laneIn(pi + i * si, lanes) - top);
#endif
    for (IDX i = 0; i < n; ++i) {
#ifdef BACKWARD
      const AV g = laneIn(pi + i * si, lanes), y = laneOut(po + i * so, lanes);
      const AV r = GRADIENT(g, y);
      const IDX at = i * sg;
#else
      const AV x = laneIn(pi + i * si, lanes);
      const AV r = FORWARD(x);
      const IDX at = i * so;
#endif
      if (lanes == 16) {
        PUTV(at, r);
      } else {
        A t[16];
        vstore16(r, 0, t);
        for (int k = 0; k < lanes; ++k) PUTAT(at + k, t[k]);
      }
    }
  }
}
#endif

#ifdef GROUP
#define TREE(op)                                                        \
  for (int w = GROUP / 2; w > 0; w >>= 1) {                             \
    barrier(CLK_LOCAL_MEM_FENCE);                                       \
    if (lid < w) shared[lid] = op(shared[lid], shared[lid + w]);        \
  }                                                                     \
  barrier(CLK_LOCAL_MEM_FENCE);
#define ADD(x, y) ((x) + (y))
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void group(PARAMS) {
  local A shared[GROUP];
  const int lid = (int)get_local_id(0);
  const IDX n = (IDX)m.v[1];
  const IDX si = (IDX)m.v[7], so = (IDX)m.v[8], sg = (IDX)m.v[9];
  PLACE((IDX)get_group_id(0))
#ifdef BACKWARD
  A part = 0;
  for (IDX i = lid; i < n; i += GROUP) part += PRODUCT(IN1(i), OUT1(i));
  shared[lid] = part;
  TREE(ADD)
  const A sum = shared[0];
  for (IDX i = lid; i < n; i += GROUP) PUT1(i, GRADIENT(IN1(i), OUT1(i)));
#else
  A part = -(A)INFINITY;
  for (IDX i = lid; i < n; i += GROUP) {
    const A x = IN1(i);
    part = MAXN(part, x);
  }
  shared[lid] = part;
  TREE(MAXN)
  const A top = shared[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  part = 0;
  for (IDX i = lid; i < n; i += GROUP) part += exp(IN1(i) - top);
  shared[lid] = part;
  TREE(ADD)
  const A sum = shared[0];
  for (IDX i = lid; i < n; i += GROUP) PUT1(i, FORWARD(IN1(i)));
#endif
}
#endif

#ifdef THREAD
kernel void thread(PARAMS) {
  const IDX row = (IDX)get_global_id(0), n = (IDX)m.v[1];
  if (row >= (IDX)m.v[0]) return;
  const IDX si = (IDX)m.v[7], so = (IDX)m.v[8], sg = (IDX)m.v[9];
  PLACE(row)
#ifdef BACKWARD
  A sum = 0;
  for (IDX i = 0; i < n; ++i) sum += PRODUCT(IN1(i), OUT1(i));
  for (IDX i = 0; i < n; ++i) PUT1(i, GRADIENT(IN1(i), OUT1(i)));
#else
  A top = -(A)INFINITY, sum = 0;
  for (IDX i = 0; i < n; ++i) {
    const A x = IN1(i);
    top = MAXN(top, x);
  }
  for (IDX i = 0; i < n; ++i) sum += exp(IN1(i) - top);
  for (IDX i = 0; i < n; ++i) PUT1(i, FORWARD(IN1(i)));
#endif
}
#endif

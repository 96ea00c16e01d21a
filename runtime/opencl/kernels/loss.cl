// Negative log-likelihood. A generated head defines A (float or double), KI, KW, KT, KO, KS (storage kinds of input,
// weight, target, result, total weight), WEIGHTED, and one of NONE, SUMS (GROUP > 1 for work-groups with a tree),
// FINISH, BACKWARD, UNIT.
//
// Positions run over the target's dimensions. Longs of Meta: 0 positions, 1 classes, 2 ignore_index, 3 positions a
// work-item or group, 4 mode (0 none, 1 mean, 2 sum), 5 pieces, 6..10 offsets of input (or grad_in), target, weight, out
// (or grad), total, 11 class stride, 12 weight stride, 13 dims, 14 offset of the pieces, 15.. sizes, 27.. input strides,
// 39.. target strides, 51.. out (or grad) strides, 63 the name to report. A target that is no class (and not ignored) goes to
// the fault record and gives NaN.
typedef struct { long v[64]; } Meta;

#define PLACE(index)                                      \
  IDX oi = 0, ot = 0, oo = 0;                             \
  {                                                       \
    IDX left_ = (index);                                  \
    for (int d_ = (int)m.v[13] - 1; d_ >= 0; --d_) {      \
      const IDX size_ = (IDX)m.v[15 + d_];                \
      const IDX next_ = d_ ? left_ / size_ : 0;           \
      const IDX at_ = left_ - next_ * size_;              \
      left_ = next_;                                      \
      oi += at_ * (IDX)m.v[27 + d_];                      \
      ot += at_ * (IDX)m.v[39 + d_];                      \
      oo += at_ * (IDX)m.v[51 + d_];                      \
    }                                                     \
  }
#ifdef WEIGHTED
#define WEIGHT(t) convertA(CAT2(LD1_, KW)(weight0, m.v[8] + (t) * m.v[12]))
#else
#define WEIGHT(t) ((A)1)
#endif
#define TARGET convert_long(CAT2(LD1_, KT)(target0, m.v[7] + ot))
#define VALID(t) ((t) >= 0 && (t) < m.v[1])
#define INPUTS global const CAT2(PTR_, KI)* in0, global const CAT2(PTR_, KT)* target0, global const CAT2(PTR_, KW)* weight0

#ifdef NONE
kernel void none(INPUTS, global CAT2(PTR_, KO)* out0, global int* fault, const Meta m) {
  const IDX n = (IDX)m.v[0], per = (IDX)m.v[3];
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, n);
  for (IDX i = (IDX)get_global_id(0) * per; i < last; ++i) {
    PLACE(i)
    const long t = TARGET;
    A loss = 0;
    if (VALID(t)) {
      if (t != m.v[2]) loss = -WEIGHT(t) * convertA(CAT2(LD1_, KI)(in0, m.v[6] + oi + t * m.v[11]));
    } else if (t != m.v[2]) {
      badIndex(fault, t, m.v[1], m.v[63]);
      loss = (A)NAN;
    }
    CAT2(ST1_, KO)(loss, out0, m.v[9] + oo);
  }
}
#endif

#ifdef SUMS
// Sums of loss and weight over a piece of the positions, to pieces[2 * piece].
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void sums(INPUTS, global A* pieces, global int* fault, const Meta m) {
#if GROUP > 1
  local A losses[GROUP], weights[GROUP];
#endif
  const int lid = (int)get_local_id(0);
  const IDX piece = (IDX)get_group_id(0), per = (IDX)m.v[3];
  const IDX end = min((piece + 1) * per, (IDX)m.v[0]);
  A loss = 0, total = 0, part = 0, partWeight = 0;
  int loose = 0;
  for (IDX i = piece * per + lid; i < end; i += GROUP) {
    PLACE(i)
    const long t = TARGET;
    if (t != m.v[2]) {
      if (VALID(t)) {
        const A w = WEIGHT(t);
        part -= w * convertA(CAT2(LD1_, KI)(in0, m.v[6] + oi + t * m.v[11]));
        partWeight += w;
      } else {
        badIndex(fault, t, m.v[1], m.v[63]);
        part = (A)NAN;
      }
    }
    if (++loose == 64) {
      loss += part;
      total += partWeight;
      part = partWeight = 0;
      loose = 0;
    }
  }
  loss += part;
  total += partWeight;
#if GROUP > 1
  losses[lid] = loss;
  weights[lid] = total;
  for (int w = GROUP / 2; w > 0; w >>= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < w) {
      losses[lid] += losses[lid + w];
      weights[lid] += weights[lid + w];
    }
  }
  loss = losses[0];
  total = weights[0];
#endif
  if (lid == 0) {
    pieces[m.v[14] + 2 * piece] = loss;
    pieces[m.v[14] + 2 * piece + 1] = total;
  }
}
#endif

#ifdef FINISH
kernel void finish(global const A* pieces, global CAT2(PTR_, KO)* out0, global CAT2(PTR_, KS)* total0, const Meta m) {
  A loss = 0, total = 0;
  for (IDX i = 0; i < (IDX)m.v[5]; ++i) {
    loss += pieces[m.v[14] + 2 * i];
    total += pieces[m.v[14] + 2 * i + 1];
  }
  if (m.v[4] == 1) loss /= total;
  CAT2(ST1_, KO)(loss, out0, m.v[9]);
  CAT2(ST1_, KS)(total, total0, m.v[10]);
}
#endif

#ifdef BACKWARD
// grad_in is zero already; one number a position is written.
kernel void backward(global CAT2(PTR_, KI)* in0, global const CAT2(PTR_, KT)* target0, global const CAT2(PTR_, KW)* weight0,
                     global const CAT2(PTR_, KO)* grad0, global const CAT2(PTR_, KS)* total0, const Meta m) {
  const IDX n = (IDX)m.v[0], per = (IDX)m.v[3];
  const A scale = m.v[4] == 1 ? (A)1 / convertA(CAT2(LD1_, KS)(total0, m.v[10])) : (A)1;
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, n);
  for (IDX i = (IDX)get_global_id(0) * per; i < last; ++i) {
    PLACE(i)
    const long t = TARGET;
    if (t == m.v[2] || !VALID(t)) continue;
    const A g = convertA(CAT2(LD1_, KO)(grad0, m.v[9] + (m.v[4] == 0 ? oo : 0)));
    CAT2(ST1_, KI)(-WEIGHT(t) * g * scale, in0, m.v[6] + oi + t * m.v[11]);
  }
}
#endif

#ifdef UNIT
// Binary cross-entropy wants numbers in [0, 1], of input and target (here of the same sizes); NaN is none of them.
// [62] and [63] are what to report.
kernel void unit(global const CAT2(PTR_, KI)* in0, global const CAT2(PTR_, KT)* target0, global int* fault, const Meta m) {
  const IDX n = (IDX)m.v[0], per = (IDX)m.v[3];
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, n);
  for (IDX i = (IDX)get_global_id(0) * per; i < last; ++i) {
    PLACE(i)
    (void)oo;
    const A x = convertA(CAT2(LD1_, KI)(in0, m.v[6] + oi)), t = convertA(CAT2(LD1_, KT)(target0, m.v[7] + ot));
    if (!(x >= 0 && x <= 1)) badIndex(fault, i, -1, m.v[62]);
    if (!(t >= 0 && t <= 1)) badIndex(fault, i, -1, m.v[63]);
  }
}
#endif

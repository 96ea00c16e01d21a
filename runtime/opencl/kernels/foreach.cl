// Many dense tensors in one launch. Up to KT tensors a launch (TABLE: kt_ of them, the table is in memory), each with an
// element in up to five parallel lists. A generated head defines LISTS, K0..K4 (storage kinds), LOAD0..4 and STORE0..4 (0 or 1), SINGLE0..4 (the list is one
// element for all), BODY (statements over T x0..x4, s0.., and what EXTRAS offers), WIDE (fat work-items of
// `chunk` elements each; else thin ones in groups whose size is the chunk), OWNS (numbers of each tensor's own: 0..2).
//
// Longs of Meta: 0..3 shared scalars, 4 tensors, 5 chunk, then first piece of each tensor (KT + 1), KT sizes, 5 x KT
// offsets, 2 x KT numbers: those of each tensor, or an optimizer's own (first half, N(i)) and the offsets of its steps
// (second half); last the offsets of lr, scale and inf.
#define FIRST 6
#define SIZES (FIRST + KT + 1)
#define OFFSETS (SIZES + KT)
#define OWN (OFFSETS + 5 * KT)
#define PLACES (OWN + 2 * KT)
#ifdef TABLE
typedef struct { global const long* v; } Meta;
#define META global const long* table_, const long at_, const long kt_
#define META_HERE const Meta m = {table_ + at_};
#else
typedef struct { long v[PLACES + 3]; } Meta;
#define META const Meta m
#define META_HERE
#endif

#define LD1(k, p, i) CONV1(CAT2(LD1_, k)(p, i))
#ifdef WIDE
#define LDV(k, p, i) CONVV(CAT2(LDV_, k)(p, i))
#else
#define LDV(k, p, i) LD1(k, p, i)
#endif

#define PARAM(k) global CAT2(PTR_, K##k)* list##k
#define BASE(k) global CAT2(PTR_, K##k)* p##k = list##k + m.v[OFFSETS + k * KT + t];
#ifdef EXTRAS
// steps: one float32 a tensor; lr_, scale_, inf_: 0-dim float32, any buffer where unused.
#define STEP steps[m.v[OWN + KT + t]]
#define EXTRA_PARAMS , global const float* steps, global const float* lr_, global const float* scale_, global float* inf_
#else
#define EXTRA_PARAMS
#endif

#if LISTS == 1
#define LIST_PARAMS PARAM(0)
#define BASES BASE(0)
#define EACH(M) M(0)
#elif LISTS == 2
#define LIST_PARAMS PARAM(0), PARAM(1)
#define BASES BASE(0) BASE(1)
#define EACH(M) M(0) M(1)
#elif LISTS == 3
#define LIST_PARAMS PARAM(0), PARAM(1), PARAM(2)
#define BASES BASE(0) BASE(1) BASE(2)
#define EACH(M) M(0) M(1) M(2)
#elif LISTS == 4
#define LIST_PARAMS PARAM(0), PARAM(1), PARAM(2), PARAM(3)
#define BASES BASE(0) BASE(1) BASE(2) BASE(3)
#define EACH(M) M(0) M(1) M(2) M(3)
#else
#define LIST_PARAMS PARAM(0), PARAM(1), PARAM(2), PARAM(3), PARAM(4)
#define BASES BASE(0) BASE(1) BASE(2) BASE(3) BASE(4)
#define EACH(M) M(0) M(1) M(2) M(3) M(4)
#endif

#define DECLARE(k) T x##k = Z;
#define FETCH(k) \
  if (LOAD##k) x##k = SINGLE##k ? (T)(LD1(K##k, p##k, 0)) : LDV(K##k, p##k, i);
#ifdef WIDE
#define PUT(k) \
  if (STORE##k) CAT2(STV_, K##k)(x##k, p##k, i);
#define FETCH_REST(k)                                                              \
  if (LOAD##k) {                                                                   \
    S r_[16] = {0};                                                                \
    for (int j = 0; j < rest; ++j) r_[j] = LD1(K##k, p##k, SINGLE##k ? 0 : i + j); \
    x##k = vload16(0, r_);                                                         \
  }
#define PUT_REST(k)                                                      \
  if (STORE##k) {                                                        \
    S r_[16];                                                            \
    vstore16(x##k, 0, r_);                                               \
    for (int j = 0; j < rest; ++j) CAT2(ST1_, K##k)(r_[j], p##k, i + j); \
  }
#else
#define PUT(k) \
  if (STORE##k) CAT2(ST1_, K##k)(x##k, p##k, i);
#endif

kernel void foreach(LIST_PARAMS EXTRA_PARAMS, META) {
  META_HERE
  const IDX piece = (IDX)(get_group_id(0));
  int t = 0;
  for (int end_ = (int)m.v[4]; end_ - t > 1;) {   // the last tensor whose first piece is not beyond ours
    const int middle = (t + end_) / 2;
    if (piece >= (IDX)m.v[FIRST + middle]) t = middle;
    else end_ = middle;
  }
  const IDX n = (IDX)m.v[SIZES + t], chunk = (IDX)m.v[5];
  IDX i = (piece - (IDX)m.v[FIRST + t]) * chunk;
  const IDX end = min(i + chunk, n);
  BASES
#ifdef EXTRAS
  const S lr = LR, scale = SCALE;
  if (STOPPED) return;
  SETUP
#else
  const T s0 = SCALAR(OWNS > 0 ? OWN + OWNS * t : 0), s1 = SCALAR(OWNS > 1 ? OWN + OWNS * t + 1 : 1), s2 = SCALAR(2), s3 = SCALAR(3);
#endif
#ifdef WIDE
  for (; i + 16 <= end; i += 16) {
    EACH(DECLARE)
    EACH(FETCH)
    BODY
    EACH(PUT)
  }
  if (i < end) {
    const int rest = (int)(end - i);
    EACH(DECLARE)
    EACH(FETCH_REST)
    BODY
    EACH(PUT_REST)
  }
#else
  i += (IDX)get_local_id(0);
  if (i >= end) return;
  EACH(DECLARE)
  EACH(FETCH)
  BODY
  EACH(PUT)
#endif
}

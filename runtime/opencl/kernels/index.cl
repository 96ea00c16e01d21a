// Gather, scatter, advanced indexing, scans and topk. The head defines S (compute type), KD (kind of the data), KI
// (kind of the index tensors) and USE_<kernel>. Work-items walk positions in row-major order; dimensions slowest first.
//
// Launch data, longs: [0] n (work-items' positions in all), [1] positions per work-item, [2] ndim, [3] length of the walked
// dimension, [4] bound of the index, [5..8] element offsets of operands 0..3, [9] strides along the walked dimension of
// operands 0..2 in [9..11], [12] number of index tensors, [13..15] free use, [16..27] sizes, then 12 strides for each
// operand: 0 at [28], 1 at [40], 2 at [52], and index tensors 0..3 at [64], [76], [88], [100]; their offsets at [112..115],
// the strides they select with at [116..119], their bounds at [120..123]. Kernels that take indices get `fault`, the
// queue's fault record, and [15], the name to report: an index out of range is reported once and never followed.
typedef struct { long v[124]; } Meta;

#define D CAT2(PTR_, KD)
#define LD(p, i) CAT2(LD1_, KD)(p, i)
#define ST(x, p, i) CAT2(ST1_, KD)(x, p, i)
#define IX(p, i) ((long)CAT2(LD1_, KI)(p, i))

#define EACH                                                                                  \
  const long first = (long)get_global_id(0) * m.v[1], last = min(first + m.v[1], m.v[0]);    \
  for (long e = first; e < last; ++e)

static long offsetOf(const Meta* m, long e, int strides) {
  long at = 0;
  for (int d = (int)m->v[2] - 1; d >= 0; --d) {
    at += e % m->v[16 + d] * m->v[strides + d];
    e /= m->v[16 + d];
  }
  return at;
}

// The same positions in runs along the last dimension, where each operand moves by its stride: offsets are decoded once a run.
#define EACH_RUN                                                                              \
  const long first = (long)get_global_id(0) * m.v[1], last = min(first + m.v[1], m.v[0]);    \
  const long inner = m.v[2] > 0 ? m.v[15 + m.v[2]] : 1;                                      \
  for (long e = first, run; e < last; e += run)
#define RUN run = min(inner - e % inner, last - e);
#define STEP(strides) (m.v[2] > 0 ? m.v[(strides) - 1 + m.v[2]] : 0)

#ifdef USE_gather
// 0 = out, 1 = in (stride of the indexed dimension in [10]), 2 = index. A bad index reads NaN (0 for whole numbers).
kernel void gather(global D* out, global const D* in, global const CAT2(PTR_, KI)* index, global int* fault, const Meta m) {
  EACH_RUN {
    RUN
    long to = m.v[5] + offsetOf(&m, e, 28), from = m.v[6] + offsetOf(&m, e, 40), at = m.v[7] + offsetOf(&m, e, 52);
    for (long k = 0; k < run; ++k, to += STEP(28), from += STEP(40), at += STEP(52)) {
      const long i = IX(index, at);
      if (i >= 0 && i < m.v[4]) {
        out[to] = in[from + i * m.v[10]];
      } else {
        badIndex(fault, i, m.v[4], m.v[15]);
        BAD(out, to);
      }
    }
  }
}
#endif

#ifdef COMBINE
#define WRITE(p, q) ST(COMBINE(CONV1(LD(self, p)), CONV1(LD(src, q))), self, p)
#else
#define WRITE(p, q) self[p] = src[q]
#endif

#ifdef USE_scatter
// One work-item per position outside of the walked dimension: it alone writes there, in order. It takes neighbours
// together: step by step along the walked dimension, or, where that lies densely, one after the other.
// 0 = self, 1 = index, 2 = src; COMBINE(old, new). [9..11]: strides along the dimension.
kernel void scatter(global D* self, global const CAT2(PTR_, KI)* index, global const D* src, global int* fault, const Meta m) {
  const long self_step = STEP(28), index_step = STEP(40), src_step = STEP(52);
  const int dense = self_step == 1 && src_step == 1, long_rows = m.v[11] == 1 && m.v[3] >= 16;
  EACH_RUN {
    RUN
    run = min(run, long_rows ? 1L : 256L);
    const long to = m.v[5] + offsetOf(&m, e, 28);
    const long at = m.v[6] + offsetOf(&m, e, 40), from = m.v[7] + offsetOf(&m, e, 52);
    for (long k = 0; k < m.v[3] && run == 1; ++k) {
      const long i = IX(index, at + k * m.v[10]);
      if (i < 0 || i >= m.v[4]) {
        badIndex(fault, i, m.v[4], m.v[15]);
        continue;
      }
      WRITE(to + i * m.v[9], from + k * m.v[11]);
    }
    for (long k = 0; k < m.v[3] && run > 1; ++k) {
      const long read = from + k * m.v[11];
      if (index_step == 0) {   // one index for all of the run
        const long i = IX(index, at + k * m.v[10]), p = to + i * m.v[9];
        if (i < 0 || i >= m.v[4]) {
          badIndex(fault, i, m.v[4], m.v[15]);
        } else if (dense) {
          for (long j = 0; j < run; ++j) WRITE(p + j, read + j);
        } else {
          for (long j = 0; j < run; ++j) WRITE(p + j * self_step, read + j * src_step);
        }
        continue;
      }
      for (long j = 0; j < run; ++j) {
        const long i = IX(index, at + k * m.v[10] + j * index_step);
        if (i < 0 || i >= m.v[4]) {
          badIndex(fault, i, m.v[4], m.v[15]);
          continue;
        }
        WRITE(to + j * self_step + i * m.v[9], read + j * src_step);
      }
    }
  }
}
#endif

#ifdef USE_index
// place[k]: where index tensor k is read.
static long selected(const Meta* m, const long* place, global const CAT2(PTR_, KI)* i0, global const CAT2(PTR_, KI)* i1,
                     global const CAT2(PTR_, KI)* i2, global const CAT2(PTR_, KI)* i3, global int* fault) {
  long at = 0;
  for (int k = 0; k < (int)m->v[12]; ++k) {
    global const CAT2(PTR_, KI)* p = k == 0 ? i0 : k == 1 ? i1 : k == 2 ? i2 : i3;
    const long given = IX(p, place[k]), size = m->v[120 + k];
    const long i = given < 0 ? given + size : given;
    if (i < 0 || i >= size) {
      badIndex(fault, given, size, m->v[15]);
      return LONG_MIN;
    }
    at += i * m->v[116 + k];
  }
  return at;
}
static void places(const Meta* m, long e, long* place) {
  for (int k = 0; k < (int)m->v[12]; ++k) place[k] = m->v[112 + k] + offsetOf(m, e, 64 + 12 * k);
}
#define INDICES global const CAT2(PTR_, KI)*i0, global const CAT2(PTR_, KI)*i1, global const CAT2(PTR_, KI)*i2, global const CAT2(PTR_, KI)*i3

#ifndef COMBINE   // moves bits, whatever the dtype
// 0 = out, 1 = self.
kernel void index_get(global D* out, global const D* self, INDICES, global int* fault, const Meta m) {
  const int count = (int)m.v[12];
  long step[4] = {0, 0, 0, 0}, place[4];
  int fixed = 1;   // the last dimension is not indexed: one row of self is copied
  for (int k = 0; k < count; ++k) {
    step[k] = STEP(64 + 12 * k);
    fixed &= step[k] == 0;
  }
  EACH_RUN {
    RUN
    places(&m, e, place);
    long to = m.v[5] + offsetOf(&m, e, 28), from = m.v[6] + offsetOf(&m, e, 40);
    long s = selected(&m, place, i0, i1, i2, i3, fault);
    for (long j = 0; j < run; ++j, to += STEP(28), from += STEP(40)) {
      if (j > 0 && !fixed) {
        for (int k = 0; k < count; ++k) place[k] += step[k];
        s = selected(&m, place, i0, i1, i2, i3, fault);
      }
      if (s != LONG_MIN) out[to] = self[from + s];
      else { BAD(out, to); }
    }
  }
}
#endif

// 0 = src (the values), 1 = self. The [3] positions of the index space, of the first [13] dimensions, follow each other within
// one work-item, so that repeated indices are summed (or overwritten) in order; e counts the other positions, neighbours
// together: position = k * n + e.
kernel void index_put(global const D* src, global D* self, INDICES, global int* fault, const Meta m) {
  const int count = (int)m.v[12], last_index = (int)m.v[13] - 1;
  const long along = last_index >= 0 ? m.v[16 + last_index] : 1, src_along = last_index >= 0 ? m.v[28 + last_index] : 0;
  const long self_step = STEP(40), src_step = STEP(28);
  const int dense = self_step == 1 && src_step == 1;
  EACH_RUN {
    RUN
    const long at = m.v[6] + offsetOf(&m, e, 40);
    for (long k = 0, left; k < m.v[3]; k += left) {   // offsets are decoded once for all along the last index dimension
      left = min(along, m.v[3] - k);
      long place[4];
      places(&m, k * m.v[0] + e, place);
      long from = m.v[5] + offsetOf(&m, k * m.v[0] + e, 28);
      for (long q = 0; q < left; ++q, from += src_along) {
        const long s = selected(&m, place, i0, i1, i2, i3, fault);
        for (int i = 0; i < count; ++i) place[i] += last_index >= 0 ? m.v[64 + 12 * i + last_index] : 0;
        if (s == LONG_MIN) continue;
        const long p = at + s;
        if (dense) {
          for (long j = 0; j < run; ++j) WRITE(p + j, from + j);
        } else {
          for (long j = 0; j < run; ++j) WRITE(p + j * self_step, from + j * src_step);
        }
      }
    }
  }
}
#endif

#ifdef USE_embedding_backward
// One work-item for some columns; rows in order. [13] padding row, [14] 1 = divide by the index's frequency.
// 0 = grad_weight, 1 = grad [rows, columns] packed, 2 = indices [rows] packed.
kernel void embedding_backward(global D* weight, global const D* grad, global const CAT2(PTR_, KI)* index, global int* fault, const Meta m) {
  const long first = (long)get_global_id(0) * m.v[1], last = min(first + m.v[1], m.v[0]);
  if (first >= last) return;
  for (long r = 0; r < m.v[3]; ++r) {
    const long i = IX(index, m.v[7] + r);
    if (i == m.v[13]) continue;
    if (i < 0 || i >= m.v[4]) {
      badIndex(fault, i, m.v[4], m.v[15]);
      continue;
    }
    S scale = (S)1;
    if (m.v[14]) {
      long count = 0;
      for (long q = 0; q < m.v[3]; ++q) count += IX(index, m.v[7] + q) == i;
      scale = (S)1 / (S)count;
    }
    const long p = m.v[5] + i * m.v[9], from = m.v[6] + r * m.v[0];
    if (m.v[10] == 1) {
      for (long e = first; e < last; ++e) ST(CONV1(LD(weight, p + e)) + scale * CONV1(LD(grad, from + e)), weight, p + e);
    } else {
      for (long e = first; e < last; ++e) ST(CONV1(LD(weight, p + e * m.v[10])) + scale * CONV1(LD(grad, from + e)), weight, p + e * m.v[10]);
    }
  }
}
#endif

#ifdef USE_triangle
// Columns are the last dimension, rows the one before. [13] diagonal, [14] 1 = upper. 0 = out, 1 = in.
kernel void triangle(global D* out, global const D* in, const Meta m) {
  EACH_RUN {
    RUN
    const long j = e % inner, i = e / inner % m.v[14 + m.v[2]];
    long to = m.v[5] + offsetOf(&m, e, 28), from = m.v[6] + offsetOf(&m, e, 40);
    for (long k = j; k < j + run; ++k, to += STEP(28), from += STEP(40)) {
      const int keep = m.v[14] ? k - i >= m.v[13] : k - i <= m.v[13];
      out[to] = keep ? in[from] : (D)0;
    }
  }
}
#endif

#ifdef USE_nonzero
// 0 = in, `place` = for each element, row by row, how many up to it are not zero; out = [count, ndim] with strides [9], [10].
kernel void nonzero(global const D* in, global const long* place, global long* out, const Meta m) {
  EACH {
    if (CONV1(LD(in, m.v[5] + offsetOf(&m, e, 28))) == (S)0) continue;
    const long row = m.v[7] + (place[m.v[6] + e] - 1) * m.v[9];
    long left = e;
    for (int d = (int)m.v[2] - 1; d >= 0; --d) {
      out[row + d * m.v[10]] = left % m.v[16 + d];
      left /= m.v[16 + d];
    }
  }
}
#endif

#ifdef USE_running
// Running extremum with the place where it stands: NaN beats everything, later equals win. 0 = values, 1 = in, 2 = indices.
// BEATS(x, best)
kernel void running(global D* values, global const D* in, global long* indices, const Meta m) {
  EACH {
    const long to = m.v[5] + offsetOf(&m, e, 28), from = m.v[6] + offsetOf(&m, e, 40), place = m.v[7] + offsetOf(&m, e, 52);
    S best = CONV1(LD(in, from));
    long where = 0;
    for (long k = 0; k < m.v[3]; ++k) {
      const S x = CONV1(LD(in, from + k * m.v[10]));
      if (x != x || (best == best && BEATS(x, best))) {
        best = x;
        where = k;
      }
      ST(best, values, to + k * m.v[9]);
      indices[place + k * m.v[11]] = where;
    }
  }
}
#endif

#ifdef USE_scan
// 0 = out, 1 = in. A row may be cut into [13] pieces of [14] elements, each with a work-item of its own: then `scan` scans
// the pieces, `scan_carry` adds up (or multiplies) what lies before each, and `scan_add` brings it in. Sums carry their
// rounding error along (Neumaier), so that float32 keeps the accuracy of PyTorch's float64 accumulator on devices without it.
#define PIECE                                                                     \
  const long row = e / m.v[13], piece = e % m.v[13];                              \
  const long count = min(m.v[14], m.v[3] - piece * m.v[14]);                      \
  const long to = m.v[5] + offsetOf(&m, row, 28) + piece * m.v[14] * m.v[9];
#ifdef PRODUCT
#define JOIN(a, b) ((a) * (b))
#define NEUTRAL ((S)1)
#else
#define JOIN(a, b) ((a) + (b))
#define NEUTRAL ((S)0)
#endif

kernel void scan(global D* out, global const D* in, const Meta m) {
  EACH {
    PIECE
    const long from = m.v[6] + offsetOf(&m, row, 40) + piece * m.v[14] * m.v[10];
#if defined(LOGARITHMS)
    S acc = -INFINITY;
    for (long k = 0; k < count; ++k) {
      const S x = CONV1(LD(in, from + k * m.v[10]));
      const S low = x != x ? x : fmin(x, acc), high = x != x ? x : fmax(x, acc);
      // Two equal infinities have no difference.
      acc = acc != acc ? acc : (low != high || isfinite(low)) ? high + log1p(exp(low - high)) : x;
      ST(acc, out, to + k * m.v[9]);
    }
#elif defined(FLOATING) && !defined(PRODUCT)
    S acc = (S)0, lost = (S)0;
    for (long k = 0; k < count; ++k) {
      const S x = CONV1(LD(in, from + k * m.v[10])), t = acc + x;
      if (isfinite(t)) lost += fabs(acc) >= fabs(x) ? (acc - t) + x : (x - t) + acc;
      acc = t;
      ST(acc + lost, out, to + k * m.v[9]);
    }
#else
    S acc = NEUTRAL;
    for (long k = 0; k < count; ++k) {
      acc = JOIN(acc, CONV1(LD(in, from + k * m.v[10])));
      ST(acc, out, to + k * m.v[9]);
    }
#endif
  }
}

// One work-item a row: carry[row * pieces + piece] = everything before the piece.
kernel void scan_carry(global const D* out, global S* carry, const Meta m) {
  EACH {
    S acc = NEUTRAL;
    const long to = m.v[5] + offsetOf(&m, e, 28);
    for (long piece = 0; piece < m.v[13]; ++piece) {
      carry[m.v[8] + e * m.v[13] + piece] = acc;
      const long last = min((piece + 1) * m.v[14], m.v[3]) - 1;
      acc = JOIN(acc, CONV1(LD(out, to + last * m.v[9])));
    }
  }
}

kernel void scan_add(global D* out, global const S* carry, const Meta m) {
  EACH {
    PIECE
    const S before_ = carry[m.v[8] + e];
    if (piece > 0)
      for (long k = 0; k < count; ++k) {
        const long p = to + k * m.v[9];
        ST(JOIN(CONV1(LD(out, p)), before_), out, p);
      }
  }
}
#endif

#ifdef USE_topk
static int before(S a, S b, int descending) {
#ifdef FLOATING
  return descending ? (a > b) | ((a != a) & (b == b)) : (a < b) | ((b != b) & (a == a));
#else
  return descending ? a > b : a < b;
#endif
}
// The first [13] of a row's order, equal values in the order of their positions, as a stable sort would have them: each of
// [12] pieces of a row keeps its own in a heap with the last of them on top, then one work-item a row joins the heaps and
// sorts. `spare` holds the heaps: positions in the row.
#define BLOCK 64
#define VALUE(p) CONV1(LD(in, from + (p) * m->v[10]))
// Whether the value at p stands behind the one at q.
static int behind(S a, long p, S b, long q, int descending) {
  return before(b, a, descending) || (!before(a, b, descending) && p > q);
}
// Puts p where it belongs below place i of a heap of n.
static void sink(global long* heap, long n, long i, long p, global const D* in, long from, const Meta* m) {
  const int descending = (int)m->v[14];
  const S x = VALUE(p);
  for (long child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && behind(VALUE(heap[child + 1]), heap[child + 1], VALUE(heap[child]), heap[child], descending)) ++child;
    if (!behind(VALUE(heap[child]), heap[child], x, p, descending)) break;
    heap[i] = heap[child];
  }
  heap[i] = p;
}

kernel void topk_pieces(global const D* in, global long* spare, const Meta meta) {
  const Meta* m = &meta;
  const long first = (long)get_global_id(0) * m->v[1], last = min(first + m->v[1], m->v[0]);
  const int descending = (int)m->v[14];
  for (long e = first; e < last; ++e) {
    const long row = e / m->v[12], piece = e % m->v[12], k = m->v[13];
    const long start = piece * m->v[3] / m->v[12], end = (piece + 1) * m->v[3] / m->v[12];
    const long from = m->v[6] + offsetOf(m, row, 40);
    global long* heap = spare + m->v[8] + e * k;
    for (long i = 0; i < k; ++i) heap[i] = start + i;
    for (long i = k / 2 - 1; i >= 0; --i) sink(heap, k, i, heap[i], in, from, m);
    S worst = VALUE(heap[0]);
    // Positions only grow: an equal value stands behind those that are in. Most values are behind: they are looked at in blocks.
    for (long p = start + k; p < end;) {
      int any = 0;
      if (m->v[10] == 1 && p + BLOCK <= end) {
        global const D* block = in + from + p;
        if (descending)
          for (int j = 0; j < BLOCK; ++j) any |= before(CONV1(LD(block, j)), worst, 1);
        else
          for (int j = 0; j < BLOCK; ++j) any |= before(CONV1(LD(block, j)), worst, 0);
        if (!any) {
          p += BLOCK;
          continue;
        }
      }
      for (const long stop = min(p + BLOCK, end); p < stop; ++p)
        if (before(VALUE(p), worst, descending)) {
          sink(heap, k, 0, p, in, from, m);
          worst = VALUE(heap[0]);
        }
    }
  }
}

kernel void topk_rows(global D* values, global const D* in, global long* indices, global long* spare, const Meta meta) {
  const Meta* m = &meta;
  const long first = (long)get_global_id(0) * m->v[1], last = min(first + m->v[1], m->v[0]);
  const int descending = (int)m->v[14];
  for (long e = first; e < last; ++e) {
    const long k = m->v[13], from = m->v[6] + offsetOf(m, e, 40);
    global long* heap = spare + m->v[8] + e * m->v[12] * k;
    for (long i = k; i < m->v[12] * k; ++i)
      if (behind(VALUE(heap[0]), heap[0], VALUE(heap[i]), heap[i], descending)) sink(heap, k, 0, heap[i], in, from, m);
    const long to = m->v[5] + offsetOf(m, e, 28), place = m->v[7] + offsetOf(m, e, 52);
    for (long i = k - 1; i >= 0; --i) {      // the last of those that are left is on top
      const long p = heap[0];
      ST(VALUE(p), values, to + i * m->v[9]);
      indices[place + i * m->v[11]] = p;
      if (i > 0) sink(heap, i, 0, heap[i], in, from, m);
    }
  }
}
#endif

// Pooling in up to three dimensions with fixed or adaptive windows; the common 2-d pools have faster kernels in pool.cl.
// gemm_tile.cl comes first in the text. Pool3Params is mirrored in ops/pool3.cpp: eight-byte members only. One text serves
// both shapes: a work-item takes `each` cells in a row (many on a CPU, one on a GPU).
typedef struct {
  long off, sn, sc, s[3], z[3];
} Volume;

typedef struct {
  Volume x, y, i;                              // input side, output side, indices (sizes of y)
  long kernel_size[3], stride[3], pad[3], dil[3];
  long adaptive, include_pad, divisor;         // divisor 0: the window's size
  long n, c, dt, total, each;
} Pool3Params;

inline long placeOf(const Volume* v, long n, long c, const long* at) {
  return v->off + n * v->sn + c * v->sc + at[0] * v->s[0] + at[1] * v->s[1] + at[2] * v->s[2];
}

// Input range [from, to) of output o in dimension d (taps are `step` apart), and its size for an average's divisor.
inline long windowOf(const Pool3Params* p, int d, long o, long* from, long* to, long* step) {
  const long in = p->x.z[d], outs = p->y.z[d];
  *step = 1;
  if (p->adaptive) {
    *from = o * in / outs;
    *to = ((o + 1) * in + outs - 1) / outs;
    return *to - *from;
  }
  *step = p->dil[d];
  const long first = o * p->stride[d] - p->pad[d];
  const long end = first + (p->kernel_size[d] - 1) * p->dil[d] + 1;
  *from = first < 0 ? first + (-first + p->dil[d] - 1) / p->dil[d] * p->dil[d] : first;
  *to = min(end, in);
  return p->include_pad ? min(end, in + p->pad[d]) - first : *to - *from;
}

// Outputs [first, last] whose window may hold input position v in dimension d.
inline void outputsOf(const Pool3Params* p, int d, long v, long* first, long* last) {
  const long in = p->x.z[d], outs = p->y.z[d];
  if (p->adaptive) {
    *first = v * outs / in;
    *last = min(outs - 1, ((v + 1) * outs + in - 1) / in - 1);
    return;
  }
  const long low = v + p->pad[d] - (p->kernel_size[d] - 1) * p->dil[d];
  *first = low <= 0 ? 0 : (low + p->stride[d] - 1) / p->stride[d];
  *last = min(outs - 1, (v + p->pad[d]) / p->stride[d]);
}

#define EACH_CELL(SIDE)                                                                 \
  const long t_first = (long)get_global_id(0) * p.each, t_end = min(p.total, t_first + p.each); \
  for (long t = t_first; t < t_end; ++t) {                                              \
    long left = t, at[3];                                                               \
    for (int d = 2; d >= 0; --d) at[d] = left % p.SIDE.z[d], left /= p.SIDE.z[d];       \
    const long n = left / p.c, c = left % p.c;

kernel void pool3_max(global const void* x, global void* y, global long* index, const Pool3Params p) {
  EACH_CELL(y)
    long from[3], to[3], step[3], cell[3];
    for (int d = 0; d < 3; ++d) windowOf(&p, d, at[d], from + d, to + d, step + d);
    real best = -INFINITY;
    long where = (from[0] * p.x.z[1] + from[1]) * p.x.z[2] + from[2];
    for (cell[0] = from[0]; cell[0] < to[0]; cell[0] += step[0])
      for (cell[1] = from[1]; cell[1] < to[1]; cell[1] += step[1])
        for (cell[2] = from[2]; cell[2] < to[2]; cell[2] += step[2]) {
          const real v = loadElem(x, placeOf(&p.x, n, c, cell), p.dt);
          if (v > best || isnan(v)) {
            best = v;
            where = (cell[0] * p.x.z[1] + cell[1]) * p.x.z[2] + cell[2];
          }
        }
    storeElem(y, placeOf(&p.y, n, c, at), best, p.dt);
    index[placeOf(&p.i, n, c, at)] = where;
  }
}

kernel void pool3_max_grad(global const void* g, global const long* index, global void* x, const Pool3Params p) {
  EACH_CELL(x)
    const long me = (at[0] * p.x.z[1] + at[1]) * p.x.z[2] + at[2];
    long first[3], last[3], o[3];
    for (int d = 0; d < 3; ++d) outputsOf(&p, d, at[d], first + d, last + d);
    real sum = 0;
    for (o[0] = first[0]; o[0] <= last[0]; ++o[0])
      for (o[1] = first[1]; o[1] <= last[1]; ++o[1])
        for (o[2] = first[2]; o[2] <= last[2]; ++o[2])
          if (index[placeOf(&p.i, n, c, o)] == me) sum += loadElem(g, placeOf(&p.y, n, c, o), p.dt);
    storeElem(x, placeOf(&p.x, n, c, at), sum, p.dt);
  }
}

kernel void pool3_avg(global const void* x, global void* y, const Pool3Params p) {
  EACH_CELL(y)
    long from[3], to[3], step[3], cell[3], size = 1;
    for (int d = 0; d < 3; ++d) size *= windowOf(&p, d, at[d], from + d, to + d, step + d);
    real sum = 0;
    for (cell[0] = from[0]; cell[0] < to[0]; ++cell[0])
      for (cell[1] = from[1]; cell[1] < to[1]; ++cell[1]) {
        real run = 0;
        for (cell[2] = from[2]; cell[2] < to[2]; ++cell[2]) run += loadElem(x, placeOf(&p.x, n, c, cell), p.dt);
        sum += run;
      }
    storeElem(y, placeOf(&p.y, n, c, at), sum / (real)(p.divisor ? p.divisor : size), p.dt);
  }
}

kernel void pool3_avg_grad(global const void* g, global void* x, const Pool3Params p) {
  EACH_CELL(x)
    long first[3], last[3], o[3];
    for (int d = 0; d < 3; ++d) outputsOf(&p, d, at[d], first + d, last + d);
    real sum = 0;
    for (o[0] = first[0]; o[0] <= last[0]; ++o[0])
      for (o[1] = first[1]; o[1] <= last[1]; ++o[1])
        for (o[2] = first[2]; o[2] <= last[2]; ++o[2]) {
          long from, to, step, size = 1;
          for (int d = 0; d < 3; ++d) size *= windowOf(&p, d, o[d], &from, &to, &step);
          sum += loadElem(g, placeOf(&p.y, n, c, o), p.dt) / (real)(p.divisor ? p.divisor : size);
        }
    storeElem(x, placeOf(&p.x, n, c, at), sum, p.dt);
  }
}

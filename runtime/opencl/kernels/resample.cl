// Interpolation and padding: every output position reads one or two input positions in each of up to three dimensions.
// A small kernel fills a table of them first; gradients use the same table backwards, so nothing is added by two
// work-items. gemm_tile.cl comes first in the text; the structs are mirrored in ops/resample.cpp: eight-byte members only.
#pragma OPENCL FP_CONTRACT OFF

typedef struct {
  long off, sn, sc, s[3], z[3];   // elements; the last three dimensions, sizes z
} Volume;

typedef struct {
  long mode;                      // 0 nearest, 1 nearest-exact, 2 linear, 3 reflection, 4 replication
  long align, pad, in, out;       // one dimension: pad = cells in front of it
  long first;                     // place of its table: [out] x {i0, i1, weight of i1}, then [in] x {lowest, highest output}
  number scale, given;            // input cells an output cell; given: the caller's own factor was used
} Axis;

typedef struct {
  Volume x, y;                    // input side, output side
  Axis axis[3];
  long n, c, dt, total;
} ResampleParams;

// Which input positions output position o reads, as PyTorch computes it.
inline void tapsOf(const Axis* a, long o, long* i0, long* i1, real* w) {
  *w = 0;
  long i = o;
  if (a->mode >= 3) {
    i = o - a->pad;
    if (a->mode == 4) {
      i = clamp(i, 0L, a->in - 1);
    } else {
      if (i < 0) i = -i;
      if (i >= a->in) i = 2 * (a->in - 1) - i;
    }
  } else if (a->mode == 2) {
    if (a->in != a->out || a->given) {
      const real scale = realOf(a->scale);
      const real at = a->align ? scale * (real)o : fmax((real)0, scale * ((real)o + (real)0.5) - (real)0.5);
      i = min((long)at, a->in - 1);
      *w = clamp(at - (real)i, (real)0, (real)1);
    }
  } else if (a->mode == 0) {
    if (a->out == 2 * a->in) i = o >> 1;
    else if (a->in != a->out) i = min((long)floor((real)o * realOf(a->scale)), a->in - 1);
  } else {
    i = min((long)floor(((real)o + (real)0.5) * realOf(a->scale)), a->in - 1);
  }
  *i0 = i;
  *i1 = i + (i < a->in - 1 ? 1 : 0);
}

// One work-item an entry of one dimension: outputs first, then inputs.
kernel void resample_table(global long* table, const ResampleParams p) {
  const Axis a = p.axis[get_global_id(1)];
  const long t = get_global_id(0);
  long i0, i1;
  real w;
  if (t < a.out) {
    tapsOf(&a, t, &i0, &i1, &w);
    global long* entry = table + a.first + 3 * t;
    entry[0] = i0, entry[1] = i1;
#ifdef REAL_DOUBLE
    entry[2] = as_long(w);
#else
    entry[2] = as_int(w);
#endif
  }
  if (t < a.in) {
    long low = a.out, high = -1;
    for (long o = 0; o < a.out; ++o) {
      tapsOf(&a, o, &i0, &i1, &w);
      if (i0 == t || (i1 == t && a.mode == 2)) low = min(low, o), high = o;
    }
    global long* entry = table + a.first + 3 * a.out + 2 * t;
    entry[0] = low, entry[1] = high;
  }
}

inline long placeOf(const Volume* v, long n, long c, long a, long b, long d) {
  return v->off + n * v->sn + c * v->sc + a * v->s[0] + b * v->s[1] + d * v->s[2];
}

inline real resampled(global const void* x, global const long* table, const ResampleParams* p, long n, long c, long o0, long o1, long o2) {
  global const long *t0 = table + p->axis[0].first + 3 * o0, *t1 = table + p->axis[1].first + 3 * o1,
                    *t2 = table + p->axis[2].first + 3 * o2;
  const real w0 = realOf(t0[2]), w1 = realOf(t1[2]), w2 = realOf(t2[2]);
  real sum = 0;
  for (int k = 0; k < (w0 != 0 ? 2 : 1); ++k) {
    real plane = 0;
    for (int j = 0; j < (w1 != 0 ? 2 : 1); ++j) {
      real row = loadElem(x, placeOf(&p->x, n, c, t0[k], t1[j], t2[0]), p->dt);
      if (w2 != 0) row = row * (1 - w2) + loadElem(x, placeOf(&p->x, n, c, t0[k], t1[j], t2[1]), p->dt) * w2;
      plane += w1 != 0 ? row * (j ? w1 : 1 - w1) : row;
    }
    sum += w0 != 0 ? plane * (k ? w0 : 1 - w0) : plane;
  }
  return sum;
}

// Weight with which output o reads input i; 0 if it does not.
inline real shareOf(global const long* entry, long i) {
  const real w = realOf(entry[2]);
  return entry[0] == i ? (entry[1] == i && w != 0 ? (real)1 : 1 - w) : entry[1] == i ? w : (real)0;
}

inline real gathered(global const void* g, global const long* table, const ResampleParams* p, long n, long c, long i0, long i1, long i2) {
  global const long *t0 = table + p->axis[0].first, *t1 = table + p->axis[1].first, *t2 = table + p->axis[2].first;
  global const long *r0 = t0 + 3 * p->axis[0].out + 2 * i0, *r1 = t1 + 3 * p->axis[1].out + 2 * i1,
                    *r2 = t2 + 3 * p->axis[2].out + 2 * i2;
  real sum = 0;
  for (long a = r0[0]; a <= r0[1]; ++a) {
    const real w0 = shareOf(t0 + 3 * a, i0);
    if (w0 == 0) continue;
    for (long b = r1[0]; b <= r1[1]; ++b) {
      const real w1 = shareOf(t1 + 3 * b, i1) * w0;
      if (w1 == 0) continue;
      for (long d = r2[0]; d <= r2[1]; ++d) {
        const real w2 = shareOf(t2 + 3 * d, i2);
        if (w2 != 0) sum += loadElem(g, placeOf(&p->y, n, c, a, b, d), p->dt) * (w1 * w2);
      }
    }
  }
  return sum;
}

// total: rows of the side that is written (wide), or its elements (tiled).
#define EACH_ROW(SIDE)                                                                              \
  const long worker = get_global_id(0), workers = get_global_size(0);                               \
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {            \
    const long b = t % p.SIDE.z[1], a = t / p.SIDE.z[1] % p.SIDE.z[0], plane = t / p.SIDE.z[1] / p.SIDE.z[0]; \
    const long n = plane / p.c, c = plane % p.c;                                                    \
    for (long d = 0; d < p.SIDE.z[2]; ++d)
#define EACH_CELL(SIDE)                                                                             \
  const long t = get_global_id(0);                                                                  \
  if (t >= p.total) return;                                                                         \
  const long d = t % p.SIDE.z[2], b = t / p.SIDE.z[2] % p.SIDE.z[1], a = t / p.SIDE.z[2] / p.SIDE.z[1] % p.SIDE.z[0]; \
  const long plane = t / p.SIDE.z[2] / p.SIDE.z[1] / p.SIDE.z[0], n = plane / p.c, c = plane % p.c;

kernel void resample_wide(global const void* x, global void* y, global const long* table, const ResampleParams p) {
  EACH_ROW(y) storeElem(y, placeOf(&p.y, n, c, a, b, d), resampled(x, table, &p, n, c, a, b, d), p.dt);
  }
}
kernel void resample_tiled(global const void* x, global void* y, global const long* table, const ResampleParams p) {
  EACH_CELL(y)
  storeElem(y, placeOf(&p.y, n, c, a, b, d), resampled(x, table, &p, n, c, a, b, d), p.dt);
}
kernel void resample_grad_wide(global const void* g, global void* x, global const long* table, const ResampleParams p) {
  EACH_ROW(x) storeElem(x, placeOf(&p.x, n, c, a, b, d), gathered(g, table, &p, n, c, a, b, d), p.dt);
  }
}
kernel void resample_grad_tiled(global const void* g, global void* x, global const long* table, const ResampleParams p) {
  EACH_CELL(x)
  storeElem(x, placeOf(&p.x, n, c, a, b, d), gathered(g, table, &p, n, c, a, b, d), p.dt);
}

// Windows laid out as columns (unfold), and columns summed into an image (fold). Image [n][c][h][w], columns
// [n][c * kh * kw][oh * ow].
typedef struct {
  long x_off, xn, xc, xh, xw, y_off, yn, yc, yl;
  long n, c, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, dt, total, each;
} UnfoldParams;

kernel void unfold_columns(global const void* x, global void* y, const UnfoldParams p) {
  const long first = (long)get_global_id(0) * p.each, end = min(p.total, first + p.each);
  for (long t = first; t < end; ++t) {
    const long cells = p.oh * p.ow, l = t % cells, row = t / cells % (p.c * p.kh * p.kw), n = t / cells / (p.c * p.kh * p.kw);
    const long s = row % p.kw, r = row / p.kw % p.kh, c = row / p.kw / p.kh;
    const long h = l / p.ow * p.stride_h - p.pad_h + r * p.dil_h, w = l % p.ow * p.stride_w - p.pad_w + s * p.dil_w;
    const bool inside = h >= 0 && h < p.h && w >= 0 && w < p.w;
    const real v = inside ? loadElem(x, p.x_off + n * p.xn + c * p.xc + h * p.xh + w * p.xw, p.dt) : (real)0;
    storeElem(y, p.y_off + n * p.yn + row * p.yc + l * p.yl, v, p.dt);
  }
}

kernel void fold_columns(global const void* y, global void* x, const UnfoldParams p) {
  const long first = (long)get_global_id(0) * p.each, end = min(p.total, first + p.each);
  for (long t = first; t < end; ++t) {
    const long w = t % p.w, h = t / p.w % p.h, c = t / p.w / p.h % p.c, n = t / p.w / p.h / p.c;
    real sum = 0;
    for (long r = 0; r < p.kh; ++r) {
      const long top = h + p.pad_h - r * p.dil_h;
      if (top < 0 || top % p.stride_h || top / p.stride_h >= p.oh) continue;
      for (long s = 0; s < p.kw; ++s) {
        const long left = w + p.pad_w - s * p.dil_w;
        if (left < 0 || left % p.stride_w || left / p.stride_w >= p.ow) continue;
        const long row = (c * p.kh + r) * p.kw + s, l = top / p.stride_h * p.ow + left / p.stride_w;
        sum += loadElem(y, p.y_off + n * p.yn + row * p.yc + l * p.yl, p.dt);
      }
    }
    storeElem(x, p.x_off + n * p.xn + c * p.xc + h * p.xh + w * p.xw, sum, p.dt);
  }
}

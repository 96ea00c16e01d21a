// Max and average pooling. gemm_tile.cl comes first in the text (element types). PoolParams is mirrored in ops/pool.cpp:
// eight-byte members only. The *_wide kernels give a work-item a run of rows (or planes), the *_tiled ones one element.
typedef struct {
  long off, sn, sc, sh, sw, h, w;
} Plane;

typedef struct {
  Plane x, y, i;                 // input side, output side, indices (same sizes as y)
  long n, c;
  long kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w;
  long include_pad, divisor;     // divisor 0: the window's size
  long adaptive;
  long dt, total;                // total: elements (tiled), rows or planes (wide)
} PoolParams;

inline long at(const Plane* p, long n, long c, long h, long w) {
  return p->off + n * p->sn + c * p->sc + h * p->sh + w * p->sw;
}

inline long ceilDiv(long a, long b) { return a <= 0 ? -(-a / b) : (a + b - 1) / b; }

inline void maxElement(global const void* x, global void* y, global long* index, const PoolParams* p, long n, long c,
                       long oh, long ow) {
  const long top = oh * p->stride_h - p->pad_h, left = ow * p->stride_w - p->pad_w;
  const long r0 = top < 0 ? ceilDiv(-top, p->dil_h) : 0, s0 = left < 0 ? ceilDiv(-left, p->dil_w) : 0;
  const long r1 = min(p->kh, ceilDiv(p->x.h - top, p->dil_h)), s1 = min(p->kw, ceilDiv(p->x.w - left, p->dil_w));
  real best = -INFINITY;
  long where = (top + r0 * p->dil_h) * p->x.w + left + s0 * p->dil_w;
  for (long r = r0; r < r1; ++r)
    for (long s = s0; s < s1; ++s) {
      const long h = top + r * p->dil_h, w = left + s * p->dil_w;
      const real v = loadElem(x, at(&p->x, n, c, h, w), p->dt);
      if (v > best || isnan(v)) {
        best = v;
        where = h * p->x.w + w;
      }
    }
  storeElem(y, at(&p->y, n, c, oh, ow), best, p->dt);
  index[at(&p->i, n, c, oh, ow)] = where;
}

#ifndef REAL_DOUBLE
// The commonest pool, 2 x 2 with stride 2 and no padding, four outputs at a time; returns how many it made.
inline long maxRow2x2(global const real* x, global real* y, global long* index, const PoolParams* p, long n, long c, long oh) {
  global const real* top = x + at(&p->x, n, c, 2 * oh, 0);
  global const real* low = top + p->x.sh;
  global real* out = y + at(&p->y, n, c, oh, 0);
  global long* idx = index + at(&p->i, n, c, oh, 0);
  long ow = 0;
  for (; ow + 4 <= p->y.w; ow += 4) {
    const float8 a = vload8(0, top + 2 * ow), b = vload8(0, low + 2 * ow);
    float4 best = a.even;
    int4 where = (int4)(0, 2, 4, 6);
    const int4 first = where;
    int4 take = (a.odd > best) | isnan(a.odd);
    best = select(best, a.odd, take);
    where = select(where, first + 1, take);
    take = (b.even > best) | isnan(b.even);
    best = select(best, b.even, take);
    where = select(where, first + (int)p->x.w, take);
    take = (b.odd > best) | isnan(b.odd);
    best = select(best, b.odd, take);
    where = select(where, first + (int)p->x.w + 1, take);
    vstore4(best, 0, out + ow);
    vstore4(convert_long4(where) + (2 * oh * p->x.w + 2 * ow), 0, idx + ow);
  }
  return ow;
}
#endif

kernel void pool_max_wide(global const void* x, global void* y, global long* index, const PoolParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  bool fast = false;
#ifndef REAL_DOUBLE
  fast = p.dt == DT_REAL && p.kh == 2 && p.kw == 2 && p.stride_h == 2 && p.stride_w == 2 && p.pad_h == 0 && p.pad_w == 0 &&
         p.dil_h == 1 && p.dil_w == 1 && p.x.sw == 1 && p.y.sw == 1 && p.i.sw == 1 && 2 * p.y.h <= p.x.h && 2 * p.y.w <= p.x.w;
#endif
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {
    const long oh = t % p.y.h, plane = t / p.y.h, n = plane / p.c, c = plane % p.c;
    long ow = 0;
#ifndef REAL_DOUBLE
    if (fast) ow = maxRow2x2((global const real*)x, (global real*)y, index, &p, n, c, oh);
#endif
    for (; ow < p.y.w; ++ow) maxElement(x, y, index, &p, n, c, oh, ow);
  }
}

kernel void pool_max_tiled(global const void* x, global void* y, global long* index, const PoolParams p) {
  const long t = get_global_id(0);
  if (t >= p.total) return;
  const long ow = t % p.y.w, oh = t / p.y.w % p.y.h, plane = t / p.y.w / p.y.h;
  maxElement(x, y, index, &p, plane / p.c, plane % p.c, oh, ow);
}

// Output rows (or columns) [first, last] whose window may hold input position v.
inline long firstWindow(long v, long pad, long taps, long dil, long stride) {
  return max(0L, ceilDiv(v + pad - (taps - 1) * dil, stride));
}
inline long lastWindow(long v, long pad, long stride, long outputs) { return min(outputs - 1, (v + pad) / stride); }

// Gradient of one input element: the sum over the windows that chose it. Sums in real whatever the storage.
inline void maxGradElement(global const void* g, global const long* index, global void* gx, const PoolParams* p, long n,
                           long c, long h, long w) {
  const long me = h * p->x.w + w;
  real sum = 0;
  const long h1 = lastWindow(h, p->pad_h, p->stride_h, p->y.h), w1 = lastWindow(w, p->pad_w, p->stride_w, p->y.w);
  for (long oh = firstWindow(h, p->pad_h, p->kh, p->dil_h, p->stride_h); oh <= h1; ++oh)
    for (long ow = firstWindow(w, p->pad_w, p->kw, p->dil_w, p->stride_w); ow <= w1; ++ow)
      if (index[at(&p->i, n, c, oh, ow)] == me) sum += loadElem(g, at(&p->y, n, c, oh, ow), p->dt);
  storeElem(gx, at(&p->x, n, c, h, w), sum, p->dt);
}

kernel void pool_max_grad_rows(global const void* g, global const long* index, global void* gx, const PoolParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {
    const long h = t % p.x.h, plane = t / p.x.h;
    for (long w = 0; w < p.x.w; ++w) maxGradElement(g, index, gx, &p, plane / p.c, plane % p.c, h, w);
  }
}

inline void clearPlane(global real* out, const Plane* x, long n, long c) {
  for (long h = 0; h < x->h; ++h) {
    global real* row = out + at(x, n, c, h, 0);
    if (x->sw == 1)
      for (long w = 0; w < x->w; ++w) row[w] = 0;
    else
      for (long w = 0; w < x->w; ++w) row[w * x->sw] = 0;
  }
}

// Whole planes: zero, then add. Plain storage only.
kernel void pool_max_grad_wide(global const void* g, global const long* index, global void* gx, const PoolParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  global real* out = (global real*)gx;
  global const real* in = (global const real*)g;
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {
    const long n = t / p.c, c = t % p.c;
    clearPlane(out, &p.x, n, c);
    const long base = at(&p.x, n, c, 0, 0);
    const bool flat = p.x.sw == 1 && p.x.sh == p.x.w;
    for (long oh = 0; oh < p.y.h; ++oh)
      for (long ow = 0; ow < p.y.w; ++ow) {
        const long where = index[at(&p.i, n, c, oh, ow)];
        const long to = flat ? where : where / p.x.w * p.x.sh + where % p.x.w * p.x.sw;
        out[base + to] += in[at(&p.y, n, c, oh, ow)];
      }
  }
}

kernel void pool_max_grad_tiled(global const void* g, global const long* index, global void* gx, const PoolParams p) {
  const long t = get_global_id(0);
  if (t >= p.total) return;
  const long w = t % p.x.w, h = t / p.x.w % p.x.h, plane = t / p.x.w / p.x.h;
  maxGradElement(g, index, gx, &p, plane / p.c, plane % p.c, h, w);
}

// One direction of an average window: input range [*from, *to) and its size for the divisor.
inline long window(const PoolParams* p, bool rows, long o, long* from, long* to) {
  const long in = rows ? p->x.h : p->x.w, outs = rows ? p->y.h : p->y.w;
  if (p->adaptive) {
    *from = o * in / outs;
    *to = ((o + 1) * in + outs - 1) / outs;
    return *to - *from;
  }
  const long pad = rows ? p->pad_h : p->pad_w;
  const long start = o * (rows ? p->stride_h : p->stride_w) - pad;
  const long end = min(start + (rows ? p->kh : p->kw), in + pad);
  *from = max(start, 0L);
  *to = min(end, in);
  return p->include_pad ? end - start : *to - *from;
}

inline void avgElement(global const void* x, global void* y, const PoolParams* p, long n, long c, long oh, long ow) {
  long h0, h1, w0, w1;
  const long size = window(p, true, oh, &h0, &h1) * window(p, false, ow, &w0, &w1);
  real sum = 0;
  if (p->dt == DT_REAL && p->x.sw == 1 && w1 - w0 >= VL) {
    vec lanes = 0;
    for (long h = h0; h < h1; ++h) {
      global const real* row = (global const real*)x + at(&p->x, n, c, h, 0);
      long w = w0;
      for (; w + VL <= w1; w += VL) lanes += VLOAD(row + w);
      for (; w < w1; ++w) sum += row[w];
    }
    real each[VL];
    VSTORE(lanes, each);
    for (int i = 0; i < VL; ++i) sum += each[i];
  } else {
    for (long h = h0; h < h1; ++h) {
      real run = 0;
      for (long w = w0; w < w1; ++w) run += loadElem(x, at(&p->x, n, c, h, w), p->dt);
      sum += run;
    }
  }
  const real divisor = (real)(p->divisor ? p->divisor : size);
  storeElem(y, at(&p->y, n, c, oh, ow), h1 > h0 && w1 > w0 ? sum / divisor : (real)0, p->dt);
}

kernel void pool_avg_wide(global const void* x, global void* y, const PoolParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {
    const long oh = t % p.y.h, plane = t / p.y.h;
    for (long ow = 0; ow < p.y.w; ++ow) avgElement(x, y, &p, plane / p.c, plane % p.c, oh, ow);
  }
}

kernel void pool_avg_tiled(global const void* x, global void* y, const PoolParams p) {
  const long t = get_global_id(0);
  if (t >= p.total) return;
  const long ow = t % p.y.w, oh = t / p.y.w % p.y.h, plane = t / p.y.w / p.y.h;
  avgElement(x, y, &p, plane / p.c, plane % p.c, oh, ow);
}

inline void avgGradElement(global const void* g, global void* gx, const PoolParams* p, long n, long c, long h, long w) {
  long oh0, oh1, ow0, ow1;
  if (p->adaptive) {
    oh0 = h * p->y.h / p->x.h, oh1 = ((h + 1) * p->y.h + p->x.h - 1) / p->x.h - 1;
    ow0 = w * p->y.w / p->x.w, ow1 = ((w + 1) * p->y.w + p->x.w - 1) / p->x.w - 1;
  } else {
    oh0 = firstWindow(h, p->pad_h, p->kh, 1, p->stride_h), oh1 = lastWindow(h, p->pad_h, p->stride_h, p->y.h);
    ow0 = firstWindow(w, p->pad_w, p->kw, 1, p->stride_w), ow1 = lastWindow(w, p->pad_w, p->stride_w, p->y.w);
  }
  real sum = 0;
  for (long oh = oh0; oh <= oh1; ++oh)
    for (long ow = ow0; ow <= ow1; ++ow) {
      long from, to;
      const long size = window(p, true, oh, &from, &to) * window(p, false, ow, &from, &to);
      sum += loadElem(g, at(&p->y, n, c, oh, ow), p->dt) / (real)(p->divisor ? p->divisor : size);
    }
  storeElem(gx, at(&p->x, n, c, h, w), sum, p->dt);
}

kernel void pool_avg_grad_wide(global const void* g, global void* gx, const PoolParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {
    const long h = t % p.x.h, plane = t / p.x.h;
    for (long w = 0; w < p.x.w; ++w) avgGradElement(g, gx, &p, plane / p.c, plane % p.c, h, w);
  }
}

// Whole planes: zero, then add each output's share to its window. Plain storage only.
kernel void pool_avg_grad_planes(global const void* g, global void* gx, const PoolParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  global real* out = (global real*)gx;
  for (long t = p.total * worker / workers; t < p.total * (worker + 1) / workers; ++t) {
    const long n = t / p.c, c = t % p.c;
    clearPlane(out, &p.x, n, c);
    for (long oh = 0; oh < p.y.h; ++oh) {
      long h0, h1;
      const long rows = window(&p, true, oh, &h0, &h1);
      for (long ow = 0; ow < p.y.w; ++ow) {
        long w0, w1;
        const long size = rows * window(&p, false, ow, &w0, &w1);
        const real v = ((global const real*)g)[at(&p.y, n, c, oh, ow)] / (real)(p.divisor ? p.divisor : size);
        for (long h = h0; h < h1; ++h) {
          global real* row = out + at(&p.x, n, c, h, 0);
          for (long w = w0; w < w1; ++w) row[w * p.x.sw] += v;
        }
      }
    }
  }
}

kernel void pool_avg_grad_tiled(global const void* g, global void* gx, const PoolParams p) {
  const long t = get_global_id(0);
  if (t >= p.total) return;
  const long w = t % p.x.w, h = t / p.x.w % p.x.h, plane = t / p.x.w / p.x.h;
  avgGradElement(g, gx, &p, plane / p.c, plane % p.c, h, w);
}

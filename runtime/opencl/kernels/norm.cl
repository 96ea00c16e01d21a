// Batch, layer and group normalisation. gemm_tile.cl comes first in the text (element types).
// One text, two shapes: a unit (a channel, a row, a plane) is worked on by one fat work-item with vectors, or, with
// TILED, by a work-group of 64 whose sums meet in local memory. NormParams is mirrored in ops/norm.cpp.
typedef struct {
  long off, sn, sc, s0, s1;          // [n][c][p0][p1]
} Data;

typedef struct {
  Data x, y, g;                      // input, output or its gradient's target, gradient of the output
  long n, c, p0, p1, groups;         // layer norm: n rows, p1 columns
  long weight_off, weight_dt, has_weight;
  long bias_off, bias_dt, has_bias;
  long mean_off, var_off, stats_dt;  // saved statistics (the second one is 1 / std), or running ones
  long running_mean_off, running_var_off, running_dt, has_running;
  long grad_weight_off, grad_bias_off, has_grad_weight, has_grad_bias;
  long sums_off;                     // scratch: two reals a channel or plane
  long training, dt, units;
  number momentum, eps;
  long rms;                          // root mean square: rows are not centred, and have no mean
} NormParams;

#ifdef TILED
#define LANES 64
#define LANE (long)get_local_id(0)
#define UNITS(u) for (long u = get_group_id(0); u < p.units; u += get_num_groups(0))
#define LOCAL_SUM local real lanes_sum[LANES];
#define SUM(v) laneSum(v, lanes_sum)
inline real laneSum(real v, local real* at) {
  const int lane = get_local_id(0);
  at[lane] = v;
  for (int half_way = LANES / 2; half_way > 0; half_way /= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < half_way) at[lane] += at[lane + half_way];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const real sum = at[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}
#else
#define LANES 1
#define LANE 0L
#define UNITS(u)                                                                             \
  for (long u = p.units * (long)get_global_id(0) / (long)get_global_size(0),                 \
            u##_end = p.units * ((long)get_global_id(0) + 1) / (long)get_global_size(0); u < u##_end; ++u)
#define LOCAL_SUM
#define SUM(v) (v)
#endif

inline real lanesOf(vec v) {
  real each[VL], sum = 0;
  VSTORE(v, each);
  for (int k = 0; k < VL; ++k) sum += each[k];
  return sum;
}

// Runs over a row of `count` elements: BODY_VEC sees i (first of VL elements), BODY_ONE a single i. Whole vectors only
// where the stride is 1.
#define ROW(count, contiguous, BODY_VEC, BODY_ONE)                     \
  {                                                                    \
    const long vectors = (contiguous) ? (count) / VL : 0;              \
    for (long v = LANE; v < vectors; v += LANES) {                     \
      const long i = v * VL;                                           \
      BODY_VEC                                                         \
    }                                                                  \
    for (long i = vectors * VL + LANE; i < (count); i += LANES) { BODY_ONE } \
  }

inline long rowOf(const Data* d, long n, long c, long r) { return d->off + n * d->sn + c * d->sc + r * d->s0; }

// Mean and 1 / sqrt(var + eps) of each channel; running statistics follow.
kernel void bn_stats(global const void* x, global void* mean, global void* invstd, global void* running_mean,
                     global void* running_var, const NormParams p) {
  LOCAL_SUM
  UNITS(c) {
    const real count = (real)(p.n * p.p0 * p.p1);
    vec lanes = 0;
    real rest = 0;
    for (long r = 0; r < p.n * p.p0; ++r) {
      const long at = rowOf(&p.x, r / p.p0, c, r % p.p0);
      ROW(p.p1, p.x.s1 == 1, lanes += loadVec(x, at + i, p.dt);, rest += loadElem(x, at + i * p.x.s1, p.dt);)
    }
    const real m = SUM(lanesOf(lanes) + rest) / count;
    lanes = 0;
    rest = 0;
    for (long r = 0; r < p.n * p.p0; ++r) {
      const long at = rowOf(&p.x, r / p.p0, c, r % p.p0);
      ROW(p.p1, p.x.s1 == 1, const vec d = loadVec(x, at + i, p.dt) - m; lanes += d * d;
          , const real d = loadElem(x, at + i * p.x.s1, p.dt) - m; rest += d * d;)
    }
    const real squares = SUM(lanesOf(lanes) + rest);
    if (LANE == 0) {
      storeElem(mean, p.mean_off + c, m, p.stats_dt);
      storeElem(invstd, p.var_off + c, (real)1 / sqrt(squares / count + realOf(p.eps)), p.stats_dt);
      if (p.has_running) {
        const real take = realOf(p.momentum), keep = 1 - take;
        const real old_mean = loadElem(running_mean, p.running_mean_off + c, p.running_dt);
        const real old_var = loadElem(running_var, p.running_var_off + c, p.running_dt);
        storeElem(running_mean, p.running_mean_off + c, keep * old_mean + take * m, p.running_dt);
        storeElem(running_var, p.running_var_off + c, keep * old_var + take * squares / (count - 1), p.running_dt);
      }
    }
  }
}

// Statistics of unit (n, c): per channel (batch norm) or per group (group norm). In evaluation the second one is a variance.
inline long statOf(const NormParams* p, long n, long c) {
  return p->groups ? n * p->groups + c / (p->c / p->groups) : c;
}
inline real invstdOf(global const void* var, const NormParams* p, long stat) {
  const real v = loadElem(var, p->var_off + stat, p->stats_dt);
  return p->training ? v : (real)1 / sqrt(v + realOf(p->eps));
}

// y = (x - mean) * invstd * weight + bias, plane by plane (batch and group norm).
kernel void norm_apply(global const void* x, global const void* mean, global const void* var, global const void* weight,
                       global const void* bias, global void* y, const NormParams p) {
  UNITS(u) {
    const long n = u / p.c, c = u % p.c, stat = statOf(&p, n, c);
    const real m = loadElem(mean, p.mean_off + stat, p.stats_dt);
    real scale = invstdOf(var, &p, stat);
    if (p.has_weight) scale *= loadElem(weight, p.weight_off + c, p.weight_dt);
    const real shift = p.has_bias ? loadElem(bias, p.bias_off + c, p.bias_dt) : (real)0;
    for (long r = 0; r < p.p0; ++r) {
      const long from = rowOf(&p.x, n, c, r), to = rowOf(&p.y, n, c, r);
      ROW(p.p1, p.x.s1 == 1 && p.y.s1 == 1, storeVec(y, to + i, (loadVec(x, from + i, p.dt) - m) * scale + shift, p.dt);
          , storeElem(y, to + i * p.y.s1, (loadElem(x, from + i * p.x.s1, p.dt) - m) * scale + shift, p.dt);)
    }
  }
}

// sums[c] = {sum g, sum g * (x - mean) * invstd}: also the gradients of bias and weight.
kernel void bn_grad_sums(global const void* g, global const void* x, global const void* mean, global const void* var,
                         global real* sums, global void* grad_weight, global void* grad_bias, const NormParams p) {
  LOCAL_SUM
  UNITS(c) {
    const real m = loadElem(mean, p.mean_off + c, p.stats_dt), invstd = invstdOf(var, &p, c);
    vec plain = 0, dot_lanes = 0;
    real plain_rest = 0, dot_rest = 0;
    for (long r = 0; r < p.n * p.p0; ++r) {
      const long gi = rowOf(&p.g, r / p.p0, c, r % p.p0), xi = rowOf(&p.x, r / p.p0, c, r % p.p0);
      ROW(p.p1, p.x.s1 == 1 && p.g.s1 == 1, const vec d = loadVec(g, gi + i, p.dt); plain += d;
          dot_lanes += d * (loadVec(x, xi + i, p.dt) - m);
          , const real d = loadElem(g, gi + i * p.g.s1, p.dt); plain_rest += d;
          dot_rest += d * (loadElem(x, xi + i * p.x.s1, p.dt) - m);)
    }
    const real sum = SUM(lanesOf(plain) + plain_rest);
    const real dots = SUM(lanesOf(dot_lanes) + dot_rest) * invstd;
    if (LANE == 0) {
      sums[p.sums_off + 2 * c] = sum;
      sums[p.sums_off + 2 * c + 1] = dots;
      if (p.has_grad_weight) storeElem(grad_weight, p.grad_weight_off + c, dots, p.weight_dt);
      if (p.has_grad_bias) storeElem(grad_bias, p.grad_bias_off + c, sum, p.weight_dt);
    }
  }
}

kernel void bn_grad_apply(global const void* g, global const void* x, global const void* mean, global const void* var,
                          global const real* sums, global const void* weight, global void* gx, const NormParams p) {
  UNITS(u) {
    const long n = u / p.c, c = u % p.c;
    const real m = loadElem(mean, p.mean_off + c, p.stats_dt), invstd = invstdOf(var, &p, c);
    const real scale = invstd * (p.has_weight ? loadElem(weight, p.weight_off + c, p.weight_dt) : (real)1);
    const real count = (real)(p.n * p.p0 * p.p1);
    const real shift = p.training ? sums[p.sums_off + 2 * c] / count : (real)0;
    const real slope = p.training ? sums[p.sums_off + 2 * c + 1] * invstd / count : (real)0;
    for (long r = 0; r < p.p0; ++r) {
      const long gi = rowOf(&p.g, n, c, r), xi = rowOf(&p.x, n, c, r), to = rowOf(&p.y, n, c, r);
      ROW(p.p1, p.x.s1 == 1 && p.g.s1 == 1 && p.y.s1 == 1,
          storeVec(gx, to + i, (loadVec(g, gi + i, p.dt) - shift - (loadVec(x, xi + i, p.dt) - m) * slope) * scale, p.dt);
          , storeElem(gx, to + i * p.y.s1, (loadElem(g, gi + i * p.g.s1, p.dt) - shift -
            (loadElem(x, xi + i * p.x.s1, p.dt) - m) * slope) * scale, p.dt);)
    }
  }
}

// The same for tensors whose channels lie beside each other ([N,C], channels last): a unit is a block of VL channels and
// vectors run over channels. Blocks are read lane by lane where fewer than VL channels are left.
inline vec loadChannels(global const void* base, long i, long count, long dt) {
  if (count >= VL) return loadVec(base, i, dt);
  real each[VL];
  for (long k = 0; k < VL; ++k) each[k] = k < count ? loadElem(base, i + k, dt) : (real)0;
  return VLOAD(each);
}
inline void storeChannels(global void* base, long i, vec v, long count, long dt) {
  if (count >= VL) {
    storeVec(base, i, v, dt);
    return;
  }
  real each[VL];
  VSTORE(v, each);
  for (long k = 0; k < count; ++k) storeElem(base, i + k, each[k], dt);
}
#ifdef TILED
#define SUM_VEC(v) sumVec(v, lanes_sum)
inline vec sumVec(vec v, local real* at) {
  real each[VL];
  VSTORE(v, each);
  for (int k = 0; k < VL; ++k) each[k] = laneSum(each[k], at);
  return VLOAD(each);
}
#else
#define SUM_VEC(v) (v)
#endif
// Position of pixel i of the whole batch.
inline long pixelOf(const Data* d, const NormParams* p, long i) {
  const long n = i / (p->p0 * p->p1), r = i / p->p1 % p->p0;
  return d->off + n * d->sn + r * d->s0 + i % p->p1 * d->s1;
}

kernel void bn_stats_columns(global const void* x, global void* mean, global void* invstd, global void* running_mean,
                             global void* running_var, const NormParams p) {
  LOCAL_SUM
  UNITS(u) {
    const long c0 = u * VL, left = p.c - c0, pixels = p.n * p.p0 * p.p1;
    const real count = (real)pixels;
    vec sum = 0;
    for (long i = LANE; i < pixels; i += LANES) sum += loadChannels(x, pixelOf(&p.x, &p, i) + c0, left, p.dt);
    const vec m = SUM_VEC(sum) / count;
    sum = 0;
    for (long i = LANE; i < pixels; i += LANES) {
      const vec d = loadChannels(x, pixelOf(&p.x, &p, i) + c0, left, p.dt) - m;
      sum += d * d;
    }
    const vec squares = SUM_VEC(sum);
    if (LANE == 0) {
      storeChannels(mean, p.mean_off + c0, m, left, p.stats_dt);
      storeChannels(invstd, p.var_off + c0, (vec)(1) / sqrt(squares / count + realOf(p.eps)), left, p.stats_dt);
      if (p.has_running) {
        const real take = realOf(p.momentum), keep = 1 - take;
        const vec old_mean = loadChannels(running_mean, p.running_mean_off + c0, left, p.running_dt);
        const vec old_var = loadChannels(running_var, p.running_var_off + c0, left, p.running_dt);
        storeChannels(running_mean, p.running_mean_off + c0, keep * old_mean + take * m, left, p.running_dt);
        storeChannels(running_var, p.running_var_off + c0, keep * old_var + take * squares / (count - 1), left, p.running_dt);
      }
    }
  }
}

inline vec invstdColumns(global const void* var, const NormParams* p, long c0, long left) {
  const vec v = loadChannels(var, p->var_off + c0, left, p->stats_dt);
  return p->training ? v : (vec)(1) / sqrt(v + realOf(p->eps));
}

// A unit is a pixel.
kernel void norm_apply_columns(global const void* x, global const void* mean, global const void* var,
                               global const void* weight, global const void* bias, global void* y, const NormParams p) {
  UNITS(u) {
    const long from = pixelOf(&p.x, &p, u), to = pixelOf(&p.y, &p, u);
    for (long c0 = LANE * VL; c0 < p.c; c0 += LANES * VL) {
      const long left = p.c - c0;
      vec scale = invstdColumns(var, &p, c0, left);
      if (p.has_weight) scale *= loadChannels(weight, p.weight_off + c0, left, p.weight_dt);
      vec v = (loadChannels(x, from + c0, left, p.dt) - loadChannels(mean, p.mean_off + c0, left, p.stats_dt)) * scale;
      if (p.has_bias) v += loadChannels(bias, p.bias_off + c0, left, p.bias_dt);
      storeChannels(y, to + c0, v, left, p.dt);
    }
  }
}

kernel void bn_grad_sums_columns(global const void* g, global const void* x, global const void* mean, global const void* var,
                                 global real* sums, global void* grad_weight, global void* grad_bias, const NormParams p) {
  LOCAL_SUM
  UNITS(u) {
    const long c0 = u * VL, left = p.c - c0, pixels = p.n * p.p0 * p.p1;
    const vec m = loadChannels(mean, p.mean_off + c0, left, p.stats_dt);
    vec plain = 0, dots = 0;
    for (long i = LANE; i < pixels; i += LANES) {
      const vec d = loadChannels(g, pixelOf(&p.g, &p, i) + c0, left, p.dt);
      plain += d;
      dots += d * (loadChannels(x, pixelOf(&p.x, &p, i) + c0, left, p.dt) - m);
    }
    plain = SUM_VEC(plain);
    dots = SUM_VEC(dots) * invstdColumns(var, &p, c0, left);
    if (LANE == 0) {
      storeChannels(sums, p.sums_off + c0, plain, left, DT_REAL);
      storeChannels(sums, p.sums_off + p.c + c0, dots, left, DT_REAL);
      if (p.has_grad_weight) storeChannels(grad_weight, p.grad_weight_off + c0, dots, left, p.weight_dt);
      if (p.has_grad_bias) storeChannels(grad_bias, p.grad_bias_off + c0, plain, left, p.weight_dt);
    }
  }
}

kernel void bn_grad_apply_columns(global const void* g, global const void* x, global const void* mean,
                                  global const void* var, global const real* sums, global const void* weight,
                                  global void* gx, const NormParams p) {
  const real count = (real)(p.n * p.p0 * p.p1);
  UNITS(u) {
    const long gi = pixelOf(&p.g, &p, u), xi = pixelOf(&p.x, &p, u), to = pixelOf(&p.y, &p, u);
    for (long c0 = LANE * VL; c0 < p.c; c0 += LANES * VL) {
      const long left = p.c - c0;
      const vec invstd = invstdColumns(var, &p, c0, left);
      vec scale = invstd, v = loadChannels(g, gi + c0, left, p.dt);
      if (p.has_weight) scale *= loadChannels(weight, p.weight_off + c0, left, p.weight_dt);
      if (p.training) {
        const vec d = loadChannels(x, xi + c0, left, p.dt) - loadChannels(mean, p.mean_off + c0, left, p.stats_dt);
        v -= loadChannels(sums, p.sums_off + c0, left, DT_REAL) / count;
        v -= d * loadChannels(sums, p.sums_off + p.c + c0, left, DT_REAL) * invstd / count;
      }
      storeChannels(gx, to + c0, v * scale, left, p.dt);
    }
  }
}

// Mean and 1 / std of contiguous rows of p1 elements (layer norm rows, group norm groups).
kernel void row_stats(global const void* x, global void* mean, global void* rstd, const NormParams p) {
  LOCAL_SUM
  UNITS(u) {
    const long at = p.x.off + u * p.p1;
    vec lanes = 0;
    real rest = 0;
    ROW(p.p1, true, lanes += loadVec(x, at + i, p.dt);, rest += loadElem(x, at + i, p.dt);)
    const real m = SUM(lanesOf(lanes) + rest) / (real)p.p1;
    lanes = 0;
    rest = 0;
    ROW(p.p1, true, const vec d = loadVec(x, at + i, p.dt) - m; lanes += d * d;
        , const real d = loadElem(x, at + i, p.dt) - m; rest += d * d;)
    const real squares = SUM(lanesOf(lanes) + rest);
    if (LANE == 0) {
      storeElem(mean, p.mean_off + u, m, p.stats_dt);
      storeElem(rstd, p.var_off + u, (real)1 / sqrt(squares / (real)p.p1 + realOf(p.eps)), p.stats_dt);
    }
  }
}

inline real rowMean(global const void* mean, const NormParams* p, long row) {
  return p->rms ? (real)0 : loadElem(mean, p->mean_off + row, p->stats_dt);
}

// Layer norm (or root-mean-square norm) of contiguous rows of p1 elements: a row is near while it is read again.
kernel void ln_forward(global const void* x, global void* mean, global void* rstd, global const void* weight,
                       global const void* bias, global void* y, const NormParams p) {
  LOCAL_SUM
  UNITS(u) {
    const long from = p.x.off + u * p.p1, to = p.y.off + u * p.p1;
    vec lanes = 0;
    real rest = 0;
    real m = 0;
    if (!p.rms) {
      ROW(p.p1, true, lanes += loadVec(x, from + i, p.dt);, rest += loadElem(x, from + i, p.dt);)
      m = SUM(lanesOf(lanes) + rest) / (real)p.p1;
      lanes = 0;
      rest = 0;
    }
    ROW(p.p1, true, const vec d = loadVec(x, from + i, p.dt) - m; lanes += d * d;
        , const real d = loadElem(x, from + i, p.dt) - m; rest += d * d;)
    const real s = (real)1 / sqrt(SUM(lanesOf(lanes) + rest) / (real)p.p1 + realOf(p.eps));
    ROW(p.p1, true, vec v = (loadVec(x, from + i, p.dt) - m) * s;
        if (p.has_weight) v *= loadVec(weight, p.weight_off + i, p.weight_dt);
        if (p.has_bias) v += loadVec(bias, p.bias_off + i, p.bias_dt); storeVec(y, to + i, v, p.dt);
        , real v = (loadElem(x, from + i, p.dt) - m) * s;
        if (p.has_weight) v *= loadElem(weight, p.weight_off + i, p.weight_dt);
        if (p.has_bias) v += loadElem(bias, p.bias_off + i, p.bias_dt); storeElem(y, to + i, v, p.dt);)
    if (LANE == 0) {
      if (!p.rms) storeElem(mean, p.mean_off + u, m, p.stats_dt);
      storeElem(rstd, p.var_off + u, s, p.stats_dt);
    }
  }
}

// One pass over the rows: the input's gradient, and each worker's (or work-group's) share of the gradients of bias and
// weight, part[share][2][p1], for ln_finish.
kernel void ln_backward(global const void* g, global const void* x, global const void* mean, global const void* rstd,
                        global const void* weight, global void* gx, global real* part, const NormParams p) {
  LOCAL_SUM
#ifdef TILED
  const long share = get_group_id(0);
#else
  const long share = get_global_id(0);
#endif
  global real *pb = part + p.sums_off + share * 2 * p.p1, *pw = pb + p.p1;
  const bool sums = p.has_grad_weight || p.has_grad_bias;
  if (sums) ROW(p.p1, true, VSTORE((vec)(0), pb + i); VSTORE((vec)(0), pw + i);, pb[i] = 0; pw[i] = 0;)
  UNITS(u) {
    const long gi = p.g.off + u * p.p1, xi = p.x.off + u * p.p1, to = p.y.off + u * p.p1;
    const real m = rowMean(mean, &p, u), s = loadElem(rstd, p.var_off + u, p.stats_dt);
    vec plain = 0, dots = 0;
    real plain_rest = 0, dots_rest = 0;
    ROW(p.p1, true, vec d = loadVec(g, gi + i, p.dt); const vec o = (loadVec(x, xi + i, p.dt) - m) * s;
        if (sums) { VSTORE(VLOAD(pb + i) + d, pb + i); VSTORE(VLOAD(pw + i) + d * o, pw + i); }
        if (p.has_weight) d *= loadVec(weight, p.weight_off + i, p.weight_dt); plain += d; dots += d * o;
        , real d = loadElem(g, gi + i, p.dt); const real o = (loadElem(x, xi + i, p.dt) - m) * s;
        if (sums) { pb[i] += d; pw[i] += d * o; }
        if (p.has_weight) d *= loadElem(weight, p.weight_off + i, p.weight_dt); plain_rest += d; dots_rest += d * o;)
    const real centre = SUM(lanesOf(plain) + plain_rest) / (real)p.p1, shift = p.rms ? (real)0 : centre;
    const real slope = SUM(lanesOf(dots) + dots_rest) * s / (real)p.p1;
    if (!p.groups) continue;   // the input's gradient is not wanted
    ROW(p.p1, true, vec d = loadVec(g, gi + i, p.dt);
        if (p.has_weight) d *= loadVec(weight, p.weight_off + i, p.weight_dt);
        storeVec(gx, to + i, (d - shift - (loadVec(x, xi + i, p.dt) - m) * slope) * s, p.dt);
        , real d = loadElem(g, gi + i, p.dt);
        if (p.has_weight) d *= loadElem(weight, p.weight_off + i, p.weight_dt);
        storeElem(gx, to + i, (d - shift - (loadElem(x, xi + i, p.dt) - m) * slope) * s, p.dt);)
  }
}

// The shares together: a unit is VL columns; p.n counts the shares.
kernel void ln_finish(global const real* part, global void* grad_weight, global void* grad_bias, const NormParams p) {
  LOCAL_SUM
  UNITS(u) {
    const long c0 = u * VL, left = p.p1 - c0;
    vec plain = 0, dots = 0;
    for (long i = LANE; i < p.n; i += LANES) {
      plain += loadChannels(part, p.sums_off + i * 2 * p.p1 + c0, left, DT_REAL);
      dots += loadChannels(part, p.sums_off + (i * 2 + 1) * p.p1 + c0, left, DT_REAL);
    }
    plain = SUM_VEC(plain);
    dots = SUM_VEC(dots);
    if (LANE == 0) {
      if (p.has_grad_weight) storeChannels(grad_weight, p.grad_weight_off + c0, dots, left, p.weight_dt);
      if (p.has_grad_bias) storeChannels(grad_bias, p.grad_bias_off + c0, plain, left, p.weight_dt);
    }
  }
}

// sums[n][c] = {sum g, sum g * (x - mean) * rstd} of each plane.
kernel void gn_plane_sums(global const void* g, global const void* x, global const void* mean, global const void* rstd,
                          global real* sums, const NormParams p) {
  LOCAL_SUM
  UNITS(u) {
    const long stat = statOf(&p, u / p.c, u % p.c), gi = p.g.off + u * p.p1, xi = p.x.off + u * p.p1;
    const real m = loadElem(mean, p.mean_off + stat, p.stats_dt), s = loadElem(rstd, p.var_off + stat, p.stats_dt);
    vec plain = 0, dots = 0;
    real plain_rest = 0, dots_rest = 0;
    ROW(p.p1, true, const vec d = loadVec(g, gi + i, p.dt); plain += d; dots += d * (loadVec(x, xi + i, p.dt) - m);
        , const real d = loadElem(g, gi + i, p.dt); plain_rest += d;
        dots_rest += d * (loadElem(x, xi + i, p.dt) - m);)
    const real sum = SUM(lanesOf(plain) + plain_rest), dot_sum = SUM(lanesOf(dots) + dots_rest) * s;
    if (LANE == 0) {
      sums[p.sums_off + 2 * u] = sum;
      sums[p.sums_off + 2 * u + 1] = dot_sum;
    }
  }
}

kernel void gn_grad_input(global const void* g, global const void* x, global const void* mean, global const void* rstd,
                          global const void* weight, global const real* sums, global void* gx, const NormParams p) {
  UNITS(u) {
    const long n = u / p.c, c = u % p.c, stat = statOf(&p, n, c), per_group = p.c / p.groups, first = c / per_group * per_group;
    const real m = loadElem(mean, p.mean_off + stat, p.stats_dt), s = loadElem(rstd, p.var_off + stat, p.stats_dt);
    real shift = 0, slope = 0;
    for (long k = first; k < first + per_group; ++k) {
      const real w = p.has_weight ? loadElem(weight, p.weight_off + k, p.weight_dt) : (real)1;
      shift += w * sums[p.sums_off + 2 * (n * p.c + k)];
      slope += w * sums[p.sums_off + 2 * (n * p.c + k) + 1];
    }
    const real count = (real)(per_group * p.p1);
    shift /= count;
    slope *= s / count;
    const real w = p.has_weight ? loadElem(weight, p.weight_off + c, p.weight_dt) : (real)1;
    const long gi = p.g.off + u * p.p1, xi = p.x.off + u * p.p1, to = p.y.off + u * p.p1;
    ROW(p.p1, true, storeVec(gx, to + i, (loadVec(g, gi + i, p.dt) * w - shift - (loadVec(x, xi + i, p.dt) - m) * slope) * s, p.dt);
        , storeElem(gx, to + i, (loadElem(g, gi + i, p.dt) * w - shift - (loadElem(x, xi + i, p.dt) - m) * slope) * s, p.dt);)
  }
}

kernel void gn_grad_weights(global const real* sums, global void* grad_weight, global void* grad_bias, const NormParams p) {
  LOCAL_SUM
  UNITS(c) {
    real plain = 0, dots = 0;
    for (long n = LANE; n < p.n; n += LANES) {
      plain += sums[p.sums_off + 2 * (n * p.c + c)];
      dots += sums[p.sums_off + 2 * (n * p.c + c) + 1];
    }
    plain = SUM(plain);
    dots = SUM(dots);
    if (LANE == 0) {
      if (p.has_grad_weight) storeElem(grad_weight, p.grad_weight_off + c, dots, p.weight_dt);
      if (p.has_grad_bias) storeElem(grad_bias, p.grad_bias_off + c, plain, p.weight_dt);
    }
  }
}

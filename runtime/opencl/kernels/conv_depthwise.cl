// Depthwise convolution, CPU-shaped: one input and one output channel a group, so there is no matrix product to feed and
// vectors run along rows of pixels. gemm_tile.cl and conv_gather.cl come first in the text.

// VL pixels of a slab row, `step` apart; only the first `count` are wanted (the slab has room for a few steps of 1 or 2).
inline vec loadPixels(global const real* p, long step, long count) {
  if (step == 1) return VLOAD(p);
  if (step == 2) {
    const vec a = VLOAD(p), b = VLOAD(p + VL);
    return (vec)(a.even, b.even);
  }
  real each[VL];
  for (long i = 0; i < VL; ++i) each[i] = i < count ? p[i * step] : (real)0;
  return VLOAD(each);
}

// A task is (channel, unit). Four rows at a time share each weight.
kernel void conv_depthwise_wide(global const void* x, global const void* w, global const void* bias, global void* y,
                                global real* scratch, const ConvParams p, const WeightParams wp) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  global real* slab = scratch + p.scratch_off + worker * p.scratch_stride;
  global real* taps = slab + p.slab_size;
  const long units = p.units.image_units * p.units.row_units * p.units.col_units;
  const bool cleared = clearOnce(slab, &p.units, p.slab_size);
  const long width = p.units.slab_cols, step = p.win.stride_w;
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t) {
    const long unit = t % units, channel = t / units;
    const Place at = placeOf(&p.units, &p.y, unit);
    gatherSlab(slab, x, &p.x, &p.win, &p.units, &at, channel, 1, cleared);
    for (long r = 0; r < p.win.r; ++r)
      for (long s = 0; s < p.win.s; ++s)
        taps[r * p.win.s + s] = loadElem(w, wp.off + channel * wp.sg + r * wp.sr + s * wp.ss, wp.dt);
    const vec start = (vec)(p.use_bias ? loadElem(bias, p.bias_off + channel * p.bias_stride, p.y.dt) : (real)0);
    for (long i = 0; i < at.images; ++i)
      for (long y0 = 0; y0 < at.rows; y0 += 4)
        for (long x0 = 0; x0 < at.cols; x0 += VL) {
          const long last = at.rows - 1 - y0, down = p.win.stride_h * width;
          global const real* p0 = slab + (i * p.units.slab_rows + y0 * p.win.stride_h) * width + x0 * step;
          global const real* p1 = p0 + min(1L, last) * down;
          global const real* p2 = p0 + min(2L, last) * down;
          global const real* p3 = p0 + min(3L, last) * down;
          const long cols = min((long)VL, at.cols - x0);
          vec acc[4] = {start, start, start, start};
          for (long r = 0; r < p.win.r; ++r)
            for (long s = 0; s < p.win.s; ++s) {
              const long to = r * p.win.dil_h * width + s * p.win.dil_w;
              const real tap = taps[r * p.win.s + s];
              acc[0] += loadPixels(p0 + to, step, cols) * tap;
              acc[1] += loadPixels(p1 + to, step, cols) * tap;
              acc[2] += loadPixels(p2 + to, step, cols) * tap;
              acc[3] += loadPixels(p3 + to, step, cols) * tap;
            }
          for (long k = 0; k < 4; ++k) {
            if (k > last) break;
            const long to = p.y.off + (at.n0 + i) * p.y.sn + channel * p.y.sc + (at.oh0 + y0 + k) * p.y.sh + (at.ow0 + x0) * p.y.sw;
            if (cols == VL && p.y.sw == 1 && p.y.dt == DT_REAL) {
              VSTORE(acc[k], (global real*)y + to);
            } else {
              real row[VL];
              VSTORE(acc[k], row);
              for (long q = 0; q < cols; ++q) storeElem(y, to + q * p.y.sw, row[q], p.y.dt);
            }
          }
        }
  }
}

#ifdef REAL_DOUBLE
#define LANE_NUMBERS (long8)(0, 1, 2, 3, 4, 5, 6, 7)
#define LANE_TYPE long8
#else
#define LANE_NUMBERS (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define LANE_TYPE int16
#endif

// Gradient of the weights: a task is a channel; its taps are summed over the whole batch.
kernel void conv_depthwise_weight(global const void* x, global const void* g, global void* w, global real* scratch,
                                  const ConvWeightParams p, const WeightFinishParams f) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  global real* slab = scratch + p.scratch_off + worker * p.scratch_stride;
  global real* rows = slab + p.slab_size;                      // the gradient, rows padded to whole vectors
  const long padded = (p.units.cols + VL - 1) / VL * VL, window = p.win.r * p.win.s;
  global real* sums = rows + p.units.images * p.units.rows * padded;  // one vector a tap
  const long units = p.units.image_units * p.units.row_units * p.units.col_units;
  const bool cleared = clearOnce(slab, &p.units, p.slab_size);
  const long width = p.units.slab_cols, step = p.win.stride_w;
  for (long channel = p.tasks * worker / workers; channel < p.tasks * (worker + 1) / workers; ++channel) {
    for (long i = 0; i < window; ++i) VSTORE((vec)(0), sums + i * VL);
    for (long unit = 0; unit < units; ++unit) {
      const Place at = placeOf(&p.units, &p.g, unit);
      gatherSlab(slab, x, &p.x, &p.win, &p.units, &at, channel, 1, cleared);
      for (long i = 0; i < at.images * at.rows; ++i) {
        const long src = p.g.off + (at.n0 + i / at.rows) * p.g.sn + channel * p.g.sc + (at.oh0 + i % at.rows) * p.g.sh + at.ow0 * p.g.sw;
        for (long q = 0; q < at.cols; ++q) rows[i * padded + q] = loadElem(g, src + q * p.g.sw, p.g.dt);
      }
      for (long tap = 0; tap < window; ++tap) {
        global const real* base = slab + tap / p.win.s * p.win.dil_h * width + tap % p.win.s * p.win.dil_w;
        vec sum = VLOAD(sums + tap * VL);
        for (long i = 0; i < at.images; ++i)
          for (long y = 0; y < at.rows; ++y) {
            global const real* xr = base + (i * p.units.slab_rows + y * p.win.stride_h) * width;
            global const real* gr = rows + (i * at.rows + y) * padded;
            long q = 0;
            for (; q + VL <= at.cols; q += VL) sum += VLOAD(gr + q) * loadPixels(xr + q * step, step, VL);
            if (q < at.cols) {
              // Lanes behind the row hold other rows' pixels: they are dropped, not multiplied by zero (they may be NaN).
              const LANE_TYPE in = LANE_NUMBERS < (LANE_TYPE)(at.cols - q);
              sum += select((vec)(0), VLOAD(gr + q) * loadPixels(xr + q * step, step, at.cols - q), in);
            }
          }
        VSTORE(sum, sums + tap * VL);
      }
    }
    for (long tap = 0; tap < window; ++tap) {
      real total = 0;
      for (long i = 0; i < VL; ++i) total += sums[tap * VL + i];
      storeElem(w, f.off + channel * f.sg + tap / p.win.s * f.sr + tap % p.win.s * f.ss, total, f.dt);
    }
  }
}

// Convolution as a matrix product whose right side is gathered patch by patch. gemm_tile.cl and conv_gather.cl come first
// in the text. One body serves the forward pass and, with flipped weights and a zero-stuffed input (up_h, up_w), the
// gradient of the input.

// Up to NR output pixels as runs that lie beside each other in the slab and in an output row: run i is the panel's
// columns first[i] .. first[i] + length[i], reads the slab from src[i] and writes the output from dst[i].
typedef struct {
  long count, longest;
  bool whole;                  // NR pixels, contiguous in the output
  long first[NR + 1], length[NR], src[NR], dst[NR];
} Runs;

// `row` is the distance between two rows of pixels in the panel: at.cols, or padded to whole chunks.
inline void findRuns(Runs* runs, const ConvParams* p, const Place* at, long row, long j0, long total) {
  const long cols = min((long)NR, total - j0);
  long j = 0, n = 0, x = j0 % row, y = j0 / row % at->rows, i = j0 / row / at->rows;
  runs->longest = 0;
  runs->whole = p->y.sw == 1 && cols == NR;
  while (j < cols) {
    const long room = min(row - x, cols - j), len = min(at->cols - x, room);
    if (len > 0) {
      runs->first[n] = j;
      runs->length[n] = len;
      runs->src[n] = (i * p->x.c * p->units.slab_rows + y * p->win.stride_h) * p->units.slab_cols + x * p->win.stride_w;
      runs->dst[n] = (at->n0 + i) * p->y.sn + (at->oh0 + y) * p->y.sh + (at->ow0 + x) * p->y.sw;
      if (len < room || runs->dst[n] != runs->dst[0] + j) runs->whole = false;
      runs->longest = max(runs->longest, len);
      ++n;
    }
    j += room;
    x = 0;
    if (++y == at->rows) y = 0, ++i;
  }
  runs->count = n;
}

// Panel row (c,r,s) = the slab under that tap for the panel's pixels. Vectors may run past a run's end: the next run,
// or the next row, overwrites what they spill, and scratch has room behind the last one.
inline void packPatches(global real* panel, global const real* slab, const Runs* runs, const ConvParams* p) {
  const long plane = p->units.slab_rows * p->units.slab_cols;
  const long n = runs->count;
  global real* d = panel;
  for (long c = 0; c < p->x.c; ++c)
    for (long r = 0; r < p->win.r; ++r)
      for (long s = 0; s < p->win.s; ++s, d += NR) {
        global const real* tap = slab + c * plane + r * p->win.dil_h * p->units.slab_cols + s * p->win.dil_w;
        if (p->win.stride_w == 1 && runs->longest <= 4) {
          for (long i = 0; i < n; ++i) vstore4(vload4(0, tap + runs->src[i]), 0, d + runs->first[i]);
        } else if (p->win.stride_w == 1 && runs->longest <= 8) {
          for (long i = 0; i < n; ++i) vstore8(vload8(0, tap + runs->src[i]), 0, d + runs->first[i]);
        } else if (p->win.stride_w == 1) {
          for (long i = 0; i < n; ++i)
            for (long q = 0; q < runs->length[i]; q += 8)
              vstore8(vload8(0, tap + runs->src[i] + q), 0, d + runs->first[i] + q);
        } else {
          for (long i = 0; i < n; ++i)
            for (long q = 0; q < runs->length[i]; ++q)
              d[runs->first[i] + q] = tap[runs->src[i] + q * p->win.stride_w];
        }
      }
}

// Where tap (c,r,s) begins in the slab.
inline void findTaps(global long* taps, long channels, const Window* win, const Units* u) {
  const long plane = u->slab_rows * u->slab_cols;
  for (long c = 0; c < channels; ++c)
    for (long r = 0; r < win->r; ++r)
      for (long s = 0; s < win->s; ++s) *taps++ = c * plane + r * win->dil_h * u->slab_cols + s * win->dil_w;
}

#ifndef REAL_DOUBLE
// tilePacked straight from the slab, without a panel: for pixels in four chunks of eight beside each other.
inline void tileChunks(vec* acc, global const real* a, global const real* slab, global const long* taps, long depth,
                       const long* at) {
  global const real *p0 = slab + at[0], *p1 = slab + at[1], *p2 = slab + at[2], *p3 = slab + at[3];
  TILE_DECLARE
  for (long k = 0; k < depth; ++k) {
    const long t = taps[k];
    const vec b0 = (vec)(vload8(0, p0 + t), vload8(0, p1 + t)), b1 = (vec)(vload8(0, p2 + t), vload8(0, p3 + t));
    TILE_ROW(0, a[0]) TILE_ROW(1, a[1]) TILE_ROW(2, a[2]) TILE_ROW(3, a[3])
    TILE_ROW(4, a[4]) TILE_ROW(5, a[5]) TILE_ROW(6, a[6]) TILE_ROW(7, a[7])
    a += MR;
  }
  TILE_KEEP(acc)
}
#endif

// rows x the panel's pixels of the output, with the bias.
inline void storePixels(const vec* acc, global void* y, global const void* bias, const ConvParams* p, const Runs* runs,
                        long k0, long rows) {
  for (long r = 0; r < rows; ++r) {
    vec v0 = acc[2 * r], v1 = acc[2 * r + 1];
    if (p->use_bias) {
      const real b = loadElem(bias, p->bias_off + (k0 + r) * p->bias_stride, p->y.dt);
      v0 += b;
      v1 += b;
    }
    const long out = p->y.off + (k0 + r) * p->y.sc;
    if (runs->whole && p->y.dt == DT_REAL) {
      VSTORE(v0, (global real*)y + out + runs->dst[0]);
      VSTORE(v1, (global real*)y + out + runs->dst[0] + VL);
      continue;
    }
    real row[NR];
    VSTORE(v0, row);
    VSTORE(v1, row + VL);
    for (long i = 0; i < runs->count; ++i)
      for (long q = 0, o = out + runs->dst[i]; q < runs->length[i]; ++q, o += p->y.sw)
        storeElem(y, o, row[runs->first[i] + q], p->y.dt);
  }
}

// A task is (group, block of output channels, unit): a worker's run keeps its block of weights near. Weights come
// packed as [group][tile][c,r,s][8].
kernel void conv_wide(global const void* x, global const real* weights, global const void* bias, global void* y,
                      global real* scratch, const ConvParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  global real* slab = scratch + p.scratch_off + worker * p.scratch_stride;
  global real* panel = slab + p.slab_size;
  global long* taps = (global long*)panel;  // either the panel or the taps are in use
  const long depth = p.x.c * p.win.r * p.win.s;
  const long units = p.units.image_units * p.units.row_units * p.units.col_units;
  const bool cleared = clearOnce(slab, &p.units, p.slab_size);
  const bool chunked = p.units.chunked;
  if (chunked) findTaps(taps, p.x.c, &p.win, &p.units);
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t) {
    const long unit = t % units, block = t / units % p.k_blocks, group = t / units / p.k_blocks;
    const Place at = placeOf(&p.units, &p.y, unit);
    gatherSlab(slab, x, &p.x, &p.win, &p.units, &at, group * p.x.c, p.x.c, cleared);
    const long row = chunked ? (at.cols + 7) / 8 * 8 : at.cols, pixels = at.images * at.rows * row;
    const long tile_end = p.k_tiles * (block + 1) / p.k_blocks;
    for (long j0 = 0; j0 < pixels; j0 += NR) {
      Runs runs;
      findRuns(&runs, &p, &at, row, j0, pixels);
      long chunks[4];
      if (chunked) {
        // A last, shorter panel repeats its last chunk; what that gives is not stored.
        for (long c = 0; c < 4; ++c) {
          const long j = min(j0 + c * 8, pixels - 8), y0 = j / row % at.rows, i = j / row / at.rows;
          chunks[c] = (i * p.x.c * p.units.slab_rows + y0 * p.win.stride_h) * p.units.slab_cols + j % row;
        }
      } else {
        packPatches(panel, slab, &runs, &p);
      }
      for (long tile = p.k_tiles * block / p.k_blocks; tile < tile_end; ++tile) {
        vec acc[2 * MR];
        global const real* w = weights + p.weights_off + (group * p.k_tiles + tile) * depth * MR;
#ifndef REAL_DOUBLE
        if (chunked)
          tileChunks(acc, w, slab, taps, depth, chunks);
        else
#endif
          tilePacked(acc, w, MR, panel, NR, depth);
        storePixels(acc, y, bias, &p, &runs, group * p.y.c + tile * MR, min((long)MR, p.y.c - tile * MR));
      }
    }
  }
}

// Weights into [group][tile][q,r,s][8]. A work-item takes 16 q of all tiles: whichever of q and m runs through memory,
// few lines are read at a time and what is read of them is used.
#define PACK_Q 16
kernel void conv_pack_weights(global const void* w, global real* dst, const WeightParams p) {
  const long q_blocks = (p.q + PACK_Q - 1) / PACK_Q, id = get_global_id(0), group = id / q_blocks, q0 = id % q_blocks * PACK_Q;
  const long q1 = min(p.q, q0 + PACK_Q), window = p.r * p.s;
  for (long tile = 0; tile < p.tiles; ++tile) {
    const long m0 = tile * MR;
    global real* d = dst + p.dst_off + ((group * p.tiles + tile) * p.q + q0) * window * MR;
    if (p.dt == DT_REAL && m0 + MR <= p.m) {
      for (long q = q0; q < q1; ++q)
        for (long r = 0; r < p.r; ++r) {
          global const real* from = (global const real*)w + p.off + group * p.sg + m0 * p.sm + q * p.sq + r * p.sr;
          for (long s = 0; s < p.s; ++s, d += MR, from += p.ss) {
            const real w0 = from[0], w1 = from[p.sm], w2 = from[2 * p.sm], w3 = from[3 * p.sm];
            const real w4 = from[4 * p.sm], w5 = from[5 * p.sm], w6 = from[6 * p.sm], w7 = from[7 * p.sm];
            d[0] = w0, d[1] = w1, d[2] = w2, d[3] = w3, d[4] = w4, d[5] = w5, d[6] = w6, d[7] = w7;
          }
        }
      continue;
    }
    for (long q = q0; q < q1; ++q)
      for (long r = 0; r < p.r; ++r)
        for (long s = 0; s < p.s; ++s, d += MR)
          for (long i = 0; i < MR; ++i)
            d[i] = m0 + i < p.m ? loadElem(w, p.off + group * p.sg + (m0 + i) * p.sm + q * p.sq + r * p.sr + s * p.ss, p.dt)
                                : (real)0;
  }
}

// 8 taps x (1 or 2) vectors of k, summed over the unit's pixels, on top of what acc holds.
#define TAP_ROW2(r, q)               \
  {                                  \
    const vec v = (vec)(q[i]);       \
    c##r##0 += v * b0;               \
    c##r##1 += v * b1;               \
  }
#define TAP_LOAD(r) c##r##0 = VLOAD(acc + r * k_pad), c##r##1 = VLOAD(acc + r * k_pad + VL);
#define TAP_SAVE(r) VSTORE(c##r##0, acc + r * k_pad), VSTORE(c##r##1, acc + r * k_pad + VL);

inline void sumTaps2(global real* acc, long k_pad, global const real* const* tap, global const real* g,
                     const Place* at, long row_step, long col_step, long image_step) {
  global const real *q0 = tap[0], *q1 = tap[1], *q2 = tap[2], *q3 = tap[3];
  global const real *q4 = tap[4], *q5 = tap[5], *q6 = tap[6], *q7 = tap[7];
  TILE_DECLARE
  TAP_LOAD(0) TAP_LOAD(1) TAP_LOAD(2) TAP_LOAD(3) TAP_LOAD(4) TAP_LOAD(5) TAP_LOAD(6) TAP_LOAD(7)
  for (long n = 0; n < at->images; ++n)
    for (long y = 0; y < at->rows; ++y) {
      long i = n * image_step + y * row_step;
      for (long x = 0; x < at->cols; ++x, i += col_step, g += NR) {
        const vec b0 = VLOAD(g), b1 = VLOAD(g + VL);
        TAP_ROW2(0, q0) TAP_ROW2(1, q1) TAP_ROW2(2, q2) TAP_ROW2(3, q3)
        TAP_ROW2(4, q4) TAP_ROW2(5, q5) TAP_ROW2(6, q6) TAP_ROW2(7, q7)
      }
    }
  TAP_SAVE(0) TAP_SAVE(1) TAP_SAVE(2) TAP_SAVE(3) TAP_SAVE(4) TAP_SAVE(5) TAP_SAVE(6) TAP_SAVE(7)
}

#define TAP_ROW1(r, q) c##r##0 += (vec)(q[i]) * b0;
#define TAP_LOAD1(r) c##r##0 = VLOAD(acc + r * k_pad);
#define TAP_SAVE1(r) VSTORE(c##r##0, acc + r * k_pad);

inline void sumTaps1(global real* acc, long k_pad, global const real* const* tap, global const real* g,
                     const Place* at, long row_step, long col_step, long image_step) {
  global const real *q0 = tap[0], *q1 = tap[1], *q2 = tap[2], *q3 = tap[3];
  global const real *q4 = tap[4], *q5 = tap[5], *q6 = tap[6], *q7 = tap[7];
  vec c00, c10, c20, c30, c40, c50, c60, c70;
  TAP_LOAD1(0) TAP_LOAD1(1) TAP_LOAD1(2) TAP_LOAD1(3) TAP_LOAD1(4) TAP_LOAD1(5) TAP_LOAD1(6) TAP_LOAD1(7)
  for (long n = 0; n < at->images; ++n)
    for (long y = 0; y < at->rows; ++y) {
      long i = n * image_step + y * row_step;
      for (long x = 0; x < at->cols; ++x, i += col_step, g += NR) {
        const vec b0 = VLOAD(g);
        TAP_ROW1(0, q0) TAP_ROW1(1, q1) TAP_ROW1(2, q2) TAP_ROW1(3, q3)
        TAP_ROW1(4, q4) TAP_ROW1(5, q5) TAP_ROW1(6, q6) TAP_ROW1(7, q7)
      }
    }
  TAP_SAVE1(0) TAP_SAVE1(1) TAP_SAVE1(2) TAP_SAVE1(3) TAP_SAVE1(4) TAP_SAVE1(5) TAP_SAVE1(6) TAP_SAVE1(7)
}

// The unit's output gradient as [panel of NR channels][pixel][NR], zero beyond the last channel.
inline void gatherGradient(global real* dst, global const void* g, const Image* img, const Place* at, long group) {
  const long pixels = at->images * at->rows * at->cols;
  for (long k0 = 0; k0 < img->c; k0 += NR, dst += pixels * NR) {
    const long kn = min((long)NR, img->c - k0);
    global real* d = dst;
    for (long n = 0; n < at->images; ++n)
      for (long y = 0; y < at->rows; ++y, d += at->cols * NR) {
        const long src = img->off + (at->n0 + n) * img->sn + (group * img->c + k0) * img->sc + (at->oh0 + y) * img->sh +
                         at->ow0 * img->sw;
        if (img->dt == DT_REAL && img->sw == 1) {
          turnPixels(d, (global const real*)g + src, img->sc, kn, at->cols);
        } else {
          for (long x = 0; x < at->cols; ++x)
            for (long k = 0; k < kn; ++k) d[x * NR + k] = loadElem(g, src + k * img->sc + x * img->sw, img->dt);
        }
        if (kn < NR)
          for (long x = 0; x < at->cols; ++x)
            for (long k = kn; k < NR; ++k) d[x * NR + k] = 0;
      }
  }
}

// The sums of one task; part is padded to whole tiles of 8 taps.
inline void weightTask(global real* part, global real* slab, global const void* x, global const void* g,
                       global const real* turned, const ConvWeightParams* p, long task, bool cleared) {
  const long share = task % p->shares, block = task / p->shares % p->c_blocks, group = task / p->shares / p->c_blocks;
  global real* kept = slab + p->slab_size;
  global const real* gradient = kept;
  global long* places = (global long*)(slab + p->places_off);
  const long c0 = block * p->c_block, channels = min(p->c_block, p->x.c - c0);
  const long window = p->win.r * p->win.s, taps = channels * window;
  for (long i = 0; i < p->part_stride; i += VL) VSTORE((vec)(0), part + i);
  const long units = p->units.image_units * p->units.row_units * p->units.col_units;
  const long plane = p->units.slab_rows * p->units.slab_cols;
  const long row_step = p->win.stride_h * p->units.slab_cols;
  findTaps(places, channels, &p->win, &p->units);
  for (long unit = units * share / p->shares; unit < units * (share + 1) / p->shares; ++unit) {
    const Place at = placeOf(&p->units, &p->g, unit);
    gatherSlab(slab, x, &p->x, &p->win, &p->units, &at, group * p->x.c + c0, channels, cleared);
    if (p->turned)
      gradient = turned + (group * units + unit) * p->turned;
    else
      gatherGradient(kept, g, &p->g, &at, group);
    const long pixels = at.images * at.rows * at.cols;
    for (long k0 = 0; k0 < p->g.c; k0 += NR) {
      global const real* gp = gradient + k0 * pixels;
      const bool narrow = p->g.c - k0 <= VL;
      for (long t0 = 0; t0 < taps; t0 += MR) {
        global const real* tap[MR];
        for (long i = 0; i < MR; ++i) tap[i] = slab + places[min(t0 + i, taps - 1)];
        global real* acc = part + t0 * p->k_pad + k0;
        if (narrow)
          sumTaps1(acc, p->k_pad, tap, gp, &at, row_step, p->win.stride_w, channels * plane);
        else
          sumTaps2(acc, p->k_pad, tap, gp, &at, row_step, p->win.stride_w, channels * plane);
      }
    }
  }
}

kernel void conv_weight_wide(global const void* x, global const void* g, global real* scratch, const ConvWeightParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  global real* slab = scratch + p.scratch_off + worker * p.scratch_stride;
  // The last block of channels is smaller, so its planes lie elsewhere: only equal blocks may share the zeros.
  const bool cleared = p.x.c % p.c_block == 0 && clearOnce(slab, &p.units, p.slab_size);
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t)
    weightTask(scratch + p.part_off + t * p.part_stride, slab, x, g, scratch + p.turned_off, &p, t, cleared);
}

// Every unit's gradient turned once, for many blocks of input channels.
kernel void conv_weight_turn(global const void* g, global real* scratch, const ConvWeightParams p) {
  const long units = p.units.image_units * p.units.row_units * p.units.col_units, all = units * p.win.groups;
  const long worker = get_global_id(0), workers = get_global_size(0);
  for (long i = all * worker / workers; i < all * (worker + 1) / workers; ++i) {
    const Place at = placeOf(&p.units, &p.g, i % units);
    gatherGradient(scratch + p.turned_off + i * p.turned, g, &p.g, &at, i / units);
  }
}

// grad_weight[k][c][r][s] = sum of the shares. A work-item takes VL output channels of one block; where rows of weights
// lie in memory as the taps do, 8 channels x 8 taps at a time are turned in registers.
#define SUM_ROW(t)                                                                \
  block r##t = vload8(0, at + t * p.k_pad);                                       \
  for (long i = 1; i < p.shares; ++i) r##t += vload8(0, at + i * p.part_stride + t * p.k_pad);
kernel void conv_weight_finish(global const real* part, global void* w, const WeightFinishParams p) {
  const long window = p.r * p.s, k_chunks = (p.k + VL - 1) / VL, id = get_global_id(0);
  const long group = id / (k_chunks * p.c_blocks), block_c = id / k_chunks % p.c_blocks, k0 = id % k_chunks * VL;
  const long kn = min((long)VL, p.k - k0), c0 = block_c * p.c_block, taps = min(p.c_block, p.c - c0) * window;
  global const real* from = part + p.part_off + (group * p.c_blocks + block_c) * p.shares * p.part_stride + k0;
  const long to = p.off + group * p.sg + c0 * p.sc + k0 * p.sk;
  const bool dense = p.dt == DT_REAL && p.ss == 1 && p.sr == p.s && p.sc == window;
  const long whole_k = dense ? kn & ~7L : 0, whole_t = taps & ~7L;
  for (long k = 0; k < whole_k; k += 8)
    for (long t = 0; t < whole_t; t += 8) {
      global const real* at = from + t * p.k_pad + k;
      global real* d = (global real*)w + to + k * p.sk + t;
      SUM_ROW(0) SUM_ROW(1) SUM_ROW(2) SUM_ROW(3) SUM_ROW(4) SUM_ROW(5) SUM_ROW(6) SUM_ROW(7)
      TURN_ROWS
      TURN_STORE(d, p.sk)
    }
  for (long k = 0; k < kn; ++k)
    for (long tap = k < whole_k ? whole_t : 0; tap < taps; ++tap) {
      const long c = tap / window, r = tap % window / p.s, s = tap % p.s;
      real sum = 0;
      for (long i = 0; i < p.shares; ++i) sum += from[i * p.part_stride + tap * p.k_pad + k];
      storeElem(w, to + k * p.sk + c * p.sc + r * p.sr + s * p.ss, sum, p.dt);
    }
}

// grad_bias[k]: one work-item a channel and share of the batch; several shares go to part, for conv_bias_finish.
typedef struct {
  Image g;
  long shares, part_off, out_off, out_stride;
} BiasParams;

kernel void conv_bias_sum(global const void* g, global real* part, global void* out, const BiasParams p) {
  const long k = get_global_id(0), share = get_global_id(1);
  vec sum = 0;
  real rest = 0;
  const bool plane = p.g.dt == DT_REAL && p.g.sw == 1 && p.g.sh == p.g.w;
  const long rows = plane ? 1 : p.g.h, cols = plane ? p.g.h * p.g.w : p.g.w;
  for (long n = p.g.n * share / p.shares; n < p.g.n * (share + 1) / p.shares; ++n)
    for (long y = 0; y < rows; ++y) {
      const long src = p.g.off + n * p.g.sn + k * p.g.sc + y * p.g.sh;
      real run = 0;
      long x = 0;
      if (p.g.dt == DT_REAL && p.g.sw == 1)
        for (; x + VL <= cols; x += VL) sum += VLOAD((global const real*)g + src + x);
      for (; x < cols; ++x) run += loadElem(g, src + x * p.g.sw, p.g.dt);
      rest += run;
    }
  real lanes[VL];
  VSTORE(sum, lanes);
  for (int i = 0; i < VL; ++i) rest += lanes[i];
  if (p.shares == 1)
    storeElem(out, p.out_off + k * p.out_stride, rest, p.g.dt);
  else
    part[p.part_off + share * p.g.c + k] = rest;
}

kernel void conv_bias_finish(global const real* part, global void* out, const BiasParams p) {
  for (long k = 0; k < p.g.c; ++k) {
    real sum = 0;
    for (long i = 0; i < p.shares; ++i) sum += part[p.part_off + i * p.g.c + k];
    storeElem(out, p.out_off + k * p.out_stride, sum, p.g.dt);
  }
}

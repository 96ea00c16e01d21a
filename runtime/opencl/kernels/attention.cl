// Scaled-dot-product attention, CPU-shaped: a worker takes heads and blocks of queries, keeps the packed keys and values
// of its head near, and holds scores of one block of queries only. gemm_tile.cl comes first in the text; AttentionParams
// is mirrored in ops/attention.cpp: eight-byte members only.
typedef struct {
  long off, sb, sh, st, sd;      // elements: batch, head, position, within the head
} View;

typedef struct {
  View q, k, v, o, bias;         // bias: st along queries, sd along keys
  View g, dq, dk, dv;            // backward: gradient of o, and the gradients wanted
  long lse_off;                  // log of the sum of exponentials, reals [batch][heads][tq]
  long batch, heads, kv_heads, tq, tk, d, dv_size;
  long causal, has_bias, dt, block, chunks, tasks;
  long scratch_off, scratch_stride;   // reals; the regions of one worker follow
  long k_rows, v_cols, dk_sum, dv_sum, q_cols, g_cols, q_rows, g_rows, scores, grads;
  number scale;
} AttentionParams;

inline long at4(const View* v, long b, long h, long t) { return v->off + b * v->sb + h * v->sh + t * v->st; }
inline long panelsOf(long n) { return (n + NR - 1) / NR; }

// e^x for x <= 0; smaller than the smallest normal number is 0. NaN stays NaN.
inline vec expNegative(vec x) {
#ifdef REAL_DOUBLE
  return exp(x);
#else
  const vec lowest = (vec)(-87.3f);
  const int16 gone = x < lowest;
  x = select(x, lowest, gone);
  const vec n = rint(x * 1.44269504088896341f);
  const vec r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  vec y = r * 1.9875691500E-4f + 1.3981999507E-3f;
  y = y * r + 8.3334519073E-3f;
  y = y * r + 4.1665795894E-2f;
  y = y * r + 1.6666665459E-1f;
  y = y * r + 5.0000001201E-1f;
  y = y * r * r + r + 1.0f;
  y *= as_float16((convert_int16(n) + 127) << 23);
  return select(y, (vec)0.0f, gone);
#endif
}

inline real sumOf(vec v) {
  real lanes[VL], sum = 0;
  VSTORE(v, lanes);
  for (int i = 0; i < VL; ++i) sum += lanes[i];
  return sum;
}

// dst[c / NR][t][c % NR] = x[t][c] * factor: panels whose rows are positions.
inline void packRows(global real* dst, global const void* x, long off, long st, long sd, long count, long size, long room,
                     real factor, long dt) {
  for (long c0 = 0; c0 < size; c0 += NR, dst += room * NR) {
    const long cols = min((long)NR, size - c0);
    for (long t = 0; t < count; ++t) {
      const long from = off + t * st + c0 * sd;
      global real* to = dst + t * NR;
      if (sd == 1 && cols == NR) {
        VSTORE(loadVec(x, from, dt) * factor, to);
        VSTORE(loadVec(x, from + VL, dt) * factor, to + VL);
        continue;
      }
      for (long c = 0; c < cols; ++c) to[c] = loadElem(x, from + c * sd, dt) * factor;
      for (long c = cols; c < NR; ++c) to[c] = 0;
    }
  }
}

// dst[t / W][c][t % W] = x[t][c] * factor: panels of W positions beside each other, zero beyond `count`.
inline void packColumns(global real* dst, global const void* x, long off, long st, long sd, long count, long size, long w,
                        real factor, long dt) {
  for (long t0 = 0; t0 < count; t0 += w, dst += size * w) {
    const long rows = min(w, count - t0);
    for (long r = 0; r < rows; ++r) {
      const long from = off + (t0 + r) * st;
      if (dt == DT_REAL && sd == 1) {
        global const real* src = (global const real*)x + from;
        for (long c = 0; c < size; ++c) dst[c * w + r] = src[c] * factor;
      } else {
        for (long c = 0; c < size; ++c) dst[c * w + r] = loadElem(x, from + c * sd, dt) * factor;
      }
    }
    for (long r = rows; r < w; ++r)
      for (long c = 0; c < size; ++c) dst[c * w + r] = 0;
  }
}

// rows x cols of a tile, row r multiplied by factors[r].
inline void putTile(const vec* acc, const real* factors, global void* x, long off, long st, long sd, long rows, long cols,
                    long dt) {
  for (long r = 0; r < rows; ++r, off += st) {
    const vec v0 = acc[2 * r] * factors[r], v1 = acc[2 * r + 1] * factors[r];
    if (sd == 1 && cols == NR) {
      storeVec(x, off, v0, dt);
      storeVec(x, off + VL, v1, dt);
      continue;
    }
    real row[NR];
    VSTORE(v0, row);
    VSTORE(v1, row + VL);
    for (long c = 0; c < cols; ++c) storeElem(x, off + c * sd, row[c], dt);
  }
}

inline void keepTile(const vec* acc, global real* dst, long ld, long rows) {
  for (long r = 0; r < rows; ++r) {
    VSTORE(acc[2 * r], dst + r * ld);
    VSTORE(acc[2 * r + 1], dst + r * ld + VL);
  }
}

inline void addTile(const vec* acc, global real* dst) {
  for (int r = 0; r < MR; ++r) {
    VSTORE(VLOAD(dst + r * NR) + acc[2 * r], dst + r * NR);
    VSTORE(VLOAD(dst + r * NR + VL) + acc[2 * r + 1], dst + r * NR + VL);
  }
}

// Bias added below `limit`, minus infinity from there to the end of the row.
inline void maskRow(global real* s, global const void* bias, long off, long step, long limit, long end, bool has_bias, long dt) {
  if (has_bias)
    for (long c = 0; c < limit; ++c) s[c] += loadElem(bias, off + c * step, dt);
  for (long c = limit; c < end; ++c) s[c] = -INFINITY;
}

kernel void attention_wide(global const void* q, global const void* k, global const void* v, global const void* bias,
                           global void* o, global real* lse, global real* scratch, const AttentionParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  const long first = p.tasks * worker / workers, last = p.tasks * (worker + 1) / workers;
  global real* keys = scratch + p.scratch_off + worker * p.scratch_stride;   // [panel][d][NR]
  global real* values = keys + p.k_rows;                                     // [panel][tk][NR]
  global real* qp = keys + p.q_cols;
  global real* s = keys + p.scores;
  const long ld = panelsOf(p.tk) * NR, share = p.heads / p.kv_heads;
  const real scale = realOf(p.scale);
  long packed = -1;
  for (long t = first; t < last; ++t) {
    const long b = t / p.chunks / p.heads, h = t / p.chunks % p.heads, hk = h / share;
    if (packed != b * p.kv_heads + hk) {
      packed = b * p.kv_heads + hk;
      packColumns(keys, k, at4(&p.k, b, hk, 0), p.k.st, p.k.sd, p.tk, p.d, NR, 1, p.dt);
      packRows(values, v, at4(&p.v, b, hk, 0), p.v.st, p.v.sd, p.tk, p.dv_size, p.tk, 1, p.dt);
    }
    const long q_first = t % p.chunks * p.block, q_end = min(p.tq, q_first + p.block);
    for (long q0 = q_first; q0 < q_end; q0 += MR) {
      const long rows = min((long)MR, q_end - q0);
      const long limit = p.causal ? min(p.tk, q0 + rows) : p.tk, panels = panelsOf(limit);
      packColumns(qp, q, at4(&p.q, b, h, q0), p.q.st, p.q.sd, rows, p.d, MR, scale, p.dt);
      vec acc[2 * MR];
      for (long j = 0; j < panels; ++j) {
        tilePacked(acc, qp, MR, keys + j * p.d * NR, NR, p.d);
        keepTile(acc, s + j * NR, ld, rows);
      }
      real over[MR];
      for (long r = 0; r < rows; ++r) {
        global real* row = s + r * ld;
        const long seen = p.causal ? min(p.tk, q0 + r + 1) : p.tk;
        maskRow(row, bias, at4(&p.bias, b, h, q0 + r), p.bias.sd, seen, panels * NR, p.has_bias, p.dt);
        vec tops = (vec)(-INFINITY);
        for (long c = 0; c < panels * NR; c += VL) {
          const vec x = VLOAD(row + c);
          tops = fmax(tops, x);
        }
        real lanes[VL], top = -INFINITY;
        VSTORE(tops, lanes);
        for (int i = 0; i < VL; ++i) top = fmax(top, lanes[i]);
        real sum = 0;
        if (top == -INFINITY) {
          // Nothing to attend to gives zeros; NaN in every score gives NaN.
          for (long c = 0; c < panels * NR; ++c) {
            if (isnan(row[c])) sum = NAN;
            row[c] = 0;
          }
          over[r] = sum;
        } else {
          vec sums = 0;
          for (long c = 0; c < panels * NR; c += VL) {
            const vec e = expNegative(VLOAD(row + c) - top);
            sums += e;
            VSTORE(e, row + c);
          }
          sum = sumOf(sums);
          over[r] = 1 / sum;
        }
        lse[p.lse_off + (b * p.heads + h) * p.tq + q0 + r] = top + (top == -INFINITY ? sum : log(sum));
      }
      for (long c0 = 0, j = 0; c0 < p.dv_size; c0 += NR, ++j) {
        tileRows(acc, s, ld, 1, rows, values + j * p.tk * NR, NR, limit);
        putTile(acc, over, o, at4(&p.o, b, h, q0) + c0 * p.o.sd, p.o.st, p.o.sd, rows, min((long)NR, p.dv_size - c0), p.dt);
      }
    }
  }
}

// A worker owns the keys of a head (all query heads that share them), so nothing is added by two.
kernel void attention_grad_wide(global const void* q, global const void* k, global const void* v, global const void* bias,
                                global const void* o, global const real* lse, global const void* g, global void* dq,
                                global void* dk, global void* dv, global real* scratch, const AttentionParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  const long first = p.tasks * worker / workers, last = p.tasks * (worker + 1) / workers;
  global real* k_cols = scratch + p.scratch_off + worker * p.scratch_stride;
  global real* k_rows = k_cols + p.k_rows;
  global real* v_cols = k_cols + p.v_cols;
  global real* dk_sum = k_cols + p.dk_sum;
  global real* dv_sum = k_cols + p.dv_sum;
  global real* q_cols = k_cols + p.q_cols;
  global real* g_cols = k_cols + p.g_cols;
  global real* q_rows = k_cols + p.q_rows;
  global real* g_rows = k_cols + p.g_rows;
  global real* s = k_cols + p.scores;
  global real* ds = k_cols + p.grads;
  const long ld = panelsOf(p.tk) * NR, share = p.heads / p.kv_heads, block = p.block;
  const real scale = realOf(p.scale);
  real ones[MR], scales[MR];
  for (int r = 0; r < MR; ++r) ones[r] = 1, scales[r] = scale;
  for (long t = first; t < last; ++t) {
    const long b = t / p.kv_heads, hk = t % p.kv_heads;
    packColumns(k_cols, k, at4(&p.k, b, hk, 0), p.k.st, p.k.sd, p.tk, p.d, NR, 1, p.dt);
    packRows(k_rows, k, at4(&p.k, b, hk, 0), p.k.st, p.k.sd, p.tk, p.d, p.tk, 1, p.dt);
    packColumns(v_cols, v, at4(&p.v, b, hk, 0), p.v.st, p.v.sd, p.tk, p.dv_size, NR, 1, p.dt);
    for (long i = 0; i < panelsOf(p.d) * ld * NR; i += VL) VSTORE((vec)0, dk_sum + i);
    for (long i = 0; i < panelsOf(p.dv_size) * ld * NR; i += VL) VSTORE((vec)0, dv_sum + i);
    for (long h = hk * share; h < (hk + 1) * share; ++h)
      for (long q0 = 0; q0 < p.tq; q0 += block) {
        const long rows = min(block, p.tq - q0), limit = p.causal ? min(p.tk, q0 + rows) : p.tk, width = panelsOf(limit) * NR;
        const long q_off = at4(&p.q, b, h, q0), g_off = at4(&p.g, b, h, q0);
        packColumns(q_cols, q, q_off, p.q.st, p.q.sd, rows, p.d, MR, scale, p.dt);
        packRows(q_rows, q, q_off, p.q.st, p.q.sd, rows, p.d, block, scale, p.dt);
        packColumns(g_cols, g, g_off, p.g.st, p.g.sd, rows, p.dv_size, MR, 1, p.dt);
        packRows(g_rows, g, g_off, p.g.st, p.g.sd, rows, p.dv_size, block, 1, p.dt);
        vec acc[2 * MR];
        for (long r0 = 0; r0 < rows; r0 += MR) {
          const long some = min((long)MR, rows - r0), panels = panelsOf(p.causal ? min(p.tk, q0 + r0 + some) : p.tk);
          for (long j = 0; j < panels; ++j) {
            tilePacked(acc, q_cols + r0 * p.d, MR, k_cols + j * p.d * NR, NR, p.d);
            keepTile(acc, s + r0 * ld + j * NR, ld, some);
            tilePacked(acc, g_cols + r0 * p.dv_size, MR, v_cols + j * p.dv_size * NR, NR, p.dv_size);
            keepTile(acc, ds + r0 * ld + j * NR, ld, some);
          }
          for (long r = r0; r < r0 + some; ++r) {
            global real *row = s + r * ld, *slope = ds + r * ld;
            const long seen = p.causal ? min(p.tk, q0 + r + 1) : p.tk;
            maskRow(row, bias, at4(&p.bias, b, h, q0 + r), p.bias.sd, seen, width, p.has_bias, p.dt);
            real delta = 0;
            const long o_off = at4(&p.o, b, h, q0 + r), gr = g_off + r * p.g.st;
            for (long c = 0; c < p.dv_size; ++c) delta += loadElem(o, o_off + c * p.o.sd, p.dt) * loadElem(g, gr + c * p.g.sd, p.dt);
            const real total = lse[p.lse_off + (b * p.heads + h) * p.tq + q0 + r];
            for (long c = 0; c < width; c += VL) {
              const vec e = total == -INFINITY ? (vec)0 : expNegative(VLOAD(row + c) - total);
              const vec d = c < panels * NR ? e * (VLOAD(slope + c) - delta) : (vec)0;
              VSTORE(e, row + c);
              VSTORE(d, slope + c);
            }
          }
          const long reach = p.causal ? min(p.tk, q0 + r0 + some) : p.tk;
          for (long c0 = 0, j = 0; c0 < p.d; c0 += NR, ++j) {
            tileRows(acc, ds + r0 * ld, ld, 1, some, k_rows + j * p.tk * NR, NR, reach);
            putTile(acc, scales, dq, at4(&p.dq, b, h, q0 + r0) + c0 * p.dq.sd, p.dq.st, p.dq.sd, some, min((long)NR, p.d - c0), p.dt);
          }
        }
        for (long c0 = 0; c0 < limit; c0 += MR) {
          // Earlier queries do not see these keys.
          const long skip = p.causal ? clamp(c0 - q0, 0L, rows) : 0;
          for (long j = 0; j < panelsOf(p.dv_size); ++j) {
            tilePacked(acc, s + skip * ld + c0, ld, g_rows + (j * block + skip) * NR, NR, rows - skip);
            addTile(acc, dv_sum + (j * ld + c0) * NR);
          }
          for (long j = 0; j < panelsOf(p.d); ++j) {
            tilePacked(acc, ds + skip * ld + c0, ld, q_rows + (j * block + skip) * NR, NR, rows - skip);
            addTile(acc, dk_sum + (j * ld + c0) * NR);
          }
        }
      }
    for (long k0 = 0; k0 < p.tk; k0 += MR) {
      const long rows = min((long)MR, p.tk - k0);
      vec acc[2 * MR];
      for (long c0 = 0, j = 0; c0 < p.d; c0 += NR, ++j) {
        for (int i = 0; i < 2 * MR; ++i) acc[i] = VLOAD(dk_sum + (j * ld + k0) * NR + i * VL);
        putTile(acc, ones, dk, at4(&p.dk, b, hk, k0) + c0 * p.dk.sd, p.dk.st, p.dk.sd, rows, min((long)NR, p.d - c0), p.dt);
      }
      for (long c0 = 0, j = 0; c0 < p.dv_size; c0 += NR, ++j) {
        for (int i = 0; i < 2 * MR; ++i) acc[i] = VLOAD(dv_sum + (j * ld + k0) * NR + i * VL);
        putTile(acc, ones, dv, at4(&p.dv, b, hk, k0) + c0 * p.dv.sd, p.dv.st, p.dv.sd, rows, min((long)NR, p.dv_size - c0), p.dt);
      }
    }
  }
}

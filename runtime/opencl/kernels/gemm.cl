// Matrix products. gemm_tile.cl comes first in the program's text. Parameter structs are mirrored in ops/gemm.cpp:
// eight-byte members only, so that both compilers lay them out alike.
typedef struct {
  long a_off, b_off, o_off, s_off;        // elements
  long am, ak, ab, a_tile;                // a_tile: distance between two 8-row tiles (8 * am, or packed)
  long bk, bn, bb;
  long om, on, ob, sm, sn, sb;
  long m, n, k, batch;
  long m_block, m_blocks, n_panels, tasks;
  long group, k_block;                    // gemm_blocked: panels packed at once, and how deep
  long scratch_off, scratch_stride;       // reals: the panels of b of a worker
  long dt, a_packed, b_direct, use_self;
  number alpha, beta;
} GemmParams;

// rows x cols of out from the register tile. Whole vectors where memory allows it, else element by element.
inline void storeTile(const vec* acc, global void* out, global const void* self, const GemmParams* p, long o, long s,
                      long rows, long cols) {
  const real alpha = realOf(p->alpha), beta = realOf(p->beta);
  const bool whole = p->on == 1 && cols == NR && (!p->use_self || p->sn == 1);
  for (long r = 0; r < rows; ++r, o += p->om, s += p->sm) {
    vec v0 = acc[2 * r] * alpha, v1 = acc[2 * r + 1] * alpha;
    if (whole) {
      if (p->use_self) {
        v0 += loadVec(self, s, p->dt) * beta;
        v1 += loadVec(self, s + VL, p->dt) * beta;
      }
      storeVec(out, o, v0, p->dt);
      storeVec(out, o + VL, v1, p->dt);
      continue;
    }
    real row[NR];
    VSTORE(v0, row);
    VSTORE(v1, row + VL);
    if (p->use_self)
      for (long j = 0; j < cols; ++j) row[j] += beta * loadElem(self, s + j * p->sn, p->dt);
    for (long j = 0; j < cols; ++j) storeElem(out, o + j * p->on, row[j], p->dt);
  }
}

// One panel of b, k x NR, zero beyond `cols`.
inline void packPanel(global real* dst, global const void* b, long off, long bk, long bn, long depth, long cols, long dt) {
  if (bn == 1 && cols == NR) {
    for (long k = 0; k < depth; ++k) {
      VSTORE(loadVec(b, off + k * bk, dt), dst + k * NR);
      VSTORE(loadVec(b, off + k * bk + VL, dt), dst + k * NR + VL);
    }
    return;
  }
  long j = 0;
  if (bk == 1)   // a transposed matrix
    for (; j + 8 <= cols; j += 8) {
      const long at = off + j * bn;
      long k = 0;
      for (; k + 8 <= depth; k += 8) {
        const long i = at + k;
        const block r0 = loadBlock(b, i, dt), r1 = loadBlock(b, i + bn, dt), r2 = loadBlock(b, i + 2 * bn, dt), r3 = loadBlock(b, i + 3 * bn, dt);
        const block r4 = loadBlock(b, i + 4 * bn, dt), r5 = loadBlock(b, i + 5 * bn, dt), r6 = loadBlock(b, i + 6 * bn, dt),
                    r7 = loadBlock(b, i + 7 * bn, dt);
        global real* d = dst + k * NR + j;
        TURN_ROWS
        TURN_STORE(d, NR)
      }
      for (; k < depth; ++k)
        for (long q = 0; q < 8; ++q) dst[k * NR + j + q] = loadElem(b, at + q * bn + k, dt);
    }
  for (; j < cols; ++j)
    for (long k = 0; k < depth; ++k) dst[k * NR + j] = loadElem(b, off + k * bk + j * bn, dt);
  for (long j = cols; j < NR; ++j)
    for (long k = 0; k < depth; ++k) dst[k * NR + j] = 0;
}

// A work-item is a worker: it takes a run of tasks (batch, panel of NR columns, block of rows), packs a panel of b once
// for its run, and sweeps register tiles down the rows.
kernel void gemm_wide(global const real* a, global const void* b, global void* out, global const void* self,
                      global real* scratch, const GemmParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  const long first = p.tasks * worker / workers, end = p.tasks * (worker + 1) / workers;
  global real* panel = scratch + p.scratch_off + worker * p.scratch_stride;
  long packed = -1;
  for (long t = first; t < end; ++t) {
    const long column = t / p.m_blocks, block = t % p.m_blocks;
    const long batch = column / p.n_panels, n0 = (column % p.n_panels) * NR;
    const long cols = min((long)NR, p.n - n0);
    const long b_off = p.b_off + batch * p.bb + n0 * p.bn;
    global const real* bp = panel;
    long ldb = NR;
    if (p.b_direct && cols == NR) {
      bp = (global const real*)b + b_off;
      ldb = p.bk;
    } else if (packed != column) {
      packPanel(panel, b, b_off, p.bk, p.bn, p.k, cols, p.dt);
      packed = column;
    }
    const long m_end = min(p.m, (block + 1) * p.m_block);
    for (long m0 = block * p.m_block; m0 < m_end; m0 += MR) {
      const long rows = min((long)MR, m_end - m0);
      global const real* ap = a + p.a_off + batch * p.ab + (m0 / MR) * p.a_tile;
      vec acc[2 * MR];
      if (p.a_packed || (p.am == 1 && rows == MR))
        tilePacked(acc, ap, p.ak, bp, ldb, p.k);
      else
        tileRows(acc, ap, p.am, p.ak, rows, bp, ldb, p.k);
      storeTile(acc, out, self, &p, p.o_off + batch * p.ob + m0 * p.om + n0 * p.on,
                p.s_off + batch * p.sb + m0 * p.sm + n0 * p.sn, rows, cols);
    }
  }
}

// Deep products (a packed, out unrounded: DT_REAL). The depth is cut into blocks: `group` panels of b for one block stay in
// the worker's second-level cache, and every tile of a passes once for all of them. Later blocks add to out.
kernel void gemm_blocked(global const real* a, global const void* b, global void* out, global const void* self,
                         global real* scratch, const GemmParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0);
  const long groups = (p.n_panels + p.group - 1) / p.group;
  global real* panels = scratch + p.scratch_off + worker * p.scratch_stride;
  GemmParams later = p;
  later.use_self = 1, later.sm = p.om, later.sn = p.on;
#ifdef REAL_DOUBLE
  later.beta = as_long(1.0);
#else
  later.beta = as_int(1.0f);
#endif
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t) {
    const long column = t / p.m_blocks, block = t % p.m_blocks;
    const long batch = column / groups, first = column % groups * p.group, count = min(p.group, p.n_panels - first);
    const long m_end = min(p.m, (block + 1) * p.m_block);
    for (long k0 = 0; k0 < p.k; k0 += p.k_block) {
      const long depth = min(p.k_block, p.k - k0);
      for (long j = 0; j < count; ++j) {
        const long n0 = (first + j) * NR;
        packPanel(panels + j * depth * NR, b, p.b_off + batch * p.bb + k0 * p.bk + n0 * p.bn, p.bk, p.bn, depth,
                  min((long)NR, p.n - n0), p.dt);
      }
      for (long m0 = block * p.m_block; m0 < m_end; m0 += MR) {
        const long rows = min((long)MR, m_end - m0);
        global const real* ap = a + p.a_off + batch * p.ab + (m0 / MR) * p.a_tile + k0 * MR;
        for (long j = 0; j < count; ++j) {
          const long n0 = (first + j) * NR, cols = min((long)NR, p.n - n0);
          vec acc[2 * MR];
          tilePacked(acc, ap, MR, panels + j * depth * NR, NR, depth);
          const long o = p.o_off + batch * p.ob + m0 * p.om + n0 * p.on;
          if (k0 == 0)
            storeTile(acc, out, self, &p, o, p.s_off + batch * p.sb + m0 * p.sm + n0 * p.sn, rows, cols);
          else
            storeTile(acc, out, out, &later, o, o, rows, cols);
        }
      }
    }
  }
}

// a into panels [batch][ceil(m / 8)][k][8] of reals, zero beyond m. One work-item a tile.
typedef struct {
  long a_off, am, ak, ab, m, k, tiles, dt, dst_off;
} PackParams;

kernel void gemm_pack_rows(global const void* a, global real* dst, const PackParams p) {
  const long t = get_global_id(0), batch = t / p.tiles, m0 = (t % p.tiles) * MR;
  global real* d = dst + p.dst_off + t * p.k * MR;
  const long rows = min((long)MR, p.m - m0);
  const long src = p.a_off + batch * p.ab + m0 * p.am;
  long k0 = 0;
  if (p.ak == 1 && rows == MR)
    for (; k0 + 8 <= p.k; k0 += 8) {
      const long i = src + k0;
      const block r0 = loadBlock(a, i, p.dt), r1 = loadBlock(a, i + p.am, p.dt), r2 = loadBlock(a, i + 2 * p.am, p.dt),
                  r3 = loadBlock(a, i + 3 * p.am, p.dt);
      const block r4 = loadBlock(a, i + 4 * p.am, p.dt), r5 = loadBlock(a, i + 5 * p.am, p.dt), r6 = loadBlock(a, i + 6 * p.am, p.dt),
                  r7 = loadBlock(a, i + 7 * p.am, p.dt);
      global real* to = d + k0 * MR;
      TURN_ROWS
      TURN_STORE(to, MR)
    }
  for (long k = k0; k < p.k; ++k)
    for (long r = 0; r < MR; ++r) d[k * MR + r] = r < rows ? loadElem(a, src + r * p.am + k * p.ak, p.dt) : (real)0;
}

// out[b,m,n] = alpha * value + beta * self[b,m,n].
typedef struct {
  long o_off, om, on, ob, s_off, sm, sn, sb, m, n, slices, part_off, total, chunk, dt, use_self;
  number alpha, beta;
} FinishParams;

inline void finishElem(global void* out, global const void* self, const FinishParams* f, long batch, long m, long n, real v) {
  v *= realOf(f->alpha);
  if (f->use_self) v += realOf(f->beta) * loadElem(self, f->s_off + batch * f->sb + m * f->sm + n * f->sn, f->dt);
  storeElem(out, f->o_off + batch * f->ob + m * f->om + n * f->on, v, f->dt);
}

// y[m] = sum_k a[m,k] x[k]. With several slices of k each gives a partial sum, part[batch][slice][m], for gemv_finish.
typedef struct {
  long a_off, am, ak, ab, x_off, xk, xb, m, k, m_block, m_blocks, slices, dt, part_off;
} GemvParams;

inline real sumLanes(vec v) {
#ifdef REAL_DOUBLE
  const double4 h = v.lo + v.hi;
#else
  const float8 e = v.lo + v.hi;
  const float4 h = e.lo + e.hi;
#endif
  return (h.s0 + h.s2) + (h.s1 + h.s3);
}

// Eight rows of a at once, so that sums do not wait for each other.
#define GEMV_ROW(r) s##r += VLOAD(ar + r * p.am + k) * xv;
#define GEMV_REST(r) sums[r] = sumLanes(s##r) + (left ? rest[r] : 0);

kernel void gemv_wide(global const void* a, global const void* x, global real* part, global void* out,
                      global const void* self, const GemvParams p, const FinishParams f) {
  const long t = get_global_id(0);
  const long slice = t % p.slices, block = (t / p.slices) % p.m_blocks, batch = t / p.slices / p.m_blocks;
  const long k0 = p.k * slice / p.slices, k1 = p.k * (slice + 1) / p.slices;
  const long m0 = block * p.m_block, m1 = min(p.m, m0 + p.m_block);
  global real* y = part + p.part_off + (batch * p.slices + slice) * p.m;
  const long a_off = p.a_off + batch * p.ab, x_off = p.x_off + batch * p.xb;
  const bool plain = p.dt == DT_REAL;
  long m = m0;
  while (m < m1) {
    real sums[2 * VL];
    long made = 1;
    if (plain && p.am == 1 && p.ak != 1 && m + 2 * VL <= m1) {
      global const real* ac = (global const real*)a + a_off + m;
      vec s0 = 0, s1 = 0;
      for (long k = k0; k < k1; ++k) {
        const vec xv = (vec)(((global const real*)x)[x_off + k * p.xk]);
        s0 += VLOAD(ac + k * p.ak) * xv;
        s1 += VLOAD(ac + k * p.ak + VL) * xv;
      }
      VSTORE(s0, sums);
      VSTORE(s1, sums + VL);
      made = 2 * VL;
    } else if (plain && p.ak == 1 && p.xk == 1 && m + 8 <= m1) {
      global const real* ar = (global const real*)a + a_off + m * p.am;
      global const real* xr = (global const real*)x + x_off;
      vec s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
      long k = k0;
      for (; k + VL <= k1; k += VL) {
        const vec xv = VLOAD(xr + k);
        GEMV_ROW(0) GEMV_ROW(1) GEMV_ROW(2) GEMV_ROW(3) GEMV_ROW(4) GEMV_ROW(5) GEMV_ROW(6) GEMV_ROW(7)
      }
      const bool left = k < k1;
      real rest[8];
      if (left)
        for (int r = 0; r < 8; ++r) {
          rest[r] = 0;
          for (long i = k; i < k1; ++i) rest[r] += ar[r * p.am + i] * xr[i];
        }
      GEMV_REST(0) GEMV_REST(1) GEMV_REST(2) GEMV_REST(3) GEMV_REST(4) GEMV_REST(5) GEMV_REST(6) GEMV_REST(7)
      made = 8;
    } else if (plain && p.ak == 1 && p.xk == 1) {
      global const real* ar = (global const real*)a + a_off + m * p.am;
      global const real* xr = (global const real*)x + x_off;
      vec s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      long k = k0;
      for (; k + 4 * VL <= k1; k += 4 * VL) {
        s0 += VLOAD(ar + k) * VLOAD(xr + k);
        s1 += VLOAD(ar + k + VL) * VLOAD(xr + k + VL);
        s2 += VLOAD(ar + k + 2 * VL) * VLOAD(xr + k + 2 * VL);
        s3 += VLOAD(ar + k + 3 * VL) * VLOAD(xr + k + 3 * VL);
      }
      for (; k + VL <= k1; k += VL) s0 += VLOAD(ar + k) * VLOAD(xr + k);
      real lanes[VL], sum = 0;
      VSTORE((s0 + s1) + (s2 + s3), lanes);
      for (int i = 0; i < VL; ++i) sum += lanes[i];
      for (; k < k1; ++k) sum += ar[k] * xr[k];
      sums[0] = sum;
    } else {
      real run = 0, sum = 0;
      for (long k = k0; k < k1; ++k) {
        run += loadElem(a, a_off + m * p.am + k * p.ak, p.dt) * loadElem(x, x_off + k * p.xk, p.dt);
        if ((k & 255) == 255) {  // short partial sums keep the error near that of the vector paths
          sum += run;
          run = 0;
        }
      }
      sums[0] = sum + run;
    }
    for (long i = 0; i < made; ++i, ++m) {
      if (p.slices == 1)
        finishElem(out, self, &f, batch, m, 0, sums[i]);
      else
        y[m] = sums[i];
    }
  }
}

// The slices together. Also the whole of K = 0 (no slices at all).
kernel void gemv_finish(global const real* part, global void* out, global const void* self, const FinishParams p) {
  const long first = (long)get_global_id(0) * p.chunk, end = min(p.total, first + p.chunk);
  const long plane = p.m * p.n;
  for (long i = first; i < end; ++i) {
    const long batch = i / plane, m = i % plane / p.n, n = i % p.n;
    real sum = 0;
    for (long s = 0; s < p.slices; ++s) sum += part[p.part_off + (batch * p.slices + s) * p.m + m];
    finishElem(out, self, &p, batch, m, n, sum);
  }
}

// GPU-shaped: a 16 x 16 work-group makes a 64 x 64 tile of out, 4 x 4 a work-item, through local memory.
#define TS 16
#define TW 4
kernel void gemm_tiled(global const void* a, global const void* b, global void* out, global const void* self,
                       const GemmParams p) {
  local real la[TS][TS * TW + 1], lb[TS][TS * TW + 1];
  const int lx = get_local_id(0), ly = get_local_id(1), lid = ly * TS + lx;
  const long n0 = (long)get_group_id(0) * TS * TW, m0 = (long)get_group_id(1) * TS * TW, batch = get_group_id(2);
  real acc[TW][TW];
  for (int i = 0; i < TW; ++i)
    for (int j = 0; j < TW; ++j) acc[i][j] = 0;
  for (long k0 = 0; k0 < p.k; k0 += TS) {
    for (int e = lid; e < TS * TS * TW; e += TS * TS) {
      const int k = e / (TS * TW), c = e % (TS * TW);
      const bool in_k = k0 + k < p.k;
      la[k][c] = in_k && m0 + c < p.m ? loadElem(a, p.a_off + batch * p.ab + (m0 + c) * p.am + (k0 + k) * p.ak, p.dt) : (real)0;
      lb[k][c] = in_k && n0 + c < p.n ? loadElem(b, p.b_off + batch * p.bb + (k0 + k) * p.bk + (n0 + c) * p.bn, p.dt) : (real)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < TS; ++k)
      for (int i = 0; i < TW; ++i)
        for (int j = 0; j < TW; ++j) acc[i][j] += la[k][ly + i * TS] * lb[k][lx + j * TS];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < TW; ++i)
    for (int j = 0; j < TW; ++j) {
      const long m = m0 + ly + i * TS, n = n0 + lx + j * TS;
      if (m >= p.m || n >= p.n) continue;
      real v = realOf(p.alpha) * acc[i][j];
      if (p.use_self) v += realOf(p.beta) * loadElem(self, p.s_off + batch * p.sb + m * p.sm + n * p.sn, p.dt);
      storeElem(out, p.o_off + batch * p.ob + m * p.om + n * p.on, v, p.dt);
    }
}

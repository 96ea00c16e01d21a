// Scaled-dot-product attention, GPU-shaped: a 16 x 16 work-group makes 16 (or 32) queries of one head and walks over the
// keys 16 at a time, in one pass (running maximum and sum). gemm_tile.cl and attention.cl come first in the text; HD is
// the size of a head rounded up to a multiple of 16.
#define G 16
#define EACH (HD / G)
#if HD > 64
#define QROWS 1
#else
#define QROWS 2
#endif

inline void loadTile(local real (*to)[HD + 1], int rows, global const void* x, const View* view, long b, long h, long t0,
                     long end, long size, real factor, long dt, int lid) {
  for (int e = lid; e < rows * HD; e += G * G) {
    const int r = e / HD, c = e % HD;
    to[r][c] = t0 + r < end && c < size ? loadElem(x, at4(view, b, h, t0 + r) + c * view->sd, dt) * factor : (real)0;
  }
}

// The score of query i and key j, or minus infinity where it is not to be seen.
inline real scoreOf(real dot, global const void* bias, const AttentionParams* p, long b, long h, long i, long j) {
  if (i >= p->tq || j >= p->tk || (p->causal && j > i)) return -INFINITY;
  return p->has_bias ? dot + loadElem(bias, at4(&p->bias, b, h, i) + j * p->bias.sd, p->dt) : dot;
}

kernel __attribute__((reqd_work_group_size(G, G, 1)))
void attention_tiled(global const void* q, global const void* k, global const void* v, global const void* bias,
                     global void* o, global real* lse, const AttentionParams p) {
  local real lq[G * QROWS][HD + 1], lk[G][HD + 1], lp[G * QROWS][G + 1];
  const int lx = get_local_id(0), ly = get_local_id(1), lid = ly * G + lx;
  const long b = (long)get_group_id(1) / p.heads, h = (long)get_group_id(1) % p.heads, hk = h / (p.heads / p.kv_heads);
  const long q0 = (long)get_group_id(0) * G * QROWS;
  loadTile(lq, G * QROWS, q, &p.q, b, h, q0, p.tq, p.d, realOf(p.scale), p.dt, lid);
  real acc[QROWS][EACH], top[QROWS], sum[QROWS];
  for (int i = 0; i < QROWS; ++i) {
    top[i] = -INFINITY, sum[i] = 0;
    for (int j = 0; j < EACH; ++j) acc[i][j] = 0;
  }
  const long limit = p.causal ? min(p.tk, q0 + G * QROWS) : p.tk;
  for (long k0 = 0; k0 < limit; k0 += G) {
    barrier(CLK_LOCAL_MEM_FENCE);
    loadTile(lk, G, k, &p.k, b, hk, k0, p.tk, p.d, 1, p.dt, lid);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < QROWS; ++i) {
      const int row = ly + i * G;
      real dot = 0;
      for (int c = 0; c < HD; ++c) dot += lq[row][c] * lk[lx][c];
      lp[row][lx] = scoreOf(dot, bias, &p, b, h, q0 + row, k0 + lx);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    loadTile(lk, G, v, &p.v, b, hk, k0, p.tk, p.dv_size, 1, p.dt, lid);
    real mine[QROWS];
    for (int i = 0; i < QROWS; ++i) {
      const int row = ly + i * G;
      real best = top[i];
      bool odd = false;
      for (int c = 0; c < G; ++c) best = fmax(best, lp[row][c]), odd |= isnan(lp[row][c]);
      const real shrink = best == -INFINITY ? (real)1 : exp(top[i] - best);
      mine[i] = odd ? (real)NAN : best == -INFINITY ? (real)0 : exp(lp[row][lx] - best);
      sum[i] *= shrink;
      for (int j = 0; j < EACH; ++j) acc[i][j] *= shrink;
      top[i] = best;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < QROWS; ++i) lp[ly + i * G][lx] = mine[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < QROWS; ++i)
      for (int c = 0; c < G; ++c) {
        if (k0 + c >= limit) break;
        const real e = lp[ly + i * G][c];
        sum[i] += e;
        for (int j = 0; j < EACH; ++j) acc[i][j] += e * lk[c][lx + j * G];
      }
  }
  for (int i = 0; i < QROWS; ++i) {
    const long t = q0 + ly + i * G;
    if (t >= p.tq) continue;
    const real over = sum[i] == 0 ? (real)0 : 1 / sum[i];
    for (int j = 0; j < EACH; ++j)
      if (lx + j * G < p.dv_size) storeElem(o, at4(&p.o, b, h, t) + (lx + j * G) * p.o.sd, acc[i][j] * over, p.dt);
    if (lx == 0) lse[p.lse_off + (b * p.heads + h) * p.tq + t] = sum[i] == 0 ? (real)-INFINITY : top[i] + log(sum[i]);
  }
}

// Rows t0 .. t0 + 15: the sum of o * g, by the first lane of each row.
inline void loadDelta(local real* delta, local real* total, global const void* o, global const real* lse, local real (*lg)[HD + 1],
                      const AttentionParams* p, long b, long h, long t0, int lx, int ly) {
  if (lx != 0) return;
  real sum = 0;
  const long t = t0 + ly;
  if (t < p->tq)
    for (long c = 0; c < p->dv_size; ++c) sum += loadElem(o, at4(&p->o, b, h, t) + c * p->o.sd, p->dt) * lg[ly][c];
  delta[ly] = sum;
  total[ly] = t < p->tq ? lse[p->lse_off + (b * p->heads + h) * p->tq + t] : (real)-INFINITY;
}

inline real weightOf(real score, real total) { return total == -INFINITY ? (real)0 : exp(score - total); }

kernel __attribute__((reqd_work_group_size(G, G, 1)))
void attention_grad_q_tiled(global const void* q, global const void* k, global const void* v, global const void* bias,
                            global const void* o, global const real* lse, global const void* g, global void* dq,
                            const AttentionParams p) {
  local real lq[G][HD + 1], lg[G][HD + 1], lk[G][HD + 1], lv[G][HD + 1], ls[G][G + 1], delta[G], total[G];
  const int lx = get_local_id(0), ly = get_local_id(1), lid = ly * G + lx;
  const long b = (long)get_group_id(1) / p.heads, h = (long)get_group_id(1) % p.heads, hk = h / (p.heads / p.kv_heads);
  const long q0 = (long)get_group_id(0) * G;
  const real scale = realOf(p.scale);
  loadTile(lq, G, q, &p.q, b, h, q0, p.tq, p.d, scale, p.dt, lid);
  loadTile(lg, G, g, &p.g, b, h, q0, p.tq, p.dv_size, 1, p.dt, lid);
  barrier(CLK_LOCAL_MEM_FENCE);
  loadDelta(delta, total, o, lse, lg, &p, b, h, q0, lx, ly);
  real acc[EACH];
  for (int j = 0; j < EACH; ++j) acc[j] = 0;
  const long limit = p.causal ? min(p.tk, q0 + G) : p.tk;
  for (long k0 = 0; k0 < limit; k0 += G) {
    barrier(CLK_LOCAL_MEM_FENCE);
    loadTile(lk, G, k, &p.k, b, hk, k0, p.tk, p.d, 1, p.dt, lid);
    loadTile(lv, G, v, &p.v, b, hk, k0, p.tk, p.dv_size, 1, p.dt, lid);
    barrier(CLK_LOCAL_MEM_FENCE);
    real dot = 0, slope = 0;
    for (int c = 0; c < HD; ++c) dot += lq[ly][c] * lk[lx][c], slope += lg[ly][c] * lv[lx][c];
    ls[ly][lx] = weightOf(scoreOf(dot, bias, &p, b, h, q0 + ly, k0 + lx), total[ly]) * (slope - delta[ly]);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int c = 0; c < G; ++c)
      for (int j = 0; j < EACH; ++j) acc[j] += ls[ly][c] * lk[c][lx + j * G];
  }
  const long t = q0 + ly;
  if (t < p.tq)
    for (int j = 0; j < EACH; ++j)
      if (lx + j * G < p.d) storeElem(dq, at4(&p.dq, b, h, t) + (lx + j * G) * p.dq.sd, acc[j] * scale, p.dt);
}

kernel __attribute__((reqd_work_group_size(G, G, 1)))
void attention_grad_kv_tiled(global const void* q, global const void* k, global const void* v, global const void* bias,
                             global const void* o, global const real* lse, global const void* g, global void* dk,
                             global void* dv, const AttentionParams p) {
  local real lq[G][HD + 1], lg[G][HD + 1], lk[G][HD + 1], lv[G][HD + 1], lp[G][G + 1], ls[G][G + 1], delta[G], total[G];
  const int lx = get_local_id(0), ly = get_local_id(1), lid = ly * G + lx;
  const long b = (long)get_group_id(1) / p.kv_heads, hk = (long)get_group_id(1) % p.kv_heads, share = p.heads / p.kv_heads;
  const long k0 = (long)get_group_id(0) * G;
  loadTile(lk, G, k, &p.k, b, hk, k0, p.tk, p.d, 1, p.dt, lid);
  loadTile(lv, G, v, &p.v, b, hk, k0, p.tk, p.dv_size, 1, p.dt, lid);
  real sum_k[EACH], sum_v[EACH];
  for (int j = 0; j < EACH; ++j) sum_k[j] = sum_v[j] = 0;
  for (long h = hk * share; h < (hk + 1) * share; ++h)
    for (long q0 = p.causal ? k0 : 0; q0 < p.tq; q0 += G) {
      barrier(CLK_LOCAL_MEM_FENCE);
      loadTile(lq, G, q, &p.q, b, h, q0, p.tq, p.d, realOf(p.scale), p.dt, lid);
      loadTile(lg, G, g, &p.g, b, h, q0, p.tq, p.dv_size, 1, p.dt, lid);
      barrier(CLK_LOCAL_MEM_FENCE);
      loadDelta(delta, total, o, lse, lg, &p, b, h, q0, lx, ly);
      barrier(CLK_LOCAL_MEM_FENCE);
      real dot = 0, slope = 0;
      for (int c = 0; c < HD; ++c) dot += lq[ly][c] * lk[lx][c], slope += lg[ly][c] * lv[lx][c];
      const real e = weightOf(scoreOf(dot, bias, &p, b, h, q0 + ly, k0 + lx), total[ly]);
      lp[ly][lx] = e;
      ls[ly][lx] = e * (slope - delta[ly]);
      barrier(CLK_LOCAL_MEM_FENCE);
      for (int c = 0; c < G; ++c)
        for (int j = 0; j < EACH; ++j) {
          sum_v[j] += lp[c][ly] * lg[c][lx + j * G];
          sum_k[j] += ls[c][ly] * lq[c][lx + j * G];
        }
    }
  const long t = k0 + ly;
  if (t >= p.tk) return;
  for (int j = 0; j < EACH; ++j) {
    if (lx + j * G < p.d) storeElem(dk, at4(&p.dk, b, hk, t) + (lx + j * G) * p.dk.sd, sum_k[j], p.dt);
    if (lx + j * G < p.dv_size) storeElem(dv, at4(&p.dv, b, hk, t) + (lx + j * G) * p.dv.sd, sum_v[j], p.dt);
  }
}

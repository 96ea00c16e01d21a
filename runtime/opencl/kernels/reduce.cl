// Reductions. A generated head defines the types X (loaded), A (accumulated), their vectors of 16 XV and AV, KI and KO
// (storage kinds), and the operator's macros, for one value and for vectors: PRE1/PREV(x) input to A, STEP1/STEPV(acc, v),
// INIT, FINISH(acc) (scalar A; `count` = numbers reduced, `mid` = the value of PAIRED). PAIRED: every output has a number
// of its own (mean, maximum) in `mids`, read as `mid` by PRE and FINISH.
//
// Kept dimensions are walked in row-major order; the reduced range is split in `splits` pieces of `piece` numbers, whose
// partial results go to out[split * kept + output]. Chains of additions stay short: vectors of lanes, blocks of 64
// steps, then the pieces.
//
// Longs of Meta: 0 kept, 1 reduced, 2 splits, 3 piece, 4 in offset, 5 out offset, 6 kept dims, 7 reduced dims,
// 8.. kept sizes, 20.. kept strides of in, 32.. of out, 44.. reduced sizes, 56.. reduced strides of in, 68 bits of the
// finishing number (indexed: offset of the indices), 69 offset of mids, 70 outputs (or column blocks) a work-item,
// 71.. kept strides of the indices.
typedef struct { long v[84]; } Meta;

#define MAXN(x, y) ((((x) > (y)) | ((x) != (x))) ? (x) : (y))
#define MINN(x, y) ((((x) < (y)) | ((x) != (x))) ? (x) : (y))
#define LOAD1(p, i) CONVX1(CAT2(LD1_, KI)(p, i))
#define LOADV(p, i) CONVXV(CAT2(LDV_, KI)(p, i))
#define STORE1(value, p, i) CAT2(ST1_, KO)(value, p, i)
#define BLOCK 64

#ifdef PAIRED
#define PARAMS global CAT2(PTR_, KO)* out0, global const CAT2(PTR_, KI)* in0, global const A* mids, const Meta m
#define MID(o) mids[m.v[69] + (o)]
#else
#define PARAMS global CAT2(PTR_, KO)* out0, global const CAT2(PTR_, KI)* in0, const Meta m
#define MID(o) 0
#endif

static A mergeLanes(AV v) {
  A t[16];
  vstore16(v, 0, t);
  for (int w = 8; w > 0; w >>= 1)
    for (int i = 0; i < w; ++i) t[i] = MERGE1(t[i], t[i + w]);
  return t[0];
}

// Offsets of the row-major position `index` of dimensions `sizes..` under two sets of strides.
#define WALK(index, nd, sizes, first, second, a, b)      \
  {                                                      \
    IDX left_ = (index);                                 \
    for (int d_ = (nd) - 1; d_ >= 0; --d_) {             \
      const IDX size_ = (IDX)m.v[(sizes) + d_];          \
      const IDX next_ = d_ ? left_ / size_ : 0;          \
      const IDX at_ = left_ - next_ * size_;             \
      left_ = next_;                                     \
      a += at_ * (IDX)m.v[(first) + d_];                 \
      b += at_ * (IDX)m.v[(second) + d_];                \
    }                                                    \
  }

#ifdef ROWS
// Reduced numbers are neighbours (or everything is strided): vectors run along the reduced dimension.
kernel void rows(PARAMS) {
  const IDX kept = (IDX)m.v[0], reduced = (IDX)m.v[1], splits = (IDX)m.v[2], piece = (IDX)m.v[3];
  const int knd = (int)m.v[6], rnd = (int)m.v[7];
  const IDX inner = (IDX)m.v[44 + rnd - 1], step = (IDX)m.v[56 + rnd - 1];
  const IDX per = (IDX)m.v[70];
  const A count = FINISH_NUMBER;
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, kept * splits);
  for (IDX item = (IDX)get_global_id(0) * per; item < last; ++item) {
    const IDX split = item / kept, o = item - split * kept;
    IDX ki = 0, ko = 0;
    WALK(o, knd, 8, 20, 32, ki, ko)
    const A mid = MID(o);
    global const CAT2(PTR_, KI)* p = in0 + m.v[4] + ki;
    IDX r = split * piece;
    const IDX end = min(r + piece, reduced);
    AV total = (AV)(INIT);
    A rest = INIT, restPart = INIT;
    int loose = 0;
    while (r < end) {
      IDX ro = 0, unused = 0;
      const IDX row = r / inner;
      const IDX col = r - row * inner;
      WALK(row, rnd - 1, 44, 56, 56, ro, unused)
      const IDX run = min(inner - col, end - r);
      global const CAT2(PTR_, KI)* q = p + ro + col * step;
      IDX j = 0;
      if (step == 1) {
        while (j + 64 <= run) {   // four chains, which do not wait for each other
          const IDX stop = min(run, j + 64 * BLOCK);
          AV part0 = (AV)(INIT), part1 = (AV)(INIT), part2 = (AV)(INIT), part3 = (AV)(INIT);
          for (; j + 64 <= stop; j += 64) {
            const XV x0 = LOADV(q, j), x1 = LOADV(q, j + 16), x2 = LOADV(q, j + 32), x3 = LOADV(q, j + 48);
            part0 = STEPV(part0, PREV(x0));
            part1 = STEPV(part1, PREV(x1));
            part2 = STEPV(part2, PREV(x2));
            part3 = STEPV(part3, PREV(x3));
          }
          part0 = MERGEV(part0, part1);
          part2 = MERGEV(part2, part3);
          total = MERGEV(total, part0);
          total = MERGEV(total, part2);
        }
        for (; j + 16 <= run; j += 16) {
          const XV x = LOADV(q, j);
          total = STEPV(total, PREV(x));
        }
      } else {
        while (j + 16 <= run) {
          const IDX stop = min(run, j + 16 * BLOCK);
          AV part = (AV)(INIT);
          for (; j + 16 <= stop; j += 16) {
            X t[16];
            for (int k = 0; k < 16; ++k) t[k] = LOAD1(q, (j + k) * step);
            const XV x = vload16(0, t);
            part = STEPV(part, PREV(x));
          }
          total = MERGEV(total, part);
        }
      }
      for (; j < run; ++j) {
        const X x = LOAD1(q, j * step);
        restPart = STEP1(restPart, PRE1(x));
        if (++loose == BLOCK) {
          rest = MERGE1(rest, restPart);
          restPart = INIT;
          loose = 0;
        }
      }
      r += run;
    }
    const A acc = MERGE1(mergeLanes(total), MERGE1(rest, restPart));
    STORE1(FINISH(acc), out0, m.v[5] + split * kept + ko);
  }
}
#endif

#ifdef COLUMNS
// The innermost kept dimension has stride 1: vectors run along it, and whole cache lines are used on every row.
#define ROW_STEP(c)                              \
  {                                              \
    const XV x = LOADV(q, (c) * 16);             \
    part##c = STEPV(part##c, PREV(x));           \
  }
kernel void columns(PARAMS) {
  const IDX kept = (IDX)m.v[0], reduced = (IDX)m.v[1], splits = (IDX)m.v[2], piece = (IDX)m.v[3];
  const int knd = (int)m.v[6], rnd = (int)m.v[7];
  const IDX inner = (IDX)m.v[44 + rnd - 1], step = (IDX)m.v[56 + rnd - 1];
  const IDX width = (IDX)m.v[8 + knd - 1], outStep = (IDX)m.v[32 + knd - 1];
  const IDX blocks = (width + 63) / 64, rows = kept / width;
  const IDX per = (IDX)m.v[70];
  const A count = FINISH_NUMBER;
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, rows * blocks * splits);
  for (IDX item = (IDX)get_global_id(0) * per; item < last; ++item) {
    const IDX split = item / (rows * blocks), within = item - split * (rows * blocks);
    const IDX row = within / blocks, first = (within - row * blocks) * 64;
    IDX ki = 0, ko = 0;
    WALK(row, knd - 1, 8, 20, 32, ki, ko)
    global const CAT2(PTR_, KI)* p = in0 + m.v[4] + ki + first;
    const IDX o = row * width + first;
    const int columns_ = (int)min(width - first, (IDX)64);
    const IDX end = min((split + 1) * piece, reduced);
    A acc[64];
#ifndef PAIRED
    if (columns_ == 64) {
      const A mid = 0;
      AV total0 = (AV)(INIT), total1 = (AV)(INIT), total2 = (AV)(INIT), total3 = (AV)(INIT);
      for (IDX r = split * piece; r < end;) {
        IDX ro = 0, unused = 0;
        const IDX outer = r / inner, at = r - outer * inner;
        WALK(outer, rnd - 1, 44, 56, 56, ro, unused)
        const IDX run = min(min(inner - at, end - r), (IDX)BLOCK);
        global const CAT2(PTR_, KI)* q = p + ro + at * step;
        AV part0 = (AV)(INIT), part1 = (AV)(INIT), part2 = (AV)(INIT), part3 = (AV)(INIT);
        for (IDX j = 0; j < run; ++j, q += step) {
          ROW_STEP(0) ROW_STEP(1) ROW_STEP(2) ROW_STEP(3)
        }
        total0 = MERGEV(total0, part0);
        total1 = MERGEV(total1, part1);
        total2 = MERGEV(total2, part2);
        total3 = MERGEV(total3, part3);
        r += run;
      }
      vstore16(total0, 0, acc);
      vstore16(total1, 1, acc);
      vstore16(total2, 2, acc);
      vstore16(total3, 3, acc);
    } else
#endif
    for (int c = 0; c < columns_; c += 16) {
      const int lanes = min(columns_ - c, 16);
#ifdef PAIRED
      A mt[16] = {0};
      for (int k = 0; k < lanes; ++k) mt[k] = MID(o + c + k);
      const AV mid = vload16(0, mt);
#else
      const A mid = 0;
#endif
      AV total = (AV)(INIT);
      for (IDX r = split * piece; r < end;) {
        IDX ro = 0, unused = 0;
        const IDX outer = r / inner, at = r - outer * inner;
        WALK(outer, rnd - 1, 44, 56, 56, ro, unused)
        const IDX run = min(min(inner - at, end - r), (IDX)BLOCK);
        global const CAT2(PTR_, KI)* q = p + ro + at * step + c;
        AV part = (AV)(INIT);
        if (lanes == 16) {
          for (IDX j = 0; j < run; ++j, q += step) {
            const XV x = LOADV(q, 0);
            part = STEPV(part, PREV(x));
          }
        } else {
          for (IDX j = 0; j < run; ++j, q += step) {
            X t[16] = {0};
            for (int k = 0; k < lanes; ++k) t[k] = LOAD1(q, k);
            const XV x = vload16(0, t);
            part = STEPV(part, PREV(x));
          }
        }
        total = MERGEV(total, part);
        r += run;
      }
      vstore16(total, 0, acc + c);
    }
    for (int c = 0; c < columns_; ++c) {
      const A mid = MID(o + c);
      STORE1(FINISH(acc[c]), out0, m.v[5] + split * kept + ko + (first + c) * outStep);
    }
  }
}
#endif

#ifdef GROUP
// One work-group an output and split: neighbours read neighbours, then a tree in local memory.
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void group(PARAMS) {
  local A shared[GROUP];
  const IDX kept = (IDX)m.v[0], reduced = (IDX)m.v[1], piece = (IDX)m.v[3];
  const int lid = (int)get_local_id(0);
  const IDX item = (IDX)get_group_id(0);
  const IDX split = item / kept, o = item - split * kept;
  const A count = FINISH_NUMBER;
  IDX ki = 0, ko = 0;
  WALK(o, (int)m.v[6], 8, 20, 32, ki, ko)
  const A mid = MID(o);
  global const CAT2(PTR_, KI)* p = in0 + m.v[4] + ki;
  const IDX end = min((split + 1) * piece, reduced);
  A acc = INIT;
  for (IDX r = split * piece + lid; r < end; r += GROUP) {
    IDX ro = 0, unused = 0;
    WALK(r, (int)m.v[7], 44, 56, 56, ro, unused)
    const X x = LOAD1(p, ro);
    acc = STEP1(acc, PRE1(x));
  }
  shared[lid] = acc;
  for (int w = GROUP / 2; w > 0; w >>= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < w) shared[lid] = MERGE1(shared[lid], shared[lid + w]);
  }
  if (lid == 0) STORE1(FINISH(shared[0]), out0, m.v[5] + split * kept + ko);
}
#endif

#ifdef THREAD
// One work-item an output and split: for short reductions, and where neighbouring outputs are neighbours in memory.
kernel void thread(PARAMS) {
  const IDX kept = (IDX)m.v[0], reduced = (IDX)m.v[1], splits = (IDX)m.v[2], piece = (IDX)m.v[3];
  const IDX item = (IDX)get_global_id(0);
  if (item >= kept * splits) return;
  const IDX split = item / kept, o = item - split * kept;
  const A count = FINISH_NUMBER;
  IDX ki = 0, ko = 0;
  WALK(o, (int)m.v[6], 8, 20, 32, ki, ko)
  const A mid = MID(o);
  global const CAT2(PTR_, KI)* p = in0 + m.v[4] + ki;
  const IDX end = min((split + 1) * piece, reduced);
  A acc = INIT, part = INIT;
  int loose = 0;
  for (IDX r = split * piece; r < end; ++r) {
    IDX ro = 0, unused = 0;
    WALK(r, (int)m.v[7], 44, 56, 56, ro, unused)
    const X x = LOAD1(p, ro);
    part = STEP1(part, PRE1(x));
    if (++loose == BLOCK) {
      acc = MERGE1(acc, part);
      part = INIT;
      loose = 0;
    }
  }
  acc = MERGE1(acc, part);
  STORE1(FINISH(acc), out0, m.v[5] + split * kept + ko);
}
#endif

#ifdef INDEXED
// Value and row-major position of the largest (or smallest) number; BETTER(x, best): NaN beats everything, and the first
// of equals stays.
#define BEATS(x, best) (((best) == (best)) & (BETTER(x, best) | ((x) != (x))))
#ifdef WIDE
kernel void indexed(global CAT2(PTR_, KO)* values, global long* indices, global const CAT2(PTR_, KI)* in0, const Meta m) {
  const IDX kept = (IDX)m.v[0], reduced = (IDX)m.v[1];
  const int rnd = (int)m.v[7];
  const IDX inner = (IDX)m.v[44 + rnd - 1], step = (IDX)m.v[56 + rnd - 1];
  const IDX per = (IDX)m.v[70];
  const IDX last = min(((IDX)get_global_id(0) + 1) * per, kept);
  for (IDX o = (IDX)get_global_id(0) * per; o < last; ++o) {
    IDX ki = 0, ko = 0;
    WALK(o, (int)m.v[6], 8, 20, 32, ki, ko)
    global const CAT2(PTR_, KI)* p = in0 + m.v[4] + ki;
    X best = LOAD1(p, 0);
    IDX where = 0;
#ifdef LANED
    // Dense and long: sixteen races at once, each with its own first place.
    if (rnd == 1 && step == 1 && inner >= 64) {
      XV bests = LOADV(p, 0);
      int16 places = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      int16 at = places;
      IDX j = 16;
      for (; j + 16 <= inner; j += 16) {
        at += 16;
        const XV x = LOADV(p, j);
        const int16 wins = BEATS(x, bests);
        bests = wins ? x : bests;
        places = wins ? at : places;
      }
      X b[16];
      int w[16];
      vstore16(bests, 0, b);
      vstore16(places, 0, w);
      best = b[0];
      where = w[0];
      for (int k = 1; k < 16; ++k) {
        const int equal = (b[k] == best) | ((b[k] != b[k]) & (best != best));
        if (BEATS(b[k], best) || (equal && w[k] < where)) {
          best = b[k];
          where = w[k];
        }
      }
      for (; j < inner; ++j) {
        const X x = LOAD1(p, j);
        if (BEATS(x, best)) {
          best = x;
          where = j;
        }
      }
    } else
#endif
    for (IDX r = 0; r < reduced;) {
      IDX ro = 0, unused = 0;
      WALK(r / inner, rnd - 1, 44, 56, 56, ro, unused)
      for (IDX j = 0; j < inner; ++j) {
        const X x = LOAD1(p, ro + j * step);
        if (BEATS(x, best)) {
          best = x;
          where = r + j;
        }
      }
      r += inner;
    }
#ifdef VALUES
    STORE1(best, values, m.v[5] + ko);
#endif
    IDX unused = 0, io = 0;
    WALK(o, (int)m.v[6], 8, 71, 71, unused, io)
    indices[m.v[68] + io] = where;
  }
}
#else
kernel __attribute__((reqd_work_group_size(LANES, 1, 1))) void indexed(global CAT2(PTR_, KO)* values, global long* indices,
                                                                      global const CAT2(PTR_, KI)* in0, const Meta m) {
  local X bests[LANES];
  local IDX places[LANES];
  const IDX reduced = (IDX)m.v[1], o = (IDX)get_group_id(0);
  const int lid = (int)get_local_id(0);
  IDX ki = 0, ko = 0;
  WALK(o, (int)m.v[6], 8, 20, 32, ki, ko)
  global const CAT2(PTR_, KI)* p = in0 + m.v[4] + ki;
  IDX where = -1;
  X best = 0;
  for (IDX r = lid; r < reduced; r += LANES) {
    IDX ro = 0, unused = 0;
    WALK(r, (int)m.v[7], 44, 56, 56, ro, unused)
    const X x = LOAD1(p, ro);
    if (where < 0 || BEATS(x, best)) {
      best = x;
      where = r;
    }
  }
  bests[lid] = best;
  places[lid] = where;
  for (int w = LANES / 2; w > 0; w >>= 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < w && places[lid + w] >= 0) {
      const X x = bests[lid + w];
      const IDX at = places[lid + w];
      const X mine = bests[lid];
      const int equal = (x == mine) | ((x != x) & (mine != mine));
      if (places[lid] < 0 || BEATS(x, mine) || (equal && at < places[lid])) {
        bests[lid] = x;
        places[lid] = at;
      }
    }
  }
  if (lid == 0) {
#ifdef VALUES
    STORE1(bests[0], values, m.v[5] + ko);
#endif
    IDX unused = 0, io = 0;
    WALK(o, (int)m.v[6], 8, 71, 71, unused, io)
    indices[m.v[68] + io] = places[0];
  }
}
#endif
#endif

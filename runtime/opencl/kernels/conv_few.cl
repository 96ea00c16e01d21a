// Gradients of a convolution with few output pixels and many channels (conv.cl comes first in the text): the weights are
// most of the memory, so each is read or written once, where it lies. FewParams is mirrored in ops/conv_few.cpp.
#define FEW 256   // output pixels of the whole batch, at most
typedef struct {
  Image x, g;                          // input (or its gradient) and gradient of the output
  Window win;
  long pixels, block, blocks, tasks;   // block: channels (input) or panels (weight) of a task
  long w_off, w_row;                   // weights [k][c,r,s], rows w_row apart
  long scratch_off, scratch_stride;
} FewParams;

// Of each output pixel: where its gradient lies, and where its window begins in its image.
typedef struct {
  long g[FEW], x[FEW], row[FEW], col[FEW];
} Pixels;

inline void findPixels(Pixels* at, const FewParams* p) {
  const long plane = p->g.h * p->g.w;
  for (long i = 0; i < p->pixels; ++i) {
    const long n = i / plane, y = i % plane / p->g.w, x = i % p->g.w;
    at->g[i] = p->g.off + n * p->g.sn + y * p->g.sh + x * p->g.sw;
    at->x[i] = p->x.off + n * p->x.sn;
    at->row[i] = y * p->win.stride_h - p->win.pad_h;
    at->col[i] = x * p->win.stride_w - p->win.pad_w;
  }
}

// grad_input. The products with the weights are made as [pixel][c,r,s] for the channels of a task and then added up where
// their windows lie.
kernel void conv_input_few(global const real* g, global const real* w, global real* x, global real* scratch, const FewParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0), window = p.win.r * p.win.s, whole = p.x.c * window;
  const long tiles = (p.pixels + MR - 1) / MR, ld = (p.block * window + NR - 1) / NR * NR;
  global real* rows = scratch + p.scratch_off + worker * p.scratch_stride;   // [tile of pixels][k][8]
  global real* tail = rows + tiles * MR * p.g.c;                             // [k][NR]
  global real* made = tail + p.g.c * NR;                                     // [pixel][ld]
  Pixels at;
  findPixels(&at, &p);
  long packed = -1;
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t) {
    const long group = t / p.blocks, c0 = t % p.blocks * p.block, channels = min(p.block, p.x.c - c0);
    if (packed != group) {
      packed = group;
      for (long i = 0; i < tiles * MR; ++i) {
        global real* d = rows + i / MR * MR * p.g.c + i % MR;
        for (long k = 0; k < p.g.c; ++k) d[k * MR] = i < p.pixels ? g[at.g[i] + (group * p.g.c + k) * p.g.sc] : (real)0;
      }
    }
    for (long q0 = 0; q0 < channels * window; q0 += NR) {
      const long q = c0 * window + q0;
      global const real* b = w + p.w_off + group * p.g.c * p.w_row + q;
      long ldb = p.w_row;
      if (q + NR > whole) {   // the last columns: nothing is read behind the weights
        for (long k = 0; k < p.g.c; ++k)
          for (long j = 0; j < NR; ++j) tail[k * NR + j] = q + j < whole ? b[k * ldb + j] : (real)0;
        b = tail;
        ldb = NR;
      }
      for (long tile = 0; tile < tiles; ++tile) {
        vec acc[2 * MR];
        tilePacked(acc, rows + tile * MR * p.g.c, MR, b, ldb, p.g.c);
        for (int r = 0; r < MR; ++r) {
          VSTORE(acc[2 * r], made + (tile * MR + r) * ld + q0);
          VSTORE(acc[2 * r + 1], made + (tile * MR + r) * ld + q0 + VL);
        }
      }
    }
    for (long c = 0; c < channels; ++c) {
      global real* plane = x + (group * p.x.c + c0 + c) * p.x.sc;
      for (long n = 0; n < p.x.n; ++n)
        for (long y = 0; y < p.x.h; ++y)
          for (long i = 0; i < p.x.w; ++i) plane[p.x.off + n * p.x.sn + y * p.x.sh + i * p.x.sw] = 0;
      for (long i = 0; i < p.pixels; ++i)
        for (long r = 0; r < p.win.r; ++r) {
          const long iy = at.row[i] + r * p.win.dil_h;
          if (iy < 0 || iy >= p.x.h) continue;
          for (long s = 0; s < p.win.s; ++s) {
            const long ix = at.col[i] + s * p.win.dil_w;
            if (ix >= 0 && ix < p.x.w) plane[at.x[i] + iy * p.x.sh + ix * p.x.sw] += made[i * ld + c * window + r * p.win.s + s];
          }
        }
    }
  }
}

// grad_weight. A task packs the input under some panels of taps as [pixel][NR], and writes their columns for all output
// channels.
kernel void conv_weight_few(global const real* x, global const real* g, global real* w, global real* scratch, const FewParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0), window = p.win.r * p.win.s, whole = p.x.c * window;
  const long tiles = (p.g.c + MR - 1) / MR, panels = (whole + NR - 1) / NR;
  global real* rows = scratch + p.scratch_off + worker * p.scratch_stride;   // [tile of k][pixel][8]
  global real* under = rows + tiles * MR * p.pixels;                         // [panel][pixel][NR]
  Pixels at;
  findPixels(&at, &p);
  long packed = -1;
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t) {
    const long group = t / p.blocks, first = t % p.blocks * p.block, count = min(p.block, panels - first);
    if (packed != group) {
      packed = group;
      for (long k = 0; k < tiles * MR; ++k) {
        global real* d = rows + k / MR * MR * p.pixels + k % MR;
        for (long i = 0; i < p.pixels; ++i) d[i * MR] = k < p.g.c ? g[at.g[i] + (group * p.g.c + k) * p.g.sc] : (real)0;
      }
    }
    for (long j = 0; j < count; ++j)
      for (long lane = 0; lane < NR; ++lane) {
        const long q = (first + j) * NR + lane, c = q / window, r = q % window / p.win.s * p.win.dil_h, s = q % p.win.s * p.win.dil_w;
        global real* d = under + j * p.pixels * NR + lane;
        for (long i = 0; i < p.pixels; ++i) {
          const long iy = at.row[i] + r, ix = at.col[i] + s;
          const bool inside = q < whole && iy >= 0 && iy < p.x.h && ix >= 0 && ix < p.x.w;
          d[i * NR] = inside ? x[at.x[i] + (group * p.x.c + c) * p.x.sc + iy * p.x.sh + ix * p.x.sw] : (real)0;
        }
      }
    for (long tile = 0; tile < tiles; ++tile) {
      const long live = min((long)MR, p.g.c - tile * MR);
      for (long j = 0; j < count; ++j) {
        const long q = (first + j) * NR, cols = min((long)NR, whole - q);
        vec acc[2 * MR];
        tilePacked(acc, rows + tile * MR * p.pixels, MR, under + j * p.pixels * NR, NR, p.pixels);
        global real* to = w + p.w_off + (group * p.g.c + tile * MR) * p.w_row + q;
        for (long r = 0; r < live; ++r, to += p.w_row) {
          if (cols == NR) {
            VSTORE(acc[2 * r], to);
            VSTORE(acc[2 * r + 1], to + VL);
          } else {
            real row[NR];
            VSTORE(acc[2 * r], row);
            VSTORE(acc[2 * r + 1], row + VL);
            for (long i = 0; i < cols; ++i) to[i] = row[i];
          }
        }
      }
    }
  }
}

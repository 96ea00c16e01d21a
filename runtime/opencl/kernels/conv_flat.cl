// The same product for small images and many channels (conv.cl comes first in the text). Output pixels are numbered
// through rows and images, so that panels are full whatever the width. Depth is cut into blocks of channels: the panels of
// one block stay in the worker's cache while the weights pass once for all of them, and sums wait in scratch.

// Runs of output pixels j0 .. j0 + NR, numbered through the batch; src is not used.
inline void flatRuns(Runs* runs, const ConvParams* p, long j0) {
  const long cols = min((long)NR, p->pixels - j0), plane = p->y.h * p->y.w;
  long n = 0;
  runs->whole = p->y.sw == 1 && cols == NR;
  for (long j = 0; j < cols;) {
    const long at = j0 + j, image = at / plane, y = at % plane / p->y.w, x = at % p->y.w, len = min(p->y.w - x, cols - j);
    runs->first[n] = j;
    runs->length[n] = len;
    runs->dst[n] = image * p->y.sn + y * p->y.sh + x * p->y.sw;
    if (runs->dst[n] != runs->dst[0] + j) runs->whole = false;
    ++n;
    j += len;
  }
  runs->count = n;
}

// Where the panel's pixels lie under each tap, the same for every channel: for each tap the number of pieces (negative if
// some pixels lie outside the image and are zero), then source, place in the panel and length of each piece.
inline global long* findPieces(global long* to, const ConvParams* p, long j0) {
  const long cols = min((long)NR, p->pixels - j0), plane = p->y.h * p->y.w;
  for (long r = 0; r < p->win.r; ++r)
    for (long s = 0; s < p->win.s; ++s) {
      global long* count = to++;
      long n = 0, covered = 0;
      for (long j = 0; j < cols;) {
        const long at = j0 + j, image = at / plane, y = at % plane / p->y.w, x = at % p->y.w, len = min(p->y.w - x, cols - j);
        const long iy = y * p->win.stride_h + r * p->win.dil_h - p->win.pad_h;
        const long ix = x * p->win.stride_w + s * p->win.dil_w - p->win.pad_w;
        const long low = ix < 0 ? (p->win.stride_w - 1 - ix) / p->win.stride_w : 0;
        const long high = ix >= p->x.w ? 0 : min(len, (p->x.w - 1 - ix) / p->win.stride_w + 1);
        if (iy >= 0 && iy < p->x.h && high > low) {
          const long src = image * p->x.sn + iy * p->x.sh + ix + low * p->win.stride_w;
          covered += high - low;
          if (n && p->win.stride_w == 1 && to[-3] + to[-1] == src && to[-2] + to[-1] == j + low) {
            to[-1] += high - low;
          } else {
            to[0] = src, to[1] = j + low, to[2] = high - low;
            to += 3;
            ++n;
          }
        }
        j += len;
      }
      *count = covered == NR ? n : -n - 1;
    }
  return to;
}

// Never reads past a piece: the last vector overlaps the one before it.
inline void copyPiece(global real* d, global const real* s, long len) {
  if (len >= 8) {
    for (long q = 0; q + 8 <= len; q += 8) vstore8(vload8(0, s + q), 0, d + q);
    if (len & 7) vstore8(vload8(0, s + len - 8), 0, d + len - 8);
  } else if (len >= 4) {
    vstore4(vload4(0, s), 0, d);
    vstore4(vload4(0, s + len - 4), 0, d + len - 4);
  } else if (len >= 2) {
    vstore2(vload2(0, s), 0, d);
    d[len - 1] = s[len - 1];
  } else {
    d[0] = s[0];
  }
}

inline void packPieces(global real* d, global const real* x, const ConvParams* p, global const long* pieces, long channels) {
  const long taps = p->win.r * p->win.s, step = p->win.stride_w;
  for (long c = 0; c < channels; ++c, x += p->x.sc) {
    global const long* at = pieces;
    for (long t = 0; t < taps; ++t, d += NR) {
      const long code = *at++, n = code < 0 ? -code - 1 : code;
      if (code < 0) {
        VSTORE((vec)(0), d);
        VSTORE((vec)(0), d + VL);
      }
      for (long i = 0; i < n; ++i, at += 3) {
        if (step == 1) {
          copyPiece(d + at[1], x + at[0], at[2]);
        } else {
          long q = 0;
          if (step == 2)
            for (; q + 8 < at[2]; q += 8) {
              const block even = vload8(0, x + at[0] + 2 * q), odd = vload8(0, x + at[0] + 2 * q + 8);
              vstore8(shuffle2(even, odd, (MASK)(0, 2, 4, 6, 8, 10, 12, 14)), 0, d + at[1] + q);
            }
          for (; q < at[2]; ++q) d[at[1] + q] = x[at[0] + q * step];
        }
      }
    }
  }
}

// With a window of several taps, stride 1 and rows that fit into a panel, the input rows under a panel are gathered first,
// with their zeros: then every tap of every channel copies the same few runs, and a vector that passes a run's end is
// overwritten by the next one. Written to `to`: [0] slab rows, [1] runs, [2] the longest; where each slab row comes from
// (-1: zeros); first column, place in the slab and length of each run.
inline void findRows(global long* to, const ConvParams* p, long j0) {
  const long cols = min((long)NR, p->pixels - j0), plane = p->y.h * p->y.w, pitch = p->units.slab_cols;
  const long span = (p->win.r - 1) * p->win.dil_h + 1;
  long rows = 0, runs = 0, longest = 0, last_image = -1;
  long first[NR], place[NR], length[NR];
  for (long j = 0; j < cols;) {
    const long at = j0 + j, image = at / plane, y = at % plane / p->y.w, x = at % p->y.w, len = min(p->y.w - x, cols - j);
    // The next row of an image shares all its rows but one with the row before.
    const long known = image == last_image ? span - 1 : 0;
    for (long r = known; r < span; ++r, ++rows) {
      const long iy = y + r - p->win.pad_h;
      to[3 + rows] = iy >= 0 && iy < p->x.h ? image * p->x.sn + iy * p->x.sh : -1;
    }
    last_image = image;
    first[runs] = j, place[runs] = (rows - span) * pitch + x, length[runs] = len;
    longest = max(longest, len);
    ++runs;
    j += len;
  }
  to[0] = rows, to[1] = runs, to[2] = longest;
  global long* run = to + 3 + rows;
  for (long i = 0; i < runs; ++i, run += 3) run[0] = first[i], run[1] = place[i], run[2] = length[i];
}

inline void packRows(global real* d, global real* slab, global const real* x, const ConvParams* p, global const long* plan, long channels) {
  const long pitch = p->units.slab_cols, rows = plan[0], runs = plan[1], longest = plan[2], plane = rows * pitch;
  const long left = p->win.pad_w, wide = min(p->x.w, pitch - left);
  global real* to = slab;
  for (long c = 0; c < channels; ++c)
    for (long r = 0; r < rows; ++r, to += pitch) {
      for (long q = 0; q < pitch; q += 8) vstore8((block)(0), 0, to + q);
      if (plan[3 + r] >= 0 && wide > 0) copyPiece(to + left, x + c * p->x.sc + plan[3 + r], wide);
    }
  global const long* run = plan + 3 + rows;
  for (long c = 0; c < channels; ++c, slab += plane)
    for (long r = 0; r < p->win.r; ++r)
      for (long s = 0; s < p->win.s; ++s, d += NR) {
        global const real* tap = slab + r * p->win.dil_h * pitch + s * p->win.dil_w;
        if (longest <= 8) {
          for (long i = 0; i < runs; ++i) vstore8(vload8(0, tap + run[3 * i + 1]), 0, d + run[3 * i]);
        } else {
          for (long i = 0; i < runs; ++i)
            for (long q = 0; q < run[3 * i + 2]; q += 16) vstore16(vload16(0, tap + run[3 * i + 1] + q), 0, d + run[3 * i] + q);
        }
      }
}

// A task is (group, block of output channels, its share of the panels, at most `group`). Weights lie in place (w_row: distance of two channels) or
// packed as for conv_wide (w_row = 0).
kernel void conv_flat(global const real* x, global const real* weights, global const void* bias, global void* y,
                      global real* scratch, const ConvParams p) {
  const long worker = get_global_id(0), workers = get_global_size(0), window = p.win.r * p.win.s;
  const long whole = p.x.c * window;
  const long panel_size = min(p.c_block, p.x.c) * window * NR;
  global real* panels = scratch + p.scratch_off + worker * p.scratch_stride;
  global real* sums = panels + p.group * panel_size + 16;   // a panel's last vectors may pass its end
  global real* slab = sums + p.sums_size;
  global long* pieces = (global long*)(slab + p.slab_size);
  for (long t = p.tasks * worker / workers; t < p.tasks * (worker + 1) / workers; ++t) {
    const long share = t % p.shares, j_first = p.panels * share / p.shares;
    const long count = p.panels * (share + 1) / p.shares - j_first;
    const long block = t / p.shares % p.k_blocks, group = t / p.shares / p.k_blocks;
    const long tile_first = p.k_tiles * block / p.k_blocks, tile_end = p.k_tiles * (block + 1) / p.k_blocks;
    for (long j = 0; j < count; ++j) {
      if (p.slab_size)
        findRows(pieces + j * p.pieces_size, &p, (j_first + j) * NR);
      else
        findPieces(pieces + j * p.pieces_size, &p, (j_first + j) * NR);
    }
    for (long c0 = 0; c0 < p.x.c; c0 += p.c_block) {
      const long channels = min(p.c_block, p.x.c - c0), depth = channels * window;
      const bool last = c0 + channels == p.x.c;
      for (long j = 0; j < count; ++j) {
        global const real* from = x + p.x.off + (group * p.x.c + c0) * p.x.sc;
        if (p.slab_size)
          packRows(panels + j * panel_size, slab, from, &p, pieces + j * p.pieces_size, channels);
        else
          packPieces(panels + j * panel_size, from, &p, pieces + j * p.pieces_size, channels);
      }
      for (long tile = tile_first; tile < tile_end; ++tile) {
        const long rows = min((long)MR, p.y.c - tile * MR);
        for (long j = 0; j < count; ++j) {
          vec acc[2 * MR];
          if (p.w_row)
            tileRows(acc, weights + p.weights_off + (group * p.y.c + tile * MR) * p.w_row + c0 * window, p.w_row, 1, rows,
                     panels + j * panel_size, NR, depth);
          else
            tilePacked(acc, weights + p.weights_off + ((group * p.k_tiles + tile) * whole + c0 * window) * MR, MR,
                       panels + j * panel_size, NR, depth);
          global real* kept = sums + ((tile - tile_first) * p.group + j) * MR * NR;
          if (c0 > 0)
            for (int i = 0; i < 2 * MR; ++i) acc[i] += VLOAD(kept + i * VL);
          if (last) {
            Runs runs;
            flatRuns(&runs, &p, (j_first + j) * NR);
            storePixels(acc, y, bias, &p, &runs, group * p.y.c + tile * MR, rows);
          } else {
            for (int i = 0; i < 2 * MR; ++i) VSTORE(acc[i], kept + i * VL);
          }
        }
      }
    }
  }
}

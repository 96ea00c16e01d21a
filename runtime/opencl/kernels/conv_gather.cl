// Shared by the convolution programs (their text is gemm_tile.cl, this, and one of conv.cl, conv_tiled.cl,
// conv_depthwise.cl): parameter structs, mirrored in ops/conv_plan.h with eight-byte members only, and the gathering of
// padded input windows.

typedef struct {
  long off, sn, sc, sh, sw;      // elements
  long n, c, h, w;               // c: channels of one group
  long dt, up_h, up_w;           // distance of two rows (columns) after zero-stuffing; 1 = as it is
} Image;

typedef struct {
  long r, s, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w, groups;
} Window;

// A unit is what one worker gathers at once: `images` whole images, or a strip of rows and columns of one.
typedef struct {
  long images, rows, cols;             // output pixels of a unit
  long image_units, row_units, col_units;
  long slab_rows, slab_cols;           // gathered input rows and columns (halo included)
  long chunked;                        // rows are cut into chunks of 8 pixels (the last one padded), see tileChunks
} Units;

typedef struct {
  Image x;
  Image y;                             // output; y.c = channels of one group
  Window win;
  Units units;
  long tasks, k_blocks, k_tiles;       // k_tiles: ceil(y.c / MR)
  long weights_off, bias_off, bias_stride, use_bias;
  long scratch_off, scratch_stride, slab_size;
  long pixels, panels, group, shares, c_block, w_row, sums_size, pieces_size;   // conv_flat
} ConvParams;

// Where a unit lies.
typedef struct {
  long n0, images, oh0, rows, ow0, cols;
} Place;

inline Place placeOf(const Units* u, const Image* y, long unit) {
  Place at;
  const long per_image = u->row_units * u->col_units;
  at.n0 = unit / per_image * u->images;
  at.images = min(u->images, y->n - at.n0);
  at.oh0 = unit % per_image / u->col_units * u->rows;
  at.rows = min(u->rows, y->h - at.oh0);
  at.ow0 = unit % u->col_units * u->cols;
  at.cols = min(u->cols, y->w - at.ow0);
  return at;
}

// Units that are whole images have their zeros in the same places every time: the worker clears its slab once, and
// later units write only what lies inside the image.
inline bool clearOnce(global real* slab, const Units* u, long reals) {
  if (u->row_units != 1 || u->col_units != 1) return false;
  for (long i = 0; i < reals; i += VL) VSTORE((vec)(0), slab + i);
  return true;
}

// Copies channels c0 .. c0 + channels of the unit's input window into slab[image][channel][row][column], zero outside.
inline void gatherSlab(global real* slab, global const void* x, const Image* img, const Window* win, const Units* u,
                       const Place* at, long c0, long channels, bool cleared) {
  const long rows = (at->rows - 1) * win->stride_h + (win->r - 1) * win->dil_h + 1;
  const long cols = (at->cols - 1) * win->stride_w + (win->s - 1) * win->dil_w + 1;
  const long top = at->oh0 * win->stride_h - win->pad_h, left = at->ow0 * win->stride_w - win->pad_w;
  const long up_h = img->up_h, up_w = img->up_w;
  // Rows and columns of the slab that hold input pixels.
  const long y0 = clamp(-top, 0L, rows), y1 = clamp((img->h - 1) * up_h + 1 - top, y0, rows);
  const long q0 = clamp(-left, 0L, cols), q1 = clamp((img->w - 1) * up_w + 1 - left, q0, cols);
  const bool plain = img->dt == DT_REAL && img->sw == 1 && up_w == 1;
  if (!cleared)
    for (long i = 0; i < at->images * channels * u->slab_rows * u->slab_cols; i += VL) VSTORE((vec)(0), slab + i);
  for (long i = 0; i < at->images; ++i)
    for (long c = 0; c < channels; ++c) {
      global real* plane = slab + (i * channels + c) * u->slab_rows * u->slab_cols;
      const long from = img->off + (at->n0 + i) * img->sn + (c0 + c) * img->sc;
      for (long y = y0; y < y1; ++y) {
        if (up_h != 1 && (top + y) % up_h != 0) continue;
        const long src = from + (up_h == 1 ? top + y : (top + y) / up_h) * img->sh;
        global real* dst = plane + y * u->slab_cols;
        if (plain) {
          global const real* s = (global const real*)x + src + left;
          long q = q0;
          for (; q + 8 <= q1; q += 8) vstore8(vload8(0, s + q), 0, dst + q);
          for (; q < q1; ++q) dst[q] = s[q];
        } else if (up_w == 1) {
          for (long q = q0; q < q1; ++q) dst[q] = loadElem(x, src + (left + q) * img->sw, img->dt);
        } else {
          for (long q = q0; q < q1; ++q)
            if ((left + q) % up_w == 0) dst[q] = loadElem(x, src + (left + q) / up_w * img->sw, img->dt);
        }
      }
    }
}

// Where a row m of weights of a group begins: m * sm; its elements at q * sq + r * sr + s * ss. The input's gradient swaps
// channels and flips the window by negative strides.
typedef struct {
  long off, sg, sm, sq, sr, ss;
  long m, q, r, s, tiles, dt, dst_off;
} WeightParams;

// Gradient of the weights. A task is (group, block of input channels, share of the units); it sums over its units into
// part[task][tap][k padded], k being the vector direction. conv_weight_finish adds the shares up.
typedef struct {
  Image x;
  Image g;                             // gradient of the output
  Window win;
  Units units;
  long c_block, c_blocks, shares, tasks, k_pad;
  long part_off, part_stride;
  long scratch_off, scratch_stride, slab_size, places_off;  // places_off: of the taps' table, within a worker's scratch
  long turned, turned_off;             // reals of a unit's gradient where it is turned beforehand, else 0
} ConvWeightParams;

// Where the sums of a weight gradient go. sg, sk, sc, sr, ss: strides of grad_weight (sg: between groups).
typedef struct {
  long off, sg, sk, sc, sr, ss;
  long groups, k, c, r, s, c_block, c_blocks, shares, k_pad, part_off, part_stride, dt;
} WeightFinishParams;

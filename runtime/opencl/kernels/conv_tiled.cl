// GPU-shaped convolution: many thin work-items, local memory, nothing but bounds checks for the edges. gemm_tile.cl
// and conv_gather.cl come first in the text.
#define TS 16

// The input under tap (r,s) of output pixel (oh,ow), 0 outside and between zero-stuffed pixels.
inline real inputAt(global const void* x, const Image* img, const Window* win, long n, long channel, long oh, long ow,
                    long r, long s) {
  const long iy = oh * win->stride_h - win->pad_h + r * win->dil_h, ix = ow * win->stride_w - win->pad_w + s * win->dil_w;
  if (iy < 0 || ix < 0 || iy % img->up_h != 0 || ix % img->up_w != 0) return 0;
  const long y = iy / img->up_h, z = ix / img->up_w;
  if (y >= img->h || z >= img->w) return 0;
  return loadElem(x, img->off + n * img->sn + channel * img->sc + y * img->sh + z * img->sw, img->dt);
}

// A 16 x 16 work-group makes 32 output channels x 32 pixels (of the whole batch), 2 x 2 a work-item.
kernel void conv_tiled(global const void* x, global const void* w, global const void* bias, global void* y,
                       const ConvParams p, const WeightParams wp) {
  local real lw[TS][2 * TS + 1], lx[TS][2 * TS + 1];
  const int tx = get_local_id(0), ty = get_local_id(1), lid = ty * TS + tx;
  const long p0 = (long)get_group_id(0) * 2 * TS, k0 = (long)get_group_id(1) * 2 * TS, group = get_group_id(2);
  const long plane = p.y.h * p.y.w, pixels = p.y.n * plane, window = p.win.r * p.win.s, depth = p.x.c * window;
  real acc[2][2] = {{0, 0}, {0, 0}};
  for (long d0 = 0; d0 < depth; d0 += TS) {
    for (int e = lid; e < 2 * TS * TS; e += TS * TS) {
      const int d = e / (2 * TS), i = e % (2 * TS);
      const long at = d0 + d, q = at / window, r = at % window / p.win.s, s = at % window % p.win.s;
      const long k = k0 + i, pixel = p0 + i;
      lw[d][i] = at < depth && k < p.y.c
                     ? loadElem(w, wp.off + group * wp.sg + k * wp.sm + q * wp.sq + r * wp.sr + s * wp.ss, wp.dt)
                     : (real)0;
      lx[d][i] = at < depth && pixel < pixels ? inputAt(x, &p.x, &p.win, pixel / plane, group * p.x.c + q,
                                                        pixel % plane / p.y.w, pixel % p.y.w, r, s)
                                              : (real)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 0; d < TS; ++d)
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) acc[i][j] += lw[d][ty + i * TS] * lx[d][tx + j * TS];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const long k = k0 + ty + i * TS, pixel = p0 + tx + j * TS;
      if (k >= p.y.c || pixel >= pixels) continue;
      const long channel = group * p.y.c + k;
      real v = acc[i][j];
      if (p.use_bias) v += loadElem(bias, p.bias_off + channel * p.bias_stride, p.y.dt);
      storeElem(y, p.y.off + pixel / plane * p.y.sn + channel * p.y.sc + pixel % plane / p.y.w * p.y.sh + pixel % p.y.w * p.y.sw,
                v, p.y.dt);
    }
}

// A 16 x 16 work-group makes 16 output channels x 16 taps of grad_weight, over the whole batch: no atomics, so the
// same numbers every time.
kernel void conv_weight_tiled(global const void* x, global const void* g, global void* w, const ConvWeightParams p,
                              const WeightFinishParams f) {
  local real lg[TS][TS + 1], lx[TS][TS + 1];
  const int tx = get_local_id(0), ty = get_local_id(1);
  const long t0 = (long)get_group_id(0) * TS, k0 = (long)get_group_id(1) * TS, group = get_group_id(2);
  const long plane = p.g.h * p.g.w, pixels = p.g.n * plane, window = p.win.r * p.win.s, taps = p.x.c * window;
  real acc = 0, run = 0;
  for (long d0 = 0; d0 < pixels; d0 += TS) {
    const long pixel = d0 + tx, n = pixel / plane, oh = pixel % plane / p.g.w, ow = pixel % p.g.w;
    const long k = k0 + ty, t = t0 + ty;
    lg[tx][ty] = pixel < pixels && k < p.g.c
                     ? loadElem(g, p.g.off + n * p.g.sn + (group * p.g.c + k) * p.g.sc + oh * p.g.sh + ow * p.g.sw, p.g.dt)
                     : (real)0;
    lx[tx][ty] = pixel < pixels && t < taps ? inputAt(x, &p.x, &p.win, n, group * p.x.c + t / window, oh, ow,
                                                      t % window / p.win.s, t % window % p.win.s)
                                            : (real)0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 0; d < TS; ++d) run += lg[d][ty] * lx[d][tx];
    if ((d0 / TS & 15) == 15) {  // short partial sums: a batch is long, and float is short
      acc += run;
      run = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  acc += run;
  const long k = k0 + ty, t = t0 + tx;
  if (k < p.g.c && t < taps)
    storeElem(w, f.off + group * f.sg + k * f.sk + t / window * f.sc + t % window / f.s * f.sr + t % window % f.s * f.ss,
              acc, f.dt);
}

// What the cost model measures once per device and driver: memory bandwidth, peak float32 arithmetic, an empty launch.

kernel void ratesCopy(global const float16* from, global float16* to) {
  const size_t i = get_global_id(0);
  to[i] = from[i];
}

kernel void ratesFma(global float* out, int rounds) {
  const size_t i = get_global_id(0);
  const float16 x = (float16)(0.999f + 1e-9f * (float)i);
  float16 a = x, b = x + 1.0f, c = x + 2.0f, d = x + 3.0f, e = x + 4.0f, f = x + 5.0f, g = x + 6.0f, h = x + 7.0f;
  for (int r = 0; r < rounds; ++r) {
    a = fma(a, x, x); b = fma(b, x, x); c = fma(c, x, x); d = fma(d, x, x);
    e = fma(e, x, x); f = fma(f, x, x); g = fma(g, x, x); h = fma(h, x, x);
  }
  const float16 s = a + b + c + d + e + f + g + h;
  out[i] = s.s0 + s.s5 + s.sa + s.sf;
}

kernel void ratesEmpty(global float* out) {
  if (get_global_id(0) == 1) out[0] = 0.0f;
}

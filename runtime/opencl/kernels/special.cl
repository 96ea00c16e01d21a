// Special functions of float32, lane by lane: SPECIAL(x, y) names one of the functions, each() applies it to T. The tables are
// Chebyshev coefficients fitted for these kernels at 30 digits and cut where they leave float32's reach (3e-9).
#define CHEB(table, t) chebyshev(table, (int)(sizeof(table) / sizeof(float)), t)
static float chebyshev(constant float* c, int n, float t) {
  float b0 = 0.0f, b1 = 0.0f;
  for (int i = n - 1; i > 0; --i) {
    const float b = c[i] + 2.0f * t * b0 - b1;
    b1 = b0;
    b0 = b;
  }
  return c[0] + t * b0 - b1;
}
// [lo, hi] to [-1, 1].
static float unit(float x, float lo, float hi) { return (2.0f * x - (lo + hi)) / (hi - lo); }

// ---- modified Bessel functions of the first kind ----
constant float kI0Near[] = {
    3.383976372e-1f, -3.046826723e-1f, 1.716209015e-1f, -9.490109705e-2f, 4.930528424e-2f, -2.373741481e-2f,
    1.054646039e-2f, -4.324309995e-3f, 1.639475617e-3f, -5.763755745e-4f, 1.885028851e-4f, -5.75419501e-5f,
    1.644844807e-5f, -4.416738358e-6f, 1.117387539e-6f, -2.670793854e-7f, 6.046995023e-8f, -1.30002501e-8f};
constant float kI0Far[] = {
    4.02248445e-1f, 3.366006826e-3f, 6.877573113e-5f, 2.884148302e-6f, 2.042651928e-7f, 2.258782597e-8f,
    3.382248769e-9f};
constant float kI1Near[] = {
    1.262935932e-1f, -1.764165184e-1f, 1.026436587e-1f, -5.294598121e-2f, 2.472644903e-2f, -1.056408489e-2f,
    4.156422944e-3f, -1.513572451e-3f, 5.122859562e-4f, -1.617608158e-4f, 4.781565108e-5f, -1.327316366e-5f,
    3.470251308e-6f, -8.568720265e-7f, 2.003294754e-7f, -4.445059129e-8f, 9.381537386e-9f, -1.887249752e-9f};
constant float kI1Far[] = {
    3.892785665e-1f, -9.751756867e-3f, -1.103893438e-4f, -3.872709741e-6f, -2.504438012e-7f, -2.622208246e-8f,
    -3.81955515e-9f};
static float bessel_i0e(float x) {
  x = fabs(x);
  return x <= 8.0f ? CHEB(kI0Near, unit(x, 0.0f, 8.0f)) : CHEB(kI0Far, unit(8.0f / x, 0.001f, 1.0f)) / sqrt(x);
}
static float bessel_i1e(float a) {
  const float x = fabs(a);
  const float r = x <= 8.0f ? x * CHEB(kI1Near, unit(x, 0.0f, 8.0f)) : CHEB(kI1Far, unit(8.0f / x, 0.001f, 1.0f)) / sqrt(x);
  return a < 0.0f ? -r : r;
}
static float bessel_i0(float x) { return bessel_i0e(x) * exp(fabs(x)); }
static float bessel_i1(float x) { return bessel_i1e(x) * exp(fabs(x)); }

// ---- Bessel functions ----
constant float kJ0Near[] = {
    1.577279715e-1f, -8.723442353e-3f, 2.651786132e-1f, -3.700949939e-1f, 1.580671023e-1f, -3.489376941e-2f,
    4.819180069e-3f, -4.606261662e-4f, 3.246032882e-5f, -1.761946908e-6f, 7.608163592e-8f};
constant float kJ1Near[] = {
    8.104484633e-2f, -1.489751451e-1f, 1.609992624e-1f, -8.268049177e-2f, 2.221363965e-2f, -3.646940601e-3f,
    4.050337728e-4f, -3.255554867e-5f, 1.985877405e-6f, -9.521984757e-8f, 3.687133759e-9f};
constant float kY0Near[] = {
    -3.31461132e-2f, -2.744743055e-1f, 1.790343141e-1f, 2.615673463e-1f, -1.773020128e-1f, 4.71966896e-2f,
    -7.28796248e-3f, 7.531135933e-4f, -5.632079141e-5f, 3.206532538e-6f, -1.440723327e-7f, 5.248794787e-9f};
constant float kY1Near[] = {
    2.538013236e-3f, -1.608717305e-2f, -9.591204536e-2f, 8.44519726e-2f, -2.832812394e-2f, 5.289897544e-3f,
    -6.414551451e-4f, 5.505982873e-5f, -3.538080019e-6f, 1.770780456e-7f, -7.11055005e-9f};
constant float kP0[] = {
    9.994603488e-1f, -5.365214977e-4f, 3.075178313e-6f, -5.170577636e-8f};
constant float kQ0[] = {
    -1.555585454e-2f, 6.838512796e-5f, -7.414482441e-7f, 1.797239705e-8f, -7.271882196e-10f};
constant float kP1[] = {
    1.000903042f, 8.989889178e-4f, -3.987275939e-6f, 6.177613834e-8f};
constant float kQ1[] = {
    4.677778697e-2f, -9.627713543e-5f, 9.138595652e-7f, -2.095971141e-8f, 8.22915525e-10f};
// Up to 8 a function of the square; beyond, amplitude and phase.
#define kTwoOverPi 0.636619772f
static float farBessel(float x, int one, int second) {
  const float z = 8.0f / x, t = unit(z * z, 1e-6f, 1.0f);
  const float p = one ? CHEB(kP1, t) : CHEB(kP0, t), q = z * (one ? CHEB(kQ1, t) : CHEB(kQ0, t));
  const float chi = x - (one ? 2.35619449f : 0.785398163f), s = sin(chi), c = cos(chi);
  return sqrt(kTwoOverPi / x) * (second ? p * s + q * c : p * c - q * s);
}
static float bessel_j0(float x) {
  x = fabs(x);
  return x <= 8.0f ? CHEB(kJ0Near, unit(x * x, 0.0f, 64.0f)) : (isinf(x) ? 0.0f : farBessel(x, 0, 0));
}
static float bessel_j1(float a) {
  const float x = fabs(a);
  const float r = x <= 8.0f ? x * CHEB(kJ1Near, unit(x * x, 0.0f, 64.0f)) : (isinf(x) ? 0.0f : farBessel(x, 1, 0));
  return a < 0.0f ? -r : r;
}
static float bessel_y0(float x) {
  if (x == 0.0f) return -INFINITY;
  if (!(x > 0.0f)) return NAN;
  return x <= 8.0f ? CHEB(kY0Near, unit(x * x, 0.0f, 64.0f)) + kTwoOverPi * log(x) * bessel_j0(x) : farBessel(x, 0, 1);
}
static float bessel_y1(float x) {
  if (x == 0.0f) return -INFINITY;
  if (!(x > 0.0f)) return NAN;
  return x <= 8.0f ? x * CHEB(kY1Near, unit(x * x, 0.0f, 64.0f)) + kTwoOverPi * (log(x) * bessel_j1(x) - 1.0f / x) : farBessel(x, 1, 1);
}
static float spherical_bessel_j0(float x) {
  if (isinf(x)) return 0.0f;
  const float z = x * x;
  return fabs(x) < 0.5f ? 1.0f - z / 6.0f * (1.0f - z / 20.0f * (1.0f - z / 42.0f)) : sin(x) / x;
}

// ---- modified Bessel functions of the second kind; `scaled`: times exp(x) ----
constant float kK0Near[] = {
    -2.676636966e-1f, 3.442898999e-1f, 3.597993652e-2f, 1.264615411e-3f, 2.286212103e-5f, 2.534791079e-7f,
    1.904516377e-9f};
constant float kK1Near[] = {
    7.626501137e-1f, -3.531559608e-1f, -1.226111808e-1f, -6.97572386e-3f, -1.730288958e-4f, -2.433406142e-6f,
    -2.213387631e-8f};
constant float kI0Small[] = {
    1.602922807f, 6.388096257e-1f, 3.685485969e-2f, 9.828781273e-4f, 1.498365421e-5f, 1.473844901e-7f};
constant float kI1Small[] = {
    6.41758997e-1f, 1.475393201e-1f, 5.89874268e-3f, 1.198813717e-4f, 1.473916512e-6f, 1.213807497e-8f};
constant float kK0Far[] = {
    1.220148037f, -3.144423814e-2f, 1.569479445e-3f, -1.284435498e-4f, 1.394198908e-5f, -1.830425118e-6f,
    2.764324922e-7f, -4.655457709e-8f, 8.563174804e-9f};
constant float kK1Far[] = {
    1.360324127f, 1.039120657e-1f, -2.857109813e-3f, 1.951385489e-4f, -1.935130927e-5f, 2.404760393e-6f,
    -3.498844117e-7f, 5.734939541e-8f, -1.033275652e-8f};
static float besselK(float x, int one, int scaled) {
  if (x == 0.0f) return INFINITY;
  if (!(x > 0.0f)) return NAN;
  if (x <= 2.0f) {
    const float t = unit(x * x, 0.0f, 4.0f), l = log(0.5f * x);
    const float r = one ? CHEB(kK1Near, t) / x + l * x * CHEB(kI1Small, t) : CHEB(kK0Near, t) - l * CHEB(kI0Small, t);
    return scaled ? r * exp(x) : r;
  }
  const float t = unit(2.0f / x, 1e-4f, 1.0f), r = (one ? CHEB(kK1Far, t) : CHEB(kK0Far, t)) / sqrt(x);
  return scaled ? r : r * exp(-x);
}
static float modified_bessel_k0(float x) { return besselK(x, 0, 0); }
static float modified_bessel_k1(float x) { return besselK(x, 1, 0); }
static float scaled_modified_bessel_k0(float x) { return besselK(x, 0, 1); }
static float scaled_modified_bessel_k1(float x) { return besselK(x, 1, 1); }

// ---- Airy ----
constant float kAiMid[] = {
    2.638179819e-1f, -1.917674578e-1f, -1.154458786e-1f, 1.012922987e-1f, -2.063422536e-2f, -5.263460236e-3f,
    3.521327342e-3f, -5.522127136e-4f, -8.722346961e-5f, 4.99721553e-5f, -6.58209617e-6f, -7.465940981e-7f,
    3.837100505e-7f, -4.427726203e-8f, -3.901520676e-9f, 1.844382887e-9f};
constant float kAiLow[] = {
    4.138787003e-2f, -1.687343507e-1f, 3.242349597e-1f, 1.114578162e-1f, -8.428500528e-2f, -3.671779058e-3f,
    8.070794839e-3f, -8.002422159e-4f, -3.278689389e-4f, 7.441134248e-5f, 3.275031827e-6f, -2.689407516e-6f,
    2.017738357e-7f, 4.337004148e-8f, -8.680553978e-9f};
constant float kAiLower[] = {
    -1.276218335e-2f, 1.472664308e-1f, 4.948066859e-2f, 1.609461367e-1f, 1.819714461e-1f, -1.624807387e-1f,
    -5.967807594e-2f, 4.685738441e-2f, 5.160222305e-3f, -6.650777711e-3f, 2.075357638e-4f, 5.327073616e-4f,
    -7.194293171e-5f, -2.425943697e-5f, 6.267017876e-6f, 4.704658627e-7f, -3.024892644e-7f, 1.252522145e-8f,
    8.809123831e-9f, -1.211540552e-9f};
constant float kAiHigh[] = {
    9.843888331e-1f, -1.47746323e-2f, 7.308205655e-4f, -6.101012688e-5f, 6.79612283e-6f, -9.169581485e-7f,
    1.423199416e-7f, -2.462224077e-8f, 4.649684931e-9f};
constant float kAiP[] = {
    9.99942898e-1f, -5.703351147e-5f, 6.709462251e-8f};
constant float kAiQ[] = {
    3.854789975e-3f, -3.227185214e-6f, 7.424006309e-9f, -4.124916898e-11f};
static float airy_ai(float x) {
  if (isinf(x)) return NAN;
  if (x > 103.892f) return 0.0f;
  if (x >= 2.0f) {
    const float zeta = 0.666666667f * x * sqrt(x);
    return CHEB(kAiHigh, unit(1.88561808f / zeta, 0.001f, 1.0f)) * exp(-zeta) * 0.282094792f / sqrt(sqrt(x));
  }
  if (x >= -2.0f) return CHEB(kAiMid, unit(x, -2.0f, 2.0f));
  if (x >= -5.0f) return CHEB(kAiLow, unit(x, -5.0f, -2.0f));
  if (x >= -9.0f) return CHEB(kAiLower, unit(x, -9.0f, -5.0f));
  const float zeta = 0.666666667f * -x * sqrt(-x), v = 18.0f / zeta, t = unit(v * v, 1e-5f, 1.0f), chi = zeta + 0.785398163f;
  return 0.564189584f / sqrt(sqrt(-x)) * (sin(chi) * CHEB(kAiP, t) - cos(chi) * v * CHEB(kAiQ, t));
}

// ---- error functions ----
constant float kErfcx[] = {
    3.001560288e-1f, 4.292914753e-1f, 1.793685529e-1f, 6.448260202e-2f, 1.997753002e-2f, 5.297885121e-3f,
    1.181682953e-3f, 2.136403433e-4f, 2.871402557e-5f, 2.101840236e-6f, -1.446728367e-7f, -6.360202502e-8f,
    -5.99339732e-9f};
constant float kErfinvNear[] = {
    1.603218784f, 7.065114598e-1f, -1.856351825e-2f, -6.322936482e-3f, 1.715274807e-3f, -1.009017126e-4f,
    -4.472783686e-5f, 1.153632322e-5f, -2.170710803e-7f, -4.17542982e-7f, 7.786996236e-8f};
constant float kErfinvFar[] = {
    3.060639443f, 7.773631216e-1f, 2.294851712e-3f, -6.453123603e-4f, 1.632483126e-4f, -3.752506396e-5f,
    6.630993597e-6f, -6.292994153e-7f, -6.217670985e-8f, 3.627277554e-8f};
constant float kErfinvFarther[] = {
    6.615142884f, 2.774059075f, -1.598851219e-3f, -1.472841203e-4f, 1.054916528e-4f, -3.409495564e-5f,
    9.083336561e-6f, -2.214595679e-6f, 5.148217582e-7f, -1.176250559e-7f};
static float erfcxPositive(float x) { return x > 396.0f ? 0.564189584f / x : CHEB(kErfcx, unit(4.0f / (4.0f + x), 0.01f, 1.0f)); }
static float erfcx(float x) {
  if (x >= 0.0f) return erfcxPositive(x);
  return 2.0f * exp(x * x) - erfcxPositive(-x);
}
static float log_ndtr(float a) {
  const float x = a * 0.707106781f;
  return x < -1.0f ? log(0.5f * erfcxPositive(-x)) - x * x : log1p(-0.5f * erfc(x));
}
// The inverse of erf for a number whose distance to 1 is known better than the number: w = -log(1 - x^2).
static float erfinvBy(float x, float w) {
  if (w <= 6.0f) return x * CHEB(kErfinvNear, unit(w, 0.0f, 6.0f));
  const float r = sqrt(w);
  return x * (r <= 4.0f ? CHEB(kErfinvFar, unit(r, 2.44948974f, 4.0f)) : CHEB(kErfinvFarther, unit(r, 4.0f, 9.5f)));
}
static float erfinv(float x) {
  const float d = fabs(x);
  if (d == 1.0f) return copysign(INFINITY, x);
  return d < 1.0f ? erfinvBy(x, -log((1.0f - d) * (1.0f + d))) : NAN;
}
static float ndtri(float p) {
  if (p == 0.0f) return -INFINITY;
  if (p == 1.0f) return INFINITY;
  if (!(p > 0.0f && p < 1.0f)) return NAN;
  const float q = p < 0.5f ? 2.0f * p : 2.0f * (1.0f - p);   // erfc of the size we look for
  const float r = 1.41421356f * erfinvBy(1.0f - q, -log(q * (2.0f - q)));
  return p < 0.5f ? -r : r;
}

// ---- gamma and zeta ----
static float digamma(float x) {
  if (x == 0.0f) return copysign(INFINITY, -x);
  float extra = 0.0f;
  if (x < 0.0f) {
    if (x == trunc(x)) return NAN;
    const float part = x - trunc(x);
    extra = -3.14159265f / tan(3.14159265f * part);
    x = 1.0f - x;
  }
  for (; x < 8.0f; x += 1.0f) extra -= 1.0f / x;
  const float y = 1.0f / (x * x);
  return extra + log(x) - 0.5f / x -
         y * (0.0833333333f - y * (0.00833333333f - y * (0.00396825397f - y * 0.00416666667f)));
}
// Hurwitz zeta by Euler and Maclaurin: nine terms, the integral, then corrections.
constant float kZeta[] = {12.0f, -720.0f, 30240.0f, -1209600.0f, 47900160.0f, -1892437580.0f, 7.47242496e10f, -2.950130728e12f};
static float zeta(float x, float q) {
  if (x == 1.0f) return INFINITY;
  if (x < 1.0f) return NAN;
  if (q <= 0.0f && q == floor(q)) return INFINITY;
  if (q <= 0.0f && x != floor(x)) return NAN;
  float sum = pow(q, -x), a = q, b = 0.0f;
  for (int i = 0; i < 9 || a <= 9.0f; ++i) {
    a += 1.0f;
    b = pow(a, -x);
    sum += b;
    if (fabs(b) < 6e-8f * fabs(sum)) return sum;
  }
  sum += b * a / (x - 1.0f) - 0.5f * b;
  float factor = 1.0f, k = 0.0f;
  for (int i = 0; i < 8; ++i) {
    factor *= x + k;
    b /= a;
    const float t = factor * b / kZeta[i];
    sum += t;
    if (fabs(t) < 6e-8f * fabs(sum)) break;
    k += 1.0f;
    factor *= x + k;
    b /= a;
    k += 1.0f;
  }
  return sum;
}
static float polygamma(float x, float n) {
  if (n == 0.0f) return digamma(x);
  const float r = exp(lgamma(n + 1.0f)) * zeta(n + 1.0f, x);
  return fmod(n, 2.0f) == 0.0f ? -r : r;
}
// Regularised incomplete gamma functions: a series below, a continued fraction above.
static float gammaFactor(float a, float x) { return exp(a * log(x) - x - lgamma(a)); }
static float gammaSeries(float a, float x) {
  float term = 1.0f / a, sum = term;
  for (int i = 1; i < 400; ++i) {
    term *= x / (a + (float)i);
    sum += term;
    if (term < 6e-8f * sum) break;
  }
  return sum * gammaFactor(a, x);
}
static float gammaFraction(float a, float x) {
  float b = x + 1.0f - a, c = 1e30f, d = 1.0f / b, h = d;
  for (int i = 1; i < 400; ++i) {
    const float an = -(float)i * ((float)i - a);
    b += 2.0f;
    d = an * d + b;
    d = 1.0f / (fabs(d) < 1e-30f ? 1e-30f : d);
    c = b + an / c;
    c = fabs(c) < 1e-30f ? 1e-30f : c;
    const float step = c * d;
    h *= step;
    if (fabs(step - 1.0f) < 6e-8f) break;
  }
  return h * gammaFactor(a, x);
}
static float gammaPart(float a, float x, int upper) {
  if (!(a >= 0.0f && x >= 0.0f) || (isinf(a) && isinf(x))) return NAN;
  if (a == 0.0f) return x > 0.0f ? (upper ? 0.0f : 1.0f) : NAN;
  if (x == 0.0f || isinf(a)) return upper ? 1.0f : 0.0f;
  if (isinf(x)) return upper ? 0.0f : 1.0f;
  const int series = x < a + 1.0f;
  const float r = series ? gammaSeries(a, x) : gammaFraction(a, x);
  return series == !upper ? r : 1.0f - r;
}
static float igamma(float a, float x) { return gammaPart(a, x, 0); }
static float igammac(float a, float x) { return gammaPart(a, x, 1); }

// ---- orthogonal polynomials of degree n (cut to a whole number), by their recurrences ----
static float chebyshevKind(float x, float degree, float first) {   // r = 2 x q - p from 1, first
  const int n = (int)trunc(degree);
  if (n < 0) return 0.0f;
  float p = 1.0f, q = first;
  for (int k = 0; k < n; ++k) {
    const float r = 2.0f * x * q - p;
    p = q;
    q = r;
  }
  return p;
}
static float chebyshev_polynomial_t(float x, float n) { return chebyshevKind(x, n, x); }
static float chebyshev_polynomial_u(float x, float n) { return chebyshevKind(x, n, 2.0f * x); }
static float chebyshev_polynomial_v(float x, float n) { return chebyshevKind(x, n, 2.0f * x - 1.0f); }
static float chebyshev_polynomial_w(float x, float n) { return chebyshevKind(x, n, 2.0f * x + 1.0f); }
#define SHIFTED(x) (2.0f * (x) - 1.0f)
static float shifted_chebyshev_polynomial_t(float x, float n) { return chebyshev_polynomial_t(SHIFTED(x), n); }
static float shifted_chebyshev_polynomial_u(float x, float n) { return chebyshev_polynomial_u(SHIFTED(x), n); }
static float shifted_chebyshev_polynomial_v(float x, float n) { return chebyshev_polynomial_v(SHIFTED(x), n); }
static float shifted_chebyshev_polynomial_w(float x, float n) { return chebyshev_polynomial_w(SHIFTED(x), n); }
#define POLYNOMIAL(name, first, next)                                \
  static float name(float x, float degree) {                         \
    const int n = (int)trunc(degree);                                \
    if (n < 0) return 0.0f;                                          \
    float p = 1.0f, q = (first);                                     \
    for (int i = 1; i <= n; ++i) {                                   \
      const float k = (float)i, r = (next);                          \
      p = q;                                                         \
      q = r;                                                         \
    }                                                                \
    return p;                                                        \
  }
POLYNOMIAL(hermite_polynomial_h, 2.0f * x, 2.0f * x * q - 2.0f * k * p)
POLYNOMIAL(hermite_polynomial_he, x, x * q - k * p)
POLYNOMIAL(laguerre_polynomial_l, 1.0f - x, ((2.0f * k + 1.0f - x) * q - k * p) / (k + 1.0f))
POLYNOMIAL(legendre_polynomial_p, x, ((2.0f * k + 1.0f) * x * q - k * p) / (k + 1.0f))

// ---- frexp, in two results ----
static float frexpMantissa(float x) {
  int e;
  return frexp(x, &e);
}
static float frexpExponent(float x) {
  int e = 0;
  if (isfinite(x)) frexp(x, &e);
  return (float)e;
}

#ifdef WIDE
static T each(T a, T b) {
  float x[16], y[16];
  vstore16(a, 0, x);
  vstore16(b, 0, y);
  for (int i = 0; i < 16; ++i) x[i] = SPECIAL(x[i], y[i]);
  return vload16(0, x);
}
#else
#define each(a, b) SPECIAL(a, b)
#endif

// Helpers for the pointwise table's expressions. Everything works on T, scalar or vector of 16. B(mask) turns a
// comparison into 0 or 1 of T. Comparisons with NaN are false: that is how NaN gets through CLAMP, MAXN and MINN.
#ifdef WIDE
#define T CAT2(S, 16)
#else
#define T S
#endif
#define Z ((T)(0))
#define B(mask) CONVT((mask) & 1)
#ifdef WIDE
#define CONVT(x) CONVV(x)
#else
#define CONVT(x) CONV1(x)
#endif
#define MAXN(x, y) ((((x) > (y)) | ((x) != (x))) ? (x) : (y))
#define MINN(x, y) ((((x) < (y)) | ((x) != (x))) ? (x) : (y))

#ifdef FLOATING
static T clampT(T x, T lo, T hi) {
  x = x < lo ? lo : x;
  x = x > hi ? hi : x;
  return ((lo != lo) | (hi != hi)) ? (T)(NAN) : x;
}
static T sigmoidT(T x) { return K(1.0) / (K(1.0) + exp(-x)); }
static T softplusT(T x) { return log1p(exp(-fabs(x))) + (x > Z ? x : (x != x ? x : Z)); }
#ifdef FLOAT32
// The built-in erf is accurate to the last digit and slow in vectors. Own fit: x P(x^2) / Q(x^2) up to 3.92, where erf rounds
// to 1; its relative error is under 4e-7 in float32. NaN stays NaN.
static T erfT(T x) {
  const T u = x * x;
  const T p = K(1.128379139) + u * (K(0.1935464549) + u * (K(0.05310175418) + u * (K(0.0038833397) +
              u * (K(0.0002845554294) + u * K(1.986648192e-06)))));
  const T q = K(1.0) + u * (K(0.5048586373) + u * (K(0.115350412) + u * (K(0.01520727133) +
              u * (K(0.0011855494) + u * K(3.74182072e-05)))));
  return fabs(x) >= K(3.92) ? copysign(K(1.0), x) : x * (p / q);
}
#else
#define erfT(x) erf(x)
#endif
#ifdef FLOAT32
#define fmodT(a, b) fmod(a, b)
#else
#ifdef WIDE
#define SOME(mask) any(mask)
#else
#define SOME(mask) (mask)
#endif
// Some drivers' float64 fmod is plainly wrong. Each round takes whole multiples of b away exactly (fma) and leaves less
// than b, or less than 2^-52 of what was there.
static T fmodT(T a, T b) {
  const T y = fabs(b), far = y * K(0x1p900);
  T r = fabs(a);
  r = r >= far ? fma(-trunc(r / far), far, r) : r;   // so that no quotient is too large for the type
  for (int i = 0; i < 24 && SOME((fabs(r) >= y) & (r - r == Z)); ++i) r = fma(-trunc(r / y), y, r);
  r = copysign(r < Z ? r + y : r, a);
  r = ((y == (T)(INFINITY)) & (fabs(a) < y)) ? a : r;
  return ((a - a != Z) | (b != b) | (b == Z)) ? (T)(NAN) : r;
}
#endif
#ifdef FLOAT32
#define powF(a, b) pow(a, b)
#else
// Some drivers' float64 pow is plainly wrong; exp and log are right. The error is about |b log a| units in the last place.
static T powF(T a, T b) {
  const T size = exp(b * log(fabs(a)));
  const T half_ = b * K(0.5);
  T r = a < Z ? (b != trunc(b) ? (((fabs(b) == (T)(INFINITY)) | (a == (T)(-INFINITY))) ? size : (T)(NAN)) : (half_ != trunc(half_) ? -size : size)) : size;
  r = ((a == Z) & (b == trunc(b)) & (half_ != trunc(half_))) ? copysign(r, a) : r;
  r = ((fabs(a) == K(1.0)) & (fabs(b) == (T)(INFINITY))) ? K(1.0) : r;
  return ((b == Z) | (a == K(1.0))) ? K(1.0) : r;
}
#endif
static T geluTanhGradT(T g, T x) {
  const T u = K(0.79788456080286535588) * (x + K(0.044715) * x * x * x);
  const T t = tanh(u);
  const T du = K(0.79788456080286535588) * (K(1.0) + K(0.134145) * x * x);
  return g * (K(0.5) * (K(1.0) + t) + K(0.5) * x * (K(1.0) - t * t) * du);
}
static T mishGradT(T g, T x) {
  const T t = tanh(softplusT(x));
  return g * (t + x * sigmoidT(x) * (K(1.0) - t * t));
}
static T floorDivT(T a, T b) {
  const T mod = fmodT(a, b);
  T div = (a - mod) / b;
  div = ((mod != Z) & ((b < Z) != (mod < Z))) ? div - K(1.0) : div;
  T whole = floor(div);
  whole = (div - whole) > K(0.5) ? whole + K(1.0) : whole;
  whole = div != Z ? whole : copysign(Z, a / b);
  return b == Z ? a / b : whole;
}
static T remainderT(T a, T b) {
  const T mod = fmodT(a, b);
  return ((mod != Z) & ((b < Z) != (mod < Z))) ? mod + b : mod;
}
static T lerpT(T a, T b, T w) {
  return fabs(w) < K(0.5) ? a + w * (b - a) : b - (b - a) * (K(1.0) - w);
}
#else
static T clampT(T x, T lo, T hi) {
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}
// Division must not trap: by zero it gives 0 (PyTorch's CPU raises, a kernel cannot), by -1 it negates (the most
// negative number would overflow).
#define MINUS_ONE(b) (((b) == (T)(-1)) & ((T)(-1) < Z))
static T truncDivT(T a, T b) {
  const T safe = ((b == Z) | MINUS_ONE(b)) ? (T)(1) : b;
  return b == Z ? Z : (MINUS_ONE(b) ? Z - a : a / safe);
}
static T fmodT(T a, T b) {
  const T safe = ((b == Z) | MINUS_ONE(b)) ? (T)(1) : b;
  return a % safe;
}
static T floorDivT(T a, T b) {
  const T q = truncDivT(a, b), r = fmodT(a, b);
  return ((r != Z) & ((r < Z) != (b < Z))) ? q - (T)(1) : q;
}
static T remainderT(T a, T b) {
  const T r = fmodT(a, b);
  return ((r != Z) & ((r < Z) != (b < Z))) ? r + b : r;
}
static T powT(T a, T e) {
  const T negative = a == (T)(1) ? (T)(1) : (a == (T)(-1) ? ((e & (T)(1)) != Z ? (T)(-1) : (T)(1)) : Z);
  T r = (T)(1), base = a, left = e;
  for (int i = 0; i < (int)sizeof(S) * 8 - 1; ++i) {
    r = (left & (T)(1)) != Z ? r * base : r;
    base *= base;
    left >>= (T)(1);
  }
  return e < Z ? negative : r;
}
#ifdef BITS
static T lshiftT(T a, T n) {
  const T safe = ((n < Z) | (n >= (T)(BITS))) ? Z : n;
  return safe == n ? a << safe : Z;
}
static T rshiftT(T a, T n) {
  const T safe = ((n < Z) | (n >= (T)(BITS))) ? (T)(BITS - 1) : n;
  return safe == n ? a >> safe : (a < Z ? (T)(-1) : Z);
}
#endif
#endif

// Small dense factorisations, one work-item a matrix (or a column of the right-hand side). Everything is packed, row by
// row: matrices lie m * n apart. The head defines S (float or double) and USE_<kernel>.
//
// Launch data, longs: [0] work-items, [1] m, [2] n, [3] columns of the right-hand side, [4..7] element offsets of the
// buffers in their order, [8] and [9] flags, [10] reflectors.
typedef struct { long v[12]; } Meta;
#define ITEM                             \
  const long item = get_global_id(0);    \
  if (item >= m.v[0]) return;
#define A(i, j) a[(i) * n + (j)]

#ifdef USE_lu
// In place, with row exchanges if [8]. pivots count from 1; info = first zero pivot, counted from 1.
kernel void lu(global S* as, global int* pivots, global int* infos, const Meta m) {
  ITEM
  const long rows = m.v[1], n = m.v[2], k = min(rows, n);
  global S* a = as + m.v[4] + item * rows * n;
  global int* pivot = pivots + m.v[5] + item * k;
  int info = 0;
  for (long s = 0; s < k; ++s) {
    long best = s;
    if (m.v[8])
      for (long i = s + 1; i < rows; ++i)
        if (fabs(A(i, s)) > fabs(A(best, s))) best = i;
    pivot[s] = (int)best + 1;
    if (best != s)
      for (long j = 0; j < n; ++j) {
        const S t = A(s, j);
        A(s, j) = A(best, j);
        A(best, j) = t;
      }
    const S p = A(s, s);
    if (p == (S)0) {
      if (info == 0) info = (int)s + 1;
      continue;
    }
    for (long i = s + 1; i < rows; ++i) {
      const S f = A(i, s) / p;
      A(i, s) = f;
      for (long j = s + 1; j < n; ++j) A(i, j) -= f * A(s, j);
    }
  }
  infos[m.v[6] + item] = info;
}
#endif

#ifdef USE_permutation
// Where each row of P^T B comes from: the exchanges of `pivots` [1] of them, applied to 0 .. [2] - 1.
kernel void permutation(global const int* pivots, global long* places, const Meta m) {
  ITEM
  global const int* pivot = pivots + m.v[4] + item * m.v[1];
  global long* place = places + m.v[5] + item * m.v[2];
  for (long i = 0; i < m.v[2]; ++i) place[i] = i;
  for (long s = 0; s < m.v[1]; ++s) {
    const long other = pivot[s] - 1, t = place[s];
    if (other < 0 || other >= m.v[2]) continue;
    place[s] = place[other];
    place[other] = t;
  }
}
#endif

#ifdef USE_cholesky
// The lower factor from the lower triangle, in place; zeros above. info = order of the first minor that is not positive.
kernel void cholesky(global S* as, global int* infos, const Meta m) {
  ITEM
  const long n = m.v[2];
  global S* a = as + m.v[4] + item * n * n;
  int info = 0;
  for (long j = 0; j < n; ++j) {
    S d = A(j, j);
    for (long k = 0; k < j; ++k) d -= A(j, k) * A(j, k);
    if (!(d > (S)0)) {
      info = (int)j + 1;
      break;
    }
    d = sqrt(d);
    A(j, j) = d;
    for (long i = j + 1; i < n; ++i) {
      S x = A(i, j);
      for (long k = 0; k < j; ++k) x -= A(i, k) * A(j, k);
      A(i, j) = x / d;
    }
  }
  for (long i = 0; i < n; ++i)
    for (long j = i + 1; j < n; ++j) A(i, j) = (S)0;
  infos[m.v[5] + item] = info;
}
#endif

#ifdef USE_triangular
// A x = b for one column of b, in place. [8]: upper, [9]: ones on the diagonal.
kernel void triangular(global const S* as, global S* bs, const Meta m) {
  ITEM
  const long n = m.v[2], columns = m.v[3], matrix = item / columns;
  global const S* a = as + m.v[4] + matrix * n * n;
  global S* b = bs + m.v[5] + matrix * n * columns + item % columns;
  for (long s = 0; s < n; ++s) {
    const long i = m.v[8] ? n - 1 - s : s;
    S x = b[i * columns];
    for (long t = 0; t < s; ++t) {
      const long j = m.v[8] ? n - 1 - t : t;
      x -= A(i, j) * b[j * columns];
    }
    b[i * columns] = m.v[9] ? x : x / A(i, i);
  }
}
#endif

#ifdef USE_householder
// In place: R above, the reflectors' vectors (first element 1, not stored) below, their factors in tau.
kernel void householder(global S* as, global S* taus, const Meta m) {
  ITEM
  const long rows = m.v[1], n = m.v[2], k = min(rows, n);
  global S* a = as + m.v[4] + item * rows * n;
  global S* tau = taus + m.v[5] + item * k;
  for (long s = 0; s < k; ++s) {
    S rest = (S)0;
    for (long i = s + 1; i < rows; ++i) rest += A(i, s) * A(i, s);
    const S alpha = A(s, s);
    if (rest == (S)0) {
      tau[s] = (S)0;
      continue;
    }
    const S size = sqrt(alpha * alpha + rest), beta = alpha > (S)0 ? -size : size;
    tau[s] = (beta - alpha) / beta;
    for (long i = s + 1; i < rows; ++i) A(i, s) /= alpha - beta;
    A(s, s) = beta;
    for (long j = s + 1; j < n; ++j) {
      S dot_ = A(s, j);
      for (long i = s + 1; i < rows; ++i) dot_ += A(i, s) * A(i, j);
      dot_ *= tau[s];
      A(s, j) -= dot_;
      for (long i = s + 1; i < rows; ++i) A(i, j) -= dot_ * A(i, s);
    }
  }
}
#endif

#ifdef USE_reflect
// The reflectors H1 .. Hk of `as` [m, n] applied to one column of c [m, columns]: Q c (last first), or Q^T c if [8].
kernel void reflect(global const S* as, global const S* taus, global S* cs, const Meta m) {
  ITEM
  const long rows = m.v[1], n = m.v[2], columns = m.v[3], k = m.v[10], matrix = item / columns;
  global const S* a = as + m.v[4] + matrix * rows * n;
  global const S* tau = taus + m.v[5] + matrix * k;
  global S* c = cs + m.v[6] + matrix * rows * columns + item % columns;
  for (long t = 0; t < k; ++t) {
    const long s = m.v[8] ? t : k - 1 - t;
    S dot_ = c[s * columns];
    for (long i = s + 1; i < rows; ++i) dot_ += A(i, s) * c[i * columns];
    dot_ *= tau[s];
    c[s * columns] -= dot_;
    for (long i = s + 1; i < rows; ++i) c[i * columns] -= dot_ * A(i, s);
  }
}
#endif

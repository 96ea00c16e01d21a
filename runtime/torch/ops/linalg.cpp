// Factorisations and solvers of small dense matrices, in batches. Kernels work on packed copies; the steps around them are
// operators on the device. One work-item factors one matrix, so where the host shares the memory LAPACK is asked first.
#include "runtime/opencl/ops/linalg.h"

#include <cmath>

#include "runtime/torch/ops/composed.h"

namespace flagos::glue {
namespace {

using ocl::MatrixSizes;

void must(const Result<void>& r) { TORCH_CHECK(r.ok(), r.error().text()); }

MatrixSizes sizesOf(const at::Tensor& a) {
  MatrixSizes s{1, a.size(-2), a.size(-1)};
  for (int64_t d = 0; d + 2 < a.dim(); ++d) s.batch *= a.size(d);
  return s;
}
// A packed copy that kernels may write to.
at::Tensor packed(const at::Tensor& a) { return a.clone(at::MemoryFormat::Contiguous); }
std::vector<int64_t> batchOf(const at::Tensor& a, std::initializer_list<int64_t> tail) {
  std::vector<int64_t> s(a.sizes().begin(), a.sizes().end() - 2);
  s.insert(s.end(), tail);
  return s;
}
at::Tensor ints(const at::Tensor& like, at::IntArrayRef sizes) { return at::zeros(sizes, like.options().dtype(at::kInt)); }

struct Lu { at::Tensor lu, pivots, info; };
Lu factored(OpCall& c, const at::Tensor& a, bool pivot) {
  Lu f{packed(a), ints(a, batchOf(a, {std::min(a.size(-2), a.size(-1))})), ints(a, batchOf(a, {}))};
  if (f.lu.numel() > 0) must(ocl::luFactor(c.queue(), ref(f.lu), ref(f.pivots), ref(f.info), sizesOf(a), pivot, c.variant()));
  return f;
}
at::Tensor placesOf(OpCall& c, const at::Tensor& pivots, int64_t n) {
  const at::Tensor p = pivots.contiguous();
  auto sizes = p.sizes().vec();
  const int64_t exchanges = sizes.back();
  sizes.back() = n;
  at::Tensor places = at::empty(sizes, p.options().dtype(at::kLong));
  if (places.numel() > 0) must(ocl::pivotPlaces(c.queue(), ref(p), ref(places), places.numel() / n, exchanges, n, c.variant()));
  return places;
}
// op(A)^-1 B with A [.., n, n] triangular, both of one batch shape.
at::Tensor triangular(OpCall& c, const at::Tensor& a, const at::Tensor& b, bool upper, bool unit) {
  at::Tensor x = packed(b);
  const at::Tensor m = a.contiguous();
  if (x.numel() > 0) must(ocl::solveTriangular(c.queue(), ref(m), ref(x), sizesOf(m), x.size(-1), upper, unit, c.variant()));
  return x;
}
// The two with their batches broadcast together.
std::pair<at::Tensor, at::Tensor> together(const at::Tensor& a, const at::Tensor& b) {
  const auto batch = at::infer_size(a.sizes().slice(0, static_cast<size_t>(a.dim() - 2)), b.sizes().slice(0, static_cast<size_t>(b.dim() - 2)));
  auto sa = batch, sb = batch;
  sa.insert(sa.end(), a.sizes().end() - 2, a.sizes().end());
  sb.insert(sb.end(), b.sizes().end() - 2, b.sizes().end());
  return {a.expand(sa), b.expand(sb)};
}
at::Tensor solveTriangularFull(OpCall& c, const at::Tensor& a0, const at::Tensor& b0, bool upper, bool left, bool unit) {
  const auto [a, b] = together(a0, b0);
  if (left) return triangular(c, a, b, upper, unit);
  return triangular(c, a.mT(), b.mT(), !upper, unit).mT();
}
// Rows of b in the order of places: b[.., places[i], :].
at::Tensor rowsBy(const at::Tensor& b, const at::Tensor& places) { return b.gather(-2, places.unsqueeze(-1).expand(b.sizes())); }

at::Tensor luSolve(OpCall& c, const at::Tensor& lu0, const at::Tensor& pivots0, const at::Tensor& b0, bool left, bool adjoint) {
  if (!left) return luSolve(c, lu0, pivots0, b0.mT(), true, !adjoint).mT();
  const auto [lu, b] = together(lu0, b0);
  auto shape = lu.sizes().vec();
  shape.pop_back();
  const at::Tensor places = placesOf(c, pivots0.expand(shape), lu.size(-1));
  if (!adjoint) return triangular(c, lu, triangular(c, lu, rowsBy(b, places), false, true), true, false);
  const at::Tensor t = lu.mT();
  const at::Tensor y = triangular(c, t, triangular(c, t, b, false, false), true, true);
  return at::zeros_like(y).scatter(-2, places.unsqueeze(-1).expand(y.sizes()), y);
}

// ---- LU ----
void raise(OpCall& c, const at::Tensor& info, const char* api, bool wanted, const at::Tensor& a) {
  if (wanted && info.numel() > 0) at::_linalg_check_errors(info, api, a.dim() == 2);
}
// (A, *, pivot, check_errors, LU, pivots, info)
void luFactorEx(OpCall& c) {
  const Lu f = factored(c, c.tensor(0), c.flag(1));
  raise(c, f.info, "torch.linalg.lu_factor_ex", c.flag(2), c.tensor(0));
  give(c, 0, f.lu);
  give(c, 1, f.pivots);
  give(c, 2, f.info);
}
// (LU, pivots, B, *, left, adjoint, out)
void luSolveOut(OpCall& c) { give(c, 0, luSolve(c, c.tensor(0), c.tensor(1), c.tensor(2), c.flag(3), c.flag(4))); }

struct Unpacked { at::Tensor p, l, u; };
Unpacked unpack(OpCall& c, const at::Tensor& lu, const at::Tensor& pivots, bool data, bool exchanges) {
  Unpacked r;
  const int64_t rows = lu.size(-2), columns = lu.size(-1), k = std::min(rows, columns);
  const at::Tensor none = at::empty({0}, lu.options());
  r.p = r.l = r.u = none;
  if (data) {
    r.l = lu.narrow(-1, 0, k).tril(-1) + at::eye(rows, k, lu.options());
    r.u = lu.narrow(-2, 0, k).triu();
  }
  if (exchanges) {
    const at::Tensor places = placesOf(c, pivots, rows);
    const at::Tensor none_yet = at::zeros(batchOf(lu, {rows, rows}), lu.options());
    // Of a matrix without elements the CPU takes no exchange.
    r.p = lu.numel() == 0 ? none_yet + at::eye(rows, lu.options()) : none_yet.scatter(-2, places.unsqueeze(-2), 1);
  }
  return r;
}
// (LU, pivots, unpack_data, unpack_pivots, *, P, L, U)
void luUnpack(OpCall& c) {
  const Unpacked r = unpack(c, c.tensor(0), c.tensor(1), c.flag(2), c.flag(3));
  give(c, 0, r.p);
  give(c, 1, r.l);
  give(c, 2, r.u);
}
// (A, *, pivot, P, L, U)
void lu(OpCall& c) {
  const Lu f = factored(c, c.tensor(0), c.flag(1));
  const Unpacked r = unpack(c, f.lu, f.pivots, true, c.flag(1));
  give(c, 0, r.p);
  give(c, 1, r.l);
  give(c, 2, r.u);
}
// What the determinants factor: the transpose of a contiguous A (LAPACK's own order). Their gradients rely on it.
at::Tensor kept(const at::Tensor& a) { return a.is_contiguous() ? a.mT() : a; }
// -1 for an odd number of exchanges.
at::Tensor parity(const at::Tensor& pivots, const at::Tensor& like) {
  const at::Tensor own = at::arange(1, pivots.size(-1) + 1, pivots.options());
  const at::Tensor odd = pivots.ne(own).sum(-1).bitwise_and(1);
  return (1 - 2 * odd).to(like.scalar_type());
}
// (A, *, result, LU, pivots)
void det(OpCall& c) {
  const Lu f = factored(c, kept(c.tensor(0)), true);
  give(c, 0, f.lu.diagonal(0, -2, -1).prod(-1) * parity(f.pivots, f.lu));
  give(c, 1, f.lu);
  give(c, 2, f.pivots);
}
// (A, *, sign, logabsdet, LU, pivots)
void slogdet(OpCall& c) {
  const Lu f = factored(c, kept(c.tensor(0)), true);
  const at::Tensor d = f.lu.diagonal(0, -2, -1);
  give(c, 0, d.sign().prod(-1) * parity(f.pivots, f.lu));
  give(c, 1, d.abs().log().sum(-1));
  give(c, 2, f.lu);
  give(c, 3, f.pivots);
}
// (A, B, *, left, check_errors, result, LU, pivots, info)
void solveEx(OpCall& c) {
  const at::Tensor &a = c.tensor(0), &b = c.tensor(1);
  const Lu f = factored(c, a, true);
  raise(c, f.info, "torch.linalg.solve_ex", c.flag(3), a);
  // B is a batch of vectors if it has A's shape without the last dimension, or one dimension.
  const bool vector = b.dim() == 1 || (a.dim() - 1 == b.dim() && b.sizes() == a.sizes().slice(0, static_cast<size_t>(a.dim() - 1)));
  const at::Tensor x = luSolve(c, f.lu, f.pivots, vector ? b.unsqueeze(-1) : b, vector || c.flag(2), false);
  give(c, 0, vector ? x.squeeze(-1) : x);
  give(c, 1, f.lu);
  give(c, 2, f.pivots);
  give(c, 3, f.info);
}
// (A, *, check_errors, inverse, info)
void invEx(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const Lu f = factored(c, a, true);
  raise(c, f.info, "torch.linalg.inv_ex", c.flag(1), a);
  give(c, 0, luSolve(c, f.lu, f.pivots, at::eye(a.size(-1), a.options()).expand(a.sizes()), true, false));
  give(c, 1, f.info);
}

// ---- Cholesky ----
struct Cholesky { at::Tensor lower, info; };
Cholesky choleskyOf(OpCall& c, const at::Tensor& a) {
  Cholesky r{packed(a), ints(a, batchOf(a, {}))};
  if (r.lower.numel() > 0) must(ocl::choleskyFactor(c.queue(), ref(r.lower), ref(r.info), sizesOf(a), c.variant()));
  return r;
}
// (self, *, upper, check_errors, L, info)
void choleskyEx(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const Cholesky r = choleskyOf(c, c.flag(1) ? a.mT() : a);
  raise(c, r.info, "torch.linalg.cholesky_ex", c.flag(2), a);
  give(c, 0, c.flag(1) ? r.lower.mT() : r.lower);
  give(c, 1, r.info);
}
// (self, upper[, out])
void cholesky(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const Cholesky r = choleskyOf(c, c.flag(1) ? a.mT() : a);
  raise(c, r.info, "cholesky", true, a);
  give(c, 0, c.flag(1) ? r.lower.mT() : r.lower);
}
// The solution of A x = b from A's factor.
at::Tensor choleskySolve(OpCall& c, const at::Tensor& factor, const at::Tensor& b, bool upper) {
  const at::Tensor lower = upper ? factor.mT() : factor;
  return triangular(c, lower.mT(), triangular(c, lower, b, false, false), true, false);
}
void choleskySolveHelper(OpCall& c) { give(c, 0, choleskySolve(c, c.tensor(1), c.tensor(0), c.flag(2))); }
// (self, upper[, out])
void choleskyInverse(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  give(c, 0, choleskySolve(c, a, at::eye(a.size(-1), a.options()).expand(a.sizes()), c.flag(1)));
}

// ---- triangular systems ----
// (self, B, *, upper, left, unitriangular[, out])
void solveTriangular(OpCall& c) { give(c, 0, solveTriangularFull(c, c.tensor(0), c.tensor(1), c.flag(2), c.flag(3), c.flag(4))); }
// (self = B, A, upper, transpose, unitriangular, *, X, M)
void triangularSolve(OpCall& c) {
  const at::Tensor a = c.flag(3) ? c.tensor(1).mT() : c.tensor(1);
  const at::Tensor x = solveTriangularFull(c, a, c.tensor(0), c.flag(2) != c.flag(3), true, c.flag(4));
  give(c, 1, together(c.tensor(1), c.tensor(0)).first.clone());
  give(c, 0, x);
}

// ---- QR ----
struct Reflectors { at::Tensor a, tau; };
Reflectors reflectorsOf(OpCall& c, const at::Tensor& a) {
  Reflectors r{packed(a), at::zeros(batchOf(a, {std::min(a.size(-2), a.size(-1))}), a.options())};
  if (r.a.numel() > 0) must(ocl::householderFactor(c.queue(), ref(r.a), ref(r.tau), sizesOf(a), c.variant()));
  return r;
}
at::Tensor applied(OpCall& c, const at::Tensor& a0, const at::Tensor& tau0, const at::Tensor& b, bool transposed) {
  at::Tensor x = packed(b);
  const at::Tensor a = a0.contiguous(), tau = tau0.contiguous();
  if (x.numel() > 0 && tau.numel() > 0)
    must(ocl::reflect(c.queue(), ref(a), ref(tau), ref(x), sizesOf(a), tau.size(-1), x.size(-1), transposed, c.variant()));
  return x;
}
at::Tensor columnsOfQ(OpCall& c, const at::Tensor& a, const at::Tensor& tau, int64_t columns) {
  return applied(c, a, tau, at::eye(a.size(-2), columns, a.options()).expand(batchOf(a, {a.size(-2), columns})), false);
}
// (A, mode, *, Q, R)
void qr(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const std::string mode = c.string(1);
  const Reflectors r = reflectorsOf(c, a);
  const int64_t k = std::min(a.size(-2), a.size(-1)), rows = mode == "complete" ? a.size(-2) : k;
  give(c, 0, mode == "r" ? at::empty({0}, a.options()) : columnsOfQ(c, r.a, r.tau, rows));
  give(c, 1, r.a.narrow(-2, 0, rows).triu());
}
bool qrFits(const OpCall& c) {
  const std::string m = c.string(1);
  return composedFloatFits<0>(c) && (m == "reduced" || m == "complete" || m == "r");
}
// (self[, a, tau])
void geqrf(OpCall& c) {
  const Reflectors r = reflectorsOf(c, c.tensor(0));
  give(c, 0, r.a);
  give(c, 1, r.tau);
}
// (input, tau[, out])
void householderProduct(OpCall& c) { give(c, 0, columnsOfQ(c, c.tensor(0), c.tensor(1), c.tensor(0).size(-1))); }
// (self, tau, other, left, transpose[, out])
void ormqr(OpCall& c) {
  const at::Tensor& other = c.tensor(2);
  if (c.flag(3)) give(c, 0, applied(c, c.tensor(0), c.tensor(1), other, c.flag(4)));
  else give(c, 0, applied(c, c.tensor(0), c.tensor(1), other.mT(), !c.flag(4)).mT());
}

// exp of each matrix: halved until it is small, a Taylor polynomial, then squared as often as it was halved.
void matrixExp(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  if (a.numel() == 0) {
    give(c, 0, a.clone());
    return;
  }
  const double size = a.abs().sum(-2).max().item<double>();
  // Few squarings keep rounding errors small, a long polynomial pays for them.
  const double small = a.scalar_type() == at::kDouble ? 1.0 : 2.5;
  const int halvings = size > small && std::isfinite(size) ? static_cast<int>(std::ceil(std::log2(size / small))) : 0;
  const MatrixSizes s = sizesOf(a);
  const at::Tensor x = a.reshape({s.batch, s.rows, s.rows}) * std::ldexp(1.0, -halvings);
  const at::Tensor one = at::eye(s.rows, a.options()).expand(x.sizes());
  at::Tensor e = one;
  for (int k = 18; k > 0; --k) e = at::baddbmm(one, x, e, 1, 1.0 / k);
  for (int i = 0; i < halvings; ++i) e = at::bmm(e, e);
  give(c, 0, e.reshape(a.sizes()));
}

// (self, other, *, dim, out)
void cross(OpCall& c) {
  const auto sizes = broadcastSizes({c.tensor(0), c.tensor(1)});
  const at::Tensor a = c.tensor(0).expand(sizes), b = c.tensor(1).expand(sizes);
  const int64_t dim = c.integer(2);
  const auto turned = [&](const at::Tensor& t, int64_t by) { return at::roll(t, {by}, {dim}); };
  give(c, 0, turned(a, -1) * turned(b, -2) - turned(a, -2) * turned(b, -1));
}

// The matrices are floats that LAPACK too would take.
bool matrixFits(const OpCall& c) {
  const at::ScalarType t = c.tensor(0).scalar_type();
  return composedFits(c) && (t == at::kFloat || t == at::kDouble) && c.tensor(0).dim() >= 2;
}

// These have no shape checks of PyTorch's before them; what does not fit is the CPU function's to refuse.
bool isSquare(const at::Tensor& a) { return a.dim() >= 2 && a.size(-2) == a.size(-1); }
bool squareFits(const OpCall& c) { return matrixFits(c) && isSquare(c.tensor(0)); }
bool alike(const at::Tensor& a, const at::Tensor& b) { return a.scalar_type() == b.scalar_type(); }
bool sameBatch(const at::Tensor& a, const at::Tensor& b, int64_t tail) {
  return b.dim() == a.dim() - 2 + tail && a.sizes().slice(0, static_cast<size_t>(a.dim() - 2)) == b.sizes().slice(0, static_cast<size_t>(a.dim() - 2));
}
bool solveTriangularFits(const OpCall& c) {
  const at::Tensor &a = c.tensor(0), &b = c.tensor(1);
  return squareFits(c) && alike(a, b) && b.dim() >= 2 && a.size(-1) == b.size(c.flag(3) ? -2 : -1);
}
bool householderFits(const OpCall& c) {
  const at::Tensor &a = c.tensor(0), &tau = c.tensor(1);
  return matrixFits(c) && alike(a, tau) && sameBatch(a, tau, 1) && a.size(-2) >= a.size(-1) && a.size(-1) >= tau.size(-1);
}
bool ormqrFits(const OpCall& c) {
  const at::Tensor &a = c.tensor(0), &tau = c.tensor(1), &other = c.tensor(2);
  return matrixFits(c) && alike(a, tau) && alike(a, other) && sameBatch(a, tau, 1) && sameBatch(a, other, 2) &&
         other.size(c.flag(3) ? -2 : -1) == a.size(-2) && tau.size(-1) <= std::min(a.size(-2), a.size(-1));
}

#define FLAGOS_LINALG(schema, steps, fits) {"aten::" schema, "composed", composed<steps>, fits}
const NativeOp rows[] = {
    FLAGOS_LINALG("linalg_lu_factor_ex.out", luFactorEx, matrixFits),
    FLAGOS_LINALG("linalg_lu_solve.out", luSolveOut, matrixFits),
    FLAGOS_LINALG("lu_unpack.out", luUnpack, matrixFits),
    FLAGOS_LINALG("linalg_lu.out", lu, matrixFits),
    FLAGOS_LINALG("_linalg_det.result", det, matrixFits),
    FLAGOS_LINALG("_linalg_slogdet.sign", slogdet, matrixFits),
    FLAGOS_LINALG("_linalg_solve_ex.result", solveEx, matrixFits),
    FLAGOS_LINALG("linalg_inv_ex.inverse", invEx, matrixFits),
    FLAGOS_LINALG("linalg_cholesky_ex.L", choleskyEx, matrixFits),
    FLAGOS_LINALG("cholesky", cholesky, squareFits),
    FLAGOS_LINALG("cholesky.out", cholesky, squareFits),
    FLAGOS_LINALG("_cholesky_solve_helper", choleskySolveHelper, matrixFits),
    FLAGOS_LINALG("cholesky_inverse", choleskyInverse, squareFits),
    FLAGOS_LINALG("cholesky_inverse.out", choleskyInverse, squareFits),
    FLAGOS_LINALG("linalg_solve_triangular", solveTriangular, solveTriangularFits),
    FLAGOS_LINALG("linalg_solve_triangular.out", solveTriangular, solveTriangularFits),
    FLAGOS_LINALG("triangular_solve.X", triangularSolve, matrixFits),
    FLAGOS_LINALG("linalg_qr.out", qr, qrFits),
    FLAGOS_LINALG("geqrf", geqrf, matrixFits),
    FLAGOS_LINALG("geqrf.a", geqrf, matrixFits),
    FLAGOS_LINALG("linalg_householder_product", householderProduct, householderFits),
    FLAGOS_LINALG("linalg_householder_product.out", householderProduct, householderFits),
    FLAGOS_LINALG("ormqr", ormqr, ormqrFits),
    FLAGOS_LINALG("ormqr.out", ormqr, ormqrFits),
    FLAGOS_LINALG("linalg_matrix_exp", matrixExp, squareFits),
    FLAGOS_LINALG("linalg_cross.out", cross, composedFits),
};
#undef FLAGOS_LINALG
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

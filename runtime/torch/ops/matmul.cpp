// The matrix product family. Transposes and broadcasts are strides; PyTorch's own shape checks come first, in its words.
#include "runtime/opencl/ops/gemm.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool matrixFits(std::initializer_list<at::Tensor> tensors) {
  at::ScalarType t = at::ScalarType::Undefined;
  for (const at::Tensor& x : tensors) {
    if (!isNpu(x) || x.layout() != at::kStrided || !at::isFloatingType(x.scalar_type())) return false;
    if (t == at::ScalarType::Undefined) t = x.scalar_type();
    if (x.scalar_type() != t) return false;
  }
  return t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kDouble;
}

// The product by the candidate that was chosen.
Result<void> launch(OpCall& c, const ocl::GemmArgs& g) {
  static const kde::CandidateId clblast = kde::candidateId("opencl.gemm.clblast");
  return c.route().chosen == clblast ? ocl::gemmByClblast(c.queue(), g) : ocl::gemm(c.queue(), g, c.variant());
}

Error shapes(const char* op, const at::Tensor& a, const at::Tensor& b) {
  return fail(std::string(op) + ": shapes " + c10::str(a.sizes()) + " and " + c10::str(b.sizes()) + " cannot be multiplied");
}

// a, b: 2-dim, or 3-dim batches. `self` (may be undefined) is broadcast to the result.
Result<void> product(OpCall& c, const char* name, const at::Tensor& a, const at::Tensor& b, const at::Tensor& self, double beta, double alpha) {
  const int64_t rank = a.dim();
  if (b.dim() != rank || (rank != 2 && rank != 3)) return fail(std::string(name) + ": expected matrices, got " + c10::str(a.sizes()) + " and " + c10::str(b.sizes()));
  if (a.size(rank - 1) != b.size(rank - 2) || (rank == 3 && a.size(0) != b.size(0))) return shapes(name, a, b);
  c10::SmallVector<int64_t, 3> sizes(a.sizes().begin(), a.sizes().end());
  sizes[static_cast<size_t>(rank) - 1] = b.size(rank - 1);
  at::Tensor out = c.resizeOut(0, sizes);
  checkOverlap(out, {a, b});
  if (out.numel() == 0) return {};
  ocl::GemmArgs g;
  g.a = ref(a);
  g.b = ref(b);
  g.out = ref(out);
  g.alpha = alpha;
  g.beta = self.defined() ? beta : 0;
  if (self.defined() && beta != 0) g.self = ref(self, out.sizes());
  return launch(c, g);
}

Result<void> mm(OpCall& c) { return product(c, "mm", c.tensor(0), c.tensor(1), {}, 0, 1); }
bool mmFits(const OpCall& c) { return matrixFits({c.tensor(0), c.tensor(1), c.out()}); }

// (self, mat1, mat2, *, beta, alpha)
Result<void> addmm(OpCall& c) { return product(c, "addmm", c.tensor(1), c.tensor(2), c.tensor(0), c.number(3), c.number(4)); }
bool addmmFits(const OpCall& c) { return matrixFits({c.tensor(0), c.tensor(1), c.tensor(2), c.out()}); }

void asMatrix(ocl::TensorRef& vector) { vector = ocl::asColumn(vector); }

// (self, mat, vec, *, beta, alpha)
Result<void> addmv(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &mat = c.tensor(1), &vec = c.tensor(2);
  if (mat.dim() != 2 || vec.dim() != 1 || mat.size(1) != vec.size(0)) return shapes("addmv", mat, vec);
  at::Tensor out = c.resizeOut(0, {mat.size(0)});
  checkOverlap(out, {mat, vec});
  if (out.numel() == 0) return {};
  ocl::GemmArgs g;
  g.a = ref(mat);
  g.b = ref(vec);
  asMatrix(g.b);
  g.out = ref(out);
  asMatrix(g.out);
  g.alpha = c.number(4);
  g.beta = c.number(3);
  if (g.beta != 0) {
    g.self = ref(self, out.sizes());
    asMatrix(*g.self);
  }
  return launch(c, g);
}

Result<void> dot(OpCall& c) {
  const at::Tensor &a = c.tensor(0), &b = c.tensor(1);
  if (a.dim() != 1 || b.dim() != 1 || a.size(0) != b.size(0)) return shapes("dot", a, b);
  at::Tensor out = c.empty({}, a.scalar_type());
  ocl::GemmArgs g;
  g.a = ocl::asRow(ref(a));
  g.b = ocl::asColumn(ref(b));
  g.out = ref(out);
  g.out.ndim = 2;
  g.out.sizes[0] = g.out.sizes[1] = 1;
  g.out.strides[0] = g.out.strides[1] = 1;
  g.beta = 0;
  c.result(out);
  return launch(c, g);
}
bool dotFits(const OpCall& c) { return matrixFits({c.tensor(0), c.tensor(1)}); }

Result<void> baddbmm(OpCall& c) { return product(c, "baddbmm", c.tensor(1), c.tensor(2), c.tensor(0), c.number(3), c.number(4)); }

const NativeOp rows[] = {
    {"aten::mm.out", "gemm", mm, mmFits},
    {"aten::bmm.out", "gemm", mm, mmFits},
    {"aten::addmm.out", "gemm", addmm, addmmFits},
    {"aten::baddbmm.out", "gemm", baddbmm, addmmFits},
    {"aten::addmv.out", "gemm", addmv, addmmFits},
    {"aten::dot", "gemm", dot, dotFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

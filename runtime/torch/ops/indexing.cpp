// Gather, scatter, advanced indexing, embedding, joining, scans and sorting.
#include "runtime/opencl/ops/index.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/ops/cat.h>

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool dense(const at::Tensor& t) {
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims && !at::isComplexType(t.scalar_type()) && !t.is_quantized() &&
         toDType(t.scalar_type()) != DType::other;
}
bool whole(const at::Tensor& t) { return isNpu(t) && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt); }
int dimOf(const OpCall& c, size_t i) {
  return static_cast<int>(c10::maybe_wrap_dim(c.integer(i), std::max<int64_t>(c.tensor(0).dim(), 1)));
}

// PyTorch raises on an index out of range; a kernel cannot. These rows therefore serve routes that were asked for
// (FLAGOS_ROUTE=opencl, rules, discrete devices): the built-in rules named checked-* send the rest to the host. A bad
// index gives NaN (0 for whole numbers) or is dropped, never another element's value.

// (self, dim, index, *, sparse_grad, out)
Result<void> gather(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(2).sizes());
  checkOverlap(out, {c.tensor(0), c.tensor(2)});
  if (out.numel() == 0) return {};
  return ocl::gather(c.queue(), ref(c.tensor(0)), dimOf(c, 1), ref(c.tensor(2)), ref(out), c.variant());
}
bool sameRank(const at::Tensor& a, const at::Tensor& index, int dim) {
  if (!dense(a) || !whole(index) || a.dim() != index.dim() || a.dim() == 0) return false;
  for (int d = 0; d < a.dim(); ++d)
    if (d != dim && index.size(d) > a.size(d)) return false;
  return true;
}
bool gatherFits(const OpCall& c) { return sameRank(c.tensor(0), c.tensor(2), dimOf(c, 1)); }

// scatter.src_out, scatter_add.out (self, dim, index, src, *, out)
template <bool add>
Result<void> scatter(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(0).sizes());
  if (!out.is_same(c.tensor(0))) out.copy_(c.tensor(0));
  if (c.tensor(2).numel() == 0) return {};
  return ocl::scatter(c.queue(), ref(out), dimOf(c, 1), ref(c.tensor(2)), ref(c.tensor(3)), add, c.variant());
}
bool scatterFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &index = c.tensor(2), &src = c.tensor(3);
  if (!sameRank(self, index, dimOf(c, 1)) || !dense(src) || src.scalar_type() != self.scalar_type() || src.dim() != index.dim()) return false;
  for (int64_t d = 0; d < src.dim(); ++d)
    if (index.size(d) > src.size(d)) return false;
  return true;
}

// (self, dim, index)
Result<void> indexSelect(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &index = c.tensor(2);
  const int dim = dimOf(c, 1);
  c10::SmallVector<int64_t, 6> sizes(self.sizes().begin(), self.sizes().end());
  sizes[static_cast<size_t>(dim)] = index.numel();
  at::Tensor out = c.empty(sizes, self.scalar_type());
  c.result(out);
  return out.numel() == 0 ? Result<void>() : ocl::indexSelect(c.queue(), ref(self), dim, ref(index), ref(out), c.variant());
}
bool indexSelectFits(const OpCall& c) { return dense(c.tensor(0)) && c.tensor(0).dim() > 0 && whole(c.tensor(2)) && c.tensor(2).dim() == 1; }

// One pointer per dimension of self; null = not indexed.
struct Indices {
  std::vector<ocl::TensorRef> refs;
  std::vector<const ocl::TensorRef*> pointers;
  explicit Indices(const OpCall& c) {
    const auto list = c.value(1).toListRef();
    refs.reserve(list.size());
    for (const c10::IValue& v : list) {
      if (v.isNone() || !v.toTensor().defined()) { pointers.push_back(nullptr); continue; }
      refs.push_back(ref(v.toTensor()));
      pointers.push_back(&refs.back());
    }
  }
};
bool indicesFit(const OpCall& c) {
  size_t n = 0;
  for (const c10::IValue& v : c.value(1).toListRef()) {
    if (v.isNone() || !v.toTensor().defined()) continue;
    if (!whole(v.toTensor())) return false;   // masks need their count on the host
    ++n;
  }
  return n >= 1 && n <= 4;
}

// (self, indices, *, out)
Result<void> index(OpCall& c) {
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  const Indices i(c);
  return ocl::index(c.queue(), ref(c.tensor(0)), i.pointers, ref(out), c.variant());
}
bool indexFits(const OpCall& c) { return dense(c.tensor(0)) && indicesFit(c) && c.out().numel() > 0; }

// _index_put_impl_(self, indices, values, accumulate, unsafe)
Result<void> indexPut(OpCall& c) {
  if (c.tensor(2).numel() == 0) return {};
  const Indices i(c);
  return ocl::indexPut(c.queue(), ref(c.tensor(0)), i.pointers, ref(c.tensor(2)), c.flag(3), c.variant());
}
bool indexPutFits(const OpCall& c) {
  return dense(c.tensor(0)) && dense(c.tensor(2)) && c.tensor(2).scalar_type() == c.tensor(0).scalar_type() && indicesFit(c);
}

// embedding_dense_backward(grad, indices, num_weights, padding_idx, scale_grad_by_freq)
Result<void> embeddingBackward(OpCall& c) {
  const at::Tensor& grad = c.tensor(0);
  at::Tensor out = c.empty({c.integer(2), grad.size(-1)}, grad.scalar_type());
  c.result(out);
  return ocl::embeddingBackward(c.queue(), ref(grad), ref(c.tensor(1)), ref(out), c.integer(3), c.flag(4), c.variant());
}
bool embeddingBackwardFits(const OpCall& c) {
  return dense(c.tensor(0)) && at::isFloatingType(c.tensor(0).scalar_type()) && whole(c.tensor(1)) && c.tensor(0).numel() > 0;
}

// (tensors, dim, *, out)
Result<void> cat(OpCall& c) {
  std::vector<ocl::TensorRef> in;
  const auto list = c.tensors(0);
  int64_t rank = 0;
  for (const at::Tensor& t : list) rank = std::max(rank, t.dim());
  for (const at::Tensor& t : list)
    if (t.numel() > 0) in.push_back(ref(t));
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  return ocl::cat(c.queue(), in, static_cast<int>(c10::maybe_wrap_dim(c.integer(1), rank)), ref(out), c.variant());
}
bool catFits(const OpCall& c) {
  const auto list = c.tensors(0);
  const at::Tensor out = c.out();
  int64_t total = 0;
  for (const at::Tensor& t : list) {
    if (!dense(t) || t.scalar_type() != out.scalar_type()) return false;
    if (t.numel() > 0 && t.dim() != out.dim()) return false;
    total += t.numel();
    if (t.numel() > 0 && t.is_alias_of(out)) return false;
  }
  return total > 0 && total == out.numel();   // another size of `out`: the host route checks and resizes
}

Result<void> flip(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  uint32_t bits = 0;
  for (const int64_t d : c.ints(1)) bits |= 1u << c10::maybe_wrap_dim(d, self.dim());
  at::Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  c.result(out);
  return out.numel() == 0 ? Result<void>() : ocl::flip(c.queue(), ref(self), bits, ref(out), c.variant());
}
bool flipFits(const OpCall& c) { return dense(c.tensor(0)) && c.tensor(0).dim() > 0 && c.tensor(0).is_contiguous(); }

template <bool upper>
Result<void> triangle(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(0).sizes());
  return out.numel() == 0 ? Result<void>() : ocl::triangle(c.queue(), ref(c.tensor(0)), ref(out), c.integer(1), upper, c.variant());
}
bool triangleFits(const OpCall& c) { return dense(c.tensor(0)) && c.tensor(0).dim() >= 2; }

// (self, dim, *, dtype, out)
template <ocl::ScanOp op>
Result<void> scan(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(0).sizes());
  return ocl::scan(c.queue(), op, ref(c.tensor(0)), ref(out), dimOf(c, 1), c.variant());
}
bool scanFits(const OpCall& c) {
  return dense(c.tensor(0)) && c.tensor(0).dim() > 0 && c.tensor(0).numel() > 0 && c.tensor(0).scalar_type() == c.out().scalar_type() &&
         (c.out().scalar_type() == at::kFloat || c.out().scalar_type() == at::kLong) && !c.out().is_alias_of(c.tensor(0));
}

template <size_t i>
void describe(const OpCall& c, kde::Signature& s) {
  s.scalars[0] = dimOf(c, i);
  s.nscalars = 1;
}

const NativeOp rows[] = {
    {"aten::gather.out", "index", gather, gatherFits, describe<1>},
    {"aten::scatter.src_out", "index", scatter<false>, scatterFits, describe<1>},
    {"aten::scatter_add.out", "index", scatter<true>, scatterFits, describe<1>},
    {"aten::index_select", "index", indexSelect, indexSelectFits, describe<1>},
    {"aten::index.Tensor_out", "index", index, indexFits},
    {"aten::_index_put_impl_", "index", indexPut, indexPutFits},
    {"aten::embedding_dense_backward", "index", embeddingBackward, embeddingBackwardFits},
    {"aten::cat.out", "index", cat, catFits},
    {"aten::flip", "index", flip, flipFits},
    {"aten::tril.out", "index", triangle<false>, triangleFits},
    {"aten::triu.out", "index", triangle<true>, triangleFits},
    {"aten::cumsum.out", "index", scan<ocl::ScanOp::cumsum>, scanFits, describe<1>},
    {"aten::cumprod.out", "index", scan<ocl::ScanOp::cumprod>, scanFits, describe<1>},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

// Advanced indexing, embedding's gradient, joining, flipping, triangles.
#include "runtime/opencl/ops/copy.h"
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
bool whole(const at::Tensor& t) { return t.scalar_type() == at::kLong || t.scalar_type() == at::kInt; }
// One pointer per dimension of self; null = not indexed. Indices on the CPU are copied, as PyTorch does.
struct Indices {
  std::vector<at::Tensor> keep;
  std::vector<ocl::TensorRef> refs;
  std::vector<const ocl::TensorRef*> pointers;
  explicit Indices(const OpCall& c) {
    std::vector<std::optional<at::Tensor>> list;
    for (const c10::IValue& v : c.value(1).toListRef()) {
      if (v.isNone() || !v.toTensor().defined()) { list.emplace_back(); continue; }
      const at::Tensor t = v.toTensor();
      at::AutoDispatchBelowADInplaceOrView below;
      const at::Device device = c.tensor(0).device();
      if (t.scalar_type() != at::kBool && t.scalar_type() != at::kByte) { list.emplace_back(t.to(device)); continue; }
      // A mask stands for the coordinates of its true elements: their number is waited for.
      const at::Tensor places = at::nonzero(t).to(device);
      for (int64_t d = 0; d < t.dim(); ++d) list.emplace_back(places.select(1, d));
    }
    refs.reserve(list.size());
    for (const auto& t : list) {
      if (!t) { pointers.push_back(nullptr); continue; }
      keep.push_back(*t);
      refs.push_back(ref(*t));
      pointers.push_back(&refs.back());
    }
  }
};
bool indicesFit(const OpCall& c) {
  int64_t n = 0;
  bool masks = false, ints = false;
  for (const c10::IValue& v : c.value(1).toListRef()) {
    if (v.isNone() || !v.toTensor().defined()) continue;
    const at::Tensor& t = v.toTensor();
    const bool mask = t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
    if (!(isNpu(t) || t.is_cpu()) || (mask && t.dim() == 0) || (!mask && !whole(t))) return false;
    masks |= mask;
    ints |= t.scalar_type() == at::kInt;
    n += mask ? t.dim() : 1;
  }
  return n >= 1 && n <= 4 && !(masks && ints);
}

// (self, indices, *, out)
Result<void> index(OpCall& c) {
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  const Indices i(c);
  return ocl::index(c.queue(), ref(c.tensor(0)), i.pointers, ref(out), c.variant());
}
bool indexFits(const OpCall& c) { return dense(c.tensor(0)) && indicesFit(c); }

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
  return dense(c.tensor(0)) && at::isFloatingType(c.tensor(0).scalar_type()) && isNpu(c.tensor(1)) && whole(c.tensor(1)) && c.tensor(0).numel() > 0;
}

// (tensors, dim, *, out). PyTorch has sized `out` by now; a copy converts dtypes on the way.
bool skipped(const at::Tensor& t) { return t.dim() == 1 && t.size(0) == 0; }   // "legacy" empty tensors fit anywhere
Result<void> cat(OpCall& c) {
  std::vector<ocl::TensorRef> in;
  const auto list = c.tensors(0);
  int64_t rank = 1;
  for (const at::Tensor& t : list) rank = std::max(rank, t.dim());
  const at::Tensor out = c.out();
  if (out.numel() == 0) return {};
  for (const at::Tensor& t : list)
    if (!skipped(t) && t.numel() > 0) in.push_back(ref(t));
  return ocl::cat(c.queue(), in, static_cast<int>(c10::maybe_wrap_dim(c.integer(1), rank)), ref(out), c.variant());
}
bool catFits(const OpCall& c) {
  const auto list = c.tensors(0);
  const at::Tensor out = c.out();
  int64_t total = 0;
  if (!dense(out)) return false;
  for (const at::Tensor& t : list) {
    if (!dense(t) || !ocl::copySupports(toDType(t.scalar_type()), toDType(out.scalar_type()))) return false;
    if (skipped(t)) continue;
    if (t.dim() != out.dim()) return false;
    total += t.numel();
    if (t.numel() > 0 && t.is_alias_of(out)) return false;
  }
  return total == out.numel();   // another size of `out`: the host route checks and resizes
}

Result<void> flip(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  uint32_t bits = 0;
  for (const int64_t d : c.ints(1)) bits |= 1u << c10::maybe_wrap_dim(d, self.dim());
  at::Tensor out = at::empty_like(self);
  c.result(out);
  return out.numel() == 0 ? Result<void>() : ocl::flip(c.queue(), ref(self), bits, ref(out), c.variant());
}
bool flipFits(const OpCall& c) { return dense(c.tensor(0)) && c.tensor(0).dim() > 0; }

template <bool upper>
Result<void> triangle(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(0).sizes());
  return out.numel() == 0 ? Result<void>() : ocl::triangle(c.queue(), ref(c.tensor(0)), ref(out), c.integer(1), upper, c.variant());
}
bool triangleFits(const OpCall& c) { return dense(c.tensor(0)) && c.tensor(0).dim() >= 2; }

const NativeOp rows[] = {
    {"aten::index.Tensor_out", "index", index, indexFits},
    {"aten::_index_put_impl_", "index", indexPut, indexPutFits},
    {"aten::embedding_dense_backward", "index", embeddingBackward, embeddingBackwardFits},
    {"aten::cat.out", "index", cat, catFits},
    {"aten::flip", "index", flip, flipFits},
    {"aten::tril.out", "index", triangle<false>, triangleFits},
    {"aten::triu.out", "index", triangle<true>, triangleFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

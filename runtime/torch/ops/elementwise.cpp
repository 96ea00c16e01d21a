#include "runtime/torch/ops/elementwise.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include "runtime/opencl/ops/fill.h"

namespace flagos::glue {

Result<void> checkCast(at::ScalarType from, const at::Tensor& out) {
  if (c10::canCast(from, out.scalar_type())) return {};
  return fail(std::string("result type ") + c10::toString(from) + " can't be cast to the desired output type " +
              c10::toString(out.scalar_type()));
}

at::Tensor resultLike(OpCall& c, const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType dtype) {
  for (size_t i = 0; i < c.count(); ++i)
    if (c.isOut(i)) return c.resizeOut(0, sizes);
  at::Tensor t = isNpu(like) && like.sizes() == sizes && like.is_non_overlapping_and_dense() && !like.is_contiguous()
                     ? at::empty_like(like, like.options().dtype(dtype))
                     : c.empty(sizes, dtype);
  c.result(t);
  return t;
}

Result<void> elementwise(OpCall& c, ocl::PointwiseOp op, std::initializer_list<at::Tensor> in, std::initializer_list<ocl::Scalar> scalars,
                         at::ScalarType compute, at::ScalarType dtype) {
  const auto sizes = broadcastSizes(in);
  at::Tensor like;
  for (const at::Tensor& t : in)
    if (isNpu(t) && (!like.defined() || t.dim() > like.dim())) like = t;
  at::Tensor out = resultLike(c, like, sizes, dtype);
  if (auto ok = checkCast(dtype, out); !ok) return ok;
  checkOverlap(out, in);
  if (out.numel() == 0) return {};
  c10::SmallVector<ocl::TensorRef, 3> refs;
  c10::SmallVector<at::Tensor, 3> keep;
  for (const at::Tensor& t : in) {
    if (!isCpuScalar(t)) { refs.push_back(ref(t, sizes)); continue; }
    // A number where the template wants a tensor: one element, broadcast by strides of 0.
    at::Tensor one = c.empty({}, compute);
    if (auto ok = ocl::fill(c.queue(), ref(one), cpuScalar(t), c.variant()); !ok) return ok;
    refs.push_back(ref(one, sizes));
    keep.push_back(one);
  }
  const c10::SmallVector<ocl::Scalar, 4> numbers(scalars.begin(), scalars.end());
  return ocl::pointwise(c.queue(), op, std::span<const ocl::TensorRef>(refs.data(), refs.size()), ref(out), toDType(compute),
                        std::span<const ocl::Scalar>(numbers.data(), numbers.size()), c.variant());
}

bool elementwiseFits(ocl::PointwiseOp op, std::initializer_list<at::Tensor> in, at::ScalarType compute) {
  bool any = false;
  for (const at::Tensor& t : in) {
    if (!t.defined()) return false;
    if (isCpuScalar(t)) { if (at::isComplexType(t.scalar_type())) return false; continue; }
    if (!isNpu(t) || t.layout() != at::kStrided || t.dim() > ocl::kMaxDims || at::isComplexType(t.scalar_type()) || t.is_quantized()) return false;
    any = true;
  }
  return any && ocl::pointwiseSupports(op, toDType(compute));
}

}  // namespace flagos::glue

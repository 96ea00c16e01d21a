#include "runtime/kde/catalog/kernel_factors.h"

#include "runtime/kde/families.h"

namespace flagos::kde {
namespace {

// Device time over the prediction without these factors, on one processor with AVX-512 and two threads, PoCL 3.1 and
// torch 2.13, 2^18 elements or the like; rounded, as other processors differ. An operator is matched by the longest
// beginning of its name, without a leading underscore.
struct Row { std::string_view op; double kernel, host; };
constexpr Row kRows[] = {
    // Interpolation, padding, unfolding: a table of places, read for every element.
    {"im2col", 100, 8}, {"col2im", 100, 8}, {"upsample_", 50, 5}, {"reflection_pad", 14, 1}, {"replication_pad", 14, 1},
    // Pooling looks at every window; so does PyTorch.
    {"max_pool2d", 17, 17}, {"max_pool2d_with_indices_backward", 1, 1}, {"avg_pool2d", 14, 20}, {"adaptive_avg_pool2d", 4, 1},
    // Functions of many instructions, or of branches.
    {"erfinv", 80, 3}, {"digamma", 57, 60}, {"lgamma", 9, 8}, {"pow.Tensor_Tensor", 11, 2}, {"pow.Scalar", 11, 2},
    {"binary_cross_entropy", 7, 40},
    // Counter-based generators, the same on every route.
    {"normal", 4, 80}, {"uniform", 4, 20}, {"bernoulli", 2, 12}, {"exponential", 4, 33}, {"native_dropout", 2, 20},
    {"dropout", 2, 20},
    // Places worked out from indices.
    {"sort", 10, 50}, {"topk", 100, 2}, {"index.Tensor", 45, 10}, {"index_select", 30, 1}, {"gather", 25, 1}, {"index_add", 12, 1},
    {"index_put_impl_", 11, 4}, {"tril", 12, 1}, {"triu", 12, 1},
    // Scans: a row is one work-item's.
    {"cumsum", 5, 1}, {"cumprod", 20, 12}, {"logcumsumexp", 39, 8},
};

}  // namespace

KernelFactor kernelFactor(std::string_view op) noexcept {
  op = op.substr(op.rfind(':') + 1);
  if (op.starts_with('_')) op.remove_prefix(1);
  KernelFactor found;
  size_t length = 0;
  for (const Row& r : kRows)
    if (r.op.size() > length && op.substr(0, r.op.size()) == r.op) {
      found = {r.kernel, r.host};
      length = r.op.size();
    }
  return found;
}

KernelFactor kernelFactor(const Facts& f) {
  KernelFactor k = kernelFactor(f.op());
  const std::string_view base = baseName(f.op());
  if (base != "aten::max_pool2d" && base != "aten::max_pool2d_with_indices") return k;
  const auto of = [&](Field field) { return static_cast<double>(f.number(field).value_or(1)); };
  const double looks = of(Field::r) * of(Field::s) / (of(Field::stride) * of(Field::stride));  // at each element
  k.host *= looks;
  const bool vectors = of(Field::r) == 2 && of(Field::s) == 2 && of(Field::stride) == 2 && f.number(Field::padding).value_or(0) == 0;
  k.kernel = vectors ? 1.5 : k.kernel * looks;
  return k;
}

}  // namespace flagos::kde

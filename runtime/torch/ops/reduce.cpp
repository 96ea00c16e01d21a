// Reductions over any dimensions.
#include "runtime/opencl/ops/reduce.h"

#include <ATen/WrapDimUtils.h>

#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::ReduceOp;

// The dimensions to fold, as bits; an empty or missing list means all of them.
uint32_t dimsOf(const OpCall& c, size_t i, const at::Tensor& t) {
  const uint32_t all = (1u << t.dim()) - 1u;
  if (i >= c.count() || !c.given(i)) return all;
  uint32_t bits = 0;
  if (c.value(i).isInt()) {
    bits |= 1u << c10::maybe_wrap_dim(c.integer(i), std::max<int64_t>(t.dim(), 1));
  } else {
    const auto dims = c.ints(i);
    if (dims.empty()) return all;
    for (const int64_t d : dims) {
      const uint32_t bit = 1u << c10::maybe_wrap_dim(d, std::max<int64_t>(t.dim(), 1));
      TORCH_CHECK((bits & bit) == 0, "dim ", d, " appears multiple times in the list of dims");
      bits |= bit;
    }
  }
  return t.dim() == 0 ? 0 : bits;
}

c10::SmallVector<int64_t, 6> reducedSizes(const at::Tensor& t, uint32_t bits, bool keepdim) {
  c10::SmallVector<int64_t, 6> sizes;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (!(bits >> d & 1u)) sizes.push_back(t.size(d));
    else if (keepdim) sizes.push_back(1);
  }
  return sizes;
}

struct Where { size_t dims, keepdim; int dtype; };   // argument positions; SIZE_MAX / -1 = the operator has none
constexpr size_t kNone = SIZE_MAX;

Where whereOf(std::string_view schema) {
  if (schema == "aten::sum.IntList_out" || schema == "aten::mean.out") return {1, 2, 3};
  if (schema == "aten::prod.int_out") return {1, 2, 3};
  if (schema == "aten::prod") return {kNone, kNone, 1};
  if (schema == "aten::max" || schema == "aten::min" || schema == "aten::any.all_out" || schema == "aten::all.all_out") return {kNone, kNone, -1};
  if (schema == "aten::linalg_vector_norm.out") return {2, 3, 4};
  return {1, 2, -1};   // amax, amin, any, all, argmax, argmin, logsumexp, count_nonzero
}

at::ScalarType resultType(ReduceOp op, const at::Tensor& a, std::optional<at::ScalarType> asked) {
  if (asked) return *asked;
  switch (op) {
    case ReduceOp::sum: case ReduceOp::prod: case ReduceOp::nansum:
      return at::isIntegralType(a.scalar_type(), true) ? at::kLong : a.scalar_type();
    case ReduceOp::any: case ReduceOp::all: return a.scalar_type() == at::kByte ? at::kByte : at::kBool;
    case ReduceOp::argmax: case ReduceOp::argmin: case ReduceOp::count_nonzero: return at::kLong;
    case ReduceOp::logsumexp: return floating(a.scalar_type());
    default: return a.scalar_type();
  }
}

Result<void> run(OpCall& c, ReduceOp op) {
  const at::Tensor& a = c.tensor(0);
  const Where w = whereOf(c.row().schema);
  const uint32_t bits = w.dims == kNone ? (1u << a.dim()) - 1u : dimsOf(c, w.dims, a);
  const bool keepdim = w.keepdim != kNone && c.flag(w.keepdim);
  const auto asked = w.dtype >= 0 ? c.dtype(static_cast<size_t>(w.dtype)) : std::nullopt;
  const auto sizes = reducedSizes(a, bits, keepdim);
  at::Tensor out = resultLike(c, at::Tensor(), sizes, resultType(op, a, asked));
  checkOverlap(out, {a});
  return ocl::reduce(c.queue(), op, ref(a), ref(out), bits, c.variant());
}
template <ReduceOp op>
Result<void> reduce(OpCall& c) { return run(c, op); }

bool dense(const at::Tensor& t) {
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims && !at::isComplexType(t.scalar_type());
}

template <ReduceOp op>
bool fits(const OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  if (!dense(a)) return false;
  const Where w = whereOf(c.row().schema);
  const auto asked = w.dtype >= 0 ? c.dtype(static_cast<size_t>(w.dtype)) : std::nullopt;
  at::ScalarType to = resultType(op, a, asked);
  for (size_t i = 0; i < c.count(); ++i)
    if (c.isOut(i)) to = c.out().scalar_type();
  // amax and amin refuse an out= of another dtype.
  if ((op == ReduceOp::amax || op == ReduceOp::amin) && to != a.scalar_type()) return false;
  // The empty reduction of an operator without identity is an error, in PyTorch's own words.
  const bool identity = op != ReduceOp::amax && op != ReduceOp::amin && op != ReduceOp::argmax && op != ReduceOp::argmin;
  if (!identity && a.numel() == 0) return false;
  return ocl::reduceSupports(op, toDType(a.scalar_type()), toDType(to));
}
bool meanFits(const OpCall& c) { return at::isFloatingType(c.tensor(0).scalar_type()) && fits<ReduceOp::mean>(c); }

void describe(const OpCall& c, kde::Signature& s) {
  const at::Tensor& a = c.tensor(0);
  const Where w = whereOf(c.row().schema);
  const uint32_t bits = w.dims == kNone ? (1u << a.dim()) - 1u : dimsOf(c, w.dims, a);
  int64_t folded = 1;
  for (int64_t d = 0; d < a.dim(); ++d)
    if (bits >> d & 1u) folded *= a.size(d);
  s.scalars[0] = folded;
  s.nscalars = 1;
}

// vector_norm(self, ord=2, dim, keepdim, dtype)
std::optional<ReduceOp> normOp(const OpCall& c) {
  const double order = c.number(1);
  if (order == 2) return ReduceOp::norm2;
  if (order == 1) return ReduceOp::norm1;
  if (order == std::numeric_limits<double>::infinity()) return ReduceOp::norm_inf;
  return std::nullopt;
}
// Other orders are made of operators, in float32: powers leave the range of half precision long before the norm does.
at::Tensor otherNorm(const at::Tensor& given, double order, at::IntArrayRef dims, bool keepdim) {
  const at::Tensor a = at::isReducedFloatingType(given.scalar_type()) ? given.to(at::kFloat) : given;
  if (order == 0) return a.ne(0).sum(dims, keepdim);
  if (order == -std::numeric_limits<double>::infinity()) return at::amin(a.abs(), dims, keepdim);
  return a.abs().pow(order).sum(dims, keepdim).pow(1 / order);
}
Result<void> vectorNorm(OpCall& c) {
  if (const auto op = normOp(c)) return run(c, *op);
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor a = c.tensor(0);
  if (c.dtype(4)) a = a.to(*c.dtype(4));
  const auto given = c.ints(2);
  std::vector<int64_t> dims(given.begin(), given.end());
  if (dims.empty())
    for (int64_t d = 0; d < a.dim(); ++d) dims.push_back(d);
  const at::Tensor norm = otherNorm(a, c.number(1), dims, c.flag(3));
  c.resizeOut(0, norm.sizes()).copy_(norm);
  return {};
}
bool vectorNormFits(const OpCall& c) {
  const auto op = normOp(c);
  const at::Tensor& a = c.tensor(0);
  if (!dense(a) || !at::isFloatingType(a.scalar_type()) || !at::isFloatingType(c.out().scalar_type())) return false;
  // The norm of nothing is an error for the orders without a neutral element.
  if (a.numel() == 0 && !(c.number(1) > 0 && std::isfinite(c.number(1)))) return false;
  return !op || ocl::reduceSupports(*op, toDType(a.scalar_type()), toDType(c.out().scalar_type()));
}

// max.dim_max(self, dim, keepdim, *, max, max_values)
template <ReduceOp op>
Result<void> indexed(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const int64_t dim = a.dim() == 0 ? 0 : c10::maybe_wrap_dim(c.integer(1), a.dim());
  const auto sizes = reducedSizes(a, a.dim() == 0 ? 0 : 1u << dim, c.flag(2));
  at::Tensor values = c.resizeOut(0, sizes), indices = c.resizeOut(1, sizes);
  checkOverlap(values, {a});
  checkOverlap(indices, {a});
  return ocl::reduceIndexed(c.queue(), op, ref(a), ref(values), ref(indices), static_cast<int>(dim), c.variant());
}
template <ReduceOp op>
bool indexedFits(const OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  return dense(a) && a.numel() > 0 && c.out(0).scalar_type() == a.scalar_type() && c.out(1).scalar_type() == at::kLong &&
         ocl::reduceSupports(op, toDType(a.scalar_type()), toDType(a.scalar_type()));
}

// var.correction(self, dim, *, correction, keepdim)
template <bool root>
Result<void> variance(OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  const uint32_t bits = dimsOf(c, 1, a);
  at::Tensor out = resultLike(c, at::Tensor(), reducedSizes(a, bits, c.flag(3)), a.scalar_type());
  return ocl::variance(c.queue(), ref(a), ref(out), nullptr, bits, c.given(2) ? c.number(2) : 1.0, root, c.variant());
}
bool varianceFits(const OpCall& c) {
  const at::Tensor& a = c.tensor(0);
  return dense(a) && at::isFloatingType(a.scalar_type());
}

#define FLAGOS_REDUCE(schema, op) {"aten::" schema, "reduce", reduce<ReduceOp::op>, fits<ReduceOp::op>, describe}
const NativeOp rows[] = {
    FLAGOS_REDUCE("sum.IntList_out", sum),
    {"aten::mean.out", "reduce", reduce<ReduceOp::mean>, meanFits, describe},
    FLAGOS_REDUCE("prod.int_out", prod), FLAGOS_REDUCE("prod", prod),
    FLAGOS_REDUCE("amax.out", amax), FLAGOS_REDUCE("amin.out", amin), FLAGOS_REDUCE("max", amax), FLAGOS_REDUCE("min", amin),
    FLAGOS_REDUCE("any.out", any), FLAGOS_REDUCE("all.out", all), FLAGOS_REDUCE("any.all_out", any), FLAGOS_REDUCE("all.all_out", all),
    FLAGOS_REDUCE("argmax.out", argmax), FLAGOS_REDUCE("argmin.out", argmin),
    {"aten::linalg_vector_norm.out", "reduce", vectorNorm, vectorNormFits},
    {"aten::max.dim_max", "reduce", indexed<ReduceOp::amax>, indexedFits<ReduceOp::amax>},
    {"aten::min.dim_min", "reduce", indexed<ReduceOp::amin>, indexedFits<ReduceOp::amin>},
    {"aten::var.correction", "reduce", variance<false>, varianceFits},
    {"aten::std.correction", "reduce", variance<true>, varianceFits},
};
#undef FLAGOS_REDUCE
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

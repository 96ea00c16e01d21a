// Gather, scatter and their relatives along one dimension. An index out of range fails the next wait (Queue::faultRecord);
// where the host reads the memory anyway it checks before, by the built-in rules named checked-*.
#include <ATen/WrapDimUtils.h>

#include "runtime/opencl/ops/index.h"
#include "runtime/torch/ops/composed.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::ScatterOp;

bool dense(const at::Tensor& t) {
  return isNpu(t) && t.layout() == at::kStrided && t.dim() <= ocl::kMaxDims && !at::isComplexType(t.scalar_type()) && !t.is_quantized() &&
         toDType(t.scalar_type()) != DType::other;
}
bool whole(const at::Tensor& t) { return isNpu(t) && (t.scalar_type() == at::kLong || t.scalar_type() == at::kInt); }
int dimOf(const OpCall& c, size_t i) {
  return static_cast<int>(c10::maybe_wrap_dim(c.integer(i), std::max<int64_t>(c.tensor(0).dim(), 1)));
}
// A number is a vector of one.
ocl::TensorRef line(const at::Tensor& t) {
  ocl::TensorRef r = ref(t);
  if (r.ndim == 0) {
    r.ndim = 1;
    r.sizes[0] = r.strides[0] = 1;
  }
  return r;
}
int64_t rank(const at::Tensor& t) { return std::max<int64_t>(t.dim(), 1); }
int64_t extent(const at::Tensor& t, int64_t d) { return t.dim() == 0 ? 1 : t.size(d); }

// (self, dim, index, *, sparse_grad, out)
Result<void> gather(OpCall& c) {
  at::Tensor out = c.resizeOut(0, c.tensor(2).sizes());
  checkOverlap(out, {c.tensor(0), c.tensor(2)});
  if (out.numel() == 0) return {};
  return ocl::gather(c.queue(), line(c.tensor(0)), dimOf(c, 1), line(c.tensor(2)), line(out), c.variant());
}
bool sameRank(const at::Tensor& a, const at::Tensor& index, int dim) {
  if (!dense(a) || !isNpu(index)) return false;
  if (index.numel() == 0) return true;   // of any dtype
  if (!whole(index)) return false;
  if (rank(a) != rank(index)) return false;
  for (int d = 0; d < rank(a); ++d)
    if (d != dim && extent(index, d) > extent(a, d)) return false;
  return true;
}
bool gatherFits(const OpCall& c) { return sameRank(c.tensor(0), c.tensor(2), dimOf(c, 1)); }

// `out` with self's values, for the operators that then write into it.
at::Tensor started(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  at::Tensor out = c.resizeOut(0, self.sizes());
  if (!out.is_same(self)) {
    at::assert_no_internal_overlap(out);
    out.copy_(self);
  }
  return out;
}
bool sourceFits(const at::Tensor& self, const at::Tensor& index, const at::Tensor& src) {
  if (!dense(src) || src.scalar_type() != self.scalar_type()) return false;
  if (index.numel() == 0) return true;
  if (rank(src) != rank(index)) return false;
  for (int64_t d = 0; d < rank(src); ++d)
    if (extent(index, d) > extent(src, d)) return false;
  return true;
}
bool writesPlainly(const OpCall& c) { return c.out().scalar_type() == c.tensor(0).scalar_type() && !c.out().is_alias_of(c.tensor(2)); }

// scatter.src_out, scatter_add.out, scatter.reduce_out (self, dim, index, src, *, reduce, out)
template <ScatterOp op>
Result<void> scatter(OpCall& c) {
  ScatterOp how = op;
  if (op == ScatterOp::multiply) how = c.string(4) == "add" ? ScatterOp::add : ScatterOp::multiply;
  const at::Tensor out = started(c);
  if (c.tensor(2).numel() == 0) return {};
  return ocl::scatter(c.queue(), line(out), dimOf(c, 1), line(c.tensor(2)), line(c.tensor(3)), how, c.variant());
}
bool scatterFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &index = c.tensor(2);
  return sameRank(self, index, dimOf(c, 1)) && sourceFits(self, index, c.tensor(3)) && writesPlainly(c);
}
bool scatterReduceFits(const OpCall& c) { return (c.string(4) == "add" || c.string(4) == "multiply") && c.tensor(0).scalar_type() != at::kBool && scatterFits(c); }

// scatter.value_out, scatter.value_reduce_out (self, dim, index, value, *, reduce, out)
template <bool reduce>
Result<void> scatterValue(OpCall& c) {
  const ScatterOp how = !reduce ? ScatterOp::set : c.string(4) == "add" ? ScatterOp::add : ScatterOp::multiply;
  const at::Tensor out = started(c);
  if (c.tensor(2).numel() == 0) return {};
  return ocl::scatterValue(c.queue(), line(out), dimOf(c, 1), line(c.tensor(2)), toScalar(c.scalar(3)), how, c.variant());
}
template <bool reduce>
bool scatterValueFits(const OpCall& c) {
  if (reduce && c.string(4) != "add" && c.string(4) != "multiply") return false;
  if (c.scalar(3).isComplex() || (c.scalar(3).isFloatingPoint() && !at::isFloatingType(c.tensor(0).scalar_type()))) return false;
  return (!reduce || c.tensor(0).scalar_type() != at::kBool) && sameRank(c.tensor(0), c.tensor(2), dimOf(c, 1)) && writesPlainly(c);
}

std::optional<ScatterOp> reduction(std::string_view name) {
  if (name == "sum" || name == "mean") return ScatterOp::add;
  if (name == "prod") return ScatterOp::multiply;
  if (name == "amax") return ScatterOp::amax;
  if (name == "amin") return ScatterOp::amin;
  return std::nullopt;
}
// What leaves the other operand alone.
at::Scalar neutral(ScatterOp op, at::ScalarType t) {
  if (op == ScatterOp::add) return 0;
  if (op == ScatterOp::multiply) return 1;
  const bool low = op == ScatterOp::amax;
  if (at::isFloatingType(t)) return low ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  switch (t) {
    case at::kByte: return low ? 0 : 255;
    case at::kChar: return low ? -128 : 127;
    case at::kShort: return low ? -32768 : 32767;
    case at::kInt: return low ? int64_t{INT32_MIN} : int64_t{INT32_MAX};
    default: return low ? INT64_MIN : INT64_MAX;
  }
}

// Writes `src` over `out` at `write(tensor, value, op)`'s places, as scatter_reduce and index_reduce mean it.
template <class Write>
Result<void> reduceInto(OpCall& c, at::Tensor out, std::string_view name, bool include_self, const at::Tensor& src, Write&& write) {
  const ScatterOp op = *reduction(name);
  if (!include_self) {
    const at::Tensor start = at::full({}, neutral(op, out.scalar_type()), out.options()).expand(src.sizes());
    if (auto ok = write(out, start, ScatterOp::set); !ok) return ok;
  }
  if (auto ok = write(out, src, op); !ok) return ok;
  if (name != "mean") return {};
  at::Tensor count = include_self ? at::ones_like(out) : at::zeros_like(out);
  if (auto ok = write(count, at::ones({}, out.options()).expand(src.sizes()), ScatterOp::add); !ok) return ok;
  count.clamp_min_(1);
  out.div_(count);
  return {};
}
// (self, dim, index, src, reduce, *, include_self, out)
Result<void> scatterReduce(OpCall& c) {
  const at::Tensor out = started(c);
  const at::Tensor& index = c.tensor(2);
  if (index.numel() == 0) return {};
  const int dim = dimOf(c, 1);
  return reduceInto(c, out, c.string(4), c.flag(5), c.tensor(3), [&](const at::Tensor& to, const at::Tensor& from, ScatterOp op) {
    return ocl::scatter(c.queue(), line(to), dim, line(index), line(from), op, c.variant());
  });
}
bool reduces(const OpCall& c) {
  const at::ScalarType t = c.tensor(0).scalar_type();
  return reduction(c.string(4)) && t != at::kBool && (c.string(4) != "mean" || at::isFloatingType(t));
}
bool scatterTwoFits(const OpCall& c) { return scatterFits(c) && reduces(c); }

// ---- one index vector ----
Result<void> indexSelect(OpCall& c) {   // (self, dim, index)
  const at::Tensor &self = c.tensor(0), &index = c.tensor(2);
  const int dim = dimOf(c, 1);
  c10::SmallVector<int64_t, 6> sizes(self.sizes().begin(), self.sizes().end());
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index.numel();
  at::Tensor out = resultLike(c, at::Tensor(), sizes, self.scalar_type());
  return out.numel() == 0 ? Result<void>() : ocl::indexSelect(c.queue(), line(self), dim, line(index), line(out), c.variant());
}
bool vectorFits(const OpCall& c) { return dense(c.tensor(0)) && whole(c.tensor(2)) && c.tensor(2).dim() <= 1; }
bool indexSelectFits(const OpCall& c) {
  return vectorFits(c) && (c.tensor(0).dim() > 0 || c.tensor(2).numel() == 1) &&
         (c.count() < 4 || (c.out().scalar_type() == c.tensor(0).scalar_type() && !c.out().is_alias_of(c.tensor(0))));
}
// self, index vector and source agree in every other dimension.
bool indexedSourceFits(const OpCall& c) {
  const at::Tensor &self = c.tensor(0), &index = c.tensor(2), &src = c.tensor(3);
  if (!vectorFits(c) || !dense(src) || src.scalar_type() != self.scalar_type() || rank(src) != rank(self) || !writesPlainly(c)) return false;
  const int dim = dimOf(c, 1);
  for (int d = 0; d < rank(self); ++d)
    if (extent(src, d) != (d == dim ? index.numel() : extent(self, d))) return false;
  return true;
}
// index_add.out, index_copy.out (self, dim, index, source, *, alpha, out)
template <ScatterOp op>
Result<void> indexWrite(OpCall& c) {
  const at::Tensor out = started(c);
  if (c.tensor(2).numel() == 0 || c.tensor(3).numel() == 0) return {};
  at::Tensor src = c.tensor(3);
  if (op == ScatterOp::add && c.number(4) != 1) src = src.mul(c.scalar(4));
  return ocl::indexScatter(c.queue(), line(out), dimOf(c, 1), line(c.tensor(2)), line(src), op, c.variant());
}
bool indexAddFits(const OpCall& c) { return indexedSourceFits(c) && !c.scalar(4).isComplex(); }
// (self, dim, index, source, reduce, *, include_self, out)
Result<void> indexReduce(OpCall& c) {
  const at::Tensor out = started(c);
  if (c.tensor(2).numel() == 0 || c.tensor(3).numel() == 0) return {};
  const int dim = dimOf(c, 1);
  return reduceInto(c, out, c.string(4), c.flag(5), c.tensor(3), [&](const at::Tensor& to, const at::Tensor& from, ScatterOp op) {
    return ocl::indexScatter(c.queue(), line(to), dim, line(c.tensor(2)), line(from), op, c.variant());
  });
}
bool indexReduceFits(const OpCall& c) { return indexedSourceFits(c) && reduces(c) && c.string(4) != "sum"; }

void describe(const OpCall& c, kde::Signature& s) {
  s.scalars[0] = dimOf(c, 1);
  s.nscalars = 1;
}

const NativeOp rows[] = {
    {"aten::gather.out", "index", gather, gatherFits, describe},
    {"aten::scatter.src_out", "index", scatter<ScatterOp::set>, scatterFits, describe},
    {"aten::scatter_add.out", "index", scatter<ScatterOp::add>, scatterFits, describe},
    {"aten::scatter.reduce_out", "index", scatter<ScatterOp::multiply>, scatterReduceFits, describe},
    {"aten::scatter.value_out", "index", scatterValue<false>, scatterValueFits<false>, describe},
    {"aten::scatter.value_reduce_out", "index", scatterValue<true>, scatterValueFits<true>, describe},
    {"aten::scatter_reduce.two_out", "index", scatterReduce, scatterTwoFits, describe},
    {"aten::index_select", "index", indexSelect, indexSelectFits, describe},
    {"aten::index_select.out", "index", indexSelect, indexSelectFits, describe},
    {"aten::index_add.out", "index", indexWrite<ScatterOp::add>, indexAddFits, describe},
    {"aten::index_copy.out", "index", indexWrite<ScatterOp::set>, indexedSourceFits, describe},
    {"aten::index_reduce.out", "index", indexReduce, indexReduceFits, describe},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

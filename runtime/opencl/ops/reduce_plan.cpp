#include "runtime/opencl/ops/reduce_plan.h"

#include <array>

namespace flagos::ocl {
namespace {

// The dimensions of `t` whose bit in `mask` equals `want`.
TensorRef pick(const TensorRef& t, uint32_t mask, bool want) noexcept {
  TensorRef r = t;
  r.ndim = 0;
  for (int d = 0; d < t.ndim; ++d) {
    if (((mask >> d) & 1u) != (want ? 1u : 0u)) continue;
    r.sizes[static_cast<size_t>(r.ndim)] = t.sizes[static_cast<size_t>(d)];
    r.strides[static_cast<size_t>(r.ndim)] = t.strides[static_cast<size_t>(d)];
    ++r.ndim;
  }
  return r;
}

// `t` without reduced dimensions, whichever form it came in.
TensorRef keptPart(const TensorRef& t, int ndim, uint32_t mask) noexcept {
  return t.ndim == ndim ? pick(t, mask, false) : t;
}

}  // namespace

ReduceMeta ReducePlan::meta() const noexcept {
  ReduceMeta m{};
  m.v[0] = kept_count;
  m.v[1] = reduced_count;
  m.v[2] = 1;
  m.v[3] = reduced_count;
  m.v[4] = in.offset;
  m.v[5] = out.offset;
  m.v[6] = kept.ndim;
  m.v[7] = reduced.ndim;
  for (size_t d = 0; d < static_cast<size_t>(kept.ndim); ++d) {
    m.v[8 + d] = kept.sizes[d];
    m.v[20 + d] = kept.strides[0][d];
    m.v[32 + d] = kept.strides[1][d];
    if (kept.operands > 2) m.v[71 + d] = kept.strides[2][d];
  }
  for (size_t d = 0; d < static_cast<size_t>(reduced.ndim); ++d) {
    m.v[44 + d] = reduced.sizes[d];
    m.v[56 + d] = reduced.strides[0][d];
  }
  m.v[70] = 1;
  return m;
}

ReducePlan ReducePlan::into(const TensorRef& to) const noexcept {
  ReducePlan p = *this;
  p.out = to;
  int64_t step = 1;
  for (size_t d = static_cast<size_t>(kept.ndim); d-- > 0;) {
    p.kept.strides[1][d] = step;
    step *= kept.sizes[d];
  }
  return p;
}

ReducePlan ReducePlan::second(const TensorRef& from, int64_t splits) const noexcept {
  ReducePlan p = into(from);
  p.kept.strides[0] = p.kept.strides[1];
  p.kept.strides[1] = kept.strides[1];
  p.in = from;
  p.out = out;
  p.reduced = Layout{};
  p.reduced.operands = 1;
  p.reduced.sizes[0] = splits;
  p.reduced.strides[0][0] = kept_count;
  p.reduced_count = splits;
  p.index32 = index32 && splits * kept_count < (int64_t{1} << 30);
  return p;
}

Result<ReducePlan> planReduce(const TensorRef& in, const TensorRef& out, const TensorRef* other, uint32_t reduced,
                              bool keep_order, std::string_view op) {
  ReducePlan p;
  p.in = in;
  p.out = out;
  std::array<TensorRef, 3> refs{pick(in, reduced, false), keptPart(out, in.ndim, reduced), TensorRef{}};
  if (other) refs[2] = keptPart(*other, in.ndim, reduced);
  for (size_t k = 1; k < (other ? 3u : 2u); ++k) {
    bool same = refs[k].ndim == refs[0].ndim;
    for (size_t d = 0; same && d < static_cast<size_t>(refs[0].ndim); ++d) same = refs[k].sizes[d] == refs[0].sizes[d];
    if (!same) return fail(std::string(op) + ": the output's shape is not the input's without the reduced dimensions");
  }
  const std::string name(op);
  Result<Layout> kept = makeLayout({refs.data(), other ? size_t{3} : size_t{2}}, true, name.c_str());
  if (!kept) return kept.error();
  const TensorRef away = pick(in, reduced, true);
  Result<Layout> gone = makeLayout({&away, 1}, !keep_order, name.c_str());
  if (!gone) return gone.error();
  p.kept = *kept;
  p.reduced = *gone;
  p.kept_count = p.kept.numel();
  p.reduced_count = p.reduced.numel();
  p.index32 = fits32(p.kept) && fits32(p.reduced) && p.kept_count * p.reduced_count < (int64_t{1} << 30);
  return p;
}

TensorRef keptView(const ReducePlan& plan, const TensorRef& t, size_t k) noexcept {
  TensorRef v = t;
  v.ndim = plan.kept.ndim;
  for (size_t d = 0; d < static_cast<size_t>(v.ndim); ++d) {
    v.sizes[d] = plan.kept.sizes[d];
    v.strides[d] = plan.kept.strides[k][d];
  }
  return v;
}

std::string instantiate(std::string_view expression, bool vector) {
  std::string s;
  for (size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] != '$') {
      s += expression[i];
      continue;
    }
    ++i;
    switch (expression[i]) {
      case 'A': s += vector ? "AV" : "A"; break;
      case 'X': s += vector ? "XV" : "X"; break;
      default: s += vector ? "CONVAV" : "CONVA1";
    }
  }
  return s;
}

}  // namespace flagos::ocl

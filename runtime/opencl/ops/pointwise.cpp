#include "runtime/opencl/ops/pointwise.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/opencl/ops/pointwise_table.h"

namespace flagos::ocl {
namespace {

bool isFloating(DType t) noexcept {
  return t == DType::float32 || t == DType::float64 || t == DType::float16 || t == DType::bfloat16;
}

bool isBitwise(PointwiseOp op) noexcept { return pointwiseRow(op).floats.empty(); }

// Exponents with a cheaper exact form, as PyTorch takes them.
PointwiseOp powShortcut(double e) noexcept {
  if (e == 2.0) return PointwiseOp::square;
  if (e == 0.5) return PointwiseOp::sqrt;
  if (e == -0.5) return PointwiseOp::rsqrt;
  if (e == -1.0) return PointwiseOp::reciprocal;
  if (e == 1.0) return PointwiseOp::copy;
  return PointwiseOp::pow_scalar;
}

uint64_t bitsOf(const Scalar& s, Compute c) noexcept {
  switch (c) {
    case Compute::f32: return std::bit_cast<uint32_t>(static_cast<float>(s.real));
    case Compute::f64: return std::bit_cast<uint64_t>(s.real);
    default: return static_cast<uint64_t>(s.integer);
  }
}

}  // namespace

const PointwiseInfo& pointwiseInfo(PointwiseOp op) noexcept {
  static const auto infos = [] {
    std::array<PointwiseInfo, static_cast<size_t>(PointwiseOp::count_)> a{};
    for (size_t i = 0; i < a.size(); ++i) {
      const PointwiseRow& r = pointwiseRow(static_cast<PointwiseOp>(i));
      a[i] = {r.name, r.arity, r.scalars, !r.floats.empty(), !r.integers.empty(), r.to_bool};
    }
    return a;
  }();
  return infos[static_cast<size_t>(op)];
}

std::optional<PointwiseOp> pointwiseFromName(std::string_view name) noexcept {
  for (size_t i = 0; i < static_cast<size_t>(PointwiseOp::count_); ++i)
    if (pointwiseRow(static_cast<PointwiseOp>(i)).name == name) return static_cast<PointwiseOp>(i);
  return std::nullopt;
}

bool pointwiseSupports(PointwiseOp op, DType compute) noexcept {
  const PointwiseRow& r = pointwiseRow(op);
  if (isFloating(compute)) return !r.floats.empty() && (r.special.empty() || compute != DType::float64);
  switch (compute) {
    case DType::int8: case DType::int16: case DType::int32: case DType::int64: case DType::uint8: case DType::bool_:
      return !r.integers.empty();
    default: return false;
  }
}

Result<void> pointwise(Queue& queue, PointwiseOp op, std::span<const TensorRef> in, const TensorRef& out, DType compute,
                       std::span<const Scalar> scalars, Variant variant) {
  // On truth values the bitwise operators are the logical ones.
  if (compute == DType::bool_ && op == PointwiseOp::bitwise_not) op = PointwiseOp::logical_not;
  if (op == PointwiseOp::pow_scalar && !scalars.empty() && isFloating(compute)) op = powShortcut(scalars[0].real);
  const PointwiseRow& row = pointwiseRow(op);
  if (!pointwiseSupports(op, compute))
    return fail(std::string(row.name) + ": no OpenCL kernel computes in " + std::string(dtypeName(compute)));
  if (in.size() != static_cast<size_t>(row.arity) || scalars.size() < static_cast<size_t>(row.scalars))
    return fail(std::string(row.name) + ": wants " + std::to_string(row.arity) + " tensors and " +
                std::to_string(row.scalars) + " scalars, got " + std::to_string(in.size()) + " and " +
                std::to_string(scalars.size()));
  const bool integers = !isFloating(compute);
  if (integers && !scalars.empty() && scalars[0].integer == 0 &&
      (op == PointwiseOp::fmod_scalar || op == PointwiseOp::remainder_scalar ||
       op == PointwiseOp::floor_divide_scalar || op == PointwiseOp::trunc_divide_scalar))
    return fail("ZeroDivisionError");
  Elementwise e;
  e.op = static_cast<uint32_t>(op);
  e.name = row.name;
  e.expr = integers ? row.integers : row.floats;
  e.compute = computeOf(compute);
  e.heavy = row.heavy;
  std::string special;
  if (!row.special.empty()) {
    special = "#define SPECIAL(x, y) " + std::string(row.special) + "\n";
    e.extra = special;
    e.source = "special";
  }
  if (e.compute == Compute::f64 && !queue.device().description().fp64)
    return fail(std::string(row.name) + ": " + queue.device().description().name + " has no float64",
                "use float32, or let this operator run on the CPU");
  // Shifts are bounded by the width of the dtype, not by that of the type they are calculated in.
  if (isBitwise(op) && (op == PointwiseOp::lshift || op == PointwiseOp::rshift || op == PointwiseOp::lshift_scalar ||
                        op == PointwiseOp::rshift_scalar)) {
    switch (dtypeBytes(compute)) {
      case 1: e.extra = "#define BITS 8\n"; e.op |= 0x1000; break;
      case 2: e.extra = "#define BITS 16\n"; e.op |= 0x2000; break;
      case 4: e.extra = "#define BITS 32\n"; e.op |= 0x3000; break;
      default: e.extra = "#define BITS 64\n"; e.op |= 0x4000;
    }
  }
  for (size_t i = 0; i < static_cast<size_t>(row.scalars) && i < 4; ++i) e.scalars[i] = bitsOf(scalars[i], e.compute);
  return elementwise(queue, e, in, out, variant);
}

}  // namespace flagos::ocl

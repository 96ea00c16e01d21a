#include "runtime/opencl/ops/fill.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/opencl/ops/half.h"

namespace flagos::ocl {
namespace {

constexpr uint32_t kFill = 0x802, kArange = 0x804;  // beside PointwiseOp's numbers

Result<void> fillRaw(Queue& queue, const TensorRef& out, uint64_t bits, size_t bytes, Variant variant) {
  Elementwise e;
  e.op = kFill;
  e.name = "fill";
  e.expr = "s0";
  e.raw = true;
  e.compute = bytes == 1 ? Compute::i32 : bytes == 2 ? Compute::u16 : bytes == 4 ? Compute::u32 : Compute::u64;
  e.scalars[0] = bits;
  return elementwise(queue, e, {}, out, variant);
}

template <class T>
uint64_t bitsOf(T v) noexcept {
  uint64_t b = 0;
  std::memcpy(&b, &v, sizeof v);
  return b;
}

}  // namespace

Result<void> fillBits(Queue& queue, const TensorRef& out, const void* pattern, Variant variant) {
  const size_t bytes = dtypeBytes(out.dtype);
  if (bytes == 0) return fail("fill: dtype " + std::string(dtypeName(out.dtype)) + " has no size");
  if (bytes <= 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, pattern, bytes);
    return fillRaw(queue, out, bits, bytes, variant);
  }
  // 16 bytes: the two halves are two strided fills of 8 bytes each.
  uint64_t halves[2];
  std::memcpy(halves, pattern, 16);
  TensorRef t = out;
  t.dtype = DType::uint64;
  for (int d = 0; d < t.ndim; ++d) t.strides[static_cast<size_t>(d)] *= 2;
  for (int64_t i = 0; i < 2; ++i) {
    t.offset = out.offset * 2 + i;
    if (Result<void> r = fillRaw(queue, t, halves[i], 8, variant); !r) return r;
  }
  return {};
}

Result<void> fill(Queue& queue, const TensorRef& out, Scalar value, Variant variant) {
  const auto raw = [&](uint64_t bits) { return fillRaw(queue, out, bits, dtypeBytes(out.dtype), variant); };
  switch (out.dtype) {
    case DType::float32: return raw(bitsOf(static_cast<float>(value.real)));
    case DType::float64: return raw(bitsOf(value.real));
    case DType::float16: return raw(floatToHalf(static_cast<float>(value.real)));
    case DType::bfloat16: return raw(floatToBfloat16(static_cast<float>(value.real)));
    case DType::bool_: return raw(value.real != 0.0 ? 1 : 0);
    case DType::int8: case DType::uint8: return raw(static_cast<uint8_t>(value.integer));
    case DType::int16: case DType::uint16: return raw(static_cast<uint16_t>(value.integer));
    case DType::int32: case DType::uint32: return raw(static_cast<uint32_t>(value.integer));
    case DType::int64: case DType::uint64: return raw(static_cast<uint64_t>(value.integer));
    case DType::complex32: return raw(floatToHalf(static_cast<float>(value.real)));
    case DType::complex64: return raw(bitsOf(static_cast<float>(value.real)));
    case DType::complex128: {
      const double pair[2] = {value.real, 0.0};
      return fillBits(queue, out, pair, variant);
    }
    default: return fail("fill: dtype " + std::string(dtypeName(out.dtype)) + " has no size");
  }
}

Result<void> arange(Queue& queue, const TensorRef& out, Scalar start, Scalar step, Variant variant) {
  Elementwise e;
  e.op = kArange;
  e.name = "arange";
  e.expr = "s0 + ix * s1";
  e.indexed = true;
  e.compute = computeOf(out.dtype);
  if (e.compute == Compute::none)
    return fail("arange: no OpenCL kernel for dtype " + std::string(dtypeName(out.dtype)));
  if (e.compute == Compute::i32) e.compute = Compute::i64;
  // Like PyTorch, floats are calculated in float64 where the device has it.
  if (e.compute == Compute::f32 && queue.device().description().fp64) e.compute = Compute::f64;
  const auto bits = [&](Scalar s) -> uint64_t {
    if (e.compute == Compute::f64) return bitsOf(s.real);
    if (e.compute == Compute::f32) return bitsOf(static_cast<float>(s.real));
    return static_cast<uint64_t>(s.integer);
  };
  e.scalars = {bits(start), bits(step), 0, 0};
  return elementwise(queue, e, {}, out, variant);
}

}  // namespace flagos::ocl

#include "runtime/opencl/ops/copy.h"

#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"

namespace flagos::ocl {
namespace {

constexpr uint32_t kConvert = 0x800, kBits = 0x801;  // beside PointwiseOp's numbers

// A 16-byte element as two of 8 bytes, so that bits move in types every device has.
TensorRef halves(TensorRef t) {
  for (int d = 0; d < t.ndim; ++d) t.strides[static_cast<size_t>(d)] *= 2;
  t.offset *= 2;
  t.sizes[static_cast<size_t>(t.ndim)] = 2;
  t.strides[static_cast<size_t>(t.ndim)] = 1;
  ++t.ndim;
  t.dtype = DType::uint64;
  return t;
}

// Conversions start from the source's own kind of number: int64 never passes through float32 on its way to float64.
Compute between(DType from, DType to) noexcept {
  const Compute c = computeOf(from);
  if (c == Compute::f32 && to == DType::float64) return Compute::f64;
  return c;
}

}  // namespace

bool copySupports(DType from, DType to) noexcept {
  if (from == to) return dtypeBytes(from) > 0;
  return computeOf(from) != Compute::none && computeOf(to) != Compute::none;
}

Result<void> copy(Queue& queue, const TensorRef& in, const TensorRef& out, Variant variant) {
  if (!copySupports(in.dtype, out.dtype))
    return fail("copy: no OpenCL kernel converts " + std::string(dtypeName(in.dtype)) + " to " +
                std::string(dtypeName(out.dtype)));
  Elementwise e;
  e.name = "copy";
  e.expr = "a";
  if (in.dtype == out.dtype) {
    if (dtypeBytes(in.dtype) == 16) {
      if (out.ndim == kMaxDims) return fail("copy: complex128 with " + std::to_string(kMaxDims) + " dimensions");
      // The pair dimension must not broadcast away: both sides have it.
      return copy(queue, halves(in), halves(out), variant);
    }
    e.op = kBits;
    e.raw = true;
    switch (dtypeBytes(in.dtype)) {
      case 1: e.compute = Compute::i32; break;
      case 2: e.compute = Compute::u16; break;
      case 4: e.compute = Compute::u32; break;
      default: e.compute = Compute::u64;
    }
  } else {
    e.op = kConvert;
    e.compute = between(in.dtype, out.dtype);
    const bool f64 = in.dtype == DType::float64 || out.dtype == DType::float64;
    if (f64 && !queue.device().description().fp64)
      return fail("copy: " + queue.device().description().name + " has no float64 to convert from or to",
                  "let this copy run on the CPU");
  }
  return elementwise(queue, e, {&in, 1}, out, variant);
}

}  // namespace flagos::ocl

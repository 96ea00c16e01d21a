// Joining, flipping, triangles and scans (declared in index.h).
#include <algorithm>

#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/index.h"
#include "runtime/opencl/ops/index_launch.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {
size_t u(int d) { return static_cast<size_t>(d); }
}  // namespace

Result<void> cat(Queue& queue, std::span<const TensorRef> in, int dim, const TensorRef& out, Variant variant) {
  int64_t at = 0;
  for (const TensorRef& t : in) {
    TensorRef part = out;
    part.offset += at * out.strides[u(dim)];
    part.sizes[u(dim)] = t.sizes[u(dim)];
    at += t.sizes[u(dim)];
    if (part.numel() == 0) continue;
    if (auto ok = copy(queue, t, part, variant); !ok) return ok;
  }
  return at == out.sizes[u(dim)] ? Result<void>() : Result<void>(fail("cat: the inputs do not fill the result"));
}

Result<void> flip(Queue& queue, const TensorRef& in, uint32_t dims, const TensorRef& out, Variant variant) {
  // Reading backwards is a view with negative strides.
  TensorRef t = in;
  for (int d = 0; d < in.ndim; ++d) {
    if (!(dims >> d & 1u) || in.sizes[u(d)] == 0) continue;
    t.offset += (in.sizes[u(d)] - 1) * in.strides[u(d)];
    t.strides[u(d)] = -in.strides[u(d)];
  }
  return out.numel() == 0 ? Result<void>() : copy(queue, t, out, variant);
}

Result<void> triangle(Queue& queue, const TensorRef& in, const TensorRef& out, int64_t diagonal, bool upper, Variant variant) {
  if (out.ndim < 2) return fail("tril and triu need at least 2 dimensions");
  IndexMeta m;
  m.sizes(out);
  m.operand(0, out);
  m.operand(1, in);
  m.v[13] = diagonal;
  m.v[14] = upper;
  return launchIndex(queue, {"triangle", "triangle", 8, out.dtype, true}, out.numel(), m, {out.buffer, in.buffer}, variant);
}

Result<void> scan(Queue& queue, ScanOp op, const TensorRef& in, const TensorRef& out, int dim, Variant variant) {
  if (in.ndim == 0) return copy(queue, in, out, variant);
  const int64_t length = in.sizes[u(dim)];
  if (in.numel() == 0) return {};
  if (in.dtype != out.dtype) return fail("cumsum: the input must have the result's dtype");
  const int64_t rows = in.numel() / length;
  IndexMeta m;
  m.sizes(in);
  m.operand(0, out, dim);
  m.operand(1, in, dim);
  m.v[9] = out.strides[u(dim)];
  m.v[10] = in.strides[u(dim)];
  m.walk(dim, length);
  // Few long rows are cut into pieces. From shapes alone, so that the order of additions is the same on every run; not for
  // dtypes that would round the sums of the pieces.
  const bool exact = computeOf(in.dtype) != Compute::f32 || in.dtype == DType::float32;
  const int64_t wanted = op != ScanOp::logcumsumexp && exact && rows < 64 ? std::min<int64_t>(256, length / 2048) : 1;
  m.v[14] = wanted > 1 ? (length + wanted - 1) / wanted : length;
  m.v[13] = (length + m.v[14] - 1) / m.v[14];
  constexpr std::string_view defines[] = {"", "#define PRODUCT\n", "#define LOGARITHMS\n"};
  const auto which = static_cast<size_t>(op);
  const auto kernel = [&](std::string_view function, uint32_t number) {
    return IndexKernel{"scan", function, number + static_cast<uint32_t>(which), in.dtype, false, DType::int64, defines[which]};
  };
  if (auto ok = launchIndex(queue, kernel("scan", 40), rows * m.v[13], m, {out.buffer, in.buffer}, variant); !ok || m.v[13] == 1) return ok;
  const size_t bytes = computeOf(in.dtype) == Compute::f32 || computeOf(in.dtype) == Compute::i32 ? 4 : 8;
  auto carry = Scratch::take(queue, static_cast<size_t>(rows * m.v[13]) * bytes);
  if (!carry) return carry.error();
  m.v[8] = static_cast<int64_t>(carry->offset() / bytes);
  if (auto ok = launchIndex(queue, kernel("scan_carry", 44), rows, m, {out.buffer, carry->buffer()}, variant); !ok) return ok;
  return launchIndex(queue, kernel("scan_add", 48), rows * m.v[13], m, {out.buffer, carry->buffer()}, variant);
}

Result<void> running(Queue& queue, bool largest, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim,
                     Variant variant) {
  if (in.numel() == 0) return {};
  const int64_t length = in.ndim == 0 ? 1 : in.sizes[u(dim)];
  IndexMeta m;
  m.rows(values, in, indices, dim, length);
  IndexKernel k{"running", "running", largest ? 13u : 14u, in.dtype, false, DType::int64,
                largest ? std::string_view("#define BEATS(x, best) ((x) >= (best))\n") : std::string_view("#define BEATS(x, best) ((x) <= (best))\n")};
  return launchIndex(queue, k, in.numel() / length, m, {values.buffer, in.buffer, indices.buffer}, variant);
}

Result<void> nonzero(Queue& queue, const TensorRef& in, const TensorRef& counts, const TensorRef& out, Variant variant) {
  IndexMeta m;
  m.sizes(in);
  m.operand(0, in);
  m.v[6] = counts.offset;
  m.v[7] = out.offset;
  m.v[9] = out.strides[0];
  m.v[10] = out.strides[1];
  return launchIndex(queue, {"nonzero", "nonzero", 15, in.dtype, false}, in.numel(), m, {in.buffer, counts.buffer, out.buffer}, variant);
}

}  // namespace flagos::ocl

#include "runtime/opencl/ops/linalg.h"

#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"

namespace flagos::ocl {
namespace {

struct Meta { int64_t v[12] = {}; };
constexpr uint64_t kFamily = uint64_t{0x6c} << 56;   // 'l', see cachedKernel

Result<void> run(Queue& queue, uint32_t number, std::string_view name, DType dtype, int64_t items, Meta& m, std::initializer_list<const TensorRef*> tensors,
                 Variant variant) {
  if (items == 0) return {};
  const Compute compute = computeOf(dtype);
  if (dtype != DType::float32 && dtype != DType::float64)
    return fail(std::string(name) + ": no OpenCL kernel for dtype " + std::string(dtypeName(dtype)), "use float32");
  if (dtype == DType::float64 && !queue.device().description().fp64)
    return fail(std::string(name) + ": " + queue.device().description().name + " has no float64",
                "use float32, or let this operator run on the CPU");
  auto kernel = cachedKernel(queue, kFamily | uint64_t{number} << 8 | static_cast<uint64_t>(compute), name, [&] {
    KernelText t;
    t.text = kernelHead(compute, false, false, {}) + "#define T S\n#define USE_" + std::string(name) + "\n";
    t.text += kernelSource("linalg");
    t.key = "linalg." + std::string(name) + "." + std::string(computeName(compute));
    return t;
  });
  if (!kernel) return kernel.error();
  m.v[0] = items;
  Arg args[5];
  size_t count = 0;
  for (const TensorRef* t : tensors) {
    m.v[4 + count] = t->offset;
    args[count++] = Arg::buffer(t->buffer);
  }
  args[count++] = Arg::pointer(&m, sizeof m);
  // On CPU cores a matrix is work enough for a group of its own; thin devices get full groups.
  const size_t group = variant == Variant::wide ? 1 : 32;
  Range range;
  range.local[0] = group;
  range.global[0] = (static_cast<size_t>(items) + group - 1) / group * group;
  return queue.launch(**kernel, range, args, count);
}

Meta metaOf(MatrixSizes s, int64_t right = 0) {
  Meta m;
  m.v[1] = s.rows;
  m.v[2] = s.columns;
  m.v[3] = right;
  return m;
}

}  // namespace

Result<void> luFactor(Queue& queue, const TensorRef& a, const TensorRef& pivots, const TensorRef& info, MatrixSizes sizes, bool pivot, Variant variant) {
  Meta m = metaOf(sizes);
  m.v[8] = pivot;
  return run(queue, 1, "lu", a.dtype, sizes.batch, m, {&a, &pivots, &info}, variant);
}

Result<void> pivotPlaces(Queue& queue, const TensorRef& pivots, const TensorRef& places, int64_t batch, int64_t exchanges, int64_t n, Variant variant) {
  Meta m = metaOf({batch, exchanges, n});
  return run(queue, 2, "permutation", DType::float32, batch, m, {&pivots, &places}, variant);
}

Result<void> choleskyFactor(Queue& queue, const TensorRef& a, const TensorRef& info, MatrixSizes sizes, Variant variant) {
  Meta m = metaOf(sizes);
  return run(queue, 3, "cholesky", a.dtype, sizes.batch, m, {&a, &info}, variant);
}

Result<void> solveTriangular(Queue& queue, const TensorRef& a, const TensorRef& b, MatrixSizes sizes, int64_t right, bool upper, bool unit, Variant variant) {
  Meta m = metaOf(sizes, right);
  m.v[8] = upper;
  m.v[9] = unit;
  return run(queue, 4, "triangular", a.dtype, sizes.batch * right, m, {&a, &b}, variant);
}

Result<void> householderFactor(Queue& queue, const TensorRef& a, const TensorRef& tau, MatrixSizes sizes, Variant variant) {
  Meta m = metaOf(sizes);
  return run(queue, 5, "householder", a.dtype, sizes.batch, m, {&a, &tau}, variant);
}

Result<void> reflect(Queue& queue, const TensorRef& a, const TensorRef& tau, const TensorRef& c, MatrixSizes sizes, int64_t reflectors, int64_t right,
                     bool transposed, Variant variant) {
  Meta m = metaOf(sizes, right);
  m.v[8] = transposed;
  m.v[10] = reflectors;
  return run(queue, 6, "reflect", a.dtype, sizes.batch * right, m, {&a, &tau, &c}, variant);
}

}  // namespace flagos::ocl

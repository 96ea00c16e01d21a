#include "runtime/opencl/ops/softmax.h"

#include <algorithm>
#include <array>
#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"

namespace flagos::ocl {
namespace {

struct Meta { int64_t v[58]; };
enum class Shape : uint8_t { rows, columns, group, thread };
constexpr std::string_view kFunctions[] = {"rows", "columns", "group", "thread"};
constexpr std::string_view kDefines[] = {"#define ROWS\n", "#define COLUMNS\n", "#define GROUP 128\n",
                                         "#define THREAD\n"};

TensorRef without(TensorRef t, int dim) noexcept {
  for (int d = dim; d + 1 < t.ndim; ++d) {
    t.sizes[static_cast<size_t>(d)] = t.sizes[static_cast<size_t>(d) + 1];
    t.strides[static_cast<size_t>(d)] = t.strides[static_cast<size_t>(d) + 1];
  }
  if (t.ndim) --t.ndim;
  return t;
}

bool isFloat(DType t) noexcept {
  return t == DType::float32 || t == DType::float64 || t == DType::float16 || t == DType::bfloat16;
}

// refs: in, out, and for backward the gradient that is written.
Result<void> run(Queue& queue, const std::array<TensorRef, 3>& refs, size_t operands, int dim, bool log,
                 Variant variant) {
  const char* name = log ? "log_softmax" : "softmax";
  const TensorRef& in = refs[0];
  bool f64 = false;
  std::array<TensorRef, 3> kept;
  for (size_t k = 0; k < operands; ++k) {
    if (!isFloat(refs[k].dtype))
      return fail(std::string(name) + ": no OpenCL kernel for dtype " + std::string(dtypeName(refs[k].dtype)));
    if (refs[k].ndim != in.ndim || !std::equal(in.sizes.begin(), in.sizes.begin() + in.ndim, refs[k].sizes.begin()))
      return fail(std::string(name) + ": the shapes of input and result differ");
    f64 = f64 || refs[k].dtype == DType::float64;
    kept[k] = without(refs[k], dim);
  }
  if (f64 && !queue.device().description().fp64)
    return fail(std::string(name) + ": " + queue.device().description().name + " has no float64",
                "use float32, or let this operator run on the CPU");
  if (in.numel() == 0) return {};
  const auto ud = static_cast<size_t>(dim);
  const int64_t n = in.ndim ? in.sizes[ud] : 1;
  Result<Layout> made = makeLayout({kept.data(), operands}, true, name);
  if (!made) return made.error();
  const Layout& l = *made;
  const int64_t rows = l.numel();
  std::array<int64_t, 3> step{1, 1, 1};
  bool lanes = l.sizes[static_cast<size_t>(l.ndim - 1)] >= 4, unit = true;
  bool index32 = fits32(l);
  for (size_t k = 0; k < operands; ++k) {
    step[k] = in.ndim && n > 1 ? refs[k].strides[ud] : 1;
    unit = unit && step[k] == 1;
    lanes = lanes && l.strides[k][static_cast<size_t>(l.ndim - 1)] == 1;
    index32 = index32 && n * std::abs(step[k]) < (int64_t{1} << 29) && rows * n < (int64_t{1} << 30);
  }
  const bool wide = variant == Variant::wide, backward = operands == 3;
  const Shape shape = wide ? (!unit && lanes ? Shape::columns : Shape::rows) : (n >= 64 ? Shape::group : Shape::thread);
  // In place, or possibly so: the input must survive until the row is done.
  const bool inPlace = in.buffer == refs[1].buffer && in.offset == refs[1].offset;
  std::array<Kind, 3> kinds{};
  for (size_t k = 0; k < operands; ++k) kinds[k] = kindOf(refs[k].dtype);
  const uint64_t key = (uint64_t{4} << 56) | (uint64_t(shape) << 20) | (uint64_t{log} << 19) |
                       (uint64_t{backward} << 18) | (uint64_t{index32} << 17) | (uint64_t{inPlace} << 16) |
                       (uint64_t(kinds[0]) << 8) | (uint64_t(kinds[1]) << 4) | uint64_t(kinds[2]);
  const auto f = static_cast<size_t>(shape);
  Result<const Kernel*> kernel = cachedKernel(queue, key, kFunctions[f], [&] {
    const Compute a = f64 ? Compute::f64 : Compute::f32;
    const std::string an(computeName(a));
    KernelText t;
    t.text = kernelHead(a, index32, false, {kinds.data(), operands});
    t.text += "#define T S\n#define A " + an + "\n#define AV " + an + "16\n#define CONVA1(x) convert_" + an +
              "(x)\n#define CONVAV(x) convert_" + an + "16(x)\n#define KI " + std::string(kindName(kinds[0])) +
              "\n#define KO " + std::string(kindName(kinds[1])) + "\n";
    if (backward) t.text += "#define BACKWARD\n#define KG " + std::string(kindName(kinds[2])) + "\n";
    if (log) t.text += "#define LOGARITHM\n";
    const bool same = refs[1].dtype == (f64 ? DType::float64 : DType::float32);
    if (!log && !backward && same && !inPlace) t.text += "#define KEEP\n";
    t.text += kDefines[f];
    t.text += kernelSource("types");
    t.text += kernelSource("softmax");
    t.key = "softmax." + std::to_string(key);
    return t;
  });
  if (!kernel) return kernel.error();

  Meta meta{};
  meta.v[0] = rows;
  meta.v[1] = n;
  meta.v[2] = 1;
  meta.v[3] = l.ndim;
  for (size_t k = 0; k < operands; ++k) {
    meta.v[4 + k] = refs[k].offset;
    meta.v[7 + k] = step[k];
    for (size_t d = 0; d < static_cast<size_t>(l.ndim); ++d) meta.v[22 + 12 * k + d] = l.strides[k][d];
  }
  for (size_t d = 0; d < static_cast<size_t>(l.ndim); ++d) meta.v[10 + d] = l.sizes[d];
  Range range;
  if (wide) {
    const int64_t width = l.sizes[static_cast<size_t>(l.ndim - 1)];
    const int64_t items = shape == Shape::columns ? rows / width * ((width + 15) / 16) : rows;
    const uint32_t units = queue.device().description().compute_units;
    const int64_t most = int64_t{units ? units : 8} * 4;
    const int64_t work = n * (shape == Shape::columns ? 16 : 1);
    meta.v[2] = std::max((items + most - 1) / most, std::max<int64_t>(1, 1024 / work));
    range.global[0] = static_cast<size_t>((items + meta.v[2] - 1) / meta.v[2]);
    range.local[0] = 1;
  } else if (shape == Shape::group) {
    range.global[0] = static_cast<size_t>(rows) * 128;
    range.local[0] = 128;
  } else {
    range.global[0] = (static_cast<size_t>(rows) + kTiledGroup - 1) / kTiledGroup * kTiledGroup;
    range.local[0] = kTiledGroup;
  }
  const Arg m = Arg::pointer(&meta, sizeof meta);
  if (backward)
    return queue.launch(**kernel, range,
                        {Arg::buffer(in.buffer), Arg::buffer(refs[1].buffer), Arg::buffer(refs[2].buffer), m});
  return queue.launch(**kernel, range, {Arg::buffer(in.buffer), Arg::buffer(refs[1].buffer), m});
}

}  // namespace

Result<void> softmax(Queue& queue, const TensorRef& in, const TensorRef& out, int dim, bool log, Variant variant) {
  return run(queue, {in, out, TensorRef{}}, 2, dim, log, variant);
}

Result<void> softmaxBackward(Queue& queue, const TensorRef& grad, const TensorRef& output, const TensorRef& grad_in,
                             int dim, bool log, Variant variant) {
  return run(queue, {grad, output, grad_in}, 3, dim, log, variant);
}

}  // namespace flagos::ocl

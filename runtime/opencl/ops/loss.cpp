#include "runtime/opencl/ops/loss.h"

#include <algorithm>
#include <array>
#include <string>

#include "runtime/base/names.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/opencl/ops/fill.h"
#include "runtime/opencl/ops/reduce.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {

struct Meta { int64_t v[64]; };

// What every nll kernel needs: positions over the target's dimensions, the class dimension taken out of the input.
struct Nll {
  Meta meta{};
  Kind input, target, weight, result, total;
  Compute a = Compute::f32;
  bool weighted = false, index32 = true;
  int64_t positions = 0;
  cl_mem weight_buffer = nullptr;
};

Result<Nll> prepare(Queue& queue, const TensorRef& input, const TensorRef& target, const TensorRef* weight,
                    Reduction reduction, int64_t ignore_index, const TensorRef& result, const TensorRef& total) {
  Nll n;
  const auto floating = [](DType t) { return computeOf(t) == Compute::f32 || computeOf(t) == Compute::f64; };
  if (!floating(input.dtype) || !floating(result.dtype) || !floating(total.dtype) ||
      (weight && !floating(weight->dtype)))
    return fail("nll_loss: no OpenCL kernel for input " + std::string(dtypeName(input.dtype)) + " and result " +
                std::string(dtypeName(result.dtype)));
  if (computeOf(target.dtype) != Compute::i64 && computeOf(target.dtype) != Compute::i32)
    return fail("nll_loss: the target's dtype is " + std::string(dtypeName(target.dtype)), "use int64 targets");
  if (input.ndim == 0 || target.ndim + 1 < input.ndim)
    return fail("nll_loss: the input must have a class dimension that the target lacks");
  const int cls = input.ndim == 1 ? 0 : 1;
  TensorRef picked = input;
  for (int d = cls; d + 1 < input.ndim; ++d) {
    picked.sizes[static_cast<size_t>(d)] = input.sizes[static_cast<size_t>(d) + 1];
    picked.strides[static_cast<size_t>(d)] = input.strides[static_cast<size_t>(d) + 1];
  }
  --picked.ndim;
  // Unbatched input with a target of one element.
  TensorRef where = target;
  if (input.ndim == 1) where.ndim = 0;
  if (where.ndim != picked.ndim ||
      !std::equal(where.sizes.begin(), where.sizes.begin() + where.ndim, picked.sizes.begin()))
    return fail("nll_loss: the target's shape is not the input's without the class dimension");
  std::array<TensorRef, 3> refs{where, picked, result};
  if (reduction != Reduction::none) refs[2] = where;
  else if (result.ndim != where.ndim && where.ndim != 0)
    return fail("nll_loss: the result's shape is not the target's");
  else if (where.ndim == 0) refs[2].ndim = 0;
  Result<Layout> made = makeLayout(refs, false, "nll_loss");
  if (!made) return made.error();
  const Layout& l = *made;
  n.positions = l.numel();
  const auto uc = static_cast<size_t>(cls);
  n.index32 = fits32(l);
  n.weighted = weight != nullptr;
  n.input = kindOf(input.dtype);
  n.target = kindOf(target.dtype);
  n.weight = weight ? kindOf(weight->dtype) : n.input;
  n.result = kindOf(result.dtype);
  n.total = kindOf(total.dtype);
  n.weight_buffer = weight ? weight->buffer : input.buffer;
  const bool f64 = input.dtype == DType::float64 || result.dtype == DType::float64;
  if (f64 && !queue.device().description().fp64)
    return fail("nll_loss: " + queue.device().description().name + " has no float64",
                "use float32, or let this operator run on the CPU");
  n.a = f64 ? Compute::f64 : Compute::f32;
  auto& v = n.meta.v;
  v[0] = n.positions;
  v[1] = input.sizes[uc];
  v[2] = ignore_index;
  v[3] = 1;
  v[4] = static_cast<int64_t>(reduction);
  v[6] = input.offset;
  v[7] = target.offset;
  v[8] = weight ? weight->offset : 0;
  v[9] = result.offset;
  v[10] = total.offset;
  v[11] = input.strides[uc];
  v[12] = weight && weight->ndim ? weight->strides[0] : 0;
  v[13] = l.ndim;
  for (size_t d = 0; d < static_cast<size_t>(l.ndim); ++d) {
    v[15 + d] = l.sizes[d];
    v[27 + d] = l.strides[1][d];
    v[39 + d] = l.strides[0][d];
    v[51 + d] = l.strides[2][d];
  }
  return n;
}

enum class Part : uint8_t { none, sums, finish, backward, unit };

Result<const Kernel*> kernelFor(Queue& queue, const Nll& n, Part part, size_t group) {
  static constexpr std::string_view functions[] = {"none", "sums", "finish", "backward", "unit"};
  static constexpr std::string_view defines[] = {"#define NONE\n", "#define SUMS\n", "#define FINISH\n",
                                                 "#define BACKWARD\n", "#define UNIT\n"};
  const uint64_t key = (uint64_t{5} << 56) | (uint64_t(part) << 32) | (uint64_t{group > 1} << 31) |
                       (uint64_t{n.weighted} << 30) | (uint64_t{n.index32} << 29) | (uint64_t(n.a) << 24) |
                       (uint64_t(n.input) << 16) | (uint64_t(n.target) << 12) | (uint64_t(n.weight) << 8) |
                       (uint64_t(n.result) << 4) | uint64_t(n.total);
  const auto p = static_cast<size_t>(part);
  return cachedKernel(queue, key, functions[p], [&] {
    const Kind kinds[] = {n.input, n.target, n.weight, n.result, n.total};
    KernelText t;
    const std::string an(computeName(n.a));
    t.text = kernelHead(n.a, n.index32, false, kinds) + "#define T S\n#define A " + an +
             "\n#define convertA(x) convert_" + an + "(x)\n";
    const char* names[] = {"KI", "KT", "KW", "KO", "KS"};
    for (size_t i = 0; i < 5; ++i)
      t.text += "#define " + std::string(names[i]) + " " + std::string(kindName(kinds[i])) + "\n";
    if (n.weighted) t.text += "#define WEIGHTED\n";
    t.text += defines[p];
    t.text += "#define GROUP " + std::to_string(group) + "\n";
    t.text += kernelSource("types");
    t.text += kernelSource("fault");
    t.text += kernelSource("loss");
    t.key = "loss." + std::to_string(key);
    return t;
  });
}

// Work-items that walk positions themselves: fat ones (wide), one position each (tiled).
Range spread(Queue& queue, Nll& n, Variant variant) noexcept {
  Range range;
  if (variant == Variant::wide) {
    n.meta.v[3] = wideChunk(queue, n.positions, 512);
    range.global[0] = static_cast<size_t>((n.positions + n.meta.v[3] - 1) / n.meta.v[3]);
    range.local[0] = 1;
  } else {
    range.global[0] = (static_cast<size_t>(n.positions) + kTiledGroup - 1) / kTiledGroup * kTiledGroup;
    range.local[0] = kTiledGroup;
  }
  return range;
}

}  // namespace

Result<void> nllLoss(Queue& queue, const TensorRef& input, const TensorRef& target, const TensorRef* weight,
                     Reduction reduction, int64_t ignore_index, const TensorRef& out, const TensorRef& total_weight,
                     Variant variant) {
  Result<Nll> made = prepare(queue, input, target, weight, reduction, ignore_index, out, total_weight);
  if (!made) return made.error();
  Nll& n = *made;
  static const NameId name = internName("nll_loss");
  n.meta.v[63] = name;
  Result<cl_mem> fault = queue.faultRecord();
  if (!fault) return fault.error();
  if (reduction == Reduction::none) {
    // PyTorch leaves total_weight at zero here.
    if (Result<void> r = fill(queue, total_weight, Scalar(0), variant); !r) return r;
    if (n.positions == 0) return {};
    Result<const Kernel*> kernel = kernelFor(queue, n, Part::none, 1);
    if (!kernel) return kernel.error();
    const Range range = spread(queue, n, variant);
    return queue.launch(**kernel, range,
                        {Arg::buffer(input.buffer), Arg::buffer(target.buffer), Arg::buffer(n.weight_buffer),
                         Arg::buffer(out.buffer), Arg::buffer(*fault), Arg::pointer(&n.meta, sizeof n.meta)});
  }
  const size_t group = variant == Variant::wide ? 1 : 128;
  // From shapes alone, so that the order of additions never changes.
  const int64_t least = variant == Variant::wide ? 4096 : 16384;
  const int64_t pieces = std::clamp<int64_t>(n.positions / least, 1, 256);
  n.meta.v[3] = (n.positions + pieces - 1) / pieces;
  n.meta.v[5] = pieces;
  Result<Scratch> scratch = Scratch::take(queue, static_cast<size_t>(pieces) * 16);
  if (!scratch) return scratch.error();
  n.meta.v[14] = static_cast<int64_t>(scratch->offset() / (n.a == Compute::f64 ? 8 : 4));
  Result<const Kernel*> sums = kernelFor(queue, n, Part::sums, group);
  if (!sums) return sums.error();
  Result<const Kernel*> finish = kernelFor(queue, n, Part::finish, 1);
  if (!finish) return finish.error();
  Range range;
  range.global[0] = static_cast<size_t>(pieces) * group;
  range.local[0] = group;
  const Arg meta = Arg::pointer(&n.meta, sizeof n.meta);
  if (Result<void> r = queue.launch(**sums, range,
                                    {Arg::buffer(input.buffer), Arg::buffer(target.buffer),
                                     Arg::buffer(n.weight_buffer), Arg::buffer(scratch->buffer()), Arg::buffer(*fault), meta});
      !r)
    return r;
  range.global[0] = range.local[0] = 1;
  return queue.launch(
      **finish, range,
      {Arg::buffer(scratch->buffer()), Arg::buffer(out.buffer), Arg::buffer(total_weight.buffer), meta});
}

Result<void> nllLossBackward(Queue& queue, const TensorRef& grad, const TensorRef& target, const TensorRef* weight,
                             Reduction reduction, int64_t ignore_index, const TensorRef& total_weight,
                             const TensorRef& grad_in, Variant variant) {
  Result<Nll> made = prepare(queue, grad_in, target, weight, reduction, ignore_index, grad, total_weight);
  if (!made) return made.error();
  Nll& n = *made;
  if (Result<void> r = fill(queue, grad_in, Scalar(0), variant); !r) return r;
  if (n.positions == 0) return {};
  Result<const Kernel*> kernel = kernelFor(queue, n, Part::backward, 1);
  if (!kernel) return kernel.error();
  const Range range = spread(queue, n, variant);
  return queue.launch(
      **kernel, range,
      {Arg::buffer(grad_in.buffer), Arg::buffer(target.buffer), Arg::buffer(n.weight_buffer), Arg::buffer(grad.buffer),
       Arg::buffer(total_weight.buffer), Arg::pointer(&n.meta, sizeof n.meta)});
}

Result<void> checkUnit(Queue& queue, const TensorRef& input, const TensorRef& target, Variant variant) {
  const TensorRef refs[] = {input, target};
  Result<Layout> made = makeLayout(refs, true, "binary_cross_entropy");
  if (!made) return made.error();
  const Layout& l = *made;
  static const NameId about_input = internName("all elements of input should be between 0 and 1 (binary_cross_entropy)");
  static const NameId about_target = internName("all elements of target should be between 0 and 1 (binary_cross_entropy)");
  Nll n;
  n.positions = l.numel();
  if (n.positions == 0) return {};
  n.index32 = fits32(l);
  n.input = n.weight = n.result = n.total = kindOf(input.dtype);
  n.target = kindOf(target.dtype);
  n.a = input.dtype == DType::float64 ? Compute::f64 : Compute::f32;
  auto& v = n.meta.v;
  v[0] = n.positions;
  v[3] = 1;
  v[6] = input.offset;
  v[7] = target.offset;
  v[13] = l.ndim;
  for (size_t d = 0; d < static_cast<size_t>(l.ndim); ++d) {
    v[15 + d] = l.sizes[d];
    v[27 + d] = l.strides[0][d];
    v[39 + d] = l.strides[1][d];
  }
  v[62] = about_input;
  v[63] = about_target;
  Result<cl_mem> fault = queue.faultRecord();
  if (!fault) return fault.error();
  Result<const Kernel*> kernel = kernelFor(queue, n, Part::unit, 1);
  if (!kernel) return kernel.error();
  const Range range = spread(queue, n, variant);
  return queue.launch(**kernel, range,
                      {Arg::buffer(input.buffer), Arg::buffer(target.buffer), Arg::buffer(*fault), Arg::pointer(&n.meta, sizeof n.meta)});
}

Result<void> pointLoss(Queue& queue, PointwiseOp op, const TensorRef& input, const TensorRef& target,
                       const TensorRef* weight, Reduction reduction, double param, const TensorRef& out,
                       Variant variant) {
  const Scalar scalars[] = {Scalar(param)};
  const DType compute =
      input.dtype == DType::float64 || target.dtype == DType::float64 ? DType::float64 : DType::float32;
  // smooth_l1 with beta 0 is l1 (and would divide by zero).
  if (op == PointwiseOp::smooth_l1 && param == 0) op = PointwiseOp::l1;
  const TensorRef in[] = {input, target};
  const auto weighted = [&](const TensorRef& loss) -> Result<void> {
    if (Result<void> r = pointwise(queue, op, in, loss, compute, scalars, variant); !r || !weight) return r;
    const TensorRef both[] = {loss, *weight};
    return pointwise(queue, PointwiseOp::mul, both, loss, compute, {}, variant);
  };
  if (reduction == Reduction::none) return weighted(out);
  // Broadcasting is the caller's: input has the loss's full size.
  Result<Scratch> scratch =
      Scratch::take(queue, static_cast<size_t>(std::max<int64_t>(input.numel(), 1)) * dtypeBytes(compute));
  if (!scratch) return scratch.error();
  TensorRef loss = input;
  loss.buffer = scratch->buffer();
  loss.dtype = compute;
  loss.offset = static_cast<int64_t>(scratch->offset() / dtypeBytes(compute));
  int64_t step = 1;
  for (int d = loss.ndim - 1; d >= 0; --d) {
    loss.strides[static_cast<size_t>(d)] = step;
    step *= std::max<int64_t>(loss.sizes[static_cast<size_t>(d)], 1);
  }
  if (Result<void> r = weighted(loss); !r) return r;
  return reduce(queue, reduction == Reduction::mean ? ReduceOp::mean : ReduceOp::sum, loss, out, allDims(loss),
                variant);
}

}  // namespace flagos::ocl

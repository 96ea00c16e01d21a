#include "runtime/opencl/ops/foreach.h"

#include <bit>
#include <cmath>
#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/fill.h"
#include "runtime/opencl/ops/foreach_launch.h"
#include "runtime/opencl/ops/pointwise_table.h"
#include "runtime/opencl/ops/reduce.h"

namespace flagos::ocl {
namespace {

uint64_t bitsOf(const Scalar& s, Compute c) noexcept {
  if (c == Compute::f32) return std::bit_cast<uint32_t>(static_cast<float>(s.real));
  if (c == Compute::f64) return std::bit_cast<uint64_t>(s.real);
  return static_cast<uint64_t>(s.integer);
}

std::optional<Error> optimizerRefusal(Queue& queue, std::string_view name, DType t) {
  const Compute c = computeOf(t);
  if (c != Compute::f32 && c != Compute::f64)
    return fail(std::string(name) + ": no OpenCL kernel for dtype " + std::string(dtypeName(t)));
  if (c == Compute::f64 && !queue.device().description().fp64)
    return fail(std::string(name) + ": " + queue.device().description().name + " has no float64", "use float32");
  return std::nullopt;
}

// Numbers of an optimizer: N(0) is the learning rate.
void setFixed(ForeachNumbers& n, Compute c, std::initializer_list<double> values) {
  size_t i = 0;
  for (double v : values) n.fixed[i++] = bitsOf(Scalar(v), c);
}

}  // namespace

Result<void> foreachPointwise(Queue& queue, PointwiseOp op, std::span<const TensorList> in, TensorList out,
                              std::span<const Scalar> scalars, Variant variant) {
  const PointwiseRow& row = pointwiseRow(op);
  if (out.empty()) return {};
  if (in.size() != static_cast<size_t>(row.arity) || row.arity > 3)
    return fail("foreach " + std::string(row.name) + ": wants " + std::to_string(row.arity) + " lists, got " +
                std::to_string(in.size()));
  const auto each = static_cast<size_t>(row.scalars);
  const bool own = each > 0 && scalars.size() == each * out.size() && out.size() > 1;
  if (!own && scalars.size() < each)
    return fail("foreach " + std::string(row.name) + ": wants " + std::to_string(each) +
                " scalars, or as many for each tensor");
  const DType compute = in[0][0].dtype;

  // What the tables cannot hold goes tensor by tensor: many numbers a tensor, shapes that broadcast, mixed dtypes, and
  // expressions with a special form (powers, shifts).
  bool plain = each <= 4 && (!own || each <= 2) && op != PointwiseOp::pow_scalar && op != PointwiseOp::lshift &&
               op != PointwiseOp::rshift && op != PointwiseOp::lshift_scalar && op != PointwiseOp::rshift_scalar &&
               pointwiseSupports(op, compute) && !(compute == DType::float64 && !queue.device().description().fp64);
  std::array<ForeachList, kForeachLists> lists;
  for (size_t k = 0; k < in.size(); ++k) {
    const bool single = in[k].size() == 1 && (out.size() > 1 || in[k][0].numel() != out[0].numel());
    plain = plain && (single ? in[k][0].numel() == 1 : in[k].size() == out.size());
    for (size_t t = 0; t < in[k].size(); ++t)
      plain = plain && in[k][t].dtype == in[k][0].dtype && (single || in[k][t].numel() == out[t].numel());
    lists[k] = {in[k], true, false, single};
  }
  for (const TensorRef& t : out) plain = plain && t.dtype == out[0].dtype;
  if (!plain) {
    for (size_t t = 0; t < out.size(); ++t) {
      std::array<TensorRef, 3> one;
      for (size_t k = 0; k < in.size(); ++k) one[k] = in[k][in[k].size() == 1 ? 0 : t];
      const std::span<const Scalar> numbers = own ? scalars.subspan(each * t, each) : scalars;
      if (Result<void> r = pointwise(queue, op, {one.data(), in.size()}, out[t], compute, numbers, variant); !r)
        return r;
    }
    return {};
  }
  lists[in.size()] = {out, false, true, false};
  ForeachKernel kernel;
  kernel.op = static_cast<uint32_t>(op);
  kernel.name = row.name;
  kernel.compute = computeOf(compute);
  const bool integers = kernel.compute == Compute::i32 || kernel.compute == Compute::i64;
  kernel.extra = "#define a x0\n#define b x1\n#define c x2\n";
  kernel.body = "x" + std::to_string(in.size()) + " = (" + std::string(integers ? row.integers : row.floats) + ");";
  ForeachNumbers numbers;
  if (own) {
    numbers.each = each;
    for (const Scalar& s : scalars) numbers.own.push_back(bitsOf(s, kernel.compute));
  } else {
    for (size_t i = 0; i < each; ++i) numbers.shared[i] = bitsOf(scalars[i], kernel.compute);
  }
  return foreachLaunch(queue, kernel, {lists.data(), in.size() + 1}, out.size(), numbers, variant);
}

Result<void> foreachNorm(Queue& queue, TensorList in, TensorList out, double order, Variant variant) {
  ReduceOp op;
  if (order == 2.0) op = ReduceOp::norm2;
  else if (order == 1.0) op = ReduceOp::norm1;
  else if (std::isinf(order) && order > 0) op = ReduceOp::norm_inf;
  else return fail("foreach norm: no OpenCL kernel for order " + std::to_string(order), "orders 1, 2 and inf have one");
  for (size_t t = 0; t < in.size(); ++t)
    if (Result<void> r = reduce(queue, op, in[t], out[t], allDims(in[t]), variant); !r) return r;
  return {};
}

Result<void> sgdStep(Queue& queue, TensorList params, TensorList grads, TensorList momentum, const SgdOptions& o,
                     const TensorRef* lr, const TensorRef* grad_scale, const TensorRef* found_inf, Variant variant) {
  if (params.empty()) return {};
  if (auto e = optimizerRefusal(queue, "sgd", params[0].dtype)) return *e;
  const bool buffers = o.momentum != 0 && !momentum.empty();
  ForeachKernel k;
  k.name = "sgd";
  k.compute = computeOf(params[0].dtype);
  k.extras = true;
  // Options that change the text: 6 bits beside the operator's number.
  k.op = 0x400u | (o.nesterov ? 1u : 0u) | (o.maximize ? 2u : 0u) | (o.first_step ? 4u : 0u) | (buffers ? 8u : 0u) |
         (o.weight_decay != 0 ? 16u : 0u) | (grad_scale ? 32u : 0u);
  k.extra = "#define CHECKED 1\n#define SETUP\n";
  std::string& b = k.body;
  if (grad_scale) b += "x1 /= scale; ";
  b += o.maximize ? "T g = -x1; " : "T g = x1; ";
  if (o.weight_decay != 0) b += "g += N(1) * x0; ";
  if (buffers) {
    b += o.first_step ? "x2 = g; " : "x2 = N(2) * x2 + N(3) * g; ";
    b += o.nesterov ? "g += N(2) * x2; " : "g = x2; ";
  }
  b += "x0 -= lr * g;";
  ForeachNumbers n;
  setFixed(n, k.compute, {o.lr, o.weight_decay, o.momentum, 1.0 - o.dampening});
  n.lr = lr;
  n.scale = grad_scale;
  n.inf = found_inf;
  std::array<ForeachList, 3> lists{ForeachList{params, true, true, false},
                                   ForeachList{grads, true, grad_scale != nullptr, false},
                                   ForeachList{momentum, !o.first_step, true, false}};
  return foreachLaunch(queue, k, {lists.data(), buffers ? size_t{3} : size_t{2}}, params.size(), n, variant);
}

Result<void> adamStep(Queue& queue, TensorList params, TensorList grads, TensorList exp_avgs, TensorList exp_avg_sqs,
                      TensorList max_exp_avg_sqs, TensorList steps, const AdamOptions& o, const TensorRef* lr,
                      const TensorRef* grad_scale, const TensorRef* found_inf, Variant variant) {
  if (params.empty()) return {};
  if (auto e = optimizerRefusal(queue, "adam", params[0].dtype)) return *e;
  if (steps.size() != params.size())
    return fail("adam: " + std::to_string(params.size()) + " parameters and " + std::to_string(steps.size()) +
                " steps");
  for (const TensorRef& s : steps)
    if (s.dtype != DType::float32) return fail("adam: steps must be float32, got " + std::string(dtypeName(s.dtype)));
  ForeachKernel k;
  k.name = "adam";
  k.compute = computeOf(params[0].dtype);
  k.extras = true;
  k.op = 0x500u | (o.amsgrad ? 1u : 0u) | (o.maximize ? 2u : 0u) | (o.decoupled ? 4u : 0u) |
         (o.weight_decay != 0 ? 8u : 0u) | (grad_scale ? 16u : 0u);
  // 1 - beta^step loses all digits in float32 for small steps; -expm1(step * log(beta)) does not.
  k.extra =
      "#define CHECKED 1\n#define SETUP const S step_ = (S)STEP, bias1 = -expm1(step_ * N(6)), root2 = "
      "sqrt(-expm1(step_ * N(7))), "
      "size = lr / bias1;\n";
  std::string& b = k.body;
  if (grad_scale) b += "x1 /= scale; ";
  b += o.maximize ? "T g = -x1; " : "T g = x1; ";
  if (o.weight_decay != 0) b += o.decoupled ? "x0 -= lr * N(1) * x0; " : "g += N(1) * x0; ";
  b += "x2 += N(2) * (g - x2); x3 = N(4) * x3 + N(3) * g * g; ";
  if (o.amsgrad) b += "x4 = MAXN(x4, x3); x0 -= size * x2 / (sqrt(x4) / root2 + N(5));";
  else b += "x0 -= size * x2 / (sqrt(x3) / root2 + N(5));";
  ForeachNumbers n;
  setFixed(n, k.compute,
           {o.lr, o.weight_decay, 1.0 - o.beta1, 1.0 - o.beta2, o.beta2, o.eps, std::log(o.beta1), std::log(o.beta2)});
  n.steps = steps;
  n.lr = lr;
  n.scale = grad_scale;
  n.inf = found_inf;
  std::array<ForeachList, 5> lists{
      ForeachList{params, true, true, false}, ForeachList{grads, true, grad_scale != nullptr, false},
      ForeachList{exp_avgs, true, true, false}, ForeachList{exp_avg_sqs, true, true, false},
      ForeachList{max_exp_avg_sqs, true, true, false}};
  return foreachLaunch(queue, k, {lists.data(), o.amsgrad ? size_t{5} : size_t{4}}, params.size(), n, variant);
}

Result<void> ampUnscale(Queue& queue, TensorList grads, const TensorRef& found_inf, const TensorRef& inv_scale,
                        Variant variant) {
  if (grads.empty()) return {};
  if (auto e = optimizerRefusal(queue, "amp unscale", grads[0].dtype)) return *e;
  ForeachKernel k;
  k.name = "amp_unscale";
  k.compute = computeOf(grads[0].dtype);
  k.extras = true;
  k.op = 0x600u;
  // Padding lanes are zero, hence finite. Several work-items may write the same 1.
  k.extra = "#define CHECKED 0\n#define SETUP\n#ifdef WIDE\n#define ANY(x) any(x)\n#else\n#define ANY(x) (x)\n#endif\n";
  k.body = "if (ANY(!(fabs(x0) < (T)(INFINITY)))) inf_[m.v[PLACES + 2]] = 1.0f; x0 *= scale;";
  ForeachNumbers n;
  n.scale = &inv_scale;
  n.inf = &found_inf;
  const ForeachList list{grads, true, true, false};
  return foreachLaunch(queue, k, {&list, 1}, grads.size(), n, variant);
}

}  // namespace flagos::ocl

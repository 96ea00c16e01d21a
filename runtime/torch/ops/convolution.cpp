// Convolution and its gradients. PyTorch sends every convolution of this device to the two `_overrideable` operators;
// 1-d ones arrive here as [N, C, L] and run as images of height 1.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "runtime/opencl/ops/conv.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

// Positions of stride, padding, dilation, transposed, output_padding and groups.
struct At { size_t stride, padding, dilation, transposed, output_padding, groups; };
constexpr At kForward{3, 4, 5, 6, 7, 8};
constexpr At kBackward{3, 4, 5, 6, 7, 8};

ocl::ConvArgs argsOf(const OpCall& c, const At& at, int64_t spatial) {
  const auto pair = [&](size_t i, int64_t missing) {
    const auto v = c.ints(i, static_cast<size_t>(spatial));
    return spatial == 1 ? std::array<int64_t, 2>{missing, v[0]} : std::array<int64_t, 2>{v[0], v[1]};
  };
  ocl::ConvArgs a;
  a.stride = pair(at.stride, 1);
  a.padding = pair(at.padding, 0);
  a.dilation = pair(at.dilation, 1);
  a.transposed = c.flag(at.transposed);
  a.groups = c.integer(at.groups);
  return a;
}

bool common(const at::Tensor& input, const at::Tensor& weight) {
  const at::ScalarType t = input.scalar_type();
  return isNpu(input) && isNpu(weight) && weight.scalar_type() == t && (input.dim() == 3 || input.dim() == 4) && weight.dim() == input.dim() &&
         (t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kDouble);
}

void describe(const OpCall& c, kde::Signature& s, size_t flags) {
  const ocl::ConvArgs a = argsOf(c, kForward, c.tensor(1).dim() - 2);
  s.scalars = {a.stride[0], a.stride[1], a.padding[0], a.padding[1], a.dilation[0], a.dilation[1],
               static_cast<int64_t>(flags | (a.transposed ? 1u : 0u)), a.groups};
  s.nscalars = 8;
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
// Channels last where the input or the weight is, as on the CPU: programs view such results as [N*H*W, C].
at::Tensor made(at::IntArrayRef sizes, const at::Tensor& input, const at::Tensor& weight) {
  const auto last = at::MemoryFormat::ChannelsLast;
  const bool is_last = input.dim() == 4 && (input.suggest_memory_format() == last || weight.suggest_memory_format() == last);
  return at::empty(sizes, input.options().memory_format(is_last ? last : at::MemoryFormat::Contiguous));
}

Result<void> forward(OpCall& c) {
  const at::Tensor &input = c.tensor(0), &weight = c.tensor(1);
  const at::Tensor bias = c.tensorOr(2);
  const int64_t spatial = input.dim() - 2;
  const ocl::ConvArgs a = argsOf(c, kForward, spatial);
  const auto extra = c.ints(kForward.output_padding, static_cast<size_t>(spatial));
  c10::SmallVector<int64_t, 4> sizes{input.size(0), a.transposed ? weight.size(1) * a.groups : weight.size(0)};
  for (int64_t d = 0; d < spatial; ++d) {
    const size_t k = static_cast<size_t>(spatial == 1 ? 1 : d);
    const int64_t in = input.size(d + 2), kernel = weight.size(d + 2);
    sizes.push_back(a.transposed ? (in - 1) * a.stride[k] - 2 * a.padding[k] + a.dilation[k] * (kernel - 1) + extra[static_cast<size_t>(d)] + 1
                                 : (in + 2 * a.padding[k] - a.dilation[k] * (kernel - 1) - 1) / a.stride[k] + 1);
  }
  at::Tensor out = made(sizes, input, weight);
  c.result(out);
  if (out.numel() == 0) return {};
  ocl::TensorRef b;
  if (bias.defined()) b = ref(bias);
  return ocl::convForward(c.queue(), ref(input), ref(weight), bias.defined() ? &b : nullptr, ref(out), a, c.variant());
}
bool forwardFits(const OpCall& c) {
  const at::Tensor bias = c.tensorOr(2);
  return common(c.tensor(0), c.tensor(1)) && (!bias.defined() || (isNpu(bias) && bias.scalar_type() == c.tensor(0).scalar_type()));
}

// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
Result<void> backward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &input = c.tensor(1), &weight = c.tensor(2);
  const ocl::ConvArgs a = argsOf(c, kBackward, input.dim() - 2);
  const auto mask = c.value(9).toBoolList();
  at::Tensor grad_input, grad_weight, grad_bias;
  if (mask[0]) {
    grad_input = made(input.sizes(), input, weight);
    if (grad_input.numel() > 0)
      if (auto ok = ocl::convBackwardInput(c.queue(), ref(grad), ref(weight), ref(grad_input), a, c.variant()); !ok) return ok;
  }
  if (mask[1]) {
    grad_weight = c.empty(weight.sizes(), weight.scalar_type());
    if (grad_weight.numel() > 0)
      if (auto ok = ocl::convBackwardWeight(c.queue(), ref(grad), ref(input), ref(grad_weight), a, c.variant()); !ok) return ok;
  }
  if (mask[2]) {
    grad_bias = c.empty({grad.size(1)}, weight.scalar_type());
    if (auto ok = ocl::convBackwardBias(c.queue(), ref(grad), ref(grad_bias), c.variant()); !ok) return ok;
  }
  c.result(grad_input);
  c.result(grad_weight);
  c.result(grad_bias);
  return {};
}
bool backwardFits(const OpCall& c) {
  return common(c.tensor(1), c.tensor(2)) && isNpu(c.tensor(0)) && c.tensor(0).scalar_type() == c.tensor(1).scalar_type();
}

const NativeOp rows[] = {
    {"aten::convolution_overrideable", "conv", forward, forwardFits, [](const OpCall& c, kde::Signature& s) { describe(c, s, 0); }},
    {"aten::convolution_backward_overrideable", "conv", backward, backwardFits,
     [](const OpCall& c, kde::Signature& s) {
       const auto mask = c.value(9).toBoolList();
       describe(c, s, (mask[0] ? 2u : 0u) | (mask[1] ? 4u : 0u) | (mask[2] ? 8u : 0u));
     }},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

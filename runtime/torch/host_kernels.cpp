// Operators that PyTorch sends to a device of our kind under a name that has no CPU kernel. On the host they run as the
// CPU's own operator of the same meaning, on faces.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/mode.h>
#include <ATen/ops/multi_margin_loss.h>
#include <torch/library.h>

#include "runtime/torch/host_attention.h"
#include "runtime/torch/host_route.h"
#include "runtime/torch/install.h"
#include "runtime/torch/ops/composed.h"

namespace flagos::glue {
namespace {

using torch::jit::Stack;

at::Tensor optionalTensor(const c10::IValue& v) { return v.isNone() ? at::Tensor() : v.toTensor(); }

void finish(Stack* stack, size_t n, std::initializer_list<at::Tensor> results) {
  stack->resize(stack->size() - n);
  for (const auto& t : results) stack->emplace_back(t);
}

void convolution(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 9);
  const at::Tensor bias = optionalTensor(a[2]);
  at::Tensor out = at::convolution(a[0].toTensor(), a[1].toTensor(), bias.defined() ? std::optional(bias) : std::nullopt,
                                   a[3].toIntVector(), a[4].toIntVector(), a[5].toIntVector(), a[6].toBool(),
                                   a[7].toIntVector(), a[8].toInt());
  finish(stack, 9, {out});
}

void convolutionBackward(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 10);
  const auto mask = a[9].toBoolList();
  const at::Tensor grad = a[0].toTensor(), weight = a[2].toTensor();
  const std::vector<int64_t> bias_sizes{grad.dim() > 1 ? grad.size(1) : 0};
  const bool want_bias = mask[2];
  auto [gi, gw, gb] = at::convolution_backward(
      grad, a[1].toTensor(), weight, want_bias ? at::OptionalIntArrayRef(bias_sizes) : at::OptionalIntArrayRef(),
      a[3].toIntVector(), a[4].toIntVector(), a[5].toIntVector(), a[6].toBool(), a[7].toIntVector(), a[8].toInt(),
      {mask[0], mask[1], want_bias});
  finish(stack, 10, {gi, gw, gb});
}

// ---- fused recurrent cells: PyTorch picks them for every device that is not the CPU ----

at::Tensor biased(const at::Tensor& gates, const at::Tensor& bias) { return bias.defined() ? gates + bias : gates; }

// n gates side by side, each as wide as `like`.
std::vector<at::Tensor> gatesOf(const at::Tensor& t, int64_t n, const at::Tensor& like, const char* cell) {
  TORCH_CHECK(t.dim() == 2 && like.dim() == 2 && t.size(0) == like.size(0) && t.size(1) == n * like.size(1), cell, ": expected gates of size [",
              like.dim() ? like.size(0) : 0, ", ", n * (like.dim() ? like.size(-1) : 0), "], got ", t.sizes());
  return t.chunk(n, 1);
}

void lstmCell(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 5);
  const at::Tensor gates = biased(a[0].toTensor(), optionalTensor(a[3])) + biased(a[1].toTensor(), optionalTensor(a[4]));
  const auto g = gatesOf(gates, 4, a[2].toTensor(), "fused LSTM cell");
  const at::Tensor i = g[0].sigmoid(), f = g[1].sigmoid(), c = g[2].tanh(), o = g[3].sigmoid();
  const at::Tensor cy = f * a[2].toTensor() + i * c;
  const at::Tensor hy = o * cy.tanh();
  finish(stack, 5, {hy, cy, at::cat({i, f, c, o}, 1)});  // the workspace holds the activated gates
}

void lstmCellBackward(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 6);
  at::Tensor grad_hy = optionalTensor(a[0]), grad_cy = optionalTensor(a[1]);
  const at::Tensor cx = a[2].toTensor(), cy = a[3].toTensor();
  const auto g = gatesOf(a[4].toTensor(), 4, cx, "fused LSTM cell backward");
  const at::Tensor i = g[0], f = g[1], c = g[2], o = g[3], t = cy.tanh();
  if (!grad_hy.defined() && !grad_cy.defined()) {
    finish(stack, 6, {at::Tensor(), at::Tensor(), at::Tensor()});
    return;
  }
  if (!grad_hy.defined()) grad_hy = at::zeros_like(cy);
  at::Tensor dc = grad_hy * o * (1 - t * t);
  if (grad_cy.defined()) dc = dc + grad_cy;
  const at::Tensor gates = at::cat({dc * c * i * (1 - i), dc * cx * f * (1 - f), dc * i * (1 - c * c),
                                    grad_hy * t * o * (1 - o)}, 1);
  const bool has_bias = a[5].toBool();
  finish(stack, 6, {gates, dc * f, has_bias ? gates.sum(0) : at::Tensor()});
}

void gruCell(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 5);
  const at::Tensor hx = a[2].toTensor();
  const auto x = gatesOf(biased(a[0].toTensor(), optionalTensor(a[3])), 3, hx, "fused GRU cell");
  const auto h = gatesOf(biased(a[1].toTensor(), optionalTensor(a[4])), 3, hx, "fused GRU cell");
  const at::Tensor r = (x[0] + h[0]).sigmoid(), z = (x[1] + h[1]).sigmoid(), n = (x[2] + r * h[2]).tanh();
  const at::Tensor hy = n + z * (hx - n);
  finish(stack, 5, {hy, at::cat({r, z, n, hx, h[2]}, 1)});
}

void gruCellBackward(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 3);
  const at::Tensor grad = a[0].toTensor();
  const auto w = gatesOf(a[1].toTensor(), 5, grad, "fused GRU cell backward");
  const at::Tensor r = w[0], z = w[1], n = w[2], hx = w[3], hn = w[4];
  const at::Tensor dn = grad * (1 - z) * (1 - n * n), dz = grad * (hx - n) * z * (1 - z), dr = dn * hn * r * (1 - r);
  const at::Tensor input = at::cat({dr, dz, dn}, 1), hidden = at::cat({dr, dz, dn * r}, 1);
  const bool has_bias = a[2].toBool();
  finish(stack, 3, {input, hidden, grad * z, has_bias ? input.sum(0) : at::Tensor(), has_bias ? hidden.sum(0) : at::Tensor()});
}

// The CPU has no fused root-mean-square norm: forward it runs as a composite, backward it has none.
// (grad_out, input, normalized_shape, rstd, weight, output_mask)
void rmsNormBackward(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 6);
  const at::Tensor rstd = a[3].toTensor(), weight = optionalTensor(a[4]), input = a[1].toTensor();
  const auto mask = a[5].toBoolList();
  const at::Tensor grad = a[0].toTensor().to(rstd.scalar_type()), normal = input.to(rstd.scalar_type()) * rstd;
  const int64_t last = a[2].toIntVector().size(), rank = input.dim();
  std::vector<int64_t> inner, outer;
  for (int64_t d = 0; d < rank; ++d) (d < rank - last ? outer : inner).push_back(d);
  at::Tensor gi, gw;
  if (mask[0]) {
    const at::Tensor g = weight.defined() ? grad * weight : grad;
    gi = ((g - normal * (g * normal).mean(inner, true)) * rstd).to(input.scalar_type());
  }
  if (mask[1] && weight.defined()) gw = (outer.empty() ? grad * normal : (grad * normal).sum(outer)).to(weight.scalar_type());
  finish(stack, 6, {gi, gw});
}

// The CPU leaves the loss of no rows unwritten: whatever the memory held.
// (self, target, p, margin, weight, reduction)
void multiMarginLoss(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 6);
  const at::Tensor weight = optionalTensor(a[4]);
  at::Tensor loss = at::multi_margin_loss(a[0].toTensor(), a[1].toTensor(), a[2].toScalar(), a[3].toScalar(),
                                          weight.defined() ? std::optional(weight) : std::nullopt, a[5].toInt());
  if (a[0].toTensor().numel() == 0) loss.zero_();
  finish(stack, 6, {loss});
}

// The CPU's mode(out=) is a composite that asks for a CPU or CUDA tensor before it reaches a kernel.
void modeOut(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 5);
  at::Tensor values = a[3].toTensor(), indices = a[4].toTensor();
  at::mode_out(values, indices, a[0].toTensor(), a[1].toInt(), a[2].toBool());
  finish(stack, 5, {values, indices});
}

// The CPU's histc takes no whole numbers; PyTorch's other accelerators do. (self, bins, min, max)
at::Tensor histogram(const c10::IValue* a) {
  const at::Tensor self = a[0].toTensor();
  if (!at::isIntegralType(self.scalar_type(), false)) return at::histc(self, a[1].toInt(), a[2].toScalar(), a[3].toScalar());
  return wholeHistogram(self, a[1].toInt(), a[2].toScalar(), a[3].toScalar());
}
void histc(const c10::OperatorHandle&, Stack* stack) { finish(stack, 4, {histogram(stack->data() + (stack->size() - 4))}); }
void histcOut(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 5);
  const at::Tensor out = a[4].toTensor(), found = histogram(a);
  TORCH_CHECK(out.scalar_type() == found.scalar_type(), "torch.histc: input tensor and out tensor should have the same dtype, got ",
              found.scalar_type(), " and ", out.scalar_type());
  at::native::resize_output(out, found.sizes());
  finish(stack, 5, {out.copy_(found)});
}

struct HostRow {
  const char* name;  // without "aten::"
  HostKernel kernel;
};
constexpr HostRow kRows[] = {
    {"convolution_overrideable", &convolution},
    {"convolution_backward_overrideable", &convolutionBackward},
    {"_thnn_fused_lstm_cell", &lstmCell},
    {"_thnn_fused_lstm_cell_backward_impl", &lstmCellBackward},
    {"_thnn_fused_gru_cell", &gruCell},
    {"_thnn_fused_gru_cell_backward", &gruCellBackward},
    {"mode.values", &modeOut},
    {"histc", &histc},
    {"histc.out", &histcOut},
    {"_fused_rms_norm_backward", &rmsNormBackward},
    {"multi_margin_loss", &multiMarginLoss},
    {"_scaled_dot_product_fused_attention_overrideable", &hostAttention},
    {"_scaled_dot_product_fused_attention_overrideable_backward", &hostAttentionBackward},
};

struct HostOnly final : c10::OperatorKernel {
  explicit HostOnly(HostKernel k) : kernel(k) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { hostRoute(op, stack, kernel); }
  HostKernel kernel;
};

}  // namespace

HostKernel hostKernelOf(std::string_view op) {
  for (const auto& row : kRows)
    if (op.substr(0, 6) == "aten::" && op.substr(6) == row.name) return row.kernel;
  return nullptr;
}

void installHostKernels() {
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const auto& row : kRows) {
    bool native = false;  // a native row brings the host kernel along
    for (const NativeOp* op : nativeOps()) native |= std::string_view(op->schema).substr(6) == row.name;
    if (!native) lib.impl(row.name, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<HostOnly>(row.kernel)));
  }
}

}  // namespace flagos::glue

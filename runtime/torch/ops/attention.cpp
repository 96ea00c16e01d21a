// Scaled-dot-product attention. PyTorch asks the stub below which way a call goes; what the fused kernels cannot do
// (dropout, a mask that wants a gradient, ranks other than 4) goes through PyTorch's own composite of products and softmax.
#include <ATen/ops/empty_like.h>
#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

#include <cmath>

#include "runtime/opencl/ops/attention.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

bool headsFit(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::ScalarType t = q.scalar_type();
  if (t != at::kFloat && t != at::kHalf && t != at::kBFloat16 && t != at::kDouble) return false;
  for (const at::Tensor& x : {q, k, v})
    if (!isNpu(x) || x.layout() != at::kStrided || x.dim() != 4 || x.scalar_type() != t || x.size(0) != q.size(0)) return false;
  return q.size(1) > 0 && k.size(1) > 0 && q.size(1) % k.size(1) == 0 && v.size(1) == k.size(1) && v.size(2) == k.size(2) &&
         q.size(3) == k.size(3) && q.size(3) > 0 && v.size(3) > 0 && q.size(0) > 0 && q.size(2) > 0 && k.size(2) > 0;
}
bool biasFits(const at::Tensor& bias, const at::Tensor& q, const at::Tensor& k) {
  if (!isNpu(bias) || bias.layout() != at::kStrided || bias.dim() < 2 || bias.dim() > 4) return false;
  const int64_t want[] = {q.size(0), q.size(1), q.size(2), k.size(2)};
  for (int64_t d = 0; d < bias.dim(); ++d) {
    const int64_t n = bias.size(d);
    if (n != 1 && n != want[4 - bias.dim() + d]) return false;
  }
  return true;
}

int64_t choose(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const std::optional<at::Tensor>& mask, double dropout,
               bool causal, std::optional<double>, bool gqa) {
  const auto math = static_cast<int64_t>(at::SDPBackend::math), fused = static_cast<int64_t>(at::SDPBackend::overrideable);
  if (!at::globalContext().userEnabledOverrideableSDP() || dropout > 0 || !headsFit(q, k, v)) return math;
  if (!gqa && q.size(1) != k.size(1)) return math;  // PyTorch's own error
  if (mask && mask->defined()) {
    if (causal || mask->requires_grad() || !biasFits(*mask, q, k)) return math;
    if (mask->scalar_type() != at::kBool && mask->scalar_type() != q.scalar_type()) return math;
  }
  for (const at::Tensor& t : {q, k, v})
    if (t._fw_grad(0).defined()) return math;  // forward-mode gradients exist for the composite only
  return fused;
}

double scaleOf(const OpCall& c, size_t i, const at::Tensor& q) {
  return c.given(i) ? c.value(i).toDouble() : 1 / std::sqrt(static_cast<double>(q.size(3)));
}

// Laid out as `t`, which is what PyTorch's shape function promises to compiled graphs; of another size, or where `t` is
// not dense in its last dimension, [batch, heads, positions, size] laid out as [batch, positions, heads, size].
at::Tensor headsLike(OpCall& c, const at::Tensor& t, int64_t size) {
  if (t.size(3) == size && t.stride(3) == 1) return at::empty_like(t);
  return c.empty({t.size(0), t.size(2), t.size(1), size}, t.scalar_type()).transpose(1, 2);
}

struct Call {
  ocl::AttentionArgs args;
  ocl::TensorRef bias;
};
void fill(Call& call, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias, const at::Tensor& out,
          const at::Tensor& lse, bool causal, double scale) {
  call.args.q = ref(q), call.args.k = ref(k), call.args.v = ref(v), call.args.out = ref(out), call.args.lse = ref(lse);
  if (bias.defined()) {
    call.bias = ref(bias, {q.size(0), q.size(1), q.size(2), k.size(2)});
    call.args.bias = &call.bias;
  }
  call.args.causal = causal;
  call.args.scale = scale;
}

// (query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, *, scale)
Result<void> forward(OpCall& c) {
  const at::Tensor &q = c.tensor(0), &k = c.tensor(1), &v = c.tensor(2);
  const at::Tensor out = headsLike(c, q, v.size(3));
  const at::Tensor lse = c.empty({q.size(0), q.size(1), q.size(2)}, q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  Call call;
  fill(call, q, k, v, c.tensorOr(3), out, lse, c.flag(5), scaleOf(c, 7, q));
  c.result(out);
  c.result(lse);
  c.result(at::Tensor());
  c.result(at::Tensor());
  c.result(c10::IValue(q.size(2)));
  c.result(c10::IValue(k.size(2)));
  // No dropout: nobody reads the generator's state, but a compiled graph keeps both for backward, so they must be there.
  for (int i = 0; i < 2; ++i) c.result(c.empty({}, at::kLong));
  c.result(at::Tensor());
  return ocl::attention(c.queue(), call.args, c.variant());
}
bool forwardFits(const OpCall& c) {
  const at::Tensor bias = c.tensorOr(3);
  return headsFit(c.tensor(0), c.tensor(1), c.tensor(2)) && c.number(4) == 0 && !c.flag(6) &&
         (!bias.defined() || (biasFits(bias, c.tensor(0), c.tensor(1)) && bias.scalar_type() == c.tensor(0).scalar_type()));
}

// (grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
//  is_causal, philox_seed, philox_offset, *, scale)
Result<void> backward(OpCall& c) {
  const at::Tensor &g = c.tensor(0), &q = c.tensor(1), &k = c.tensor(2), &v = c.tensor(3);
  const at::Tensor dq = headsLike(c, q, q.size(3)), dk = headsLike(c, k, k.size(3)), dv = headsLike(c, v, v.size(3));
  const at::Tensor lse = c.tensor(7).contiguous();
  Call call;
  fill(call, q, k, v, c.tensorOr(4), c.tensor(6), lse, c.flag(13), scaleOf(c, 16, q));
  c.result(dq);
  c.result(dk);
  c.result(dv);
  c.result(at::Tensor());
  return ocl::attentionBackward(c.queue(), call.args, {ref(g), ref(dq), ref(dk), ref(dv)}, c.variant());
}
bool backwardFits(const OpCall& c) {
  const at::Tensor bias = c.tensorOr(4), &q = c.tensor(1), &g = c.tensor(0);
  if (!headsFit(q, c.tensor(2), c.tensor(3)) || c.number(12) != 0 || !isNpu(g) || g.scalar_type() != q.scalar_type()) return false;
  if (!bias.defined()) return true;
  return !c.value(5).toBoolList()[3] && biasFits(bias, q, c.tensor(2)) && bias.scalar_type() == q.scalar_type();
}

template <size_t causal>
void describe(const OpCall& c, kde::Signature& s) {
  s.scalars[0] = c.flag(causal);
  s.nscalars = 1;
}

const NativeOp rows[] = {
    {"aten::_scaled_dot_product_fused_attention_overrideable", "attention", forward, forwardFits, describe<5>},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", "attention", backward, backwardFits, describe<13>},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &flagos::glue::choose)
}  // namespace at::native

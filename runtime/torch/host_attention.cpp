// The fused attention on the host: the CPU's own flash kernel where it takes the call, else products and softmax.
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ExpandUtils.h>

#include <cmath>

#include "runtime/torch/host_attention.h"

namespace flagos::glue {
namespace {

using torch::jit::Stack;

at::Tensor optionalTensor(const c10::IValue& v) { return v.isNone() ? at::Tensor() : v.toTensor(); }
std::optional<at::Tensor> optional(const at::Tensor& t) { return t.defined() ? std::optional(t) : std::nullopt; }

// Keys and values that several query heads share, once for each of them; and the sum of their gradients.
at::Tensor repeated(const at::Tensor& t, int64_t heads) {
  return t.size(1) == heads ? t : t.repeat_interleave(heads / t.size(1), 1);
}
at::Tensor folded(const at::Tensor& grad, int64_t heads) {
  if (grad.size(1) == heads) return grad;
  return grad.reshape({grad.size(0), heads, grad.size(1) / heads, grad.size(2), grad.size(3)}).sum(2);
}

at::Tensor wideMask(const at::Tensor& mask) { return mask.defined() && mask.dim() == 3 ? mask.unsqueeze(0) : mask; }

bool flashTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal) {
  // The CPU's kernel places a causal mask as ours only for equally many queries and keys.
  // It reads the last dimension as dense whatever its stride.
  if (q.stride(3) != 1 || k.stride(3) != 1 || v.stride(3) != 1) return false;
  return q.size(3) == v.size(3) && q.numel() && k.numel() && (!causal || q.size(2) == k.size(2));
}

// Scaled, masked scores in the type that sums are made in.
at::Tensor scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mask, bool causal, double scale) {
  const at::ScalarType sum = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor s = at::matmul(q.to(sum), k.to(sum).transpose(-2, -1)) * scale;
  if (causal) {
    const at::Tensor hidden = at::ones({q.size(2), k.size(2)}, at::kBool).tril().logical_not();
    s = s.masked_fill(hidden, -INFINITY);
  }
  return mask.defined() ? s + mask : s;
}
at::Tensor weights(const at::Tensor& s, const at::Tensor& lse) {
  const at::Tensor l = lse.unsqueeze(-1);
  return at::exp(s - l).masked_fill(l == -INFINITY, 0);
}

// PyTorch's shape function promises compiled graphs the layout of the operand.
at::Tensor laidOutAs(const at::Tensor& like, const at::Tensor& t) {
  if (like.sizes() != t.sizes()) return t;
  at::Tensor out = at::empty_like(like, like.options().dtype(t.scalar_type()));
  return out.strides() == t.strides() ? t : out.copy_(t);
}

double scaleOf(const c10::IValue& v, const at::Tensor& q) {
  return v.isNone() ? 1 / std::sqrt(static_cast<double>(q.size(3))) : v.toDouble();
}

void finish(Stack* stack, size_t n, std::initializer_list<c10::IValue> results) {
  stack->resize(stack->size() - n);
  for (const auto& r : results) stack->push_back(r);
}

}  // namespace

void hostAttention(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 8);
  const at::Tensor q = a[0].toTensor(), k = repeated(a[1].toTensor(), q.size(1)), v = repeated(a[2].toTensor(), q.size(1));
  const at::Tensor mask = wideMask(optionalTensor(a[3]));
  TORCH_CHECK(a[4].toDouble() == 0, "the fused attention of npu has no dropout: PyTorch's own composite does it");
  const bool causal = a[5].toBool();
  const double scale = scaleOf(a[7], q);
  at::Tensor out, lse;
  if (flashTakes(q, k, v, causal)) {
    std::tie(out, lse) = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, optional(mask), scale);
    lse = lse.contiguous();
  } else {
    const at::Tensor s = scores(q, k, mask, causal, scale);
    lse = at::logsumexp(s, -1);
    out = at::matmul(weights(s, lse), v.to(s.scalar_type())).to(q.scalar_type());
  }
  out = laidOutAs(q, out);
  const int64_t queries = q.size(2), keys = k.size(2);
  finish(stack, 8, {out, lse, at::Tensor(), at::Tensor(), queries, keys, at::zeros({}, at::kLong),
                    at::zeros({}, at::kLong), at::Tensor()});
}

void hostAttentionBackward(const c10::OperatorHandle&, Stack* stack) {
  const auto* a = stack->data() + (stack->size() - 17);
  const at::Tensor g = a[0].toTensor(), q = a[1].toTensor();
  const at::Tensor key = a[2].toTensor(), value = a[3].toTensor();
  const int64_t kv_heads = key.size(1);
  const at::Tensor k = repeated(a[2].toTensor(), q.size(1)), v = repeated(a[3].toTensor(), q.size(1));
  const at::Tensor given = optionalTensor(a[4]), mask = wideMask(given), out = a[6].toTensor(), lse = a[7].toTensor();
  const bool causal = a[13].toBool(), bias = given.defined() && a[5].toBoolList()[3];
  const double scale = scaleOf(a[16], q);
  at::Tensor dq, dk, dv, db;
  if (flashTakes(q, k, v, causal) && !bias) {
    std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(g, q, k, v, out, lse, 0.0, causal, optional(mask), scale);
  } else {
    const at::Tensor p = weights(scores(q, k, mask, causal, scale), lse);
    const at::ScalarType sum = p.scalar_type();
    const at::Tensor grad = g.to(sum), slope = at::matmul(grad, v.to(sum).transpose(-2, -1));
    const at::Tensor ds = p * (slope - (grad * out.to(sum)).sum(-1, true));
    dq = (at::matmul(ds, k.to(sum)) * scale).to(q.scalar_type());
    dk = (at::matmul(ds.transpose(-2, -1), q.to(sum)) * scale).to(q.scalar_type());
    dv = at::matmul(p.transpose(-2, -1), grad).to(q.scalar_type());
    if (bias) db = at::sum_to(ds, given.sizes()).to(given.scalar_type());
  }
  finish(stack, 17, {laidOutAs(q, dq), laidOutAs(key, folded(dk, kv_heads)), laidOutAs(value, folded(dv, kv_heads)), db});
}

}  // namespace flagos::glue

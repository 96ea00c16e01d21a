// Random operators made of others: they draw through uniform_, normal_ and exponential_, or through a kernel of their own,
// so their numbers do not depend on the route either.
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>

#include "runtime/opencl/ops/random_host.h"
#include "runtime/torch/generator.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

ocl::PhiloxState draw(OpCall& c, size_t generator, uint64_t blocks) {
  const auto d = drawFrom(c.generator(generator), static_cast<int>(c.device().index()), blocks);
  return {d.seed, d.offset};
}
bool realFits(const at::Tensor& t) {
  const at::ScalarType k = t.scalar_type();
  return isNpu(t) && t.layout() == at::kStrided && (k == at::kFloat || k == at::kHalf || k == at::kBFloat16 || k == at::kDouble);
}

// ---- multinomial(self, num_samples, replacement, *, generator[, out]) ----

// PyTorch's own texts; one wait for all three.
void checkWeights(const at::Tensor& weights) {
  const at::Tensor bad = at::stack({at::isfinite(weights).logical_and(weights.ge(0)).all().logical_not(), weights.sum(-1).le(0).any()}).cpu();
  TORCH_CHECK(!bad[0].item<bool>(), "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(!bad[1].item<bool>(), "invalid multinomial distribution (sum of probabilities <= 0)");
}

template <bool on_host>
Result<void> multinomial(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const int64_t n = c.integer(1);
  checkWeights(self);
  c10::SmallVector<int64_t, 2> sizes(self.sizes().begin(), self.sizes().end());
  sizes.back() = n;
  const at::Tensor out = resultLike(c, self, sizes, at::kLong);
  if (out.numel() == 0) return {};
  if (!c.flag(2) || n == 1) {
    // The first of exponential clocks whose rates are the weights rings with the probability wanted.
    at::Tensor clocks = at::empty_like(self);
    clocks.exponential_(1, c.generator(3));
    const at::Tensor race = self / clocks;
    out.copy_(n == 1 ? at::argmax(race, -1, true) : std::get<1>(race.topk(n, -1)));
    return {};
  }
  const int64_t categories = self.size(-1), rows = self.numel() / categories;
  const at::Tensor totals = at::cumsum(self.to(at::kFloat), -1).reshape({rows, categories}).contiguous();
  const ocl::PhiloxState state = draw(c, 3, (static_cast<uint64_t>(out.numel()) + 3) / 4);
  if constexpr (on_host) {
    const at::Tensor units = at::empty({rows, n}, at::kFloat), table = totals.cpu();
    ocl::unitHost(state, out.numel(), units.mutable_data_ptr<float>());
    const at::Tensor level = units * table.narrow(1, categories - 1, 1);
    out.copy_(at::searchsorted(table, level, false, true).clamp_max(categories - 1).view(sizes));
    return {};
  }
  const at::Tensor picks = c.empty({rows, n}, at::kLong);
  if (auto ok = ocl::pickByWeight(c.queue(), ref(totals), ref(picks), state, c.variant()); !ok) return ok;
  out.copy_(picks.view(sizes));
  return {};
}
// What PyTorch refuses goes to the host route, in its words.
bool multinomialFits(const OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  if (!realFits(self) || (self.dim() != 1 && self.dim() != 2) || self.size(-1) == 0) return false;
  const int64_t n = c.integer(1);
  if (n < 1 || (!c.flag(2) && n > self.size(-1))) return false;
  return c.count() < 5 || c.tensor(4).scalar_type() == at::kLong;
}

// ---- normal with tensors: (mean, std, *, generator[, out]) ----

Result<void> normal(OpCall& c) {
  const bool tensor_mean = c.value(0).isTensor(), tensor_std = c.value(1).isTensor();
  if (tensor_std) {
    const at::Tensor& std = c.tensor(1);
    TORCH_CHECK(std.numel() == 0 || std.min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
  }
  const at::Tensor like = tensor_mean ? c.tensor(0) : c.tensor(1);
  const auto sizes = tensor_mean && tensor_std ? broadcastSizes({c.tensor(0), c.tensor(1)})
                                               : c10::SmallVector<int64_t, 6>(like.sizes().begin(), like.sizes().end());
  const at::Tensor out = resultLike(c, like, sizes, like.scalar_type());
  out.normal_(0, 1, c.generator(2));
  if (tensor_std) out.mul_(c.tensor(1));
  else out.mul_(c.number(1));
  if (tensor_mean) out.add_(c.tensor(0));
  else out.add_(c.number(0));
  return {};
}
bool normalFits(const OpCall& c) {
  for (size_t i = 0; i < 2; ++i)
    if (c.value(i).isTensor() ? !realFits(c.tensor(i)) : !(i == 0 || c.number(1) >= 0)) return false;
  if (c.value(0).isTensor() && c.value(1).isTensor()) return c.tensor(0).scalar_type() == c.tensor(1).scalar_type();
  return true;
}

// ---- randperm(n, *, generator, out) ----

template <bool on_host>
Result<void> permutation(OpCall& c) {
  const int64_t n = c.integer(0);
  const at::Tensor out = c.resizeOut(0, {n});
  if (n == 0) return {};
  const ocl::PhiloxState state = draw(c, 1, ocl::philoxBlocksShuffle(n));
  if constexpr (on_host) {
    const at::Tensor order = at::empty({n}, at::kLong);
    ocl::shuffleHost(state, n, order.mutable_data_ptr<int64_t>());
    out.copy_(order);
    return {};
  }
  const bool direct = out.scalar_type() == at::kLong && out.is_contiguous();
  const at::Tensor order = direct ? out : c.empty({n}, at::kLong);
  if (auto ok = ocl::shuffle(c.queue(), ref(order), state); !ok || direct) return ok;
  out.copy_(order);
  return {};
}
bool permutationFits(const OpCall& c) {
  const at::Tensor out = c.out();
  const int64_t n = c.integer(0);
  // The largest number a dtype counts to without a gap: PyTorch's own error beyond it.
  const auto top = [&]() -> int64_t {
    switch (out.scalar_type()) {
      case at::kLong: return INT64_MAX;
      case at::kInt: return INT32_MAX;
      case at::kShort: return INT16_MAX;
      case at::kDouble: return int64_t{1} << 53;
      case at::kFloat: return int64_t{1} << 24;
      default: return -1;
    }
  }();
  return isNpu(out) && n >= 0 && n <= top;
}

// ---- rrelu_with_noise(self, noise, lower, upper, training, generator[, *, out]) ----

template <bool in_place>
Result<void> randomizedLeak(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &noise = c.tensor(1);
  const double lower = c.number(2), upper = c.number(3);
  at::Tensor value;
  if (c.flag(4)) {
    noise.resize_(self.sizes());
    noise.uniform_(lower, upper, c.generator(5));
    noise.masked_fill_(self.gt(0), 1);
    value = self * noise;
  } else {
    value = at::leaky_relu(self, (lower + upper) / 2);
  }
  if (in_place || c.count() > 6) {
    at::Tensor out = in_place ? self : c.tensor(6);
    if (!in_place) out.resize_(self.sizes());
    out.copy_(value);
    value = out;
  }
  c.result(value);
  return {};
}
bool randomizedLeakFits(const OpCall& c) {
  return realFits(c.tensor(0)) && realFits(c.tensor(1)) && c.tensor(0).scalar_type() == c.tensor(1).scalar_type() && c.number(2) <= c.number(3);
}

const NativeOp rows[] = {
    {"aten::multinomial", "random", multinomial<false>, multinomialFits, nullptr, multinomial<true>},
    {"aten::multinomial.out", "random", multinomial<false>, multinomialFits, nullptr, multinomial<true>},
    {"aten::normal.Tensor_float", "random", normal, normalFits, nullptr, normal},
    {"aten::normal.Tensor_float_out", "random", normal, normalFits, nullptr, normal},
    {"aten::normal.float_Tensor", "random", normal, normalFits, nullptr, normal},
    {"aten::normal.float_Tensor_out", "random", normal, normalFits, nullptr, normal},
    {"aten::normal.Tensor_Tensor", "random", normal, normalFits, nullptr, normal},
    {"aten::normal.Tensor_Tensor_out", "random", normal, normalFits, nullptr, normal},
    {"aten::randperm.generator_out", "random", permutation<false>, permutationFits, nullptr, permutation<true>},
    {"aten::rrelu_with_noise", "random", randomizedLeak<false>, randomizedLeakFits, nullptr, randomizedLeak<false>},
    {"aten::rrelu_with_noise.out", "random", randomizedLeak<false>, randomizedLeakFits, nullptr, randomizedLeak<false>},
    {"aten::rrelu_with_noise_", "random", randomizedLeak<true>, randomizedLeakFits, nullptr, randomizedLeak<true>},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

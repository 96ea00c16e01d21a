// Bags and segments: reductions over runs of rows, made of gathers and scatters.
#include <ATen/WrapDimUtils.h>

#include "runtime/torch/ops/composed.h"

namespace flagos::glue {
namespace {

enum Mode : int64_t { kSum, kMean, kMax };

at::TensorOptions longs(const at::Tensor& t) { return t.options().dtype(at::kLong); }

// The bag of each index, from the bags' first places.
at::Tensor bagOf(const at::Tensor& indices, const at::Tensor& offsets, int64_t bags) {
  const at::Tensor places = at::arange(indices.numel(), longs(indices));
  return at::searchsorted(offsets.narrow(0, 0, bags).to(at::kLong), places, false, /*right=*/true) - 1;
}
// 1 where an index counts, 0 for padding, as a column.
at::Tensor counts(const at::Tensor& indices, int64_t padding, const at::Tensor& like) {
  return indices.ne(padding).to(like.scalar_type()).unsqueeze(1);
}

// _embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx) -> (result, offset2bag, bag_size, max_indices)
void embeddingBag(OpCall& c) {
  const at::Tensor &weight = c.tensor(0), indices = c.tensor(1).to(at::kLong);
  const int64_t mode = c.integer(4), bags = c.tensor(2).numel() - (c.flag(7) ? 1 : 0), width = weight.size(1);
  const at::Tensor bag = bagOf(indices, c.tensor(2), bags), valid = counts(indices, c.integer(8), weight);
  at::Tensor rows = weight.index_select(0, indices);
  const at::Tensor sizes = at::zeros({bags}, weight.options()).index_add(0, bag, valid.squeeze(1));
  at::Tensor out, best = at::zeros({bags, width}, longs(weight));
  if (mode == kMax) {
    const at::Tensor low = at::full({}, -std::numeric_limits<double>::infinity(), weight.options());
    rows = at::where(valid.ne(0), rows, low);
    const at::Tensor top = at::full({bags, width}, -std::numeric_limits<double>::infinity(), weight.options()).index_reduce(0, bag, rows, "amax");
    // The first row of the bag that has the largest number.
    const at::Tensor places = at::arange(indices.numel(), longs(weight)).unsqueeze(1).expand(rows.sizes());
    const at::Tensor hit = rows.eq(top.index_select(0, bag)).logical_and(valid.ne(0));
    const at::Tensor last = at::full({}, indices.numel(), longs(weight));
    const at::Tensor first = at::full({bags, width}, indices.numel(), longs(weight)).index_reduce(0, bag, at::where(hit, places, last), "amin");
    const at::Tensor some = sizes.gt(0).unsqueeze(1);
    best = at::where(some, indices.index_select(0, first.clamp_max(indices.numel() - 1).reshape({-1})).reshape({bags, width}), best);
    out = at::where(some, top, at::zeros({}, weight.options()));
  } else {
    if (c.given(6)) rows = rows * c.tensor(6).unsqueeze(1);
    out = at::zeros({bags, width}, weight.options()).index_add(0, bag, rows * valid);
    if (mode == kMean) out = out / sizes.clamp_min(1).unsqueeze(1);
  }
  give(c, 0, out);
  give(c, 1, bag);
  give(c, 2, sizes.to(at::kLong));
  give(c, 3, best);
}
bool embeddingBagFits(const OpCall& c) {
  return composedFloatFits<0>(c) && c.tensor(1).dim() == 1 && c.tensor(1).numel() > 0 && c.tensor(2).numel() > (c.flag(7) ? 1 : 0) && !c.flag(5) &&
         (!c.given(6) || c.tensor(6).scalar_type() == c.tensor(0).scalar_type());
}

// _embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
// per_sample_weights, padding_idx)
void denseBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), indices = c.tensor(1).to(at::kLong), &bag = c.tensor(2), &sizes = c.tensor(3);
  const int64_t mode = c.integer(7), rows = c.integer(5);
  at::Tensor out = at::zeros({rows, grad.size(1)}, grad.options());
  if (mode == kMax) {
    const at::Tensor some = sizes.gt(0).to(grad.scalar_type()).unsqueeze(1);
    out.scatter_add_(0, c.tensor(4), grad * some);
  } else {
    at::Tensor g = grad.index_select(0, bag) * counts(indices, c.integer(9), grad);
    if (c.given(8)) g = g * c.tensor(8).unsqueeze(1);
    if (mode == kMean) g = g / sizes.clamp_min(1).to(grad.scalar_type()).index_select(0, bag).unsqueeze(1);
    if (c.flag(6)) {
      const at::Tensor often = at::zeros({rows}, grad.options()).index_add(0, indices, at::ones({indices.numel()}, grad.options()));
      g = g / often.index_select(0, indices).unsqueeze(1);
    }
    out.index_add_(0, indices, g);
  }
  give(c, 0, out);
}
// _embedding_bag_backward(grad, indices, offsets, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
// sparse, per_sample_weights, padding_idx)
void bagBackward(OpCall& c) {
  const at::Tensor indices = c.tensor(1).to(at::kLong);
  const at::Tensor bag = c.tensor(3).numel() == indices.numel() ? c.tensor(3) : bagOf(indices, c.tensor(2), c.tensor(0).size(0));
  const auto weights = c.given(10) ? std::optional<at::Tensor>(c.tensor(10)) : std::nullopt;
  give(c, 0, at::_embedding_bag_dense_backward(c.tensor(0), indices, bag, c.tensor(4), c.tensor(5), c.integer(6), c.flag(7), c.integer(8), weights,
                                               c.integer(11)));
}
bool bagBackwardFits(const OpCall& c) { return composedFloatFits<0>(c) && !c.flag(9); }
// _embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, offset2bag, mode, padding_idx)
void weightsBackward(OpCall& c) {
  const at::Tensor &grad = c.tensor(0), &weight = c.tensor(1), indices = c.tensor(2).to(at::kLong);
  const at::Tensor bag = c.tensor(4).numel() ? c.tensor(4) : bagOf(indices, c.tensor(3), grad.size(0));
  const at::Tensor g = (grad.index_select(0, bag) * weight.index_select(0, indices)).sum(1);
  give(c, 0, g * counts(indices, c.integer(6), grad).squeeze(1));
}

const NativeOp rows[] = {
    {"aten::_embedding_bag", "composed", composed<embeddingBag>, embeddingBagFits},
    {"aten::_embedding_bag_forward_only", "composed", composed<embeddingBag>, embeddingBagFits},
    {"aten::_embedding_bag_backward", "composed", composed<bagBackward>, bagBackwardFits},
    {"aten::_embedding_bag_dense_backward", "composed", composed<denseBackward>, composedFloatFits<0>},
    {"aten::_embedding_bag_per_sample_weights_backward", "composed", composed<weightsBackward>, composedFloatFits<0>},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

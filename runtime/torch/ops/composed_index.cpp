// Indexing made of other operators: masks, flat positions, sets, searches.
#include <ATen/WrapDimUtils.h>

#include "runtime/opencl/ops/index.h"
#include "runtime/torch/ops/composed.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

at::TensorOptions longs(const at::Tensor& like) { return like.options().dtype(at::kLong); }
at::Tensor number(const at::Tensor& like, int64_t v) { return at::full({}, v, longs(like)); }
// index_fill_(self, dim, index, value)
void indexFill(OpCall& c) {
  at::Tensor self = c.tensor(0);
  const at::Tensor index = c.tensor(2).reshape({-1});
  if (index.numel() == 0) return;
  const at::Tensor value = c.value(3).isTensor() ? c.tensor(3).to(self.options()) : at::full({}, c.scalar(3), self.options());
  if (self.dim() == 0) {
    self.copy_(value);
    return;
  }
  auto shape = self.sizes().vec();
  const int64_t dim = c10::maybe_wrap_dim(c.integer(1), self.dim());
  shape[static_cast<size_t>(dim)] = index.numel();
  self.index_copy_(dim, index, value.expand(shape));
}

// (self, index[, out])
void take(OpCall& c) {
  const at::Tensor &self = c.tensor(0), &index = c.tensor(1);
  const at::Tensor flat = self.reshape({-1});
  give(c, 0, at::index(flat, {std::optional<at::Tensor>(index.reshape({-1}))}).reshape(index.sizes()));
}
bool takeFits(const OpCall& c) { return composedFits(c) && c.tensor(0).numel() > 0 && c.tensor(1).scalar_type() == at::kLong; }

// put_(self, index, source, accumulate)
void put(OpCall& c) {
  at::Tensor self = c.tensor(0);
  const at::Tensor index = c.tensor(1).reshape({-1});
  if (index.numel() == 0) return;
  at::Tensor flat = self.is_contiguous() ? self.view({-1}) : self.reshape({-1});
  at::index_put_(flat, {std::optional<at::Tensor>(index)}, c.tensor(2).reshape({-1}), c.flag(3));
  if (!self.is_contiguous()) self.copy_(flat.view(self.sizes()));
}

// Places of the true elements of a flat mask, in order. One wait for their number.
at::Tensor places(const at::Tensor& mask) { return at::nonzero(mask.reshape({-1})).reshape({-1}); }

// (self, mask[, out])
void maskedSelect(OpCall& c) {
  const auto sizes = broadcastSizes({c.tensor(0), c.tensor(1)});
  const at::Tensor self = c.tensor(0).expand(sizes).reshape({-1});
  give(c, 0, self.index_select(0, places(c.tensor(1).expand(sizes))));
}
bool maskFits(const OpCall& c) { return composedFits(c) && isNpu(c.tensor(1)) && c.tensor(1).scalar_type() == at::kBool; }

// masked_scatter_(self, mask, source): the n-th true place takes the n-th element of source.
void maskedScatter(OpCall& c) {
  at::Tensor self = c.tensor(0);
  const at::Tensor source = c.tensor(2).reshape({-1}), at_ = places(c.tensor(1).expand_as(self));
  TORCH_CHECK(at_.numel() <= source.numel(), "masked_scatter_: expected self and source to have the same number of elements as the mask has "
              "true values: the mask has ", at_.numel(), ", source ", source.numel());
  if (at_.numel() == 0) return;
  at::Tensor flat = self.reshape({-1}).clone();
  flat.index_copy_(0, at_, source.narrow(0, 0, at_.numel()));
  self.copy_(flat.view(self.sizes()));
}
bool maskedScatterFits(const OpCall& c) { return maskFits(c) && c.tensor(2).scalar_type() == c.tensor(0).scalar_type(); }

// repeat_interleave.Tensor(repeats, *, output_size): 0 repeated repeats[0] times, 1 ...
void repeatInterleave(OpCall& c) {
  const at::Tensor repeats = c.tensor(0);
  if (repeats.numel() == 0) {
    give(c, 0, at::empty({0}, repeats.options()));
    return;
  }
  TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  const at::Tensor ends = repeats.to(at::kLong).cumsum(0);
  const int64_t total = c.given(1) ? c.integer(1) : ends[-1].item<int64_t>();
  if (total == 0) {
    give(c, 0, at::empty({0}, repeats.options()));
    return;
  }
  // Position p belongs to the first element whose end lies beyond p.
  give(c, 0, at::searchsorted(ends, at::arange(total, longs(repeats)), false, /*right=*/true).to(repeats.scalar_type()));
}
bool repeatFits(const OpCall& c) { return composedFits(c) && c.tensor(0).dim() == 1 && at::isIntegralType(c.tensor(0).scalar_type(), false); }

// (self, shifts, dims)
void roll(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const auto shifts = c.ints(1), dims = c.ints(2);
  if (self.numel() == 0) {
    give(c, 0, self.clone(at::MemoryFormat::Contiguous));
    return;
  }
  const auto along_one = [](const at::Tensor& t, int64_t shift, int64_t dim) {
    const int64_t n = t.size(dim), first = ((n - shift) % n + n) % n;
    if (first == 0) return t;
    return at::cat({t.narrow(dim, first, n - first), t.narrow(dim, 0, first)}, dim);
  };
  if (dims.empty()) {
    give(c, 0, along_one(self.reshape({-1}), shifts[0], 0).reshape(self.sizes()).clone());
    return;
  }
  at::Tensor t = self;
  for (size_t i = 0; i < dims.size(); ++i) t = along_one(t, shifts[i], c10::maybe_wrap_dim(dims[i], self.dim()));
  give(c, 0, t.is_same(self) ? t.clone() : t);
}
bool rollFits(const OpCall& c) {
  const auto shifts = c.ints(1), dims = c.ints(2);
  return composedFits(c) && (dims.empty() ? shifts.size() == 1 : shifts.size() == dims.size() && c.tensor(0).dim() > 0);
}

// (grad, input_sizes, dim, size, step): windows may overlap, so their gradients are added.
void unfoldBackward(OpCall& c) {
  const at::Tensor& grad = c.tensor(0);
  const auto sizes = c.ints(1);
  at::Tensor out = at::zeros({sizes.data(), sizes.size()}, grad.options());
  if (out.dim() == 0) {
    if (grad.numel()) out.copy_(grad.reshape({}));
    give(c, 0, out);
    return;
  }
  const int64_t dim = c10::maybe_wrap_dim(c.integer(2), out.dim()), size = c.integer(3), step = c.integer(4);
  if (grad.numel() > 0) {
    // [..., windows, ..., size] -> windows and size flat at `dim`.
    const int64_t windows = grad.size(dim);
    const at::Tensor moved = grad.movedim(-1, dim + 1);
    auto flat = out.sizes().vec();
    flat[static_cast<size_t>(dim)] = windows * size;
    const auto o = longs(grad);
    const at::Tensor index = (at::arange(windows, o).mul(step).unsqueeze(1) + at::arange(size, o).unsqueeze(0)).reshape({-1});
    out.index_add_(dim, index, moved.reshape(flat));
  }
  give(c, 0, out);
}

// trace(self), and its gradient needs index_fill_.
void trace(OpCall& c) { give(c, 0, c.tensor(0).diagonal().sum()); }
bool matrixFits(const OpCall& c) { return composedFits(c) && c.tensor(0).dim() == 2; }

// isin(elements, test_elements, *, assume_unique, invert, out), any of both a number
at::Tensor operand(const OpCall& c, size_t i, const at::Tensor& other) {
  return c.value(i).isTensor() ? c.tensor(i) : at::full({}, c.scalar(i), other.options());
}
void isin(OpCall& c) {
  const at::Tensor& device = c.value(0).isTensor() ? c.tensor(0) : c.tensor(1);
  const at::Tensor elements = operand(c, 0, device), test = operand(c, 1, device).reshape({-1});
  at::Tensor found = test.numel() == 0 ? at::zeros(elements.sizes(), elements.options().dtype(at::kBool))
                                       : elements.unsqueeze(-1).eq(test).any(-1);
  give(c, 0, c.flag(3) ? found.logical_not() : found);
}

// A fraction among whole numbers changes the dtype they are compared in.
bool isinFits(const OpCall& c) {
  for (const size_t i : {size_t{0}, size_t{1}})
    if (!c.value(i).isTensor() && c.scalar(i).isFloatingPoint() && !at::isFloatingType(c.tensor(1 - i).scalar_type())) return false;
  return composedFits(c);
}

// searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter[, out])
at::Tensor sideOf(at::Tensor sequence, at::Tensor values, bool right, bool int32) {
  // A whole row of comparisons for each value: simple, and parallel.
  if (sequence.dim() > 1) sequence = sequence.unsqueeze(-2);
  values = values.unsqueeze(-1);
  const at::Tensor before = right ? values.lt(sequence).logical_not() : sequence.lt(values);
  return before.sum(-1).to(int32 ? at::kInt : at::kLong);
}
void searchsorted(OpCall& c) {
  at::Tensor sequence = c.tensor(0);
  if (c.given(5)) sequence = sequence.gather(-1, c.tensor(5));
  const bool right = c.flag(3) || (c.given(4) && c.string(4) == "right");
  const at::Tensor values = c.value(1).isTensor() ? c.tensor(1) : at::full({}, c.scalar(1), sequence.options());
  give(c, 0, sideOf(sequence, values, right, c.flag(2)));
}
bool searchFits(const OpCall& c) {
  const at::Tensor& s = c.tensor(0);
  if (!composedFits(c) || s.dim() == 0) return false;
  if (c.given(4) && c.string(4) != "right" && (c.string(4) != "left" || c.flag(3))) return false;
  if (!c.value(1).isTensor()) return s.dim() == 1;
  const at::Tensor& v = c.tensor(1);
  return isNpu(v) && v.scalar_type() == s.scalar_type() &&
         (s.dim() == 1 || (v.dim() == s.dim() && v.sizes().slice(0, static_cast<size_t>(v.dim() - 1)) == s.sizes().slice(0, static_cast<size_t>(s.dim() - 1))));
}
// bucketize(self, boundaries, *, out_int32, right[, out])
void bucketize(OpCall& c) {
  const at::Tensor& boundaries = c.tensor(1);
  const at::Tensor values = c.value(0).isTensor() ? c.tensor(0) : at::full({}, c.scalar(0), boundaries.options());
  give(c, 0, sideOf(boundaries, values, c.flag(3), c.flag(2)));
}
bool bucketizeFits(const OpCall& c) { return composedFits(c) && c.tensor(1).dim() == 1 && isNpu(c.tensor(1)); }

// (self, bins, min, max[, out])
void histc(OpCall& c) {
  if (!c.tensor(0).is_floating_point()) return give(c, 0, wholeHistogram(c.tensor(0), c.integer(1), c.scalar(2), c.scalar(3)));
  const at::Tensor self = c.tensor(0).reshape({-1});
  const int64_t bins = c.integer(1);
  double low = c.number(2), high = c.number(3);
  if (low == high && self.numel() > 0) {
    low = self.min().item<double>();
    high = self.max().item<double>();
  }
  if (low == high) {
    low -= 1;
    high += 1;
  }
  TORCH_CHECK(std::isfinite(low) && std::isfinite(high), "torch.histc: range of [", low, ", ", high, "] is not finite");
  TORCH_CHECK(low < high, "torch.histc: max must be larger than min");
  at::Tensor out = at::zeros({bins}, self.options());
  const at::Tensor inside = self.ge(low).logical_and(self.le(high));
  const at::Tensor bin = (self - low).mul(static_cast<double>(bins) / (high - low)).floor().clamp(0, static_cast<double>(bins - 1));
  const at::Tensor index = at::where(inside, bin, at::zeros({}, bin.options())).to(at::kLong);
  give(c, 0, out.scatter_add_(0, index, inside.to(self.scalar_type())));
}
bool histcFits(const OpCall& c) {
  return composedFits(c) && c.value(0).isTensor() && c.tensor(0).scalar_type() != at::kBool && c.integer(1) > 0;
}

// (self, weights, minlength)
void bincount(OpCall& c) {
  const at::Tensor self = c.tensor(0);
  const at::Tensor weights = c.tensorOr(1);
  const auto o = weights.defined() ? weights.options() : longs(self);
  int64_t length = c.integer(2);
  if (self.numel() > 0) {
    TORCH_CHECK(self.min().item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
    length = std::max(length, self.max().item<int64_t>() + 1);
  }
  at::Tensor out = at::zeros({length}, weights.defined() && weights.scalar_type() != at::kFloat ? o.dtype(at::kDouble) : o);
  if (self.numel() > 0)
    out.scatter_add_(0, self.to(at::kLong), weights.defined() ? weights.to(out.scalar_type()) : at::ones_like(self, longs(self)));
  give(c, 0, out);
}
bool bincountFits(const OpCall& c) {
  const at::Tensor w = c.tensorOr(1);
  return composedFits(c) && c.tensor(0).dim() == 1 && at::isIntegralType(c.tensor(0).scalar_type(), false) && c.integer(2) >= 0 &&
         (!w.defined() || (w.scalar_type() == at::kFloat && w.sizes() == c.tensor(0).sizes()));
}

// ---- sets: sorted, then the first of each run ----
struct Runs { at::Tensor first, group, counts; };   // first: bool; group: number of the run of each place; counts per run
Runs runsOf(const at::Tensor& first) {
  Runs r;
  r.first = first;
  r.group = first.to(at::kLong).cumsum(0) - 1;
  const at::Tensor starts = places(first);
  const at::Tensor ends = at::cat({starts.narrow(0, 1, std::max<int64_t>(starts.numel() - 1, 0)), number(first, first.numel()).reshape({1})});
  r.counts = ends - starts;
  return r;
}
struct Set { at::Tensor values, inverse, counts; };
Set emptySet(const at::Tensor& self) {
  return {at::empty({0}, self.options()), at::empty(self.sizes(), longs(self)), at::empty({0}, longs(self))};
}
// What is wanted of a set beside its values.
struct Wanted { bool inverse, counts; };
// The runs of a flat tensor, which is waited for: values, the run's number of each element (at order[k] for the k-th, where
// there is an order), lengths.
Set consecutive(OpCall& c, const at::Tensor& given, Wanted wanted, const at::Tensor& order = {}) {
  const auto must = [](const Result<void>& r) { TORCH_CHECK(r.ok(), r.error().text()); };
  const at::Tensor flat = given.contiguous();
  const int64_t n = flat.numel();
  const at::Tensor before = at::empty({ocl::runPieces(c.queue(), n, c.variant()) + 1}, longs(flat));
  must(ocl::countRuns(c.queue(), ref(flat), ref(before), c.variant()));
  const int64_t runs = before[-1].item<int64_t>();
  Set s = {at::empty({runs}, flat.options()), at::empty({wanted.inverse ? n : 0}, longs(flat)), at::empty({0}, longs(flat))};
  const at::Tensor starts = at::empty({wanted.counts ? runs + 1 : 0}, longs(flat));
  const auto maybe = [](bool there, const at::Tensor& t) { return there ? ref(t) : ocl::TensorRef(); };
  const ocl::TensorRef start = maybe(wanted.counts, starts), number = maybe(wanted.inverse, s.inverse), place = maybe(order.defined(), order);
  must(ocl::writeRuns(c.queue(), ref(flat), ref(before), ref(s.values), wanted.counts ? &start : nullptr, wanted.inverse ? &number : nullptr,
                      wanted.inverse && order.defined() ? &place : nullptr, c.variant()));
  if (wanted.counts) s.counts = starts.narrow(0, 1, runs) - starts.narrow(0, 0, runs);
  return s;
}
Set unique(OpCall& c, Wanted wanted) {
  const at::Tensor& self = c.tensor(0);
  const at::Tensor flat = self.reshape({-1});
  if (flat.numel() == 0) return emptySet(self);
  const auto [sorted, order] = at::sort(flat, /*stable=*/true, 0, false);
  Set s = consecutive(c, sorted, wanted, order);
  if (wanted.inverse) s.inverse = s.inverse.reshape(self.sizes());
  return s;
}
void giveSet(OpCall& c, const Set& s, Wanted wanted, bool three = true) {
  const at::Tensor none = at::empty({0}, longs(s.values));
  give(c, 0, s.values);
  give(c, 1, wanted.inverse ? s.inverse : none);
  if (three) give(c, 2, wanted.counts ? s.counts : none);
}
void unique1(OpCall& c) {
  const Wanted wanted{c.flag(2), false};
  giveSet(c, unique(c, wanted), wanted, false);
}
void unique2(OpCall& c) {
  const Wanted wanted{c.flag(2), c.flag(3)};
  giveSet(c, unique(c, wanted), wanted);
}
// (self, return_inverse, return_counts, dim)
void uniqueConsecutive(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const Wanted wanted{c.flag(1), c.flag(2)};
  Set s = emptySet(self);
  if (self.numel() > 0) {
    s = consecutive(c, self.reshape({-1}), wanted);
    if (wanted.inverse) s.inverse = s.inverse.reshape(self.sizes());
  }
  giveSet(c, s, wanted);
}
bool uniqueConsecutiveFits(const OpCall& c) { return composedFits(c) && (!c.given(3) || c.tensor(0).dim() == 1); }
// (self, dim, sorted, return_inverse, return_counts): rows in lexicographic order, by stable sorts from the last column on.
void uniqueDim(OpCall& c) {
  const at::Tensor& self = c.tensor(0);
  const int64_t dim = c10::maybe_wrap_dim(c.integer(1), self.dim()), n = self.size(dim);
  const at::Tensor rows = self.movedim(dim, 0).reshape({n, -1});
  at::Tensor order = at::arange(n, longs(self));
  for (int64_t j = rows.size(1) - 1; j >= 0; --j) {
    const at::Tensor column = rows.select(1, j).index_select(0, order);
    order = order.index_select(0, std::get<1>(at::sort(column, /*stable=*/true, 0, false)));
  }
  const at::Tensor sorted = rows.index_select(0, order);
  at::Tensor first = at::ones({n}, self.options().dtype(at::kBool));
  if (n > 1) first.narrow(0, 1, n - 1).copy_(sorted.narrow(0, 1, n - 1).ne(sorted.narrow(0, 0, n - 1)).any(1));
  const Runs r = runsOf(first);
  at::Tensor inverse = at::empty_like(r.group);
  inverse.index_copy_(0, order, r.group);
  const at::Tensor picked = order.index_select(0, places(r.first));
  giveSet(c, {self.index_select(dim, picked), inverse, r.counts}, {c.flag(3), c.flag(4)});
}
bool uniqueDimFits(const OpCall& c) { return composedFits(c) && c.tensor(0).numel() > 0 && c.tensor(0).dim() > 0 && c.tensor(0).scalar_type() != at::kBool; }

// (row, col, offset, dtype, layout, device, pin): the two coordinates of a triangle, row by row.
template <bool upper>
void triangleIndices(OpCall& c) {
  const int64_t rows = c.integer(0), columns = c.integer(1), offset = c.integer(2);
  const auto o = at::TensorOptions().device(c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(c.device().index())));
  const at::Tensor ones = at::ones({rows, columns}, o.dtype(at::kBool));
  const at::Tensor kept = upper ? ones.triu(offset) : ones.tril(offset);
  give(c, 0, at::nonzero(kept).t().contiguous().to(c.dtype(3).value_or(at::kLong)));
}
bool triangleFits(const OpCall& c) {
  const auto t = c.dtype(3).value_or(at::kLong);
  return c.integer(0) >= 0 && c.integer(1) >= 0 && (t == at::kLong || t == at::kInt);
}

bool indexFillFits(const OpCall& c) {
  if (c.value(3).isTensor() && c.tensor(3).dim() != 0) return false;
  return composedFits(c) && isNpu(c.tensor(2)) && c.tensor(2).dim() <= 1 && c.tensor(2).scalar_type() == at::kLong;
}
bool putFits(const OpCall& c) {
  return composedFits(c) && c.tensor(1).scalar_type() == at::kLong && c.tensor(1).numel() == c.tensor(2).numel() &&
         c.tensor(2).scalar_type() == c.tensor(0).scalar_type() && c.tensor(0).numel() > 0;
}

#define FLAGOS_COMPOSED(schema, steps, fits) {"aten::" schema, "composed", composed<steps>, fits}
const NativeOp rows[] = {
    FLAGOS_COMPOSED("index_fill_.int_Scalar", indexFill, indexFillFits),
    FLAGOS_COMPOSED("index_fill_.int_Tensor", indexFill, indexFillFits),
    FLAGOS_COMPOSED("take", take, takeFits),
    FLAGOS_COMPOSED("take.out", take, takeFits),
    FLAGOS_COMPOSED("put_", put, putFits),
    FLAGOS_COMPOSED("masked_select", maskedSelect, maskFits),
    FLAGOS_COMPOSED("masked_select.out", maskedSelect, maskFits),
    FLAGOS_COMPOSED("masked_scatter_", maskedScatter, maskedScatterFits),
    FLAGOS_COMPOSED("repeat_interleave.Tensor", repeatInterleave, repeatFits),
    FLAGOS_COMPOSED("roll", roll, rollFits),
    FLAGOS_COMPOSED("unfold_backward", unfoldBackward, composedFits),
    FLAGOS_COMPOSED("trace", trace, matrixFits),
    FLAGOS_COMPOSED("isin.Tensor_Tensor_out", isin, isinFits),
    FLAGOS_COMPOSED("isin.Tensor_Scalar_out", isin, isinFits),
    FLAGOS_COMPOSED("isin.Scalar_Tensor_out", isin, isinFits),
    FLAGOS_COMPOSED("searchsorted.Tensor", searchsorted, searchFits),
    FLAGOS_COMPOSED("searchsorted.Tensor_out", searchsorted, searchFits),
    FLAGOS_COMPOSED("searchsorted.Scalar", searchsorted, searchFits),
    FLAGOS_COMPOSED("searchsorted.Scalar_out", searchsorted, searchFits),
    FLAGOS_COMPOSED("bucketize.Tensor", bucketize, bucketizeFits),
    FLAGOS_COMPOSED("bucketize.Tensor_out", bucketize, bucketizeFits),
    FLAGOS_COMPOSED("bucketize.Scalar", bucketize, bucketizeFits),
    FLAGOS_COMPOSED("histc", histc, histcFits),
    FLAGOS_COMPOSED("histc.out", histc, histcFits),
    FLAGOS_COMPOSED("bincount", bincount, bincountFits),
    FLAGOS_COMPOSED("_unique", unique1, composedFits),
    FLAGOS_COMPOSED("_unique2", unique2, composedFits),
    FLAGOS_COMPOSED("unique_consecutive", uniqueConsecutive, uniqueConsecutiveFits),
    FLAGOS_COMPOSED("unique_dim", uniqueDim, uniqueDimFits),
    FLAGOS_COMPOSED("tril_indices", triangleIndices<false>, triangleFits),
    FLAGOS_COMPOSED("triu_indices", triangleIndices<true>, triangleFits),
};
#undef FLAGOS_COMPOSED
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue

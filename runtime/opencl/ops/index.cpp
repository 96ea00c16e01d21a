// Launchers of gather, scatter, advanced indexing and embedding.
#include "runtime/opencl/ops/index.h"

#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/fill.h"
#include "runtime/opencl/ops/index_launch.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {

size_t u(int d) { return static_cast<size_t>(d); }

// gather with the stride of the indexed dimension given apart.
Result<void> gatherBy(Queue& queue, const TensorRef& in, int64_t stride, int64_t bound, const TensorRef& index, const TensorRef& out,
                      int skip, std::string_view name, Variant variant) {
  IndexMeta m;
  m.sizes(out);
  m.operand(0, out);
  m.operand(1, in, skip);
  m.operand(2, index);
  m.v[10] = stride;
  m.v[4] = bound;
  IndexKernel k{"gather", "gather", 1, out.dtype, true, index.dtype, {}, internName(name)};
  return launchIndex(queue, k, out.numel(), m, {out.buffer, in.buffer, index.buffer}, variant);
}

// A contiguous copy of t in scratch memory, as a vector.
Result<std::pair<Scratch, TensorRef>> packed(Queue& queue, const TensorRef& t, Variant variant) {
  auto s = Scratch::take(queue, static_cast<size_t>(t.numel()) * dtypeBytes(t.dtype));
  if (!s) return s.error();
  TensorRef p = t;
  p.buffer = s->buffer();
  p.offset = static_cast<int64_t>(s->offset() / dtypeBytes(t.dtype));
  int64_t step = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    p.strides[u(d)] = step;
    step *= t.sizes[u(d)];
  }
  if (auto ok = copy(queue, t, p, variant); !ok) return ok.error();
  return std::pair<Scratch, TensorRef>(std::move(*s), p);
}

// One index vector seen with `like`'s dimensions: it varies along dim alone.
TensorRef along(const TensorRef& vector, const TensorRef& like, int dim) {
  TensorRef t = vector;
  t.ndim = like.ndim;
  for (int d = 0; d < like.ndim; ++d) {
    t.sizes[u(d)] = like.sizes[u(d)];
    t.strides[u(d)] = d == dim ? (vector.ndim == 0 ? 0 : vector.strides[0]) : 0;
  }
  return t;
}

Result<void> scatterBy(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, const TensorRef& src, std::string_view combine,
                       uint32_t number, std::string_view name, Variant variant) {
  IndexMeta m;
  m.sizes(index);
  m.operand(0, self, dim);
  m.operand(1, index, dim);
  m.operand(2, src, dim);
  m.v[9] = self.strides[u(dim)];
  m.v[10] = index.strides[u(dim)];
  m.v[11] = src.strides[u(dim)];
  m.v[4] = self.sizes[u(dim)];
  const int64_t length = index.sizes[u(dim)];
  m.walk(dim, length);
  if (length == 0) return {};
  m.dropUnits(3);
  IndexKernel k{"scatter", "scatter", number, self.dtype, combine.empty(), index.dtype, combine, internName(name)};
  return launchIndex(queue, k, index.numel() / length, m, {self.buffer, index.buffer, src.buffer}, variant);
}

// NaN wins over every number.
constexpr std::string_view kCombine[] = {"", "#define COMBINE(a, b) ((a) + (b))\n", "#define COMBINE(a, b) ((a) * (b))\n",
                                         "#define COMBINE(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))\n",
                                         "#define COMBINE(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))\n"};
Result<void> scatterInto(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, const TensorRef& src, ScatterOp op,
                         std::string_view name, Variant variant) {
  const auto i = static_cast<size_t>(op);
  return scatterBy(queue, self, dim, index, src, kCombine[i], 20 + static_cast<uint32_t>(i), name, variant);
}

// Where the result of advanced indexing lies: the index space B and the other dimensions, in the result's own order.
struct Plan {
  IndexMeta m;
  TensorRef result;                 // sizes of the result; strides unused
  cl_mem index[4] = {};
  DType dtype = DType::int64;
  int64_t b = 1, others = 1;
  int first_b = 0, b_rank = 0;
};

// result_first_b: where B's dimensions stand in `result`. Fills everything but operand 0 and 1's offsets.
Result<Plan> planOf(const TensorRef& self, std::span<const TensorRef* const> indices) {
  Plan p;
  std::array<int64_t, kMaxDims> bsizes{};
  int count = 0, first = -1, last = -1;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d]) continue;
    if (count == 4) return fail("index: more than 4 index tensors", "let this operator run on the CPU");
    if (first < 0) first = static_cast<int>(d);
    last = static_cast<int>(d);
    ++count;
    p.b_rank = std::max(p.b_rank, indices[d]->ndim);
    p.dtype = indices[d]->dtype;
  }
  if (count == 0) return fail("index: no index tensor was given");
  for (int i = 0; i < p.b_rank; ++i) {
    bsizes[u(i)] = 1;
    for (const TensorRef* t : indices) {
      const int own = t ? i - (p.b_rank - t->ndim) : -1;
      if (own < 0 || t->sizes[u(own)] == 1) continue;
      if (bsizes[u(i)] != 1 && bsizes[u(i)] != t->sizes[u(own)]) return fail("index: the index tensors do not broadcast together");
      bsizes[u(i)] = t->sizes[u(own)];
    }
    p.b *= bsizes[u(i)];
  }
  for (const TensorRef* t : indices)
    if (t && t->dtype != p.dtype) return fail("index: index tensors of different dtypes", "let this operator run on the CPU");
  // Neighbouring indexed dimensions keep their place; otherwise B comes first.
  const bool together = last - first + 1 == count;
  p.first_b = together ? first : 0;
  IndexMeta& m = p.m;
  int at = 0;
  const auto put = [&](int64_t size, int64_t self_stride) {
    p.result.sizes[u(at)] = size;
    m.v[16 + at] = size;
    m.v[40 + at] = self_stride;
    ++at;
  };
  const auto putB = [&] {
    p.first_b = at;
    for (int i = 0; i < p.b_rank; ++i) put(bsizes[u(i)], 0);
  };
  if (!together) putB();
  for (int d = 0; d < self.ndim; ++d) {
    const bool indexed = u(d) < indices.size() && indices[u(d)];
    if (together && d == first) putB();
    if (indexed) continue;
    if (at == kMaxDims) return fail("index: more than 12 dimensions");
    put(self.sizes[u(d)], self.strides[u(d)]);
    p.others *= self.sizes[u(d)];
  }
  p.result.ndim = at;
  m.v[2] = at;
  int k = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const TensorRef* t = indices[d];
    if (!t) continue;
    p.index[k] = t->buffer;
    m.v[112 + k] = t->offset;
    m.v[116 + k] = self.strides[d];
    m.v[120 + k] = self.sizes[d];
    for (int i = 0; i < p.b_rank; ++i) {
      const int own = i - (p.b_rank - t->ndim);
      m.v[64 + 12 * k + p.first_b + i] = own < 0 || t->sizes[u(own)] == 1 ? 0 : t->strides[u(own)];
    }
    ++k;
  }
  m.v[12] = k;
  m.v[6] = self.offset;
  for (int i = 1; i < 4; ++i)
    if (!p.index[i]) p.index[i] = p.index[0];
  return p;
}

}  // namespace

Result<void> gather(Queue& queue, const TensorRef& in, int dim, const TensorRef& index, const TensorRef& out, Variant variant) {
  return gatherBy(queue, in, in.strides[u(dim)], in.sizes[u(dim)], index, out, dim, "gather", variant);
}

Result<void> indexSelect(Queue& queue, const TensorRef& in, int dim, const TensorRef& index, const TensorRef& out, Variant variant) {
  return gatherBy(queue, in, in.strides[u(dim)], in.sizes[u(dim)], along(index, out, dim), out, dim, "index_select", variant);
}

Result<void> embedding(Queue& queue, const TensorRef& weight, const TensorRef& indices, const TensorRef& out, Variant variant) {
  // indices[...] over all but the last dimension of out; weight's rows are the indexed dimension.
  TensorRef index = indices, in = weight;
  index.ndim = in.ndim = out.ndim;
  index.strides[u(out.ndim - 1)] = 0;
  for (int d = 0; d < out.ndim; ++d) in.strides[u(d)] = d == out.ndim - 1 ? weight.strides[1] : 0;
  return gatherBy(queue, in, weight.strides[0], weight.sizes[0], index, out, -1, "embedding", variant);
}

Result<void> scatter(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, const TensorRef& src, ScatterOp op, Variant variant) {
  return scatterInto(queue, self, dim, index, src, op, "scatter", variant);
}

Result<void> scatterValue(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, Scalar value, ScatterOp op, Variant variant) {
  auto s = Scratch::take(queue, 16);
  if (!s) return s.error();
  TensorRef one = index;
  one.dtype = self.dtype;
  one.buffer = s->buffer();
  one.offset = static_cast<int64_t>(s->offset() / dtypeBytes(self.dtype));
  for (int d = 0; d < one.ndim; ++d) one.strides[u(d)] = 0;
  TensorRef cell = one;
  cell.ndim = 0;
  if (auto ok = fill(queue, cell, value, variant); !ok) return ok;
  return scatterInto(queue, self, dim, index, one, op, "scatter", variant);
}

Result<void> indexScatter(Queue& queue, const TensorRef& self, int dim, const TensorRef& index, const TensorRef& src, ScatterOp op, Variant variant) {
  return scatterInto(queue, self, dim, along(index, src, dim), src, op, "index_add, index_copy or index_reduce", variant);
}

Result<void> index(Queue& queue, const TensorRef& self, std::span<const TensorRef* const> indices, const TensorRef& out, Variant variant) {
  auto p = planOf(self, indices);
  if (!p) return p.error();
  if (p->result.ndim != out.ndim) return fail("index: the result has another number of dimensions than `out`");
  p->m.operand(0, out);
  IndexKernel k{"index", "index_get", 4, self.dtype, true, p->dtype, {}, internName("index")};
  return launchIndex(queue, k, out.numel(), p->m, {out.buffer, self.buffer, p->index[0], p->index[1], p->index[2], p->index[3]}, variant);
}

Result<void> indexPut(Queue& queue, const TensorRef& self, std::span<const TensorRef* const> indices, const TensorRef& values, bool accumulate,
                      Variant variant) {
  auto p = planOf(self, indices);
  if (!p) return p.error();
  if (p->b == 0 || p->others == 0) return {};
  // Positions are decoded as (B, others): B's dimensions are moved to the front, so that one work-item walks B.
  IndexMeta& m = p->m;
  TensorRef v = values;
  const int rank = p->result.ndim;
  std::array<int64_t, kMaxDims> vs{};
  for (int d = 0; d < rank; ++d) {
    const int own = d - (rank - values.ndim);
    if (own >= 0 && values.sizes[u(own)] != 1 && values.sizes[u(own)] != p->result.sizes[u(d)])
      return fail("index_put: the values do not broadcast to the indexed shape");
    vs[u(d)] = own < 0 || values.sizes[u(own)] == 1 ? 0 : values.strides[u(own)];
  }
  for (int d = 0; d < rank; ++d) m.v[28 + d] = vs[u(d)];
  m.v[5] = v.offset;
  if (p->first_b > 0) {
    const int f = p->first_b, n = p->b_rank;
    const auto rotate = [&](int base) {
      int64_t t[kMaxDims];
      for (int d = 0; d < rank; ++d) t[d] = m.v[base + d];
      for (int i = 0; i < n; ++i) m.v[base + i] = t[f + i];
      for (int i = 0; i < f; ++i) m.v[base + n + i] = t[i];
    };
    for (const int base : {16, 28, 40, 64, 76, 88, 100}) rotate(base);
  }
  m.v[3] = p->b;
  m.v[13] = p->b_rank;
  IndexKernel k{"index", "index_put", accumulate ? 6u : 5u, self.dtype, !accumulate, p->dtype,
                accumulate ? kCombine[static_cast<size_t>(ScatterOp::add)] : std::string_view(), internName("index_put")};
  return launchIndex(queue, k, p->others, m, {values.buffer, self.buffer, p->index[0], p->index[1], p->index[2], p->index[3]}, variant);
}

Result<void> embeddingBackward(Queue& queue, const TensorRef& grad, const TensorRef& indices, const TensorRef& grad_weight, int64_t padding_idx,
                               bool scale_by_freq, Variant variant) {
  if (auto ok = fill(queue, grad_weight, Scalar(0), variant); !ok) return ok;
  if (grad.numel() == 0) return {};
  auto g = packed(queue, grad, variant);
  if (!g) return g.error();
  auto i = packed(queue, indices, variant);
  if (!i) return i.error();
  IndexMeta m;
  m.v[3] = indices.numel();
  m.v[4] = grad_weight.sizes[0];
  m.v[5] = grad_weight.offset;
  m.v[6] = g->second.offset;
  m.v[7] = i->second.offset;
  m.v[9] = grad_weight.strides[0];
  m.v[10] = grad_weight.strides[1];
  m.v[13] = padding_idx;
  m.v[14] = scale_by_freq;
  IndexKernel k{"embedding_backward", "embedding_backward", 7, grad.dtype, false, indices.dtype, {}, internName("embedding_dense_backward")};
  return launchIndex(queue, k, grad_weight.sizes[1], m, {grad_weight.buffer, g->second.buffer, i->second.buffer}, variant);
}

}  // namespace flagos::ocl

#include "runtime/opencl/ops/attention.h"

#include <algorithm>

#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

constexpr int64_t kTileRows = 8;      // MR of gemm_tile.cl
constexpr int64_t kGradBlock = 32;    // queries whose scores are held at once on the way back
constexpr int64_t kTiledHead = 128;   // the largest head that the GPU-shaped kernels hold in local memory

// Mirrors of the structs in attention.cl.
struct View {
  int64_t off, sb, sh, st, sd;
};
struct AttentionParams {
  View q, k, v, o, bias, g, dq, dk, dv;
  int64_t lse_off;
  int64_t batch, heads, kv_heads, tq, tk, d, dv_size;
  int64_t causal, has_bias, dt, block, chunks, tasks;
  int64_t scratch_off, scratch_stride;
  int64_t k_rows, v_cols, dk_sum, dv_sum, q_cols, g_cols, q_rows, g_rows, scores, grads;
  int64_t scale;  // numberBits
};

View viewOf(const TensorRef& t) { return {t.offset, stride(t, 0), stride(t, 1), stride(t, 2), stride(t, 3)}; }

Result<AttentionParams> describe(const AttentionArgs& a) {
  for (const TensorRef* t : {&a.q, &a.k, &a.v, &a.out})
    if (t->ndim != 4) return fail("opencl attention needs [batch, heads, positions, size], not " + sizesText(*t));
  if (auto ok = checkFloating("attention", {&a.q, &a.k, &a.v, &a.out}); !ok) return ok.error();
  AttentionParams p{};
  p.batch = size(a.q, 0), p.heads = size(a.q, 1), p.tq = size(a.q, 2), p.d = size(a.q, 3);
  p.kv_heads = size(a.k, 1), p.tk = size(a.k, 2), p.dv_size = size(a.v, 3);
  const bool fits = size(a.k, 0) == p.batch && size(a.v, 0) == p.batch && size(a.v, 1) == p.kv_heads && size(a.v, 2) == p.tk &&
                    size(a.k, 3) == p.d && size(a.out, 0) == p.batch && size(a.out, 1) == p.heads && size(a.out, 2) == p.tq &&
                    size(a.out, 3) == p.dv_size && (p.kv_heads ? p.heads % p.kv_heads == 0 : p.heads == 0) &&
                    a.lse.numel() == p.batch * p.heads * p.tq && a.lse.contiguous();
  if (!fits)
    return fail("opencl attention: sizes do not fit (q " + sizesText(a.q) + ", k " + sizesText(a.k) + ", v " + sizesText(a.v) +
                ", out " + sizesText(a.out) + ", lse " + sizesText(a.lse) + ")");
  p.q = viewOf(a.q), p.k = viewOf(a.k), p.v = viewOf(a.v), p.o = viewOf(a.out);
  p.lse_off = a.lse.offset;
  if (a.bias) {
    if (auto ok = checkFloating("attention", {&a.q, a.bias}); !ok) return ok.error();
    if (a.bias->ndim != 4 || size(*a.bias, 2) != p.tq || size(*a.bias, 3) != p.tk)
      return fail("opencl attention: bias " + sizesText(*a.bias) + " does not fit");
    p.bias = viewOf(*a.bias);
    p.has_bias = 1;
  }
  p.causal = a.causal, p.dt = storageCode(a.q.dtype), p.scale = numberBits(a.scale, isDouble(a.q));
  return p;
}

int64_t panelColumns(const TensorRef& t) { return isDouble(t) ? 16 : 32; }  // NR of gemm_tile.cl

Result<Scratch> takeScratch(Queue& queue, AttentionParams& p, const TensorRef& data, size_t workers) {
  const size_t real_bytes = isDouble(data) ? 8 : 4;
  p.scratch_stride = ceilDiv(p.scratch_stride, 16) * 16;
  auto scratch = Scratch::take(queue, workers * static_cast<size_t>(p.scratch_stride) * real_bytes);
  if (scratch) p.scratch_off = static_cast<int64_t>(scratch->offset() / real_bytes);
  return scratch;
}

// The next region of a worker's scratch; returns its start.
int64_t region(AttentionParams& p, int64_t reals) {
  const int64_t start = p.scratch_stride;
  p.scratch_stride += ceilDiv(reals, 16) * 16;
  return start;
}

Result<const Kernel*> tiledKernel(Queue& queue, const AttentionParams& p, bool is_double, const char* function) {
  const std::string head = std::to_string(ceilDiv(std::max(p.d, p.dv_size), 16) * 16);
  std::string text(kernelSource("gemm_tile"));
  text += kernelSource("attention");
  text += kernelSource("attention_tiled");
  return queue.device().programs().kernelFromText("attention_tiled." + head + (is_double ? ".double" : ""), text, function,
                                                  "-DHD=" + head + (is_double ? " -DREAL_DOUBLE" : ""));
}

// Bigger heads run CPU-shaped everywhere: slower on a GPU, and right.
bool runsTiled(const AttentionParams& p, bool is_double, Variant variant) {
  return variant == Variant::tiled && std::max(p.d, p.dv_size) <= (is_double ? kTiledHead / 2 : kTiledHead);
}

Range groups(int64_t blocks, int64_t heads) {
  return {2, {static_cast<size_t>(blocks * 16), static_cast<size_t>(heads * 16)}, {16, 16}};
}

}  // namespace

Result<void> attention(Queue& queue, const AttentionArgs& a, Variant variant) {
  auto described = describe(a);
  if (!described) return described.error();
  AttentionParams& p = *described;
  if (p.batch * p.heads * p.tq == 0) return {};
  const bool is_double = isDouble(a.q);
  const cl_mem bias = a.bias ? a.bias->buffer : a.q.buffer;  // not touched without a bias
  if (runsTiled(p, is_double, variant)) {
    auto kernel = tiledKernel(queue, p, is_double, "attention_tiled");
    if (!kernel) return kernel.error();
    const int64_t rows = ceilDiv(std::max(p.d, p.dv_size), 16) * 16 > 64 ? 16 : 32;
    return queue.launch(**kernel, groups(ceilDiv(p.tq, rows), p.batch * p.heads),
                        {Arg::buffer(a.q.buffer), Arg::buffer(a.k.buffer), Arg::buffer(a.v.buffer), Arg::buffer(bias),
                         Arg::buffer(a.out.buffer), Arg::buffer(a.lse.buffer), param(p)});
  }
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20)), columns = panelColumns(a.q);
  const int64_t pieces = std::clamp<int64_t>(ceilDiv(want, p.batch * p.heads), 1, ceilDiv(p.tq, 4 * kTileRows));
  p.block = ceilDiv(ceilDiv(p.tq, pieces), kTileRows) * kTileRows;
  p.chunks = ceilDiv(p.tq, p.block);
  p.tasks = p.batch * p.heads * p.chunks;
  const int64_t room = ceilDiv(p.tk, columns) * columns;
  region(p, room * p.d);
  p.k_rows = region(p, ceilDiv(p.dv_size, columns) * columns * p.tk);
  p.q_cols = region(p, kTileRows * p.d);
  p.scores = region(p, kTileRows * room);
  const size_t workers = workerCount(queue, p.tasks, p.batch * p.heads * p.tq * p.tk * (p.d + p.dv_size));
  auto scratch = takeScratch(queue, p, a.q, workers);
  if (!scratch) return scratch.error();
  auto kernel = tileKernel(queue, "attention", "attention_wide", is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(a.q.buffer), Arg::buffer(a.k.buffer), Arg::buffer(a.v.buffer), Arg::buffer(bias),
                       Arg::buffer(a.out.buffer), Arg::buffer(a.lse.buffer), Arg::buffer(scratch->buffer()), param(p)});
}

Result<void> attentionBackward(Queue& queue, const AttentionArgs& a, const AttentionGradients& g, Variant variant) {
  auto described = describe(a);
  if (!described) return described.error();
  AttentionParams& p = *described;
  const TensorRef* const pairs[][2] = {{&g.grad_out, &a.out}, {&g.grad_q, &a.q}, {&g.grad_k, &a.k}, {&g.grad_v, &a.v}};
  for (const auto& pair : pairs) {
    if (auto ok = checkFloating("attention backward", {&a.q, pair[0]}); !ok) return ok;
    bool same = pair[0]->ndim == 4;
    for (int i = 0; i < 4; ++i) same = same && size(*pair[0], i) == size(*pair[1], i);
    if (!same) return fail("opencl attention backward: " + sizesText(*pair[0]) + " does not fit " + sizesText(*pair[1]));
  }
  p.g = viewOf(g.grad_out), p.dq = viewOf(g.grad_q), p.dk = viewOf(g.grad_k), p.dv = viewOf(g.grad_v);
  if (p.batch * p.kv_heads == 0 || (p.tq == 0 && p.tk == 0)) return {};
  const bool is_double = isDouble(a.q);
  const Arg inputs[] = {Arg::buffer(a.q.buffer), Arg::buffer(a.k.buffer), Arg::buffer(a.v.buffer),
                        Arg::buffer(a.bias ? a.bias->buffer : a.q.buffer), Arg::buffer(a.out.buffer),
                        Arg::buffer(a.lse.buffer), Arg::buffer(g.grad_out.buffer)};
  if (runsTiled(p, is_double, variant)) {
    auto kernel = tiledKernel(queue, p, is_double, "attention_grad_q_tiled");
    if (!kernel) return kernel.error();
    if (p.tq)
      if (auto ok = queue.launch(**kernel, groups(ceilDiv(p.tq, 16), p.batch * p.heads),
                                 {inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6],
                                  Arg::buffer(g.grad_q.buffer), param(p)});
          !ok)
        return ok;
    kernel = tiledKernel(queue, p, is_double, "attention_grad_kv_tiled");
    if (!kernel) return kernel.error();
    return queue.launch(**kernel, groups(ceilDiv(p.tk, 16), p.batch * p.kv_heads),
                        {inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6],
                         Arg::buffer(g.grad_k.buffer), Arg::buffer(g.grad_v.buffer), param(p)});
  }
  const int64_t columns = panelColumns(a.q), room = ceilDiv(p.tk, columns) * columns;
  const int64_t d = ceilDiv(p.d, columns) * columns, dv = ceilDiv(p.dv_size, columns) * columns;
  p.block = kGradBlock;
  p.tasks = p.batch * p.kv_heads;
  region(p, room * p.d);
  p.k_rows = region(p, d * p.tk);
  p.v_cols = region(p, room * p.dv_size);
  p.dk_sum = region(p, d * room);
  p.dv_sum = region(p, dv * room);
  p.q_cols = region(p, p.block * p.d);
  p.g_cols = region(p, p.block * p.dv_size);
  p.q_rows = region(p, d * p.block);
  p.g_rows = region(p, dv * p.block);
  p.scores = region(p, p.block * room);
  p.grads = region(p, p.block * room);
  const size_t workers = workerCount(queue, p.tasks, p.batch * p.heads * p.tq * p.tk * (p.d + p.dv_size));
  auto scratch = takeScratch(queue, p, a.q, workers);
  if (!scratch) return scratch.error();
  auto kernel = tileKernel(queue, "attention", "attention_grad_wide", is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], inputs[6],
                       Arg::buffer(g.grad_q.buffer), Arg::buffer(g.grad_k.buffer), Arg::buffer(g.grad_v.buffer),
                       Arg::buffer(scratch->buffer()), param(p)});
}

}  // namespace flagos::ocl

#include "runtime/opencl/ops/gemm.h"

#include <algorithm>

#include "runtime/opencl/ops/scratch.h"
#include "runtime/opencl/ops/tile_program.h"

namespace flagos::ocl {
namespace {

constexpr int64_t kTileRows = 8;  // MR of gemm_tile.cl
// Depth from which a panel of b would push everything else out of a second-level cache of 1 MiB, and what is packed then.
constexpr int64_t kDeep = 1280, kDeepBlock = 512, kDeepGroup = 8;
constexpr int64_t kPlainA = int64_t{1} << 18;  // elements of a up to which its rows are read where they lie

// Mirrors of the structs in gemm.cl.
struct GemmParams {
  int64_t a_off, b_off, o_off, s_off;
  int64_t am, ak, ab, a_tile;
  int64_t bk, bn, bb;
  int64_t om, on, ob, sm, sn, sb;
  int64_t m, n, k, batch;
  int64_t m_block, m_blocks, n_panels, tasks;
  int64_t group, k_block;
  int64_t scratch_off, scratch_stride;
  int64_t dt, a_packed, b_direct, use_self;
  int64_t alpha, beta;  // numberBits
};
struct PackParams {
  int64_t a_off, am, ak, ab, m, k, tiles, dt, dst_off;
};
struct GemvParams {
  int64_t a_off, am, ak, ab, x_off, xk, xb, m, k, m_block, m_blocks, slices, dt, part_off;
};
struct FinishParams {
  int64_t o_off, om, on, ob, s_off, sm, sn, sb, m, n, slices, part_off, total, chunk, dt, use_self;
  int64_t alpha, beta;  // numberBits
};

// One product with everything the kernels need, made from the tensors; rank 2 is a batch of one.
struct Problem {
  GemmParams p{};
  cl_mem a, b, out, self;
  bool is_double;
  size_t real_bytes;
};

int64_t batchStride(const TensorRef& t) { return t.ndim == 3 && size(t, 0) != 1 ? stride(t, 0) : 0; }

Result<Problem> describe(const GemmArgs& g) {
  const TensorRef &a = g.a, &b = g.b, &o = g.out;
  if (auto ok = checkFloating("gemm", {&a, &b, &o}); !ok) return ok.error();
  auto bad = [&](const std::string& why) {
    return fail("opencl gemm: " + why + " (a " + sizesText(a) + ", b " + sizesText(b) + ", out " + sizesText(o) + ")");
  };
  auto rank = [](const TensorRef& t) { return t.ndim == 2 || t.ndim == 3; };
  if (!rank(a) || !rank(b) || !rank(o)) return bad("operands must have 2 or 3 dimensions");
  if (o.ndim == 2 && (a.ndim == 3 || b.ndim == 3)) return bad("a batched operand needs a batched output");
  const int64_t m = size(o, o.ndim - 2), n = size(o, o.ndim - 1), k = size(a, a.ndim - 1);
  const int64_t batch = o.ndim == 3 ? size(o, 0) : 1;
  if (size(a, a.ndim - 2) != m || size(b, b.ndim - 1) != n || size(b, b.ndim - 2) != k) return bad("sizes do not fit");
  for (const TensorRef* t : {&a, &b})
    if (t->ndim == 3 && size(*t, 0) != batch && size(*t, 0) != 1) return bad("batch sizes do not fit");
  const bool use_self = g.self && g.beta != 0;
  if (use_self) {
    if (auto ok = checkFloating("gemm", {&o, &*g.self}); !ok) return ok.error();
    if (g.self->ndim != o.ndim) return bad("self must be expanded to the output's sizes");
    for (int i = 0; i < o.ndim; ++i)
      if (size(*g.self, i) != size(o, i)) return bad("self must be expanded to the output's sizes");
  }
  const TensorRef& s = use_self ? *g.self : o;
  Problem r{};
  r.p = {.a_off = a.offset, .b_off = b.offset, .o_off = o.offset, .s_off = s.offset,
         .am = stride(a, a.ndim - 2), .ak = stride(a, a.ndim - 1), .ab = batchStride(a),
         .bk = stride(b, b.ndim - 2), .bn = stride(b, b.ndim - 1), .bb = batchStride(b),
         .om = stride(o, o.ndim - 2), .on = stride(o, o.ndim - 1), .ob = batchStride(o),
         .sm = stride(s, s.ndim - 2), .sn = stride(s, s.ndim - 1), .sb = batchStride(s),
         .m = m, .n = n, .k = k, .batch = batch,
         .dt = storageCode(o.dtype), .use_self = use_self, .alpha = numberBits(g.alpha, isDouble(o)),
         .beta = numberBits(g.beta, isDouble(o))};
  r.a = a.buffer, r.b = b.buffer, r.out = o.buffer, r.self = s.buffer;
  r.is_double = isDouble(o);
  r.real_bytes = r.is_double ? 8 : 4;
  return r;
}

// out^T = b^T a^T: used where the output's columns, not its rows, are contiguous, and for one-row products.
void transpose(Problem& r) {
  GemmParams& p = r.p;
  std::swap(r.a, r.b);
  std::swap(p.a_off, p.b_off);
  std::swap(p.am, p.bn);
  std::swap(p.ak, p.bk);
  std::swap(p.ab, p.bb);
  std::swap(p.om, p.on);
  std::swap(p.sm, p.sn);
  std::swap(p.m, p.n);
}

FinishParams finishOf(const Problem& r, int64_t part_off, int64_t slices) {
  const GemmParams& p = r.p;
  FinishParams f{p.o_off, p.om, p.on, p.ob, p.s_off, p.sm, p.sn, p.sb, p.m, p.n, slices, part_off,
                 p.batch * p.m * p.n, 0, p.dt, p.use_self, p.alpha, p.beta};
  f.chunk = std::max<int64_t>(64, ceilDiv(f.total, 64));
  return f;
}

Result<void> finish(Queue& queue, const Problem& r, const FinishParams& f, cl_mem part) {
  auto kernel = tileKernel(queue, "gemm", "gemv_finish", r.is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {static_cast<size_t>(ceilDiv(f.total, f.chunk))}, {1}},
                      {Arg::buffer(part), Arg::buffer(r.out), Arg::buffer(r.self), param(f)});
}

Result<void> matrixVector(Queue& queue, const Problem& r) {
  const GemmParams& p = r.p;
  // A work-item for every 32 K products: waking a core costs more than fewer take.
  const int64_t want = static_cast<int64_t>(workerCount(queue, std::max<int64_t>(1, p.m * p.k * p.batch >> 15)));
  GemvParams v{p.a_off, p.am, p.ak, p.ab, p.b_off, p.bk, p.bb, p.m, p.k, 0, 0, 1, p.dt, 0};
  v.m_block = std::max<int64_t>(64, ceilDiv(ceilDiv(p.m * p.batch, want), 64) * 64);
  v.m_blocks = ceilDiv(p.m, v.m_block);
  // Few rows: long sums are cut, so that every core has a slice. The cut depends on sizes only, never on the moment.
  const int64_t blocks = p.batch * v.m_blocks;
  if (blocks < want)
    v.slices = std::clamp<int64_t>(std::min(want / blocks, p.k * std::min<int64_t>(p.m, 64) / 16384), 1, 64);
  Scratch scratch;
  if (v.slices > 1) {
    auto taken = Scratch::take(queue, static_cast<size_t>(p.batch * v.slices * p.m) * r.real_bytes);
    if (!taken) return taken.error();
    scratch = std::move(*taken);
    v.part_off = static_cast<int64_t>(scratch.offset() / r.real_bytes);
  }
  const cl_mem part = v.slices > 1 ? scratch.buffer() : r.out;  // not touched with one slice
  const FinishParams f = finishOf(r, v.part_off, v.slices);
  auto kernel = tileKernel(queue, "gemm", "gemv_wide", r.is_double);
  if (!kernel) return kernel.error();
  auto ok = queue.launch(**kernel, {1, {static_cast<size_t>(blocks * v.slices)}, {1}},
                         {Arg::buffer(r.a), Arg::buffer(r.b), Arg::buffer(part), Arg::buffer(r.out), Arg::buffer(r.self),
                          param(v), param(f)});
  if (!ok || v.slices == 1) return ok;
  return finish(queue, r, f, part);
}

Result<void> wide(Queue& queue, Problem r) {
  GemmParams& p = r.p;
  if (p.m == 1 && p.n != 1) transpose(r);
  if (p.n == 1) return matrixVector(queue, r);
  // A few rows times a transposed matrix (one token through a linear layer): packing the matrix would cost more than
  // reading it once a row, so the rows become a batch of vectors.
  if (p.batch == 1 && p.m <= 4 && p.dt == 0 && p.bk == 1 && p.bn != 1 && p.ak == 1) {
    transpose(r);
    p.batch = p.n;
    p.n = 1;
    p.ab = 0;
    p.bb = p.bn, p.ob = p.on, p.sb = p.sn;
    return matrixVector(queue, r);
  }
  if (p.on != 1 && p.om == 1) transpose(r);
  const int64_t columns = r.is_double ? 16 : 32;
  p.n_panels = ceilDiv(p.n, columns);
  const int64_t tiles = ceilDiv(p.m, kTileRows);
  const int64_t want = static_cast<int64_t>(workerCount(queue, 1 << 20));
  const bool deep = p.dt == 0 && p.k >= kDeep && p.m * p.k > kPlainA && p.m >= 64;
  p.group = deep ? std::min(kDeepGroup, p.n_panels) : 1;
  p.k_block = deep ? kDeepBlock : p.k;
  const int64_t groups = ceilDiv(p.n_panels, p.group);
  p.m_blocks = std::clamp<int64_t>(ceilDiv(want, p.batch * groups), 1, tiles);
  p.m_block = ceilDiv(tiles, p.m_blocks) * kTileRows;
  p.m_blocks = ceilDiv(p.m, p.m_block);
  p.tasks = p.batch * groups * p.m_blocks;
  p.b_direct = p.dt == 0 && p.bn == 1 && p.m_block <= 32;
  p.a_packed = deep || p.dt != 0 || (p.am != 1 && p.m * p.k > kPlainA);
  const size_t workers = workerCount(queue, p.tasks, p.m * p.n * p.k * p.batch);
  p.scratch_stride = (p.group * p.k_block * columns + 15) / 16 * 16;
  const int64_t panels = static_cast<int64_t>(workers) * p.scratch_stride;
  const int64_t a_batches = p.ab == 0 ? 1 : p.batch;
  const int64_t packed = p.a_packed ? a_batches * tiles * kTileRows * p.k : 0;
  auto scratch = Scratch::take(queue, static_cast<size_t>(panels + packed) * r.real_bytes);
  if (!scratch) return scratch.error();
  p.scratch_off = static_cast<int64_t>(scratch->offset() / r.real_bytes);
  p.a_tile = kTileRows * p.am;
  if (p.a_packed) {
    const PackParams pack{p.a_off, p.am, p.ak, p.ab, p.m, p.k, tiles, p.dt, p.scratch_off + panels};
    auto kernel = tileKernel(queue, "gemm", "gemm_pack_rows", r.is_double);
    if (!kernel) return kernel.error();
    auto ok = queue.launch(**kernel, {1, {static_cast<size_t>(a_batches * tiles)}, {1}},
                           {Arg::buffer(r.a), Arg::buffer(scratch->buffer()), param(pack)});
    if (!ok) return ok;
    r.a = scratch->buffer();
    p.a_off = pack.dst_off;
    p.a_tile = kTileRows * p.k;
    p.ab = p.ab == 0 ? 0 : tiles * p.a_tile;
    p.ak = kTileRows;
    p.am = 1;
  }
  auto kernel = deep ? tileKernel(queue, "gemm", "gemm_blocked", r.is_double)
                     : tileKernel(queue, "gemm", "gemm_wide", r.is_double);
  if (!kernel) return kernel.error();
  return queue.launch(**kernel, {1, {workers}, {1}},
                      {Arg::buffer(r.a), Arg::buffer(r.b), Arg::buffer(r.out), Arg::buffer(r.self),
                       Arg::buffer(scratch->buffer()), param(p)});
}

Result<void> tiled(Queue& queue, const Problem& r) {
  auto kernel = tileKernel(queue, "gemm", "gemm_tiled", r.is_double);
  if (!kernel) return kernel.error();
  auto up = [](int64_t n) { return static_cast<size_t>(ceilDiv(n, 64) * 16); };
  return queue.launch(**kernel, {3, {up(r.p.n), up(r.p.m), static_cast<size_t>(r.p.batch)}, {16, 16, 1}},
                      {Arg::buffer(r.a), Arg::buffer(r.b), Arg::buffer(r.out), Arg::buffer(r.self), param(r.p)});
}

}  // namespace

Result<void> checkGemm(const GemmArgs& args) {
  auto problem = describe(args);
  return problem ? Result<void>() : Result<void>(problem.error());
}

Result<void> gemm(Queue& queue, const GemmArgs& args, Variant variant) {
  auto problem = describe(args);
  if (!problem) return problem.error();
  const GemmParams& p = problem->p;
  if (p.m == 0 || p.n == 0 || p.batch == 0) return {};
  if (p.k == 0) return finish(queue, *problem, finishOf(*problem, 0, 0), problem->out);
  return variant == Variant::wide ? wide(queue, *problem) : tiled(queue, *problem);
}

TensorRef asColumn(const TensorRef& v) noexcept {
  TensorRef r = v;
  r.ndim = 2;
  r.sizes[1] = 1;
  r.strides[1] = 1;
  return r;
}

TensorRef asRow(const TensorRef& v) noexcept {
  TensorRef r = v;
  r.ndim = 2;
  r.sizes[1] = v.sizes[0];
  r.strides[1] = v.strides[0];
  r.sizes[0] = 1;
  r.strides[0] = 1;
  return r;
}

TensorRef transposed(const TensorRef& m) noexcept {
  TensorRef r = m;
  const auto i = static_cast<size_t>(m.ndim - 2);
  std::swap(r.sizes[i], r.sizes[i + 1]);
  std::swap(r.strides[i], r.strides[i + 1]);
  return r;
}

}  // namespace flagos::ocl

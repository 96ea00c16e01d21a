// Sorting, selecting, runs (declared in index.h): how a row is cut, and in which order kernels/sort.cl's functions run.
#include <algorithm>

#include "runtime/opencl/ops/index.h"
#include "runtime/opencl/ops/index_launch.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {

size_t u(int d) { return static_cast<size_t>(d); }
constexpr uint64_t kFamily = uint64_t{0x73} << 56;   // 's', see cachedKernel

// What the kernels must know of a dtype: how its bits are ordered. Empty: they do not take it.
std::string_view orderOf(DType t) {
  switch (t) {
    case DType::float32: return "#define BITS 32\n#define INFINITE 0x7f800000u\n";
    case DType::float64: return "#define BITS 64\n#define INFINITE 0x7ff0000000000000UL\n";
    case DType::float16: return "#define BITS 16\n#define INFINITE 0x7c00u\n";
    case DType::bfloat16: return "#define BITS 16\n#define INFINITE 0x7f80u\n";
    case DType::int8: return "#define BITS 8\n#define SIGNED\n";
    case DType::int16: return "#define BITS 16\n#define SIGNED\n";
    case DType::int32: return "#define BITS 32\n#define SIGNED\n";
    case DType::int64: return "#define BITS 64\n#define SIGNED\n";
    case DType::bool_: case DType::uint8: return "#define BITS 8\n";
    case DType::uint16: return "#define BITS 16\n";
    case DType::uint32: return "#define BITS 32\n";
    case DType::uint64: return "#define BITS 64\n";
    default: return {};
  }
}

enum Function : uint32_t { sort_rows, radix_count, radix_scan, radix_scatter, radix_finish, radix_mode, select_rows, select_count,
                           select_pick, select_find, runs_count, runs_scan, runs_write };
constexpr std::string_view kFunctions[] = {"sort_rows", "radix_count", "radix_scan", "radix_scatter", "radix_finish", "radix_mode", "select_rows",
                                           "select_count", "select_pick", "select_find", "runs_count", "runs_scan", "runs_write"};

Result<void> launch(Queue& queue, Function f, DType dtype, int64_t items, int64_t per, IndexMeta& m, std::initializer_list<cl_mem> buffers,
                    Variant variant) {
  const std::string_view order = orderOf(dtype);
  if (order.empty())
    return fail("sort: no OpenCL kernel for dtype " + std::string(dtypeName(dtype)), "let this operator run on the CPU");
  auto kernel = cachedKernel(queue, kFamily | uint64_t{f} << 8 | static_cast<uint64_t>(dtype), kFunctions[f], [&] {
    const Kind kinds[] = {rawKind(dtypeBytes(dtype))};
    KernelText t;
    t.text = kernelHead(Compute::i64, false, false, kinds);
    t.text += "#define T S\n#define KD " + std::string(kindName(kinds[0])) + "\n";
    t.text += order;
    t.text += kernelSource("types");
    t.text += kernelSource("index");
    t.text += kernelSource("sort");
    t.key = "sort." + std::string(dtypeName(dtype));
    return t;
  });
  if (!kernel) return kernel.error();
  m.v[0] = items;
  m.v[1] = per;
  const size_t wanted = static_cast<size_t>((items + per - 1) / per), group = variant == Variant::wide ? 1 : 32;
  Range range;
  range.local[0] = group;
  range.global[0] = (wanted + group - 1) / group * group;
  Arg args[8];
  size_t count = 0;
  for (cl_mem b : buffers) args[count++] = Arg::buffer(b);
  args[count++] = Arg::pointer(&m, sizeof m);
  return queue.launch(**kernel, range, args, count);
}

// Launch data of what orders the rows of `in` along dim: 0 = values, 1 = in, 2 = indices.
IndexMeta orderMeta(const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, int64_t length, bool descending) {
  IndexMeta m;
  m.rows(values, in, indices, dim, length);
  m.v[13] = values.ndim == 0 ? 1 : values.sizes[u(dim)];   // how many of the ordered row are kept
  m.v[14] = descending;
  return m;
}

// Into how many pieces each of `rows` rows is cut: enough work-items for the device, none with less than is worth a launch.
int64_t piecesOf(Queue& queue, int64_t rows, int64_t length, Variant variant) {
  const int64_t units = std::max<int64_t>(queue.device().description().compute_units, 1);
  const int64_t items = variant == Variant::wide ? 4 * units : 16384, least = variant == Variant::wide ? 8192 : 1024;
  return std::clamp<int64_t>(std::min(items / rows, length / least), 1, 256);
}
// How many rows one work-item takes where each is done by one.
int64_t rowsPer(Queue& queue, int64_t rows, int64_t length, Variant variant) {
  if (variant != Variant::wide) return 1;
  const int64_t units = std::max<int64_t>(queue.device().description().compute_units, 1);
  return std::max((rows + 8 * units - 1) / (8 * units), std::min(rows, 4096 / length));
}

// The parts of a scratch block of the kernels that cut rows, in the kernels' own units.
struct Spare {
  Scratch block;
  static Result<Spare> take(Queue& queue, IndexMeta& m, size_t entry, int64_t entries, int64_t rows, int64_t pieces) {
    const auto bytes = [](int64_t n, size_t of) { return (static_cast<size_t>(n) * of + 127) / 128 * 128; };
    const size_t list = bytes(entries, entry), counts = bytes(rows * pieces * 256, 4), totals = bytes(rows * 256, 4);
    const size_t flags = bytes(rows * std::max<int64_t>(pieces, 8), 4);
    auto s = Scratch::take(queue, list + counts + totals + flags + bytes(rows * 2, 8));
    if (!s) return s.error();
    size_t at = s->offset();
    m.v[8] = static_cast<int64_t>(at / entry);
    m.v[112] = static_cast<int64_t>((at += list) / 4);
    m.v[113] = static_cast<int64_t>((at += counts) / 4);
    m.v[114] = static_cast<int64_t>((at += totals) / 4);
    m.v[115] = static_cast<int64_t>((at += flags) / 8);
    m.v[12] = pieces;
    return Spare{std::move(*s)};
  }
};

// Sorts rows; `mode`: of each sorted row only the most frequent value is kept.
Result<void> order(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, bool descending, bool mode,
                   Variant variant) {
  if (in.numel() == 0) return {};
  const int64_t length = in.ndim == 0 ? 1 : in.sizes[u(dim)], rows = in.numel() / length;
  if (length > UINT32_MAX) return fail("sort: a row of more than 4294967295 elements", "let this operator run on the CPU");
  const DType t = in.dtype;
  const size_t entry = dtypeBytes(t) == 8 ? 16 : 8;
  const int64_t pieces = piecesOf(queue, rows, length, variant);
  IndexMeta m = orderMeta(in, values, indices, dim, length, descending);
  m.v[117] = mode;
  if (pieces == 1) {
    const int64_t per = rowsPer(queue, rows, length, variant);
    auto s = Spare::take(queue, m, entry, (rows + per - 1) / per * 2 * length, 0, 1);
    if (!s) return s.error();
    return launch(queue, sort_rows, t, rows, per, m, {values.buffer, in.buffer, indices.buffer, s->block.buffer()}, variant);
  }
  auto s = Spare::take(queue, m, entry, 2 * in.numel(), rows, pieces);
  if (!s) return s.error();
  const cl_mem spare = s->block.buffer();
  for (size_t pass = 0; pass < dtypeBytes(t); ++pass) {
    m.v[15] = static_cast<int64_t>(pass);
    if (auto ok = launch(queue, radix_count, t, rows * pieces, 1, m, {in.buffer, spare}, variant); !ok) return ok;
    if (auto ok = launch(queue, radix_scan, t, rows * 256, variant == Variant::wide ? 64 : 1, m, {spare}, variant); !ok) return ok;
    if (auto ok = launch(queue, radix_scatter, t, rows * pieces, 1, m, {spare}, variant); !ok) return ok;
  }
  if (mode) return launch(queue, radix_mode, t, rows, 1, m, {values.buffer, in.buffer, indices.buffer, spare}, variant);
  return launch(queue, radix_finish, t, rows * pieces, 1, m, {values.buffer, in.buffer, indices.buffer, spare}, variant);
}

}  // namespace

Result<void> sort(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, bool descending, Variant variant) {
  return order(queue, in, values, indices, dim, descending, false, variant);
}

Result<void> mode(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, Variant variant) {
  return order(queue, in, values, indices, dim, false, true, variant);
}

Result<void> select(Queue& queue, Selected what, int64_t k, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim,
                    Variant variant) {
  if (in.numel() == 0) return {};
  const int64_t length = in.ndim == 0 ? 1 : in.sizes[u(dim)], rows = in.numel() / length;
  if (length > UINT32_MAX) return fail("select: a row of more than 4294967295 elements", "let this operator run on the CPU");
  const DType t = in.dtype;
  IndexMeta m = orderMeta(in, values, indices, dim, length, false);
  m.v[116] = k;
  m.v[117] = static_cast<int64_t>(what);
  const int64_t pieces = piecesOf(queue, rows, length, variant);
  m.v[12] = pieces;
  if (pieces == 1)
    return launch(queue, select_rows, t, rows, rowsPer(queue, rows, length, variant), m, {values.buffer, in.buffer, indices.buffer}, variant);
  auto s = Spare::take(queue, m, 8, 0, rows, pieces);
  if (!s) return s.error();
  const cl_mem spare = s->block.buffer();
  for (auto pass = static_cast<int64_t>(dtypeBytes(t)) - 1; pass >= 0; --pass) {
    m.v[15] = pass;
    if (auto ok = launch(queue, select_count, t, rows * pieces, 1, m, {in.buffer, spare}, variant); !ok) return ok;
    if (auto ok = launch(queue, radix_scan, t, rows * 256, variant == Variant::wide ? 64 : 1, m, {spare}, variant); !ok) return ok;
    if (auto ok = launch(queue, select_pick, t, rows, 1, m, {spare}, variant); !ok) return ok;
  }
  return launch(queue, select_find, t, rows * pieces, 1, m, {values.buffer, in.buffer, indices.buffer, spare}, variant);
}

int64_t runPieces(Queue& queue, int64_t n, Variant variant) { return piecesOf(queue, 1, n, variant); }

Result<void> countRuns(Queue& queue, const TensorRef& in, const TensorRef& before, Variant variant) {
  IndexMeta m;
  m.v[3] = in.numel();
  m.v[5] = before.offset;
  m.v[6] = in.offset;
  m.v[12] = before.numel() - 1;
  if (auto ok = launch(queue, runs_count, in.dtype, m.v[12], 1, m, {in.buffer, before.buffer}, variant); !ok) return ok;
  return launch(queue, runs_scan, in.dtype, 1, 1, m, {before.buffer}, variant);
}

Result<void> writeRuns(Queue& queue, const TensorRef& in, const TensorRef& before, const TensorRef& values, const TensorRef* starts,
                       const TensorRef* numbers, const TensorRef* order, Variant variant) {
  IndexMeta m;
  m.v[3] = in.numel();
  m.v[5] = before.offset;
  m.v[6] = in.offset;
  m.v[7] = values.offset;
  m.v[12] = before.numel() - 1;
  const TensorRef* const parts[] = {starts, numbers, order};
  cl_mem buffers[3];
  for (size_t i = 0; i < 3; ++i) {
    buffers[i] = parts[i] ? parts[i]->buffer : before.buffer;
    m.v[112 + i] = parts[i] ? parts[i]->offset : 0;
    m.v[116] |= parts[i] ? int64_t{1} << i : 0;
  }
  return launch(queue, runs_write, in.dtype, m.v[12], 1, m, {in.buffer, before.buffer, values.buffer, buffers[0], buffers[1], buffers[2]}, variant);
}

Result<void> topk(Queue& queue, const TensorRef& in, const TensorRef& values, const TensorRef& indices, int dim, bool largest, Variant variant) {
  if (in.numel() == 0) return {};
  const int64_t length = in.ndim == 0 ? 1 : in.sizes[u(dim)], rows = in.numel() / length;
  const int64_t k = values.ndim == 0 ? 1 : values.sizes[u(dim)];
  if (k == 0) return {};
  if (k * 4 > length) return sort(queue, in, values, indices, dim, largest, variant);   // a heap of nearly all is slower
  // Few long rows are cut into pieces, each of which reads much more than it keeps.
  const int64_t pieces = std::clamp<int64_t>(std::min(64 / rows, length / std::max<int64_t>(4096, 16 * k)), 1, 64);
  auto s = Scratch::take(queue, static_cast<size_t>(rows * pieces * k) * sizeof(int64_t));
  if (!s) return s.error();
  IndexMeta m = orderMeta(in, values, indices, dim, length, largest);
  m.v[8] = static_cast<int64_t>(s->offset() / sizeof(int64_t));
  m.v[12] = pieces;
  if (auto ok = launchIndex(queue, {"topk", "topk_pieces", 69, in.dtype, false}, rows * pieces, m, {in.buffer, s->buffer()}, variant); !ok) return ok;
  return launchIndex(queue, {"topk", "topk_rows", 70, in.dtype, false}, rows, m, {values.buffer, in.buffer, indices.buffer, s->buffer()}, variant);
}

}  // namespace flagos::ocl

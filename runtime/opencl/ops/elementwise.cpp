#include "runtime/opencl/ops/elementwise.h"

#include <algorithm>
#include <cstring>

#include "runtime/opencl/device.h"

namespace flagos::ocl {
namespace {

constexpr std::string_view kKindNames[] = {"f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64",
                                           "u8", "u16", "u32", "u64", "b8", "none"};
constexpr std::string_view kComputeNames[] = {"float", "double", "int", "long", "ushort", "uint", "ulong", "none"};

// Launch data of elementwise.cl, in its order.
using FlatMeta = std::array<int64_t, 10>;
using RowsMeta = std::array<int64_t, 71>;

enum class Form : uint8_t { flat, rows, tiles };
constexpr std::string_view kForms[] = {"flat", "rows", "tiles"};
constexpr std::string_view kFormDefines[] = {"#define FLAT\n#define META_LONGS 10\n",
                                             "#define ROWS\n#define META_LONGS 71\n",
                                             "#define TILES\n#define META_LONGS 71\n"};

// A transposing walk: `out` runs along the last dimension and the only input along another one, both long enough for
// tiles of 16 x 16. That dimension is moved next to the last one.
bool makeTiles(Layout& l) noexcept {
  if (l.operands != 2 || l.ndim < 2) return false;
  const auto last = static_cast<size_t>(l.ndim - 1);
  if (l.strides[0][last] != 1 || l.strides[1][last] == 1 || l.strides[1][last] == 0 || l.sizes[last] < 16) return false;
  for (size_t d = 0; d < last; ++d) {
    if (l.strides[1][d] != 1 || l.sizes[d] < 16) continue;
    for (size_t e = d; e + 1 < last; ++e) {
      std::swap(l.sizes[e], l.sizes[e + 1]);
      for (size_t k = 0; k < 2; ++k) std::swap(l.strides[k][e], l.strides[k][e + 1]);
    }
    return true;
  }
  return false;
}

// meta: FlatMeta's or RowsMeta's longs. Places of the operands are filled in.
Result<void> launchWith(Queue& queue, const Kernel& kernel, const Range& range, std::span<const FlatOperand> operands,
                        const uint8_t* bytes, bool direct, std::span<int64_t> meta) {
  std::array<Arg, 5> args;
  size_t count = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const FlatOperand& o = operands[i];
    meta[6 + i] = direct ? reinterpret_cast<int64_t>(o.base + o.offset * bytes[i]) : o.offset;
    if (!direct) args[count++] = Arg::buffer(o.buffer);
  }
  args[count++] = Arg::pointer(meta.data(), meta.size_bytes());
  return queue.launch(kernel, range, args.data(), count);
}

FlatRecord*& recording() noexcept {
  thread_local FlatRecord* record = nullptr;
  return record;
}

// Flat: everything walks with stride 1, or stays on one element.
bool isFlat(const Layout& l, uint32_t& broadcast) noexcept {
  broadcast = 0;
  if (l.ndim != 1) return false;
  if (l.sizes[0] == 1) return true;
  if (l.strides[0][0] != 1) return false;
  for (int k = 1; k < l.operands; ++k) {
    const int64_t s = l.strides[static_cast<size_t>(k)][0];
    if (s == 0) broadcast |= 1u << (k - 1);
    else if (s != 1) return false;
  }
  return true;
}

}  // namespace

Kind kindOf(DType t) noexcept {
  switch (t) {
    case DType::float32: return Kind::f32;
    case DType::float64: return Kind::f64;
    case DType::float16: return Kind::f16;
    case DType::bfloat16: return Kind::bf16;
    case DType::int8: return Kind::i8;
    case DType::int16: return Kind::i16;
    case DType::int32: return Kind::i32;
    case DType::int64: return Kind::i64;
    case DType::uint8: return Kind::u8;
    case DType::uint16: return Kind::u16;
    case DType::uint32: return Kind::u32;
    case DType::uint64: return Kind::u64;
    case DType::bool_: return Kind::b8;
    default: return Kind::none;
  }
}

std::string_view kindName(Kind k) noexcept { return kKindNames[static_cast<size_t>(k)]; }

Kind rawKind(size_t bytes) noexcept {
  switch (bytes) {
    case 1: return Kind::u8;
    case 2: return Kind::u16;
    case 4: return Kind::u32;
    case 8: return Kind::u64;
    default: return Kind::none;
  }
}

Compute computeOf(DType t) noexcept {
  switch (t) {
    case DType::float32: case DType::float16: case DType::bfloat16: return Compute::f32;
    case DType::float64: return Compute::f64;
    case DType::int8: case DType::int16: case DType::int32: case DType::uint8: case DType::uint16: case DType::bool_:
      return Compute::i32;
    case DType::int64: case DType::uint32: case DType::uint64: return Compute::i64;
    default: return Compute::none;
  }
}

std::string_view computeName(Compute c) noexcept { return kComputeNames[static_cast<size_t>(c)]; }

std::string kernelHead(Compute compute, bool index32, bool wide, std::span<const Kind> kinds) {
  std::string s;
  bool f64 = compute == Compute::f64;
  for (Kind k : kinds) f64 = f64 || k == Kind::f64;
  if (f64) s += "#define NEED_F64\n";
  s += index32 ? "#define IDX int\n" : "#define IDX long\n";
  if (wide) s += "#define WIDE\n";
  s += "#define S ";
  s += computeName(compute);
  s += '\n';
  switch (compute) {
    case Compute::f32:
      s += "#define K(x) ((T)(x##f))\n#define FLOATING\n#define FLOAT32\n#define SCALAR(i) "
           "((T)(as_float((int)m.v[i])))\n";
      break;
    case Compute::f64:
      s += "#define K(x) ((T)(x))\n#define FLOATING\n#define SCALAR(i) ((T)(as_double(m.v[i])))\n";
      break;
    default:
      s += "#define K(x) ((T)(x))\n#define SCALAR(i) ((T)((S)m.v[i]))\n";
  }
  return s;
}

namespace {
struct Slot { ProgramCache* cache; uint64_t key; const Kernel* kernel; };
Slot& slotOf(uint64_t key) noexcept {
  static thread_local std::array<Slot, 512> slots{};
  return slots[((key ^ (key >> 29)) * 0x9e3779b97f4a7c15ull) >> 55];
}
}  // namespace

const Kernel* findKernel(Queue& queue, uint64_t key) noexcept {
  const Slot& slot = slotOf(key);
  return slot.key == key && slot.cache == &queue.device().programs() ? slot.kernel : nullptr;
}

Result<const Kernel*> makeKernel(Queue& queue, uint64_t key, std::string_view function, const KernelText& text) {
  ProgramCache& cache = queue.device().programs();
  Result<const Kernel*> k = cache.kernelFromText(text.key, text.text, function, text.options);
  if (k) slotOf(key) = {&cache, key, *k};
  return k;
}

int64_t wideChunk(Queue& queue, int64_t n, int64_t least) noexcept {
  const uint32_t units = queue.device().description().compute_units;
  const int64_t items = std::clamp<int64_t>(int64_t{units ? units : 8} * 4, 4, 4096);
  const int64_t chunk = std::max(least, (n + items - 1) / items);
  return (chunk + 15) / 16 * 16;
}

FlatRecord::FlatRecord() noexcept : outer_(recording()) { recording() = this; }
FlatRecord::~FlatRecord() { recording() = outer_; }

Result<void> relaunch(Queue& queue, const FlatLaunch& launch, std::span<const FlatOperand> operands) {
  FlatMeta meta = launch.meta;
  return launchWith(queue, *launch.kernel, launch.range, operands, launch.bytes.data(), launch.direct, meta);
}

Result<void> elementwise(Queue& queue, const Elementwise& e, std::span<const TensorRef> in, const TensorRef& out,
                         Variant variant) {
  std::array<TensorRef, 4> refs;
  refs[0] = out;
  for (size_t i = 0; i < in.size(); ++i) refs[i + 1] = in[i];
  const size_t operands = in.size() + 1;
  Result<Layout> made = makeLayout({refs.data(), operands}, !e.indexed, e.name.data());
  if (!made) return made.error();
  Layout& l = *made;
  const int64_t n = l.numel();
  if (n == 0) return {};

  std::array<Kind, 4> kinds{};
  std::array<FlatOperand, 4> places{};
  std::array<uint8_t, 4> bytes{};
  bool direct = queue.device().directAddresses();
  uint64_t kind_bits = 0;
  for (size_t i = 0; i < operands; ++i) {
    kinds[i] = e.raw ? rawKind(dtypeBytes(refs[i].dtype)) : kindOf(refs[i].dtype);
    if (kinds[i] == Kind::none)
      return fail(std::string(e.name) + ": no OpenCL kernel for dtype " + std::string(dtypeName(refs[i].dtype)));
    kind_bits |= uint64_t(kinds[i]) << (4 * i);
    places[i] = {refs[i].buffer, refs[i].base, refs[i].offset};
    bytes[i] = static_cast<uint8_t>(dtypeBytes(refs[i].dtype));
    direct &= refs[i].base != nullptr;
  }
  const bool index32 = fits32(l), wide = variant == Variant::wide;
  uint32_t broadcast = 0;
  Form form = isFlat(l, broadcast) ? Form::flat : Form::rows;
  if (form == Form::rows && wide && !e.indexed && makeTiles(l)) form = Form::tiles;
  const uint64_t key = (uint64_t{1} << 56) | (uint64_t{e.op} << 40) | (uint64_t(e.compute) << 36) |
                       (uint64_t{direct} << 39) | (uint64_t{in.size()} << 32) | (uint64_t{broadcast} << 28) | (uint64_t{index32} << 27) |
                       (uint64_t{wide} << 26) | (uint64_t(form) << 24) | kind_bits;
  Result<const Kernel*> kernel = cachedKernel(queue, key, kForms[static_cast<size_t>(form)], [&] {
    KernelText t;
    std::string& s = t.text;
    s = kernelHead(e.compute, index32, wide, {kinds.data(), operands});
    s += "#define NIN " + std::to_string(in.size()) + "\n#define KO " + std::string(kindName(kinds[0])) + "\n";
    for (size_t i = 0; i < in.size(); ++i) {
      const std::string number = std::to_string(i);
      s += "#define K" + number + " " + std::string(kindName(kinds[i + 1])) + "\n#define BCAST" + number +
           ((broadcast >> i) & 1 ? " 1\n" : " 0\n");
    }
    s += kFormDefines[static_cast<size_t>(form)];
    if (e.indexed) s += "#define INDEXED\n";
    if (direct) s += "#define ADDRESSES\n";
    s += e.extra;
    s += "#define EXPR ";
    s += e.expr;
    s += "\n";
    s += kernelSource("types");
    if (!e.raw) s += kernelSource("expressions");
    if (!e.source.empty()) s += kernelSource(e.source);
    s += kernelSource("elementwise");
    t.key = "elementwise." + std::string(e.name) + "." + std::to_string(key);
    return t;
  });
  if (!kernel) return kernel.error();

  Range range;
  int64_t chunk = 1;
  if (form == Form::tiles) {
    const auto last = static_cast<size_t>(l.ndim - 1);
    const int64_t tiles =
        n / (l.sizes[last] * l.sizes[last - 1]) * ((l.sizes[last] + 15) / 16) * ((l.sizes[last - 1] + 15) / 16);
    chunk = (wideChunk(queue, tiles * 256, 8192) + 255) / 256;
    range.global[0] = static_cast<size_t>((tiles + chunk - 1) / chunk);
    range.local[0] = 1;
  } else if (wide) {
    chunk = wideChunk(queue, n, e.heavy ? 1024 : 8192);
    range.global[0] = static_cast<size_t>((n + chunk - 1) / chunk);
    range.local[0] = 1;
  } else {
    range.global[0] = (static_cast<size_t>(n) + kTiledGroup - 1) / kTiledGroup * kTiledGroup;
    range.local[0] = kTiledGroup;
  }
  const auto head = [&](int64_t* v) {
    for (size_t i = 0; i < 4; ++i) v[i] = static_cast<int64_t>(e.scalars[i]);
    v[4] = n;
    v[5] = chunk;
  };
  const std::span<const FlatOperand> given(places.data(), operands);
  FlatRecord* record = recording();
  if (record) ++record->launch.launches;
  if (form == Form::flat) {
    FlatMeta meta{};
    head(meta.data());
    if (record) {
      record->launch = {*kernel, range, meta, bytes, static_cast<uint8_t>(operands), direct, record->launch.launches};
      record->operands = places;
    }
    return launchWith(queue, **kernel, range, given, bytes.data(), direct, meta);
  }
  RowsMeta meta{};
  head(meta.data());
  meta[10] = l.ndim;
  for (size_t d = 0; d < static_cast<size_t>(l.ndim); ++d) {
    meta[11 + d] = l.sizes[d];
    for (size_t k = 0; k < operands; ++k) meta[23 + 12 * k + d] = l.strides[k][d];
  }
  return launchWith(queue, **kernel, range, given, bytes.data(), direct, meta);
}

}  // namespace flagos::ocl

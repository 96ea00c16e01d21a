#include "runtime/opencl/ops/random.h"

#include <cmath>
#include <cstring>
#include <string>

#include "runtime/base/names.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/elementwise.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {

constexpr uint64_t kFamily = uint64_t{0x72} << 56;   // 'r', see cachedKernel

constexpr std::string_view kNames[] = {"uniform", "normal", "bernoulli", "exponential", "log_normal", "geometric", "cauchy"};

struct Meta { int64_t v[12] = {}; };

// Results that are not dense are drawn into a dense buffer first: numbers belong to positions, not to addresses.
struct Target {
  TensorRef ref;
  Scratch scratch;
  bool copied = false;
};
Result<Target> denseTarget(Queue& queue, const TensorRef& out) {
  Target t;
  t.ref = out;
  if (out.contiguous()) return t;
  auto s = Scratch::take(queue, static_cast<size_t>(out.numel()) * dtypeBytes(out.dtype));
  if (!s) return s.error();
  t.scratch = std::move(*s);
  t.ref.buffer = t.scratch.buffer();
  t.ref.offset = static_cast<int64_t>(t.scratch.offset() / dtypeBytes(out.dtype));
  int64_t step = 1;
  for (int d = out.ndim - 1; d >= 0; --d) {
    t.ref.strides[static_cast<size_t>(d)] = step;
    step *= out.sizes[static_cast<size_t>(d)];
  }
  t.copied = true;
  return t;
}

bool needs64(DType t) noexcept { return t == DType::float64; }

// Bits of a number as the kernel's compute type.
int64_t bits(double v, bool f64) noexcept {
  int64_t b = 0;
  if (f64) std::memcpy(&b, &v, 8);
  else {
    const float f = static_cast<float>(v);
    std::memcpy(&b, &f, 4);
  }
  return b;
}

struct Plan {
  std::string_view draw;        // DRAW_<name>
  std::string_view function;
  uint32_t op;                  // unique number, for the kernel's key
  bool wide_draws;              // 64 bits an element
  Compute compute;
  Kind out, in = Kind::none;
};

// Sixteen blocks at once: what a CPU's vectors are for. Not where elements are doubles or walk a table.
bool lanesOf(const Plan& p, Variant variant) noexcept {
  return variant == Variant::wide && !p.wide_draws && p.compute != Compute::f64 && p.in != Kind::f64 && p.draw != "pick";
}

Result<const Kernel*> kernelOf(Queue& queue, const Plan& p, Variant variant) {
  const bool lanes = lanesOf(p, variant);
  const uint64_t key = kFamily | uint64_t{p.op} << 24 | uint64_t{lanes} << 21 | uint64_t{p.wide_draws} << 20 | static_cast<uint64_t>(p.compute) << 16 |
                       static_cast<uint64_t>(p.out) << 8 | static_cast<uint64_t>(p.in);
  return cachedKernel(queue, key, p.function, [&] {
    const Kind kinds[] = {p.out, p.in == Kind::none ? p.out : p.in};
    KernelText t;
    t.text = kernelHead(p.compute, false, lanes, kinds);
    t.text += std::string("#define T ") + (lanes ? "CAT2(S, 16)" : "S") + "\n#define KO " + std::string(kindName(p.out)) + "\n#define DRAW_" + std::string(p.draw) + "\n";
    if (p.wide_draws) t.text += "#define DRAW64\n";
    if (p.in != Kind::none) t.text += "#define K0 " + std::string(kindName(p.in)) + "\n";
    t.text += kernelSource("types");
    t.text += kernelSource("fault");
    t.text += kernelSource("random");
    t.key = "random." + std::string(p.draw) + "." + std::to_string(key);
    return t;
  });
}

// Blocks a work-item does in a row: enough to be worth it on a CPU, one on a GPU.
Result<void> run(Queue& queue, const Kernel& kernel, int64_t n, bool wide_draws, Variant variant, Meta& m, std::initializer_list<cl_mem> buffers) {
  const int64_t per_block = wide_draws ? 2 : 4;
  const int64_t blocks = (n + per_block - 1) / per_block;
  const bool wide = variant == Variant::wide;
  const int64_t per = wide ? (wideChunk(queue, n, 4096) / per_block + 15) / 16 * 16 : 1;   // whole groups of sixteen
  m.v[4] = n;
  m.v[5] = per;
  Range range;
  const auto items = static_cast<size_t>((blocks + per - 1) / per);
  range.local[0] = wide ? 1 : kTiledGroup;
  range.global[0] = wide ? items : (items + kTiledGroup - 1) / kTiledGroup * kTiledGroup;
  Arg args[4];
  size_t count = 0;
  for (cl_mem b : buffers) args[count++] = Arg::buffer(b);
  args[count++] = Arg::pointer(&m, sizeof m);
  return queue.launch(kernel, range, args, count);
}

Result<void> finish(Queue& queue, const Target& t, const TensorRef& out, Variant variant) {
  return t.copied ? copy(queue, t.ref, out, variant) : Result<void>();
}

Error unsupported(std::string_view op, DType t) {
  return fail(std::string(op) + ": no OpenCL kernel for dtype " + std::string(dtypeName(t)), "let this operator run on the CPU");
}

}  // namespace

uint64_t philoxBlocks(RandomOp, const TensorRef& out) noexcept {
  const auto n = static_cast<uint64_t>(out.numel());
  return needs64(out.dtype) ? (n + 1) / 2 : (n + 3) / 4;
}

uint64_t philoxBlocksInt(const TensorRef& out, int64_t low, int64_t high) noexcept {
  const auto n = static_cast<uint64_t>(out.numel());
  return static_cast<uint64_t>(high) - static_cast<uint64_t>(low) > (uint64_t{1} << 32) ? (n + 1) / 2 : (n + 3) / 4;
}

double inverseOf(RandomOp op, double p0) noexcept { return op == RandomOp::geometric ? 1 / std::log1p(-p0) : 1 / p0; }

Result<void> random(Queue& queue, RandomOp op, const TensorRef& out, double p0, double p1, PhiloxState state, Variant variant) {
  const std::string_view name = kNames[static_cast<size_t>(op)];
  const bool f64 = needs64(out.dtype);
  const Kind kind = kindOf(out.dtype);
  if (kind == Kind::none || (f64 && !queue.device().description().fp64)) return unsupported(name, out.dtype);
  if (out.numel() == 0) return {};
  auto target = denseTarget(queue, out);
  if (!target) return target.error();
  const Plan p{name, "draw", static_cast<uint32_t>(op), f64, f64 ? Compute::f64 : Compute::f32, kind};
  auto kernel = kernelOf(queue, p, variant);
  if (!kernel) return kernel.error();
  Meta m;
  if (op == RandomOp::exponential || op == RandomOp::geometric) p1 = inverseOf(op, p0);
  m.v[2] = bits(p0, f64);
  m.v[3] = bits(p1, f64);
  m.v[6] = target->ref.offset;
  m.v[7] = static_cast<int64_t>(state.seed);
  m.v[8] = static_cast<int64_t>(state.offset);
  if (auto ok = run(queue, **kernel, out.numel(), f64, variant, m, {target->ref.buffer}); !ok) return ok;
  return finish(queue, *target, out, variant);
}

Result<void> randomInt(Queue& queue, const TensorRef& out, int64_t low, int64_t high, PhiloxState state, Variant variant) {
  const Kind kind = kindOf(out.dtype);
  if (kind == Kind::none || (out.dtype == DType::float64 && !queue.device().description().fp64)) return unsupported("random_", out.dtype);
  if (high <= low) return fail("random_: the range [" + std::to_string(low) + ", " + std::to_string(high) + ") is empty");
  if (out.numel() == 0) return {};
  auto target = denseTarget(queue, out);
  if (!target) return target.error();
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const bool wide_draws = width > (uint64_t{1} << 32);
  const Plan p{"whole", "draw", 64, wide_draws, Compute::i64, kind};
  auto kernel = kernelOf(queue, p, variant);
  if (!kernel) return kernel.error();
  Meta m;
  m.v[0] = low;
  m.v[1] = static_cast<int64_t>(width);
  m.v[6] = target->ref.offset;
  m.v[7] = static_cast<int64_t>(state.seed);
  m.v[8] = static_cast<int64_t>(state.offset);
  if (auto ok = run(queue, **kernel, out.numel(), wide_draws, variant, m, {target->ref.buffer}); !ok) return ok;
  return finish(queue, *target, out, variant);
}

Result<void> bernoulliTensor(Queue& queue, const TensorRef& probability, const TensorRef& out, PhiloxState state, Variant variant) {
  const Kind kind = kindOf(out.dtype), in = kindOf(probability.dtype);
  const bool f64 = out.dtype == DType::float64 || in == Kind::f64;
  if (kind == Kind::none || (in != Kind::f32 && in != Kind::f16 && in != Kind::bf16 && in != Kind::f64) ||
      (f64 && !queue.device().description().fp64))
    return unsupported("bernoulli", in == Kind::f64 ? probability.dtype : out.dtype);
  if (out.numel() == 0) return {};
  auto target = denseTarget(queue, out);
  if (!target) return target.error();
  // The probabilities in the result's own order.
  auto s = Scratch::take(queue, static_cast<size_t>(out.numel()) * dtypeBytes(probability.dtype));
  if (!s) return s.error();
  TensorRef q = target->ref;
  q.dtype = probability.dtype;
  q.buffer = s->buffer();
  q.offset = static_cast<int64_t>(s->offset() / dtypeBytes(probability.dtype));
  if (auto ok = copy(queue, probability, q, variant); !ok) return ok;
  const Plan p{"tensor", "drawTensor", 65, false, Compute::f32, kind, in};
  auto kernel = kernelOf(queue, p, variant);
  if (!kernel) return kernel.error();
  auto fault = queue.faultRecord();
  if (!fault) return fault.error();
  static const NameId bad = internName("Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli was given a probability outside [0, 1]");
  Meta m;
  m.v[6] = target->ref.offset;
  m.v[7] = static_cast<int64_t>(state.seed);
  m.v[8] = static_cast<int64_t>(state.offset);
  m.v[9] = q.offset;
  m.v[11] = bad;
  if (auto ok = run(queue, **kernel, out.numel(), false, variant, m, {target->ref.buffer, q.buffer, *fault}); !ok) return ok;
  return finish(queue, *target, out, variant);
}

Result<void> dropout(Queue& queue, const TensorRef& in, const TensorRef& out, const TensorRef& mask, double p, PhiloxState state, Variant variant) {
  const Kind kind = kindOf(out.dtype);
  if (in.dtype != out.dtype || mask.dtype != DType::bool_ || (kind != Kind::f32 && kind != Kind::f16 && kind != Kind::bf16 && kind != Kind::f64) ||
      (kind == Kind::f64 && !queue.device().description().fp64))
    return unsupported("native_dropout", in.dtype);
  const bool f64 = kind == Kind::f64;
  if (out.numel() == 0) return {};
  auto target = denseTarget(queue, out);
  auto kept = denseTarget(queue, mask);
  if (!target) return target.error();
  if (!kept) return kept.error();
  TensorRef source = in;
  Scratch packed;
  if (!in.contiguous()) {
    auto s = Scratch::take(queue, static_cast<size_t>(in.numel()) * dtypeBytes(in.dtype));
    if (!s) return s.error();
    packed = std::move(*s);
    source = target->ref;
    source.buffer = packed.buffer();
    source.offset = static_cast<int64_t>(packed.offset() / dtypeBytes(in.dtype));
    if (auto ok = copy(queue, in, source, variant); !ok) return ok;
  }
  const Plan plan{"dropout", "dropout", 66, false, f64 ? Compute::f64 : Compute::f32, kind};
  auto kernel = kernelOf(queue, plan, variant);
  if (!kernel) return kernel.error();
  Meta m;
  m.v[2] = bits(1 - p, f64);
  m.v[3] = bits(p < 1 ? 1 / (1 - p) : 0, f64);
  m.v[6] = target->ref.offset;
  m.v[7] = static_cast<int64_t>(state.seed);
  m.v[8] = static_cast<int64_t>(state.offset);
  m.v[9] = source.offset;
  m.v[10] = kept->ref.offset;
  if (auto ok = run(queue, **kernel, out.numel(), false, variant, m, {target->ref.buffer, source.buffer, kept->ref.buffer}); !ok) return ok;
  if (auto ok = finish(queue, *kept, mask, variant); !ok) return ok;
  return finish(queue, *target, out, variant);
}

Result<void> pickByWeight(Queue& queue, const TensorRef& totals, const TensorRef& out, PhiloxState state, Variant variant) {
  if (totals.dtype != DType::float32 || out.dtype != DType::int64 || totals.ndim != 2 || out.ndim != 2 || !totals.contiguous() ||
      !out.contiguous() || totals.sizes[0] != out.sizes[0])
    return fail("multinomial needs contiguous float32 totals [rows, categories] and int64 picks [rows, n]");
  if (out.numel() == 0) return {};
  const Plan plan{"pick", "pick", 67, false, Compute::f32, Kind::i64};
  auto kernel = kernelOf(queue, plan, variant);
  if (!kernel) return kernel.error();
  Meta m;
  m.v[6] = out.offset;
  m.v[7] = static_cast<int64_t>(state.seed);
  m.v[8] = static_cast<int64_t>(state.offset);
  m.v[9] = totals.offset;
  m.v[10] = totals.sizes[1];
  m.v[11] = out.sizes[1];
  return run(queue, **kernel, out.numel(), false, variant, m, {out.buffer, totals.buffer});
}

uint64_t philoxBlocksShuffle(int64_t n) noexcept { return (static_cast<uint64_t>(n) + 1) / 2; }

Result<void> shuffle(Queue& queue, const TensorRef& out, PhiloxState state) {
  if (out.dtype != DType::int64 || !out.contiguous()) return fail("randperm needs a contiguous int64 result");
  if (out.numel() == 0) return {};
  const Plan plan{"shuffle", "permutation", 68, true, Compute::i64, Kind::i64};
  auto kernel = kernelOf(queue, plan, Variant::tiled);
  if (!kernel) return kernel.error();
  Meta m;
  m.v[4] = out.numel();
  m.v[6] = out.offset;
  m.v[7] = static_cast<int64_t>(state.seed);
  m.v[8] = static_cast<int64_t>(state.offset);
  return queue.launch(**kernel, {1, {1}, {1}}, {Arg::buffer(out.buffer), Arg::pointer(&m, sizeof m)});
}

void philox4x32(uint64_t seed, uint64_t block, uint32_t draws[4]) noexcept {
  uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int i = 0; i < 10; ++i) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
                              static_cast<uint32_t>(p0)};
    std::memcpy(c, next, sizeof c);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  std::memcpy(draws, c, sizeof c);
}

}  // namespace flagos::ocl

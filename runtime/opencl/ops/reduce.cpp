#include "runtime/opencl/ops/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/copy.h"
#include "runtime/opencl/ops/fill.h"
#include "runtime/opencl/ops/reduce_plan.h"
#include "runtime/opencl/ops/scratch.h"

namespace flagos::ocl {
namespace {

// Which type numbers are added up in.
enum class Domain : uint8_t { arithmetic, compare, truth, count };

// Expressions: $X the loaded type, $A the accumulator's, $C(...) conversion to it; x, mid, acc, v, count are values.
struct Row {
  std::string_view name, pre, step, init, finish;
  Domain domain;
  bool paired = false;
};
constexpr Row kSum{"sum", "x", "(acc) + (v)", "0", "acc", Domain::arithmetic};
constexpr Row kMean{"mean", "x", "(acc) + (v)", "0", "(acc) / count", Domain::arithmetic};
constexpr Row kVar{"var", "(x - ($A)(mid)) * (x - ($A)(mid))", "(acc) + (v)", "0", "(acc) / count", Domain::arithmetic,
                   true};
constexpr Row kStd{
    "std", "(x - ($A)(mid)) * (x - ($A)(mid))", "(acc) + (v)", "0", "sqrt((acc) / count)", Domain::arithmetic, true};
constexpr Row kSumExp{"logsumexp",
                      "exp(x - ((fabs(($A)(mid)) == ($A)(INFINITY)) ? ($A)(0) : ($A)(mid)))",
                      "(acc) + (v)",
                      "0",
                      "(log(acc) + (fabs(mid) == INFINITY ? 0 : mid))",
                      Domain::arithmetic,
                      true};
constexpr Row kAmax{"amax", "x", "MAXN(acc, v)", "LOWEST", "acc", Domain::compare};
constexpr Row kAmin{"amin", "x", "MINN(acc, v)", "HIGHEST", "acc", Domain::compare};

const Row& rowOf(ReduceOp op) noexcept {
  static constexpr Row prod{"prod", "x", "(acc) * (v)", "1", "acc", Domain::arithmetic};
  static constexpr Row any{"any", "$C((x != ($X)(0)) & 1)", "(acc) | (v)", "0", "acc", Domain::truth};
  static constexpr Row all{"all", "$C((x != ($X)(0)) & 1)", "(acc) & (v)", "1", "acc", Domain::truth};
  static constexpr Row norm1{"norm1", "fabs(x)", "(acc) + (v)", "0", "acc", Domain::arithmetic};
  static constexpr Row norm2{"norm2", "x * x", "(acc) + (v)", "0", "sqrt(acc)", Domain::arithmetic};
  static constexpr Row normInf{"norm_inf", "fabs(x)", "MAXN(acc, v)", "0", "acc", Domain::arithmetic};
  static constexpr Row squares{"sum_squares", "x * x", "(acc) + (v)", "0", "acc", Domain::arithmetic};
  static constexpr Row nonzero{"count_nonzero", "$C((x != ($X)(0)) & 1)", "(acc) + (v)", "0", "acc", Domain::count};
  static constexpr Row nansum{"nansum", "((x != x) ? ($X)(0) : x)", "(acc) + (v)", "0", "acc", Domain::arithmetic};
  switch (op) {
    case ReduceOp::mean: return kMean;
    case ReduceOp::prod: return prod;
    case ReduceOp::amax: case ReduceOp::argmax: return kAmax;
    case ReduceOp::amin: case ReduceOp::argmin: return kAmin;
    case ReduceOp::any: return any;
    case ReduceOp::all: return all;
    case ReduceOp::norm1: return norm1;
    case ReduceOp::norm2: return norm2;
    case ReduceOp::norm_inf: return normInf;
    case ReduceOp::sum_squares: return squares;
    case ReduceOp::count_nonzero: return nonzero;
    case ReduceOp::nansum: return nansum;
    case ReduceOp::logsumexp: return kSumExp;
    default: return kSum;
  }
}

bool isArg(ReduceOp op) noexcept { return op == ReduceOp::argmax || op == ReduceOp::argmin; }
bool floatsOnly(ReduceOp op) noexcept {
  return op == ReduceOp::mean || op == ReduceOp::norm1 || op == ReduceOp::norm2 || op == ReduceOp::norm_inf ||
         op == ReduceOp::logsumexp;
}
bool isFloat(Compute c) noexcept { return c == Compute::f32 || c == Compute::f64; }

// Types of one pass: X loaded, A accumulated.
struct Types { Compute x, a; };
Types typesOf(const Row& row, DType in, DType out) noexcept {
  switch (row.domain) {
    case Domain::compare: return {computeOf(in), computeOf(in)};
    case Domain::truth: return {computeOf(in), Compute::i32};
    case Domain::count: return {computeOf(in), Compute::i64};
    default: {
      const Compute c = computeOf(out);
      const Compute a = c == Compute::i32 ? Compute::i64 : c;
      return {a, a};
    }
  }
}

DType storageOf(Compute a) noexcept {
  switch (a) {
    case Compute::f64: return DType::float64;
    case Compute::i32: return DType::int32;
    case Compute::i64: return DType::int64;
    default: return DType::float32;
  }
}

enum class Shape : uint8_t { rows, columns, group, thread };
constexpr std::string_view kFunctions[] = {"rows", "columns", "group", "thread"};
constexpr std::string_view kDefines[] = {"#define ROWS\n", "#define COLUMNS\n", "#define GROUP 128\n",
                                         "#define THREAD\n"};

// first: partial results of the operator; second: its partial results merged and finished; whole: both.
enum class Stage : uint8_t { whole, first, second };

std::string typeText(Compute x, Compute a, Kind in, Kind out, bool index32) {
  const std::string xn(computeName(x)), an(computeName(a));
  const Kind kinds[] = {in, out};
  std::string s = kernelHead(a, index32, false, kinds);
  if (x == Compute::f64) s = "#define NEED_F64\n" + s;
  s += "#define T S\n#define X " + xn + "\n#define XV " + xn + "16\n#define A " + an + "\n#define AV " + an +
       "16\n#define CONVX1(x) convert_" + xn + "(x)\n#define CONVXV(x) convert_" + xn +
       "16(x)\n#define CONVA1(x) convert_" + an + "(x)\n#define CONVAV(x) convert_" + an + "16(x)\n#define KI " +
       std::string(kindName(in)) + "\n#define KO " + std::string(kindName(out)) + "\n";
  switch (a) {
    case Compute::f32:
      s += "#define LOWEST (-INFINITY)\n#define HIGHEST INFINITY\n#define FINISH_NUMBER as_float((int)m.v[68])\n";
      break;
    case Compute::f64:
      s += "#define LOWEST (-INFINITY)\n#define HIGHEST INFINITY\n#define FINISH_NUMBER as_double(m.v[68])\n";
      break;
    case Compute::i64: s += "#define LOWEST LONG_MIN\n#define HIGHEST LONG_MAX\n#define FINISH_NUMBER m.v[68]\n"; break;
    default: s += "#define LOWEST INT_MIN\n#define HIGHEST INT_MAX\n#define FINISH_NUMBER (int)m.v[68]\n";
  }
  return s;
}

uint64_t numberBits(double v, Compute a) noexcept {
  if (a == Compute::f64) return std::bit_cast<uint64_t>(v);
  if (a == Compute::f32) return std::bit_cast<uint32_t>(static_cast<float>(v));
  return static_cast<uint64_t>(static_cast<int64_t>(v));
}

uint64_t nameHash(std::string_view s) noexcept {
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h & 0xffff;
}

Result<void> pass(Queue& queue, const Row& row, Stage stage, const ReducePlan& plan, Types types, int64_t splits,
                  double number, const TensorRef* mids, Variant variant) {
  const bool wide = variant == Variant::wide;
  Shape shape;
  if (wide) shape = !plan.innerRuns() && plan.columnsRun() ? Shape::columns : Shape::rows;
  else
    shape = plan.reduced_count / splits >= 64 && (plan.innerRuns() || plan.kept_count < 4096) ? Shape::group
                                                                                              : Shape::thread;
  const Kind ki = kindOf(plan.in.dtype), ko = kindOf(plan.out.dtype);
  const bool paired = row.paired && mids;
  if (stage == Stage::second) types.x = types.a;
  const uint64_t key = (uint64_t{2} << 56) | (nameHash(row.name) << 36) | (uint64_t(types.x) << 32) |
                       (uint64_t(types.a) << 28) | (uint64_t(ki) << 24) | (uint64_t(ko) << 20) |
                       (uint64_t(stage) << 16) | (uint64_t(shape) << 8) | (uint64_t{paired} << 4) |
                       (uint64_t{plan.index32} << 1) | uint64_t{wide};
  const auto f = static_cast<size_t>(shape);
  Result<const Kernel*> kernel = cachedKernel(queue, key, kFunctions[f], [&] {
    KernelText t;
    t.text = typeText(types.x, types.a, ki, ko, plan.index32);
    const std::string_view pre = stage == Stage::second ? "x" : row.pre;
    std::string merge(row.step);
    const auto define = [&](std::string_view what, const std::string& value) {
      t.text += "#define " + std::string(what) + " (" + value + ")\n";
    };
    define("PRE1(x)", instantiate(pre, false));
    define("PREV(x)", instantiate(pre, true));
    for (const char* name : {"STEP1(acc, v)", "STEPV(acc, v)", "MERGE1(acc, v)", "MERGEV(acc, v)"}) define(name, merge);
    define("INIT", std::string(row.init));
    define("FINISH(acc)", stage == Stage::first ? "acc" : std::string(row.finish));
    if (paired) t.text += "#define PAIRED\n";
    t.text += kDefines[f];
    t.text += kernelSource("types");
    t.text += kernelSource("reduce");
    t.key = "reduce." + std::string(row.name) + "." + std::to_string(key);
    return t;
  });
  if (!kernel) return kernel.error();

  ReduceMeta meta = plan.meta();
  meta.v[2] = splits;
  meta.v[3] = (plan.reduced_count + splits - 1) / splits;
  meta.v[68] = static_cast<int64_t>(numberBits(number, types.a));
  if (mids) meta.v[69] = mids->offset;
  Range range;
  range.local[0] = 1;
  if (wide) {
    const int64_t blocks = (plan.width() + 63) / 64;
    const int64_t items =
        splits * (shape == Shape::columns ? plan.kept_count / plan.width() * blocks : plan.kept_count);
    const int64_t work = meta.v[3] * (shape == Shape::columns ? std::min<int64_t>(plan.width(), 64) : 1);
    const uint32_t units = queue.device().description().compute_units;
    const int64_t fair = (items + int64_t{units ? units : 8} * 4 - 1) / (int64_t{units ? units : 8} * 4);
    meta.v[70] = std::min(items, std::max(fair, std::max<int64_t>(1, 4096 / std::max<int64_t>(work, 1))));
    range.global[0] = static_cast<size_t>((items + meta.v[70] - 1) / meta.v[70]);
  } else if (shape == Shape::group) {
    range.local[0] = 128;
    range.global[0] = static_cast<size_t>(plan.kept_count * splits) * 128;
  } else {
    range.local[0] = kTiledGroup;
    range.global[0] = (static_cast<size_t>(plan.kept_count * splits) + kTiledGroup - 1) / kTiledGroup * kTiledGroup;
  }
  if (paired)
    return queue.launch(**kernel, range,
                        {Arg::buffer(plan.out.buffer), Arg::buffer(plan.in.buffer), Arg::buffer(mids->buffer),
                         Arg::pointer(&meta, sizeof meta)});
  return queue.launch(**kernel, range,
                      {Arg::buffer(plan.out.buffer), Arg::buffer(plan.in.buffer), Arg::pointer(&meta, sizeof meta)});
}

// From shapes alone, so that the order of additions is the same on every run.
int64_t splitsFor(const ReducePlan& plan, Variant variant) noexcept {
  const bool wide = variant == Variant::wide;
  const bool columns = wide && !plan.innerRuns() && plan.columnsRun();
  const int64_t items = columns ? plan.kept_count / plan.width() * ((plan.width() + 63) / 64) : plan.kept_count;
  const int64_t target = wide ? 64 : 1024, least = wide ? (columns ? 512 : 16384) : 4096;
  return std::clamp<int64_t>(std::min((target + items - 1) / items, plan.reduced_count / least), 1, 1024);
}

Result<void> runRow(Queue& queue, const Row& row, const ReducePlan& plan, double number, const TensorRef* mids,
                    Variant variant) {
  const Types types = typesOf(row, plan.in.dtype, row.domain == Domain::arithmetic ? plan.out.dtype : plan.in.dtype);
  int64_t splits = splitsFor(plan, variant);
  const int64_t piece = (plan.reduced_count + splits - 1) / splits;
  splits = (plan.reduced_count + piece - 1) / piece;
  if (splits <= 1) return pass(queue, row, Stage::whole, plan, types, 1, number, mids, variant);
  const DType storage = storageOf(types.a);
  Result<Scratch> scratch = Scratch::take(queue, static_cast<size_t>(splits * plan.kept_count) * dtypeBytes(storage));
  if (!scratch) return scratch.error();
  TensorRef partial;
  partial.buffer = scratch->buffer();
  partial.offset = static_cast<int64_t>(scratch->offset() / dtypeBytes(storage));
  partial.dtype = storage;
  if (Result<void> r = pass(queue, row, Stage::first, plan.into(partial), types, splits, number, mids, variant); !r)
    return r;
  return pass(queue, row, Stage::second, plan.second(partial, splits), types, 1, number, mids, variant);
}

std::optional<Error> refusal(Queue& queue, std::string_view name, DType in, DType out) {
  if (computeOf(in) == Compute::none || computeOf(out) == Compute::none)
    return fail(std::string(name) + ": no OpenCL kernel for " + std::string(dtypeName(in)) + " to " +
                std::string(dtypeName(out)));
  if ((in == DType::float64 || out == DType::float64) && !queue.device().description().fp64)
    return fail(std::string(name) + ": " + queue.device().description().name + " has no float64",
                "use float32, or let this operator run on the CPU");
  return std::nullopt;
}

// A dense run of kept_count accumulators.
struct Mids {
  Scratch scratch;
  TensorRef ref;
};
Result<Mids> takeMids(Queue& queue, const ReducePlan& plan, Compute a) {
  const DType storage = storageOf(a);
  Result<Scratch> s = Scratch::take(queue, static_cast<size_t>(plan.kept_count) * dtypeBytes(storage));
  if (!s) return s.error();
  Mids m{std::move(*s), {}};
  m.ref.buffer = m.scratch.buffer();
  m.ref.offset = static_cast<int64_t>(m.scratch.offset() / dtypeBytes(storage));
  m.ref.dtype = storage;
  return m;
}

Result<void> indexed(Queue& queue, ReduceOp op, const ReducePlan& plan, const TensorRef* values,
                     const TensorRef& indices, Variant variant) {
  const bool largest = op == ReduceOp::amax || op == ReduceOp::argmax, wide = variant == Variant::wide;
  const Compute x = computeOf(plan.in.dtype);
  const Kind ki = kindOf(plan.in.dtype), ko = values ? kindOf(values->dtype) : ki;
  const uint64_t key = (uint64_t{3} << 56) | (uint64_t(x) << 28) | (uint64_t(ki) << 24) | (uint64_t(ko) << 20) |
                       (uint64_t{largest} << 4) | (uint64_t{values != nullptr} << 2) | (uint64_t{plan.index32} << 1) |
                       uint64_t{wide};
  Result<const Kernel*> kernel = cachedKernel(queue, key, "indexed", [&] {
    KernelText t;
    t.text = typeText(x, x, ki, ko, plan.index32);
    if (wide) t.text += "#define WIDE\n";
    // Places are 32-bit lanes beside 32-bit values.
    if (plan.index32 && (x == Compute::f32 || x == Compute::i32)) t.text += "#define LANED\n";
    t.text += "#define INDEXED\n#define MERGE1(acc, v) (acc)\n#define INIT 0\n#define BETTER(x, best) ((x) ";
    t.text += largest ? ">" : "<";
    t.text += " (best))\n#define LANES 128\n";
    if (values) t.text += "#define VALUES\n";
    t.text += kernelSource("types");
    t.text += kernelSource("reduce");
    t.key = "reduce.indexed." + std::to_string(key);
    return t;
  });
  if (!kernel) return kernel.error();
  ReduceMeta meta = plan.meta();
  meta.v[5] = values ? values->offset : 0;
  meta.v[68] = indices.offset;
  Range range;
  range.local[0] = 1;
  if (wide) {
    const uint32_t units = queue.device().description().compute_units;
    const int64_t fair = (plan.kept_count + int64_t{units ? units : 8} * 4 - 1) / (int64_t{units ? units : 8} * 4);
    meta.v[70] = std::max(fair, std::max<int64_t>(1, 4096 / std::max<int64_t>(plan.reduced_count, 1)));
    range.global[0] = static_cast<size_t>((plan.kept_count + meta.v[70] - 1) / meta.v[70]);
  } else {
    range.local[0] = 128;
    range.global[0] = static_cast<size_t>(plan.kept_count) * 128;
  }
  return queue.launch(**kernel, range,
                      {Arg::buffer(values ? values->buffer : indices.buffer), Arg::buffer(indices.buffer),
                       Arg::buffer(plan.in.buffer), Arg::pointer(&meta, sizeof meta)});
}

Scalar identityOf(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::prod: case ReduceOp::all: return Scalar(1);
    case ReduceOp::mean: return Scalar(std::numeric_limits<double>::quiet_NaN());
    case ReduceOp::logsumexp: return Scalar(-std::numeric_limits<double>::infinity());
    default: return Scalar(0);
  }
}

}  // namespace

bool reduceSupports(ReduceOp op, DType in, DType out) noexcept {
  if (computeOf(in) == Compute::none || computeOf(out) == Compute::none) return false;
  if (isArg(op)) return out == DType::int64;
  return !floatsOnly(op) || isFloat(computeOf(out));
}

Result<void> reduce(Queue& queue, ReduceOp op, const TensorRef& in, const TensorRef& out, uint32_t reduced,
                    Variant variant) {
  const Row& row = rowOf(op);
  if (auto error = refusal(queue, row.name, in.dtype, out.dtype)) return *error;
  if (!reduceSupports(op, in.dtype, out.dtype))
    return fail(std::string(row.name) + ": the result cannot be " + std::string(dtypeName(out.dtype)));
  Result<ReducePlan> plan = planReduce(in, out, nullptr, reduced, isArg(op), row.name);
  if (!plan) return plan.error();
  if (plan->kept_count == 0) return {};
  if (plan->reduced_count == 0) {
    if (row.domain == Domain::compare)
      return fail(std::string(row.name) + ": a dimension of size 0 has no largest or smallest element");
    return fill(queue, out, identityOf(op), variant);
  }
  if (isArg(op)) {
    // argmax writes its only output through the indices' strides.
    plan->kept.operands = 3;
    plan->kept.strides[2] = plan->kept.strides[1];
    return indexed(queue, op, *plan, nullptr, out, variant);
  }
  if (op == ReduceOp::logsumexp) {
    const Types types = typesOf(kSumExp, in.dtype, out.dtype);
    Result<Mids> mids = takeMids(queue, *plan, types.a);
    if (!mids) return mids.error();
    if (Result<void> r = runRow(queue, kAmax, plan->into(mids->ref), 0, nullptr, variant); !r) return r;
    return runRow(queue, kSumExp, *plan, 0, &mids->ref, variant);
  }
  return runRow(queue, row, *plan, static_cast<double>(plan->reduced_count), nullptr, variant);
}

Result<void> reduceIndexed(Queue& queue, ReduceOp op, const TensorRef& in, const TensorRef& values,
                           const TensorRef& indices, int dim, Variant variant) {
  const Row& row = rowOf(op);
  if (auto error = refusal(queue, row.name, in.dtype, values.dtype)) return *error;
  const uint32_t mask = in.ndim == 0 ? 0 : 1u << dim;
  Result<ReducePlan> plan = planReduce(in, values, &indices, mask, true, row.name);
  if (!plan) return plan.error();
  if (plan->kept_count == 0) return {};
  if (plan->reduced_count == 0)
    return fail(std::string(row.name) + ": dimension " + std::to_string(dim) + " has size 0");
  return indexed(queue, op, *plan, &values, indices, variant);
}

Result<void> variance(Queue& queue, const TensorRef& in, const TensorRef& out, const TensorRef* mean, uint32_t reduced,
                      double correction, bool root, Variant variant) {
  const Row& row = root ? kStd : kVar;
  if (auto error = refusal(queue, row.name, in.dtype, out.dtype)) return *error;
  if (!isFloat(computeOf(out.dtype)))
    return fail(std::string(row.name) + ": the result cannot be " + std::string(dtypeName(out.dtype)));
  Result<ReducePlan> plan = planReduce(in, out, mean, reduced, false, row.name);
  if (!plan) return plan.error();
  if (plan->kept_count == 0) return {};
  const auto n = static_cast<double>(plan->reduced_count);
  if (plan->reduced_count == 0) {
    const Scalar nan(std::numeric_limits<double>::quiet_NaN());
    if (Result<void> r = fill(queue, out, nan, variant); !r) return r;
    return mean ? fill(queue, *mean, nan, variant) : Result<void>();
  }
  const Types types = typesOf(row, in.dtype, out.dtype);
  Result<Mids> mids = takeMids(queue, *plan, types.a);
  if (!mids) return mids.error();
  if (Result<void> r = runRow(queue, kMean, plan->into(mids->ref), n, nullptr, variant); !r) return r;
  if (Result<void> r = runRow(queue, row, *plan, std::max(n - correction, 0.0), &mids->ref, variant); !r) return r;
  if (!mean) return {};
  return copy(queue, keptView(plan->into(mids->ref), mids->ref, 1), keptView(*plan, *mean, 2), variant);
}

}  // namespace flagos::ocl

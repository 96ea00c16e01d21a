#include "runtime/opencl/ops/index_launch.h"

#include <algorithm>

namespace flagos::ocl {
namespace {

constexpr uint64_t kFamily = uint64_t{0x69} << 56;   // 'i', see cachedKernel

// What a read through a bad index leaves behind: NaN where the type has one.
std::string_view badValue(DType t) {
  switch (t) {
    case DType::float32: return "#define BAD(p, i) ((p)[i] = 0x7fc00000u)\n";
    case DType::float64: return "#define BAD(p, i) ((p)[i] = 0x7ff8000000000000UL)\n";
    case DType::float16: return "#define BAD(p, i) ((p)[i] = 0x7e00)\n";
    case DType::bfloat16: return "#define BAD(p, i) ((p)[i] = 0x7fc0)\n";
    default: return "#define BAD(p, i) ((p)[i] = 0)\n";
  }
}

}  // namespace

Result<void> launchIndex(Queue& queue, const IndexKernel& k, int64_t n, IndexMeta& m, std::initializer_list<cl_mem> buffers, Variant variant) {
  if (n == 0) return {};
  const Kind data = k.raw ? rawKind(dtypeBytes(k.data)) : kindOf(k.data);
  const Kind index = kindOf(k.index);
  const Compute compute = k.raw ? Compute::i64 : computeOf(k.data);
  if (data == Kind::none || compute == Compute::none || (index != Kind::i64 && index != Kind::i32) ||
      (!k.raw && k.data == DType::float64 && !queue.device().description().fp64))
    return fail(std::string(k.name) + ": no OpenCL kernel for dtype " + std::string(dtypeName(k.data)) + " with " +
                std::string(dtypeName(k.index)) + " indices", "let this operator run on the CPU");
  const uint64_t key = kFamily | uint64_t{k.number} << 32 | uint64_t{k.raw} << 24 | static_cast<uint64_t>(k.data) << 16 |
                       static_cast<uint64_t>(k.defines.size()) << 8 | static_cast<uint64_t>(index);
  auto kernel = cachedKernel(queue, key, k.function, [&] {
    KernelText t;
    const Kind kinds[] = {data};
    t.text = kernelHead(compute, false, false, kinds);
    t.text += "#define T S\n#define KD " + std::string(kindName(data)) + "\n#define KI " + std::string(kindName(index)) + "\n#define USE_" +
              std::string(k.name) + "\n";
    t.text += k.defines;
    t.text += badValue(k.data);
    t.text += kernelSource("types");
    t.text += kernelSource("fault");
    t.text += kernelSource("index");
    t.key = "index." + std::string(k.function) + "." + std::to_string(key);
    return t;
  });
  if (!kernel) return kernel.error();
  const bool wide = variant == Variant::wide;
  // A position that walks a dimension is work enough for less than 512 of them.
  const int64_t per = wide ? wideChunk(queue, n, std::max<int64_t>(1, 512 / std::max<int64_t>(m.v[3], 1))) : 1;
  m.v[0] = n;
  m.v[1] = per;
  Range range;
  const auto items = static_cast<size_t>((n + per - 1) / per);
  range.local[0] = wide ? 1 : kTiledGroup;
  range.global[0] = wide ? items : (items + kTiledGroup - 1) / kTiledGroup * kTiledGroup;
  Arg args[9];
  size_t count = 0;
  for (cl_mem b : buffers) args[count++] = Arg::buffer(b);
  if (k.checked) {
    m.v[15] = k.checked;
    auto record = queue.faultRecord();
    if (!record) return record.error();
    args[count++] = Arg::buffer(*record);
  }
  args[count++] = Arg::pointer(&m, sizeof m);
  return queue.launch(**kernel, range, args, count);
}

}  // namespace flagos::ocl

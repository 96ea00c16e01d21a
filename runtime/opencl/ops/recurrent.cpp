#include "runtime/opencl/ops/recurrent.h"

#include <algorithm>
#include <string>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"

namespace flagos::ocl {
namespace {

constexpr uint64_t kFamily = uint64_t{0x63} << 56;   // 'c', see cachedKernel
constexpr std::string_view kNames[] = {"lstm", "lstm_backward", "gru", "gru_backward"};
constexpr int64_t kLeast = 2048;   // elements of a row worth a work-item of their own on a CPU

struct Meta { int64_t v[12] = {}; };

}  // namespace

Result<void> recurrentCell(Queue& queue, Cell cell, int64_t rows, int64_t width, int64_t flags,
                           std::initializer_list<TensorRef> buffers, Variant variant) {
  const std::string_view name = kNames[static_cast<size_t>(cell)];
  const DType dtype = buffers.begin()->dtype;
  const Kind kind = kindOf(dtype);
  for (const TensorRef& t : buffers)
    if (t.dtype != dtype || !t.contiguous())
      return fail("opencl " + std::string(name) + " cell: tensors must be contiguous and of one dtype");
  const bool f64 = kind == Kind::f64;
  if ((!f64 && kind != Kind::f32 && kind != Kind::f16 && kind != Kind::bf16) || (f64 && !queue.device().description().fp64))
    return fail("opencl " + std::string(name) + " cell has no kernel for " + std::string(dtypeName(dtype)));
  if (rows == 0 || width == 0) return {};
  const uint64_t key = kFamily | static_cast<uint64_t>(cell) << 8 | static_cast<uint64_t>(kind);
  auto kernel = cachedKernel(queue, key, name, [&] {
    KernelText t;
    t.text = kernelHead(f64 ? Compute::f64 : Compute::f32, false, true, {&kind, 1});
    t.text += "#define T CAT2(S, 16)\n#define K0 " + std::string(kindName(kind)) + "\n#define CELL_" + std::string(name) + "\n";
    t.text += kernelSource("types");
    t.text += kernelSource("recurrent");
    t.key = "recurrent." + std::string(name) + "." + std::string(kindName(kind));
    return t;
  });
  if (!kernel) return kernel.error();
  Meta m;
  m.v[0] = rows, m.v[1] = width, m.v[2] = flags;
  m.v[3] = variant == Variant::wide ? std::max<int64_t>(1, wideChunk(queue, rows * width, kLeast) / width) : 1;
  Arg args[9];
  size_t count = 0;
  for (const TensorRef& t : buffers) {
    m.v[4 + count] = t.offset;
    args[count++] = Arg::buffer(t.buffer);
  }
  args[count++] = Arg::pointer(&m, sizeof m);
  Range range;
  range.global[0] = static_cast<size_t>((rows + m.v[3] - 1) / m.v[3]);
  range.local[0] = 1;
  return queue.launch(**kernel, range, args, count);
}

}  // namespace flagos::ocl

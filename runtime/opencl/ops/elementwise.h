// The engine under pointwise, copy and fill: one expression over up to three strided inputs.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/opencl/ops/layout.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::ocl {

// How elements lie in memory (the suffixes of kernels/types.cl). Complex types have none.
enum class Kind : uint8_t { f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, b8, none };
Kind kindOf(DType t) noexcept;
std::string_view kindName(Kind k) noexcept;
// The unsigned kind of that many bytes (1, 2, 4, 8), for moving bits.
Kind rawKind(size_t bytes) noexcept;

// What kernels calculate in: the scalar type S of kernels/types.cl.
enum class Compute : uint8_t { f32, f64, i32, i64, u16, u32, u64, none };  // u16..u64: bits only
Compute computeOf(DType t) noexcept;
std::string_view computeName(Compute c) noexcept;  // "float" ...

// Text that heads a kernel's source: index type, compute type, NEED_F64 where doubles appear.
std::string kernelHead(Compute compute, bool index32, bool wide, std::span<const Kind> kinds);

// A kernel from generated text, remembered per thread under `key` (family in the top byte; unique per text), so that a
// launch costs one table look-up. `make` is called on a miss and returns the text; `name` is the kernel function.
struct KernelText { std::string key, text, options; };
const Kernel* findKernel(Queue& queue, uint64_t key) noexcept;
Result<const Kernel*> makeKernel(Queue& queue, uint64_t key, std::string_view function, const KernelText& text);
template <class Make>
Result<const Kernel*> cachedKernel(Queue& queue, uint64_t key, std::string_view function, Make&& make) {
  if (const Kernel* k = findKernel(queue, key)) return k;
  return makeKernel(queue, key, function, make());
}

// Elements for one wide work-item: enough items to fill the device, none below `least`.
int64_t wideChunk(Queue& queue, int64_t n, int64_t least) noexcept;

inline constexpr size_t kTiledGroup =
    128;  // work-items of a thin group; constant, because some drivers compile per size

struct Elementwise {
  uint32_t op = 0;                 // unique number of `expr` (see the users: PointwiseOp, then copy, fill, arange)
  std::string_view name;           // for errors and kernel keys
  std::string_view expr;           // OpenCL C over T: a, b, c, s0..s3, ix
  std::string_view extra;          // further defines the expression needs
  std::string_view source;         // a .cl file with functions it needs
  Compute compute = Compute::f32;
  bool indexed = false;            // uses ix
  bool raw = false;                // moves bits: kinds follow from dtype sizes
  bool heavy = false;              // transcendental: smaller chunks pay
  std::array<uint64_t, 4> scalars{};  // bits, as the compute type
};

// A launch of the flat form as it was made: it can be made again on other operands of the same dtypes and sizes without
// being worked out again.
struct FlatLaunch {
  const Kernel* kernel = nullptr;  // null: nothing was launched, or not flat
  Range range;
  std::array<int64_t, 10> meta{};
  std::array<uint8_t, 4> bytes{};  // of an element, per operand
  uint8_t operands = 0;
  bool direct = false;             // by addresses (Device::directAddresses)
  int launches = 0;                // made while recording, of any form: more than one cannot be made again as one
};
struct FlatOperand {
  cl_mem buffer = nullptr;
  char* base = nullptr;
  int64_t offset = 0;  // elements
  bool operator==(const FlatOperand&) const = default;
};
// Operands: out first, then the inputs as they were.
Result<void> relaunch(Queue& queue, const FlatLaunch& launch, std::span<const FlatOperand> operands);

// While it lives, what elementwise() launches in this thread is noted in it.
class FlatRecord {
 public:
  FlatRecord() noexcept;
  ~FlatRecord();
  FlatRecord(const FlatRecord&) = delete;
  FlatLaunch launch;
  std::array<FlatOperand, 4> operands{};

 private:
  FlatRecord* outer_;
};

Result<void> elementwise(Queue& queue, const Elementwise& e, std::span<const TensorRef> in, const TensorRef& out,
                         Variant variant);

}  // namespace flagos::ocl

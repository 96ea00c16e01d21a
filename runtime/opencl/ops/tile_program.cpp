#include "runtime/opencl/ops/tile_program.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

namespace flagos::ocl {
namespace {

struct Entry {
  ProgramCache* cache = nullptr;
  const char* function = nullptr;
  bool is_double = false, tiled = false;
  const Kernel* kernel = nullptr;
};
// Append-only and read without a lock: entries below `known` never change. A full table only means slower lookups.
std::array<Entry, 256> entries;
std::atomic<size_t> known{0};
std::mutex append;

std::string programText(const char* source) {
  std::string text(kernelSource("gemm_tile"));
  text += '\n';
  if (std::string_view(source).starts_with("conv")) text += kernelSource("conv_gather");
  text += kernelSource(source);
  if (std::string_view(source) == "conv") text += kernelSource("conv_flat"), text += kernelSource("conv_few");
  return text;
}

}  // namespace

Result<const Kernel*> tileKernel(Queue& queue, const char* source, const char* function, bool is_double,
                                 bool tiled) {
  ProgramCache& cache = queue.device().programs();
  const size_t n = known.load(std::memory_order_acquire);
  for (size_t i = 0; i < n; ++i) {
    const Entry& e = entries[i];
    if (e.function == function && e.cache == &cache && e.is_double == is_double && e.tiled == tiled) return e.kernel;
  }
  std::string key = source, options;
  if (is_double) key += ".double", options += "-DREAL_DOUBLE ";
  if (tiled) key += ".tiled", options += "-DTILED";
  Result<const Kernel*> kernel = cache.kernelFromText(key, programText(source), function, options);
  if (!kernel) return kernel;
  std::lock_guard lock(append);
  const size_t at = known.load(std::memory_order_relaxed);
  if (at < entries.size()) {
    entries[at] = Entry{&cache, function, is_double, tiled, *kernel};
    known.store(at + 1, std::memory_order_release);
  }
  return kernel;
}

Result<void> checkFloating(std::string_view op, std::initializer_list<const TensorRef*> tensors) {
  const DType first = (*tensors.begin())->dtype;
  for (const TensorRef* t : tensors) {
    const DType d = t->dtype;
    const bool known_type =
        d == DType::float32 || d == DType::float16 || d == DType::bfloat16 || d == DType::float64;
    if (!known_type)
      return fail("opencl " + std::string(op) + " has no kernel for " + std::string(dtypeName(d)),
                  "use float32, float16, bfloat16 or float64");
    if (d != first)
      return fail("opencl " + std::string(op) + " needs one dtype, but got " + std::string(dtypeName(first)) + " and " +
                  std::string(dtypeName(d)));
  }
  return {};
}

size_t workerCount(Queue& queue, int64_t tasks) noexcept {
  const uint32_t units = std::max<uint32_t>(1, queue.device().description().compute_units);
  return static_cast<size_t>(std::clamp<int64_t>(tasks, 1, int64_t{4} * units));
}

size_t workerCount(Queue& queue, int64_t tasks, int64_t work) noexcept {
  constexpr int64_t kWorthWaking = int64_t{1} << 17;
  return workerCount(queue, std::min(tasks, std::max<int64_t>(1, work / kWorthWaking)));
}

std::string sizesText(const TensorRef& t) {
  std::string s = "[";
  for (int i = 0; i < t.ndim; ++i) s += (i ? ", " : "") + std::to_string(size(t, i));
  return s + "]";
}

}  // namespace flagos::ocl

#include "runtime/torch/memory_history.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "runtime/base/clock.h"
#include "runtime/opencl/queue.h"
#include "runtime/torch/allocator.h"

namespace flagos::glue {
namespace {
std::atomic<size_t> keep{0};
std::mutex mutex;
std::deque<MemoryEvent>& events() {
  static auto* all = new std::deque<MemoryEvent>();  // outlives every tensor
  return *all;
}
}  // namespace

void recordMemoryHistory(size_t most) {
  std::lock_guard lock(mutex);
  events().clear();
  keep.store(most, std::memory_order_relaxed);
}

std::vector<MemoryEvent> memoryHistory() {
  std::lock_guard lock(mutex);
  return {events().begin(), events().end()};
}

void noteMemory(bool allocated, const mou::Block& block) noexcept {
  const size_t most = keep.load(std::memory_order_relaxed);
  if (most == 0) [[likely]] return;
  try {
    const auto device = static_cast<uint32_t>(deviceOf(block.address));
    std::lock_guard lock(mutex);
    if (events().size() >= most) events().pop_front();
    events().push_back({allocated, reinterpret_cast<uint64_t>(block.address), block.bytes, device, block.queue,
                        allocated ? block.site : ocl::currentTag().site, nowNs()});
  } catch (...) {  // no memory for the event: the history lacks it
  }
}

}  // namespace flagos::glue

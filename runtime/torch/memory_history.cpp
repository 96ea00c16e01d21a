#include "runtime/torch/memory_history.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>

#include "runtime/base/clock.h"
#include "runtime/opencl/queue.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {
std::atomic<size_t> keep{0};
std::mutex mutex;
std::deque<MemoryEvent>& events() {
  static auto* all = new std::deque<MemoryEvent>();  // outlives every tensor
  return *all;
}
void add(const MemoryEvent& e, size_t most) {
  if (events().size() >= most) events().pop_front();
  events().push_back(e);
}

struct Segment {
  uint64_t address, bytes;
  uint32_t device;
  bool operator==(const Segment&) const = default;
};
std::vector<Segment>& segments() {  // as of the last event
  static auto* all = new std::vector<Segment>();
  return *all;
}
std::vector<Segment> segmentsNow() {
  std::vector<Segment> out;
  for (int i = 0; i < openedLimit(); ++i)
    if (auto* device = openedDevice(i))
      for (const auto& s : device->pool().snapshot()) out.push_back({s.address, s.bytes, static_cast<uint32_t>(i)});
  return out;
}
// The pool does not tell of slabs that come and go: what differs from the last look did.
void compareSegments(uint32_t queue, uint32_t site, size_t most) {
  std::vector<Segment> now = segmentsNow();
  const auto note = [&](const std::vector<Segment>& from, const std::vector<Segment>& in, MemoryAction action) {
    for (const auto& s : from)
      if (std::find(in.begin(), in.end(), s) == in.end()) add({action, s.address, s.bytes, s.device, queue, site, nowNs()}, most);
  };
  note(segments(), now, MemoryAction::segment_free);
  note(now, segments(), MemoryAction::segment_alloc);
  segments() = std::move(now);
}
}  // namespace

void recordMemoryHistory(size_t most) {
  std::lock_guard lock(mutex);
  events().clear();
  segments() = most ? segmentsNow() : std::vector<Segment>();
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
    const auto address = reinterpret_cast<uint64_t>(block.address);
    std::lock_guard lock(mutex);
    const auto holds = [&](const Segment& s) { return address >= s.address && address < s.address + s.bytes; };
    if (allocated && block.bytes && std::none_of(segments().begin(), segments().end(), holds))
      compareSegments(block.queue, block.site, most);
    add({allocated ? MemoryAction::alloc : MemoryAction::free, address, block.bytes, device, block.queue,
         allocated ? block.site : ocl::currentTag().site, nowNs()}, most);
  } catch (...) {  // no memory for the event: the history lacks it
  }
}

void noteSegments() noexcept {
  const size_t most = keep.load(std::memory_order_relaxed);
  if (most == 0) return;
  try {
    std::lock_guard lock(mutex);
    compareSegments(0, ocl::currentTag().site, most);
  } catch (...) {
  }
}

}  // namespace flagos::glue

#include "runtime/torch/allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <map>

#include "runtime/base/bytes.h"
#include "runtime/base/metric.h"
#include "runtime/base/settings.h"
#include "runtime/dal/inventory.h"
#include "runtime/torch/memory_history.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

thread_local int tls_host_device = -1;

// Accumulated counts of PyTorch's statistics are ours to keep: the pool counts since start, PyTorch resets them.
struct Reset {
  uint64_t allocations = 0, frees = 0;
};
std::array<Reset, kMaxDevices> resets;

void giveBack(mou::Block* block) {
  noteMemory(false, *block);
  block->pool->release(block);
}

void releaseBlock(void* ctx) { giveBack(static_cast<mou::Block*>(ctx)); }

std::string holdersText(mou::Pool& pool) {
  std::string text;
  for (const auto& h : pool.holders(5)) {
    const auto* site = telemetry::site(h.site);
    text += "\n  " + formatBytes(static_cast<double>(h.bytes)) + " in " + counted(h.blocks, "block") + ": " +
            (site ? site->file + ":" + std::to_string(site->line) : std::string("not attributed to a line"));
  }
  return text.empty() ? text : "\nLargest holders:" + text;
}

mou::Block* allocateBlock(int index, size_t bytes) {
  ocl::Device& device = openDevice(index);
  auto block = device.pool().allocate(bytes, currentQueueId(index), siteNow());
  if (!block.ok()) {
    TORCH_CHECK_WITH(OutOfMemoryError, false, block.error().text(), holdersText(device.pool()));   // names the device
  }
  noteMemory(true, **block);
  return *block;
}

mou::Block* findBlock(const void* address) noexcept {
  const int index = deviceOf(address);
  return index < 0 ? nullptr : openedDevice(index)->pool().find(address);
}

class DeviceAllocatorImpl final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return allocateOn(currentDevice(), bytes); }
  // data and context differ, so the raw interface cannot work; nothing in PyTorch asks a device allocator for it.
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }

  void copy_data(void* dest, const void* src, std::size_t count) const override {
    mou::Block* to = findBlock(dest);
    mou::Block* from = findBlock(src);
    TORCH_CHECK(to && from, "copy_data needs two addresses of npu memory");
    ocl::Device& device = openDevice(deviceOf(dest));
    const auto at = [](const mou::Block* b, const void* p) {
      return b->offset + static_cast<size_t>(static_cast<const char*>(p) - static_cast<const char*>(b->address));
    };
    check(currentQueue(device).copy(static_cast<cl_mem>(mou::slabHandle(*to)), at(to, dest),
                                    static_cast<cl_mem>(mou::slabHandle(*from)), at(from, src), count));
  }

  bool initialized() override { return deviceCount() > 0; }

  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < openedLimit(); ++i)
      if (auto* device = openedDevice(i)) device->pool().emptyCache();
    noteSegments();
  }

  void recordStream(const c10::DataPtr& ptr, c10::Stream stream) override {
    if (ptr.get_deleter() != &releaseBlock) return;
    auto* block = static_cast<mou::Block*>(ptr.get_context());
    block->pool->recordQueue(block, static_cast<uint32_t>(stream.id()));
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    c10::CachingDeviceAllocator::DeviceStats out{};
    const int index = checkedIndex(device);
    if (!isOpen(index)) return out;
    const mou::PoolStats s = openDevice(index).pool().stats();
    const Reset& r = resets[static_cast<size_t>(index)];
    const auto set = [](c10::CachingAllocator::StatArray& a, uint64_t current, uint64_t peak) {
      a[0].current = static_cast<int64_t>(current);
      a[0].peak = static_cast<int64_t>(peak);
      a[0].allocated = static_cast<int64_t>(peak);
      a[0].freed = static_cast<int64_t>(peak - current);
    };
    set(out.allocated_bytes, s.allocated, s.allocated_peak);
    set(out.active_bytes, s.allocated, s.allocated_peak);
    set(out.requested_bytes, s.requested, s.requested_peak);
    set(out.reserved_bytes, s.reserved, s.reserved_peak);
    set(out.segment, s.slabs, s.slabs);
    out.allocation[0].current = static_cast<int64_t>(s.allocations - s.frees);
    out.allocation[0].peak = out.allocation[0].current;
    out.allocation[0].allocated = static_cast<int64_t>(s.allocations - r.allocations);
    out.allocation[0].freed = static_cast<int64_t>(s.frees - r.frees);
    out.active = out.allocation;
    out.num_ooms = static_cast<int64_t>(s.ooms);
    out.num_device_alloc = static_cast<int64_t>(s.slabs);
    return out;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const int index = checkedIndex(device);
    if (!isOpen(index)) return;
    const mou::PoolStats s = openDevice(index).pool().stats();
    resets[static_cast<size_t>(index)] = {s.allocations, s.frees};
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    const int index = checkedIndex(device);
    if (isOpen(index)) openDevice(index).pool().resetPeaks();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const int index = checkedIndex(device);
    const mou::PoolStats pool = openDevice(index).pool().stats();
    size_t total = openDevice(index).description().memory_bytes;
    size_t free = total;
    for (const dal::Device& d : dal::machine().devices)
      if (d.index && *d.index == index) {
        const dal::MemoryInfo now = dal::memoryInfo(d);
        if (now.total.value) free = total = static_cast<size_t>(*now.total.value);
        // What other processes hold is not free; what our pool keeps for reuse is.
        if (now.free.value) free = static_cast<size_t>(*now.free.value) + (pool.reserved - std::min(pool.reserved, pool.allocated));
      }
    if (const auto text = setting("FLAGOS_MEMORY_LIMIT"))
      if (const auto limit = parseBytes(*text)) total = std::min(total, *limit);
    return {std::min(free, total - std::min<size_t>(total, pool.allocated)), total};
  }
};

// Pinned memory: page-aligned host memory that drivers may read while a copy is in flight.
class HostAllocatorImpl final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &noDelete, c10::Device(c10::DeviceType::CPU)};
    settle(false);
    void* p = nullptr;
    TORCH_CHECK(posix_memalign(&p, 4096, bytes) == 0, "no host memory for ", bytes, " pinned bytes");
    {
      std::lock_guard lock(mutex_);
      ranges_.insert({p, Held{bytes, {}}});
      stats_.allocations.increase(1);
      stats_.allocated_bytes.increase(bytes);
      stats_.active_requests.increase(1);
      stats_.active_bytes.increase(bytes);
    }
    return {p, p, &free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }
  bool record_event(void* p, void*, c10::Stream stream) override {
    inUse(p, queueOf(stream));
    return true;
  }
  void empty_cache() override { settle(true); }  // the rest of what was freed went back at once
  at::HostStats get_stats() override {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_accumulated_stats() override {
    std::lock_guard lock(mutex_);
    stats_.allocations.reset_accumulated();
    stats_.allocated_bytes.reset_accumulated();
  }
  void reset_peak_stats() override {
    std::lock_guard lock(mutex_);
    stats_.allocations.reset_peak();
    stats_.allocated_bytes.reset_peak();
  }
  bool contains(const void* p) {
    std::lock_guard lock(mutex_);
    return find(p) != ranges_.end();
  }
  void inUse(const void* p, ocl::Queue& queue) {
    std::lock_guard lock(mutex_);
    if (auto it = find(p); it != ranges_.end()) it->second.uses.emplace_back(&queue, queue.submitted());
  }

 private:
  using Uses = c10::SmallVector<std::pair<ocl::Queue*, uint64_t>, 2>;
  struct Held {
    size_t bytes;
    Uses uses;
  };
  static void noDelete(void*) {}
  static void free(void* p);
  // With the mutex: the range that contains the address.
  std::map<void*, Held>::iterator find(const void* p) {
    auto it = ranges_.upper_bound(const_cast<void*>(p));
    if (it == ranges_.begin()) return ranges_.end();
    --it;
    return static_cast<const char*>(p) < static_cast<const char*>(it->first) + it->second.bytes ? it : ranges_.end();
  }
  static bool done(const Uses& uses, bool wait) {
    for (const auto& [queue, ticket] : uses)
      if (!queue->isDone(ticket) && !(wait && queue->wait(ticket).ok())) return false;
    return true;
  }
  // Gives back what was freed while copies used it.
  void settle(bool wait) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < freed_.size();) {
      if (!done(freed_[i].second, wait)) {
        ++i;
        continue;
      }
      ::free(freed_[i].first);
      freed_[i] = std::move(freed_.back());
      freed_.pop_back();
    }
  }
  std::mutex mutex_;
  std::map<void*, Held> ranges_;
  std::vector<std::pair<void*, Uses>> freed_;
  at::HostStats stats_;
};

DeviceAllocatorImpl device_allocator;
HostAllocatorImpl& hostInstance() {
  static auto* instance = new HostAllocatorImpl();  // outlives every tensor
  return *instance;
}

void HostAllocatorImpl::free(void* p) {
  if (!p) return;
  auto& self = hostInstance();
  {
    std::lock_guard lock(self.mutex_);
    auto it = self.ranges_.find(p);
    if (it != self.ranges_.end()) {
      self.stats_.allocations.decrease(1);
      self.stats_.allocated_bytes.decrease(it->second.bytes);
      self.stats_.active_requests.decrease(1);
      self.stats_.active_bytes.decrease(it->second.bytes);
      const Uses uses = std::move(it->second.uses);
      self.ranges_.erase(it);
      if (!done(uses, false)) {
        self.freed_.emplace_back(p, uses);
        return;
      }
    }
  }
  ::free(p);
}

c10::Allocator* plain_cpu = nullptr;

// Frees what either the range or PyTorch's own CPU allocator gave: oneDNN frees scratch memory long after the operator.
void freeByAddress(void* p) {
  if (!p) return;
  if (mou::Block* block = findBlock(p)) giveBack(block);
  else plain_cpu->raw_deleter()(p);
}

class CpuWrapper final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (tls_host_device < 0) [[likely]] return plain_cpu->allocate(bytes);
    mou::Block* block = allocateBlock(tls_host_device, bytes);
    waitForHost(*openedDevice(tls_host_device));  // another thread may have enqueued work on these bytes and freed them
    void* p = block->address;
    return {p, p, &freeByAddress, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &freeByAddress; }
  bool is_simple_data_ptr(const c10::DataPtr& p) const override { return plain_cpu->is_simple_data_ptr(p); }
  void copy_data(void* dest, const void* src, std::size_t count) const override { plain_cpu->copy_data(dest, src, count); }
};
CpuWrapper cpu_wrapper;

}  // namespace

void installAllocators() {
  c10::SetAllocator(kNpu, &device_allocator);
  at::setHostAllocator(kNpu, &hostInstance());
  plain_cpu = c10::GetCPUAllocator();
  c10::SetCPUAllocator(&cpu_wrapper, /*priority=*/1);
}

c10::DeviceAllocator* deviceAllocator() noexcept { return &device_allocator; }
at::HostAllocator* hostAllocator() noexcept { return &hostInstance(); }
bool isPinned(const void* data) noexcept { return hostInstance().contains(data); }
void pinnedInUse(const void* data, ocl::Queue& queue) { hostInstance().inUse(data, queue); }

c10::DataPtr allocateOn(int device, size_t bytes) {
  mou::Block* block = allocateBlock(device, bytes);
  return {block->address, block, &releaseBlock, c10::Device(kNpu, static_cast<c10::DeviceIndex>(device))};
}

mou::Block* blockOf(const c10::StorageImpl& storage) noexcept {
  const auto& ptr = const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
  return ptr.get_deleter() == &releaseBlock ? static_cast<mou::Block*>(ptr.get_context()) : nullptr;
}

int deviceOf(const void* address) noexcept {
  const int n = openedLimit();
  for (int i = 0; i < n; ++i)
    if (auto* device = openedDevice(i); device && device->pool().contains(address)) return i;
  return -1;
}

HostAllocationScope::HostAllocationScope(int device) noexcept : previous_(tls_host_device) { tls_host_device = device; }
HostAllocationScope::~HostAllocationScope() { tls_host_device = previous_; }

c10::DataPtr retarget(c10::DataPtr& cpu) {
  if (cpu.get_deleter() != &freeByAddress) return {};
  mou::Block* block = findBlock(cpu.get());
  if (!block || block->address != cpu.get()) return {};
  cpu.release_context();
  return {block->address, block, &releaseBlock,
          c10::Device(kNpu, static_cast<c10::DeviceIndex>(deviceOf(block->address)))};
}

}  // namespace flagos::glue

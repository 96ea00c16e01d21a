#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/base/metric.h"
#include "runtime/mou/pool_impl.h"

namespace flagos::mou {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBigPage = size_t{2} << 20;

size_t roundTo(size_t bytes, size_t step) noexcept { return (bytes + step - 1) / step * step; }

std::string bytesText(size_t bytes) { return formatBytes(static_cast<double>(bytes)); }

}  // namespace

Node* PoolImpl::fromOtherQueues(size_t extent, uint32_t queue) {
  const uint32_t cls = classOfExtent(extent);
  for (uint32_t q = 0; q < kMaxQueues; ++q) {
    if (q == queue % kMaxQueues || !bins_[q]) continue;
    Node* node = bins_[q]->at(cls);
    if (!node || !memory_.idle(q)) continue;
    leaveBin(node);
    node->queue = queue;
    return node;
  }
  return nullptr;
}

Node* PoolImpl::addSlab(size_t bytes, uint32_t queue, Error* why) {
  const size_t left = limit_bytes_ > stats_.reserved ? limit_bytes_ - stats_.reserved : 0;
  if (bytes > left || bytes > limits_.max_buffer_bytes) return nullptr;
  auto slab = std::make_unique<Slab>();
  slab->bytes = bytes;
  slab->base = range_->take(slab.get(), bytes, options_.guard_gaps);
  if (!slab->base) {
    *why = fail("the reserved address range of " + bytesText(range_->bytes()) + " has no gap of " + bytesText(bytes));
    return nullptr;
  }
  if (!StartIndex::open(slab->index, bytes >> shift_)) {
    range_->give(slab->base);
    *why = fail("no host memory for the bookkeeping of a buffer of " + bytesText(bytes));
    return nullptr;
  }
  Result<SlabHandle> handle = memory_.createSlab(slab->base, bytes);
  if (!handle) {
    *why = handle.error();
    slab->index.close();
    range_->give(slab->base);
    return nullptr;
  }
  slab->handle = *handle;
  Node* node = newNode();
  node->slab = slab.get();
  node->address = slab->base;
  node->extent = bytes;
  node->queue = queue;
  node->free = true;
  slab->first = node;
  slab->index.set(0, node);
  slabs_.push_back(std::move(slab));
  stats_.reserved += bytes;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
  return node;
}

Node* PoolImpl::findSlow(size_t extent, uint32_t queue, Error* why) {
  if (Node* n = fromOtherQueues(extent, queue)) return n;

  // Bigger slabs as the pool grows: fewer buffers for kernels to be given. Then only what is needed.
  const size_t needed = roundTo(extent, extent > slab_bytes_ ? std::min(kBigPage, slab_bytes_) : kPage);
  const size_t cap = std::min(limits_.max_buffer_bytes / kPage * kPage, std::max(slab_bytes_, size_t{512} << 20));
  const size_t left = limit_bytes_ > stats_.reserved ? limit_bytes_ - stats_.reserved : 0;
  size_t wanted = std::min({std::max(roundTo(stats_.reserved / 4, slab_bytes_), slab_bytes_), cap, left / kPage * kPage});
  for (const size_t bytes : {std::max(wanted, needed), needed, roundTo(extent, kPage)})
    if (bytes >= extent)
      if (Node* n = addSlab(bytes, queue, why)) return n;

  // No new memory: what other queues still hold back, then unused slabs in exchange for one that fits.
  settle(true);
  for (uint32_t q = 0; q < kMaxQueues; ++q)
    if (bins_[q] && !memory_.idle(q)) memory_.finish(q);
  if (Node* n = bins(queue).at(classOfExtent(extent))) {
    leaveBin(n);
    return n;
  }
  if (Node* n = fromOtherQueues(extent, queue)) return n;
  dropEmptySlabs();
  return addSlab(roundTo(extent, kPage), queue, why);
}

void PoolImpl::dropEmptySlabs() {
  for (size_t i = 0; i < slabs_.size();) {
    Slab& slab = *slabs_[i];
    if (slab.in_use) {
      ++i;
      continue;
    }
    for (Node* n = slab.first; n;) {
      Node* next = n->right();
      // A kernel may still run on memory its tensor has given back; its pages must outlive it.
      if (!memory_.idle(n->queue)) memory_.finish(n->queue);
      leaveBin(n);
      dropNode(n);
      n = next;
    }
    memory_.destroySlab(slab.handle);
    slab.index.close();
    range_->give(slab.base);
    stats_.reserved -= slab.bytes;
    slabs_[i] = std::move(slabs_.back());
    slabs_.pop_back();
  }
}

void PoolImpl::emptyCache() noexcept {
  std::unique_lock lock(mutex_);
  drain();
  settle(true);
  dropEmptySlabs();
}

Error PoolImpl::outOfMemory(size_t bytes, size_t extent, const Error& driver) const {
  const std::string device = "npu:" + std::to_string(options_.device);
  if (extent > limits_.max_buffer_bytes)
    return fail(device + ": one tensor of " + bytesText(bytes) + " is more than this device's limit for one buffer, " +
                    bytesText(limits_.max_buffer_bytes),
                "split the tensor, or use a smaller batch");
  uint64_t in_use = 0, largest = 0;
  for (const auto& slab : slabs_)
    for (const Node* n = slab->first; n; n = n->right()) {
      if (!n->free) in_use += n->extent;
      if (n->free) largest = std::max<uint64_t>(largest, n->extent);
    }
  const uint64_t idle = stats_.reserved - in_use;
  const uint64_t unreserved = limit_bytes_ > stats_.reserved ? limit_bytes_ - stats_.reserved : 0;
  std::string text = device + " is out of memory: requested " + bytesText(bytes) + ", allocated " +
                     bytesText(stats_.allocated) + ", reserved " + bytesText(stats_.reserved) + " of " +
                     bytesText(limit_bytes_) + ", free " + bytesText(idle + unreserved) + " (largest free block " +
                     bytesText(largest);
  if (idle) {
    const auto percent = static_cast<int>(std::lround(100.0 * (1.0 - double(largest) / double(idle))));
    text += ", fragmentation " + std::to_string(percent) + " %";
  }
  text += "), limit for one buffer " + bytesText(limits_.max_buffer_bytes);
  if (!driver.what.empty()) text += "; the driver said: " + driver.what;
  std::string todo = "use a smaller batch, free tensors you no longer need";
  if (idle >= extent) todo += ", or call torch.npu.empty_cache() between phases (the free memory is in pieces)";
  if (options_.limit_bytes) todo += ", or raise FLAGOS_MEMORY_LIMIT";
  return fail(std::move(text), std::move(todo));
}

std::vector<SlabView> PoolImpl::snapshot() const {
  std::vector<SlabView> out;
  std::unique_lock lock(mutex_);
  const_cast<PoolImpl*>(this)->drain();
  for (const auto& slab : slabs_) {
    SlabView view{reinterpret_cast<uint64_t>(slab->base), slab->bytes, {}};
    for (const Node* n = slab->first; n; n = n->next ? static_cast<const Node*>(n->next) : nullptr) {
      const bool waiting = std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) { return w.node == n; });
      const BlockState state = n->free ? BlockState::unused : waiting ? BlockState::pending : BlockState::used;
      view.blocks.push_back({reinterpret_cast<uint64_t>(n->address), n->extent, n->requested, n->site, n->queue, state});
    }
    out.push_back(std::move(view));
  }
  return out;
}

}  // namespace flagos::mou

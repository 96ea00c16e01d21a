#include "runtime/mou/pool.h"

#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/base/settings.h"
#include "runtime/mou/pool_impl.h"
#include "runtime/mou/trial.h"

namespace flagos::mou {
namespace {

std::atomic<void (*)(uint32_t, uint32_t, uint64_t) noexcept> on_allocate{nullptr};
std::atomic<void (*)(uint32_t, uint32_t, uint64_t) noexcept> on_release{nullptr};

void tellAllocate(uint32_t device, uint32_t site, uint64_t bytes) noexcept {
  if (auto* f = on_allocate.load(std::memory_order_acquire)) f(device, site, bytes);
}
void tellRelease(uint32_t device, uint32_t site, uint64_t bytes) noexcept {
  if (auto* f = on_release.load(std::memory_order_acquire)) f(device, site, bytes);
}

size_t powerOfTwoAtLeast(size_t n) noexcept { return std::bit_ceil(std::max<size_t>(n, 1)); }

}  // namespace

void setPoolObserver(PoolObserver observer) noexcept {
  on_allocate.store(observer.onAllocate, std::memory_order_release);
  on_release.store(observer.onRelease, std::memory_order_release);
}

SlabHandle slabHandle(const Block& block) noexcept { return block.slab ? block.slab->handle : nullptr; }

Result<std::unique_ptr<Pool>> Pool::create(DeviceMemory& memory, PoolOptions options) {
  const MemoryLimits limits = memory.limits();
  if (limits.max_buffer_bytes == 0) return fail("the device's limit for one buffer is 0 bytes", "check its driver");
  if (options.limit_bytes == 0) {
    if (const auto text = setting("FLAGOS_MEMORY_LIMIT")) {
      Result<size_t> bytes = parseBytes(*text);
      if (!bytes) return bytes.error();
      options.limit_bytes = *bytes;
    }
  }
  constexpr size_t kPage = 4096;
  options.slab_bytes = std::max(options.slab_bytes / kPage, size_t{1}) * kPage;
  options.slab_bytes = std::min(options.slab_bytes, limits.max_buffer_bytes / kPage * kPage);
  if (options.slab_bytes == 0) return fail("the device allows no buffer of one page", "check its driver");
  auto range = AddressRange::reserve(options.range_bytes, options.slab_bytes);
  if (!range) return range.error();
  return std::unique_ptr<Pool>(new PoolImpl(memory, options, limits, std::move(*range)));
}

PoolImpl::PoolImpl(DeviceMemory& memory, PoolOptions options, MemoryLimits limits, std::unique_ptr<AddressRange> range)
    : memory_(memory),
      options_(options),
      limits_(limits),
      unit_(powerOfTwoAtLeast(std::max<size_t>(128, limits.base_alignment))),
      shift_(std::countr_zero(unit_)),
      limit_bytes_(options.limit_bytes ? options.limit_bytes : limits.global_bytes),
      slab_bytes_(options.slab_bytes),
      range_(std::move(range)) {}

PoolImpl::~PoolImpl() {
  for (auto& slab : slabs_) {
    memory_.destroySlab(slab->handle);
    slab->index.close();
  }
}

size_t PoolImpl::extentFor(size_t bytes) const noexcept {
  const uint64_t units = bytes == 0 ? 1 : (bytes >> shift_) + ((bytes & (unit_ - 1)) != 0);
  return roundUnits(units) << shift_;
}

Bins& PoolImpl::bins(uint32_t queue) {
  auto& b = bins_[queue % kMaxQueues];
  if (!b) b = std::make_unique<Bins>();
  return *b;
}

void PoolImpl::enterBin(Node* node) { bins(node->queue).push(node, classOfExtent(node->extent)); }

void PoolImpl::leaveBin(Node* node) noexcept {
  bins_[node->queue % kMaxQueues]->remove(node, classOfExtent(node->extent));
}

Node* PoolImpl::newNode() {
  if (!spare_) {
    constexpr size_t kMany = 256;
    node_blocks_.push_back(std::make_unique<Node[]>(kMany));
    Node* nodes = node_blocks_.back().get();
    for (size_t i = 0; i < kMany; ++i) {
      nodes[i].next = spare_;
      spare_ = &nodes[i];
    }
  }
  Node* node = spare_;
  spare_ = node->right();
  *node = Node{};
  node->pool = this;
  return node;
}

void PoolImpl::dropNode(Node* node) noexcept {
  node->next = spare_;
  spare_ = node;
}

void PoolImpl::cut(Node* node, size_t extent) {
  if (node->extent == extent) return;
  Node* rest = newNode();
  rest->slab = node->slab;
  rest->offset = node->offset + extent;
  rest->address = static_cast<char*>(node->address) + extent;
  rest->extent = node->extent - extent;
  rest->queue = node->queue;
  rest->free = true;
  rest->prev = node;
  rest->next = node->next;
  if (node->next) node->next->prev = rest;
  node->next = rest;
  node->extent = extent;
  node->slab->index.set(rest->offset >> shift_, rest);
  enterBin(rest);
}

void PoolImpl::absorbRight(Node* node) noexcept {
  Node* r = node->right();
  node->extent += r->extent;
  node->next = r->next;
  if (r->next) r->next->prev = node;
  node->slab->index.clear(r->offset >> shift_);
  dropNode(r);
}

bool PoolImpl::mergeable(const Node* node, uint32_t queue) const noexcept {
  return node && node->free && (node->queue == queue || memory_.idle(node->queue));
}

void PoolImpl::putBack(Node* node) {
  node->free = true;
  node->bytes = node->requested = 0;
  node->site = 0;
  node->slab->in_use--;
  if (Node* r = node->right(); mergeable(r, node->queue)) {
    leaveBin(r);
    absorbRight(node);
  }
  if (Node* l = node->left(); mergeable(l, node->queue)) {
    leaveBin(l);
    l->queue = node->queue;
    absorbRight(l);
    node = l;
  }
  enterBin(node);
}

void PoolImpl::releaseLocked(Node* node) {
  stats_.frees++;
  stats_.allocated -= node->bytes;
  stats_.requested -= node->requested;
  if (node->other_queues) {
    Waiting w{node, {}};
    for (uint32_t q = 0; q < kMaxQueues; ++q)
      if ((node->other_queues >> q & 1) && !memory_.idle(q)) w.tickets.emplace_back(q, memory_.submitted(q));
    node->other_queues = 0;
    if (!w.tickets.empty()) {
      // The holder is gone, so the bytes are nobody's; the block itself stays out of the bins.
      node->bytes = node->requested = 0;
      node->site = 0;
      waiting_.push_back(std::move(w));
      return;
    }
  }
  putBack(node);
}

void PoolImpl::drain() {
  if (!handed_back_.load(std::memory_order_relaxed)) return;  // the common case without a locked instruction
  Node* n = handed_back_.exchange(nullptr, std::memory_order_acquire);
  while (n) {
    Node* next = n->handed_back;
    n->handed_back = nullptr;
    releaseLocked(n);
    n = next;
  }
}

void PoolImpl::settle(bool wait) {
  for (size_t i = 0; i < waiting_.size();) {
    auto& tickets = waiting_[i].tickets;
    while (!tickets.empty()) {
      const auto [queue, ticket] = tickets.back();
      if (!memory_.idle(queue) && !memory_.isDone(queue, ticket)) {
        if (!wait) break;
        memory_.finish(queue);
      }
      tickets.pop_back();
    }
    if (!tickets.empty()) {
      ++i;
      continue;
    }
    Node* node = waiting_[i].node;
    waiting_[i] = std::move(waiting_.back());
    waiting_.pop_back();
    putBack(node);
  }
}

void PoolImpl::pollWaiting() {
  if (!waiting_.empty()) settle(false);
}

Result<Block*> PoolImpl::allocate(size_t bytes, uint32_t queue, uint32_t site) {
  Node* node = nullptr;
  {
    std::unique_lock lock(mutex_);
    drain();
    pollWaiting();
    const size_t extent = bytes <= limits_.max_buffer_bytes ? extentFor(bytes) : 0;
    if (extent) {
      node = bins(queue).at(classOfExtent(extent));
      if (node) {
        leaveBin(node);
      } else {
        Error why;
        node = findSlow(extent, queue, &why);
        if (!node) {
          stats_.ooms++;
          return outOfMemory(bytes, extent, why);
        }
      }
    } else {
      stats_.ooms++;
      return outOfMemory(bytes, bytes, Error{});
    }
    cut(node, extent);
    node->free = false;
    node->requested = bytes;
    node->bytes = bytes ? extent : 0;
    node->site = site;
    node->queue = queue;
    node->slab->in_use++;
    stats_.allocations++;
    stats_.allocated += node->bytes;
    stats_.requested += bytes;
    stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
    stats_.requested_peak = std::max(stats_.requested_peak, stats_.requested);
  }
  tellAllocate(options_.device, site, node->bytes);
  return static_cast<Block*>(node);
}

void PoolImpl::release(Block* block) noexcept {
  if (!block) return;
  Node* node = static_cast<Node*>(block);
  tellRelease(options_.device, node->site, node->bytes);
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) {
    releaseLocked(node);
    return;
  }
  // Whoever holds the lock may be waiting for a device; a deleter must not. The next caller takes the block in.
  Node* head = handed_back_.load(std::memory_order_relaxed);
  do {
    node->handed_back = head;
  } while (!handed_back_.compare_exchange_weak(head, node, std::memory_order_release, std::memory_order_relaxed));
}

bool PoolImpl::grow(Block* block, size_t bytes) noexcept {
  Node* node = static_cast<Node*>(block);
  uint64_t before = 0, after = 0;
  uint32_t site = 0;
  {
    std::unique_lock lock(mutex_);
    drain();
    if (bytes > limits_.max_buffer_bytes) return false;
    const size_t extent = extentFor(bytes);
    if (extent > node->extent) {
      Node* r = node->right();
      if (!mergeable(r, node->queue) || node->extent + r->extent < extent) return false;
      leaveBin(r);
      absorbRight(node);
      cut(node, extent);
    }
    before = node->bytes;
    after = node->extent;
    site = node->site;
    stats_.allocated += after - before;
    stats_.requested += bytes - node->requested;
    node->bytes = after;
    node->requested = bytes;
    stats_.allocated_peak = std::max(stats_.allocated_peak, stats_.allocated);
    stats_.requested_peak = std::max(stats_.requested_peak, stats_.requested);
  }
  if (after != before) {
    tellRelease(options_.device, site, before);
    tellAllocate(options_.device, site, after);
  }
  return true;
}

Block* PoolImpl::find(const void* address) noexcept {
  std::unique_lock lock(mutex_);
  Slab* slab = range_->slabAt(address);
  if (!slab) return nullptr;
  const size_t offset = static_cast<size_t>(static_cast<const char*>(address) - slab->base);
  if (offset >= slab->bytes) return nullptr;
  Node* node = slab->index.below(offset >> shift_);
  if (!node || node->free || offset - node->offset >= node->extent) return nullptr;
  return node;
}

void PoolImpl::recordQueue(Block* block, uint32_t queue) noexcept {
  std::unique_lock lock(mutex_);
  if (block->queue != queue) block->other_queues |= uint64_t{1} << (queue % kMaxQueues);
}

PoolStats PoolImpl::stats() const noexcept {
  auto* self = const_cast<PoolImpl*>(this);
  std::unique_lock lock(mutex_);
  self->drain();
  PoolStats s = stats_;
  s.slabs = slabs_.size();
  s.largest_free = 0;
  for (const auto& b : bins_)
    if (b)
      if (const Node* n = b->largest()) s.largest_free = std::max<uint64_t>(s.largest_free, n->extent);
  return s;
}

void PoolImpl::resetPeaks() noexcept {
  std::unique_lock lock(mutex_);
  drain();
  stats_.allocated_peak = stats_.allocated;
  stats_.requested_peak = stats_.requested;
  stats_.reserved_peak = stats_.reserved;
}

void PoolImpl::restorePeaks(const PoolStats& before) noexcept {
  std::unique_lock lock(mutex_);
  drain();
  stats_.allocated_peak = std::max(before.allocated_peak, stats_.allocated);
  stats_.requested_peak = std::max(before.requested_peak, stats_.requested);
}

TrialMemory::~TrialMemory() { static_cast<PoolImpl&>(pool_).restorePeaks(before_); }

std::vector<Holder> PoolImpl::holders(size_t top) const {
  std::vector<Holder> all;
  {
    std::unique_lock lock(mutex_);
    const_cast<PoolImpl*>(this)->drain();
    for (const auto& slab : slabs_)
      for (const Node* n = slab->first; n; n = n->right())
        if (!n->free && n->bytes) all.push_back({n->site, n->bytes, 1});
  }
  std::sort(all.begin(), all.end(), [](const Holder& a, const Holder& b) { return a.site < b.site; });
  size_t out = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (out && all[out - 1].site == all[i].site) {
      all[out - 1].bytes += all[i].bytes;
      all[out - 1].blocks += 1;
    } else {
      all[out++] = all[i];
    }
  }
  all.resize(out);
  std::sort(all.begin(), all.end(), [](const Holder& a, const Holder& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
  });
  if (all.size() > top) all.resize(top);
  return all;
}

}  // namespace flagos::mou

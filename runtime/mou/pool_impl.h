// Internal: the pool's state. pool.cpp has the hot paths, pool_slow.cpp slabs, pressure and error texts.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/mou/pool.h"
#include "runtime/mou/range.h"
#include "runtime/mou/slab.h"

namespace flagos::mou {

inline constexpr uint32_t kMaxQueues = 64;

class PoolImpl final : public Pool {
 public:
  PoolImpl(DeviceMemory& memory, PoolOptions options, MemoryLimits limits, std::unique_ptr<AddressRange> range);
  ~PoolImpl() override;

  Result<Block*> allocate(size_t bytes, uint32_t queue, uint32_t site) override;
  void release(Block* block) noexcept override;
  bool grow(Block* block, size_t bytes) noexcept override;
  Block* find(const void* address) noexcept override;
  bool contains(const void* address) const noexcept override { return range_->contains(address); }
  void recordQueue(Block* block, uint32_t queue) noexcept override;
  void emptyCache() noexcept override;
  PoolStats stats() const noexcept override;
  void resetPeaks() noexcept override;
  void restorePeaks(const PoolStats& before) noexcept;   // the peaks of `before`, or what is allocated now
  std::vector<Holder> holders(size_t top) const override;
  std::vector<SlabView> snapshot() const override;

  bool tryLockForFork() noexcept override { return mutex_.try_lock(); }
  void unlockAfterFork() noexcept override { mutex_.unlock(); }

 private:
  // A released block that other queues may still use, with the ticket each must reach.
  struct Waiting {
    Node* node;
    std::vector<std::pair<uint32_t, uint64_t>> tickets;
  };

  // All below need the mutex.
  Bins& bins(uint32_t queue);
  uint32_t classOfExtent(size_t extent) const noexcept { return classOf(extent >> shift_); }
  size_t extentFor(size_t bytes) const noexcept;
  void enterBin(Node* node);
  void leaveBin(Node* node) noexcept;
  Node* newNode();
  void dropNode(Node* node) noexcept;
  void cut(Node* node, size_t extent);              // splits the tail off into its bin
  void absorbRight(Node* node) noexcept;            // node swallows its right neighbour
  bool mergeable(const Node* node, uint32_t queue) const noexcept;
  void putBack(Node* node);                         // free, coalesced, in the bin of its queue
  void releaseLocked(Node* node);
  void drain();                                     // blocks handed back while the lock was taken
  void pollWaiting();
  void settle(bool wait);                           // every waiting block whose queues are done; waits if asked

  // pool_slow.cpp
  Node* findSlow(size_t extent, uint32_t queue, Error* why);
  Node* fromOtherQueues(size_t extent, uint32_t queue);
  Node* addSlab(size_t bytes, uint32_t queue, Error* why);
  void dropEmptySlabs();
  Error outOfMemory(size_t bytes, size_t extent, const Error& driver) const;

  DeviceMemory& memory_;
  const PoolOptions options_;
  const MemoryLimits limits_;
  const size_t unit_;
  const int shift_;
  const size_t limit_bytes_;
  const size_t slab_bytes_;

  mutable std::mutex mutex_;
  std::atomic<Node*> handed_back_{nullptr};
  std::unique_ptr<AddressRange> range_;
  std::array<std::unique_ptr<Bins>, kMaxQueues> bins_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<Waiting> waiting_;
  std::vector<std::unique_ptr<Node[]>> node_blocks_;
  Node* spare_ = nullptr;  // unused nodes, linked by next
  PoolStats stats_{};
};

}  // namespace flagos::mou

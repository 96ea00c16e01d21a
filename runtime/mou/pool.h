// One virtual memory pool per logical device (DESIGN section 6).
// A large range of host addresses is reserved (PROT_NONE, no reserve); a tensor's data pointer is an address in it for
// life. Slabs back parts of the range; blocks are split from slabs and coalesced when freed. A block never spans slabs.
//
// Threads: every member may be called from any thread, with or without the GIL; the pool never takes the GIL.
// Lock order: GIL, then the pool's mutex. Deleters only push to a lock-free list when the lock is taken elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/mou/device_memory.h"

namespace flagos::mou {

class Pool;
struct Slab;

// The allocation record: it is the DataPtr's context, so tensor -> storage -> context needs no address map.
struct Block {
  Pool* pool = nullptr;
  Slab* slab = nullptr;
  void* address = nullptr;     // host address in the range; equals the tensor's data pointer
  size_t bytes = 0;            // rounded size, what the pool hands out
  size_t requested = 0;        // what was asked for
  size_t offset = 0;           // bytes from the start of the slab's buffer
  uint32_t site = 0;           // telemetry::SiteId that asked for it
  uint32_t queue = 0;          // queue it was allocated on
  uint64_t other_queues = 0;   // bit per further queue that used it (record_stream)
  Block *prev = nullptr, *next = nullptr;  // neighbours in the slab, for coalescing
  bool free = false;
};

struct PoolOptions {
  size_t range_bytes = size_t{1} << 40;   // reserved addresses, not memory
  size_t slab_bytes = size_t{64} << 20;   // smallest slab; bigger requests get a slab of their own
  size_t limit_bytes = 0;                 // 0: the device's own
  bool guard_gaps = false;                // PROT_NONE gap between slabs (test builds)
  uint32_t device = 0;                    // index N of npu:N, for texts and telemetry
};

struct PoolStats {            // all in bytes or counts, exact
  uint64_t allocated, allocated_peak;   // sum of Block::bytes in use
  uint64_t requested, requested_peak;
  uint64_t reserved, reserved_peak;     // sum of slab sizes
  uint64_t allocations, frees, slabs, ooms;
  uint64_t largest_free;                // largest free block now
};

// The pool as it stands, for memory snapshots: every slab with its blocks in address order.
enum class BlockState : uint8_t { used, pending, unused };  // pending: released, another queue may still use it
struct BlockView { uint64_t address, bytes, requested; uint32_t site, queue; BlockState state; };
struct SlabView { uint64_t address, bytes; std::vector<BlockView> blocks; };

// Who holds memory, for the out-of-memory text.
struct Holder { uint32_t site; uint64_t bytes; uint64_t blocks; };

class Pool {
 public:
  static Result<std::unique_ptr<Pool>> create(DeviceMemory& memory, PoolOptions options);
  virtual ~Pool() = default;

  // bytes = 0 gives a Block with a unique address and bytes 0. Rounded up by at most 12.5 % (or to 128 bytes).
  // On failure the error names requested, free, reserved, the limit for one buffer and what to do; holders() has the rest.
  virtual Result<Block*> allocate(size_t bytes, uint32_t queue, uint32_t site) = 0;
  virtual void release(Block* block) noexcept = 0;
  // Grows in place where the neighbour is free; false if it cannot.
  virtual bool grow(Block* block, size_t bytes) noexcept = 0;
  // The block that contains the address, or null. Lock only, no GIL (getDeviceFromPtr).
  virtual Block* find(const void* address) noexcept = 0;
  virtual bool contains(const void* address) const noexcept = 0;
  virtual void recordQueue(Block* block, uint32_t queue) noexcept = 0;
  // Returns slabs that hold no block to the device.
  virtual void emptyCache() noexcept = 0;
  virtual PoolStats stats() const noexcept = 0;
  virtual void resetPeaks() noexcept = 0;
  virtual std::vector<Holder> holders(size_t top) const = 0;
  virtual std::vector<SlabView> snapshot() const = 0;
  // Around fork, in the forking thread: the child must not inherit a lock held by a thread it does not have. tryLock
  // never blocks; unlock follows, in parent and child, where it said true.
  virtual bool tryLockForFork() noexcept = 0;
  virtual void unlockAfterFork() noexcept = 0;
};

SlabHandle slabHandle(const Block& block) noexcept;  // the device buffer that holds the block

// Called (if set) under no lock for every block handed out or given back; telemetry hangs here. Must not throw or lock.
struct PoolObserver {
  void (*onAllocate)(uint32_t device, uint32_t site, uint64_t bytes) noexcept = nullptr;
  void (*onRelease)(uint32_t device, uint32_t site, uint64_t bytes) noexcept = nullptr;
};
void setPoolObserver(PoolObserver observer) noexcept;

}  // namespace flagos::mou

// What the memory pool needs of a device. runtime/opencl implements it; tests implement it with plain arrays.
#pragma once
#include <cstddef>
#include <cstdint>

#include "runtime/base/result.h"

namespace flagos::mou {

struct MemoryLimits {
  size_t max_buffer_bytes;   // largest single device buffer
  size_t global_bytes;       // device memory we may use in all
  size_t base_alignment;     // bytes; blocks start at multiples of max(this, 128)
  bool shared;               // a slab's host pages are the device's memory (zero copy)
};

// One device buffer that backs one contiguous part of the virtual range.
using SlabHandle = void*;    // runtime/opencl: a cl_mem

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual MemoryLimits limits() const = 0;
  // Backs [host, host + bytes). Shared: the pages are readable and become the buffer's storage. Discrete: the device
  // makes its own storage and the pages stay PROT_NONE. Error text names bytes and the limit. Any thread.
  virtual Result<SlabHandle> createSlab(void* host, size_t bytes) = 0;
  virtual void destroySlab(SlabHandle slab) noexcept = 0;
  // Blocks until work enqueued so far on `queue` is done (used before a block crosses queues). Never takes the GIL.
  virtual void finish(uint32_t queue) noexcept = 0;
  // True if the queue has nothing pending; must not call into the driver when our own counters already say so.
  virtual bool idle(uint32_t queue) const noexcept = 0;
  // Tickets, so that a block lent to a busy queue comes back before that queue is idle. Counters only, no driver call.
  // The defaults fit a device that cannot tell: a block then waits until the queue is idle.
  virtual uint64_t submitted(uint32_t) const noexcept { return 0; }
  virtual bool isDone(uint32_t queue, uint64_t) const noexcept { return idle(queue); }
};

}  // namespace flagos::mou

// Where tensors' bytes come from. npu storages hold a mou::Block as their DataPtr context and its address as their data,
// so tensor -> storage -> block needs no address map. Two more allocators stand beside it:
//  - host: "pinned" memory (plain page-aligned host memory; drivers are handed its address as it is);
//  - the CPU allocator's wrapper: while a host-route operator runs, what CPU kernels allocate comes from the npu range,
//    so that a fresh result becomes an npu tensor without a copy.
//
// Threads: any; none of this takes the GIL.
#pragma once
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/mou/pool.h"
#include "runtime/opencl/queue.h"

namespace flagos::glue {

// Installs the device, host and CPU-wrapping allocators. Once, at start.
void installAllocators();

c10::DeviceAllocator* deviceAllocator() noexcept;
at::HostAllocator* hostAllocator() noexcept;
bool isPinned(const void* data) noexcept;
// Work just enqueued reads or writes pinned memory at `data`: it is kept, although freed, until that work is done.
void pinnedInUse(const void* data, ocl::Queue& queue);

// Bytes on a device, on its current stream. Throws OutOfMemoryError with the pool's text and the top holders by line.
c10::DataPtr allocateOn(int device, size_t bytes);

// The block that holds a storage's data; null for storages that are not ours.
mou::Block* blockOf(const c10::StorageImpl& storage) noexcept;

// Index of the npu device whose range contains the address, or -1. A lookup only: the GIL may be held.
int deviceOf(const void* address) noexcept;

// While alive on a thread, CPU allocations of that thread come from the device's range (shared-memory devices only).
class HostAllocationScope {
 public:
  explicit HostAllocationScope(int device) noexcept;
  ~HostAllocationScope();
  HostAllocationScope(const HostAllocationScope&) = delete;
  HostAllocationScope& operator=(const HostAllocationScope&) = delete;

 private:
  int previous_;
};

// Turns a CPU DataPtr that came from the range into an npu one (same address, block as context). An empty DataPtr comes
// back if the address is not the start of a block of ours; `cpu` is untouched then.
c10::DataPtr retarget(c10::DataPtr& cpu);

}  // namespace flagos::glue

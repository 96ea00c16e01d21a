// Working memory for operators that need more than one launch (split reductions, packed panels). It belongs to the
// queue, not to the tensor pool: users' memory figures count tensors only.
#pragma once
#include <CL/cl.h>

#include <cstddef>
#include <mutex>

#include "runtime/base/result.h"
#include "runtime/opencl/queue.h"

namespace flagos::ocl {

// Holds the queue's scratch buffer while an operator enqueues its launches. The queue runs in order, so the next holder
// may reuse the memory at once. One lease at a time in a thread: hold it for the enqueueing only, never across a call
// of another operator that may lease.
class ScratchLease {
 public:
  ScratchLease(ScratchLease&&) noexcept = default;
  ScratchLease& operator=(ScratchLease&&) noexcept = default;
  cl_mem buffer() const noexcept { return buffer_; }
  size_t bytes() const noexcept { return bytes_; }

 private:
  friend Result<ScratchLease> leaseScratch(Queue& queue, size_t bytes);
  ScratchLease(std::unique_lock<std::mutex> lock, cl_mem buffer, size_t bytes)
      : lock_(std::move(lock)), buffer_(buffer), bytes_(bytes) {}
  std::unique_lock<std::mutex> lock_;
  cl_mem buffer_ = nullptr;
  size_t bytes_ = 0;
};

// At least `bytes`; contents are undefined. Any thread; waits for another thread's lease on the same queue.
Result<ScratchLease> leaseScratch(Queue& queue, size_t bytes);
// Frees the scratch of a queue that is going away, or of all where null.
void releaseScratch(const Queue* queue) noexcept;

}  // namespace flagos::ocl

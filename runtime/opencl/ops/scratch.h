// A short-lived device buffer for one operator: taken from the device's pool, given back when the launcher returns.
// Giving it back before the kernels ran is right: the pool reuses a block on the same queue first, and the queue is
// in-order. It exists so that launchers cannot leak a block on an error path.
#pragma once
#include <CL/cl.h>

#include <cstddef>

#include "runtime/base/result.h"
#include "runtime/mou/pool.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/queue.h"

namespace flagos::ocl {

class Scratch {
 public:
  // The pool's own error (out of memory with figures) is passed on.
  static Result<Scratch> take(Queue& queue, size_t bytes) {
    mou::Pool& pool = queue.device().pool();
    Result<mou::Block*> block = pool.allocate(bytes, queue.id(), currentTag().site);
    if (!block) return block.error();
    return Scratch(&pool, *block);
  }
  Scratch() = default;
  Scratch(Scratch&& other) noexcept : pool_(other.pool_), block_(other.block_) { other.block_ = nullptr; }
  Scratch& operator=(Scratch&& other) noexcept {
    if (this != &other) {
      release();
      pool_ = other.pool_;
      block_ = other.block_;
      other.block_ = nullptr;
    }
    return *this;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(); }

  cl_mem buffer() const noexcept { return block_ ? static_cast<cl_mem>(mou::slabHandle(*block_)) : nullptr; }
  size_t offset() const noexcept { return block_ ? block_->offset : 0; }  // bytes

 private:
  Scratch(mou::Pool* pool, mou::Block* block) : pool_(pool), block_(block) {}
  void release() noexcept {
    if (block_) pool_->release(block_);
    block_ = nullptr;
  }
  mou::Pool* pool_ = nullptr;
  mou::Block* block_ = nullptr;
};

}  // namespace flagos::ocl

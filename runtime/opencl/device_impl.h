// Internal: a live device and the memory interface the pool uses.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/opencl/device.h"
#include "runtime/opencl/program_cache.h"
#include "runtime/opencl/queue_impl.h"

namespace flagos::ocl {

inline constexpr uint32_t kQueues = 32;

class DeviceImpl final : public Device, public mou::DeviceMemory {
 public:
  // `identity` names device and driver; rates measured once are kept under it.
  static Result<std::unique_ptr<DeviceImpl>> open(uint32_t index, cl_platform_id platform, cl_device_id id,
                                                  dal::DeviceDescription description, bool shared,
                                                  const std::string& identity);
  ~DeviceImpl() override;

  uint32_t index() const noexcept override { return index_; }
  const dal::DeviceDescription& description() const noexcept override { return description_; }
  cl_device_id id() const noexcept override { return id_; }
  cl_context context() const noexcept override { return context_; }
  bool sharedMemory() const noexcept override { return shared_; }
  bool directAddresses() const noexcept override { return direct_; }
  ProgramCache& programs() noexcept override { return *programs_; }
  mou::Pool& pool() noexcept override { return *pool_; }
  Queue& queue(uint32_t id) noexcept override;
  Result<void> synchronize() noexcept override;

  // Asks a kernel where its argument lies.
  bool kernelsSeeOurAddresses() noexcept;

  // Around fork: true when nothing is pending (so that the child sees finished data) and the pool's lock is ours.
  bool tryBeforeFork() noexcept;
  void afterFork() noexcept { pool_->unlockAfterFork(); }

  // mou::DeviceMemory
  mou::MemoryLimits limits() const override;
  Result<mou::SlabHandle> createSlab(void* host, size_t bytes) override;
  void destroySlab(mou::SlabHandle slab) noexcept override;
  void finish(uint32_t queue) noexcept override;
  bool idle(uint32_t queue) const noexcept override;
  uint64_t submitted(uint32_t queue) const noexcept override;
  bool isDone(uint32_t queue, uint64_t ticket) const noexcept override;

 private:
  DeviceImpl(uint32_t index, cl_device_id id, dal::DeviceDescription description, bool shared);
  QueueImpl* existing(uint32_t id) const noexcept {
    return id < kQueues ? queues_[id].load(std::memory_order_acquire) : nullptr;
  }

  const uint32_t index_;
  const cl_device_id id_;
  dal::DeviceDescription description_;
  const bool shared_;
  bool direct_ = false;
  cl_context context_ = nullptr;
  std::mutex queues_mutex_;
  std::array<std::atomic<QueueImpl*>, kQueues> queues_{};
  std::unique_ptr<ProgramCacheImpl> programs_;
  std::unique_ptr<mou::Pool> pool_;
};

// Makes exit() wait for the queues of open devices before it tears down what drivers have set up. Exit handlers run last
// in, first out, and drivers add theirs as they go: so this is asked again after the first few waits.
void waitAtExit() noexcept;

}  // namespace flagos::ocl

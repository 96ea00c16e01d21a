#include "runtime/opencl/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "runtime/base/metric.h"
#include "runtime/base/paths.h"
#include "runtime/opencl/describe.h"
#include "runtime/opencl/device_impl.h"
#include "runtime/opencl/error.h"
#include "runtime/opencl/fork_guard.h"
#include "runtime/opencl/rates.h"

namespace flagos::ocl {

DeviceImpl::DeviceImpl(uint32_t index, cl_device_id id, dal::DeviceDescription description, bool shared)
    : index_(index), id_(id), description_(std::move(description)), shared_(shared) {}

bool DeviceImpl::kernelsSeeOurAddresses() noexcept {
  alignas(4096) static std::array<uint64_t, 512> page;
  ProgramCache& programs = *programs_;
  auto kernel = programs.kernelFromText("addresses", "kernel void address(global ulong* p) { p[0] = (ulong)p; }\n", "address");
  if (!kernel) return false;
  static std::mutex one;
  const std::unique_lock lock(one);
  page[0] = 0;
  cl_int status = CL_SUCCESS;
  const cl_mem mem = clCreateBuffer(context_, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizeof page, page.data(), &status);
  if (!mem) return false;
  Range range;
  range.local[0] = 1;
  Queue& own = queue(0);
  const bool seen = own.launch(**kernel, range, {Arg::buffer(mem)}).ok() && own.finish().ok() &&
                    page[0] == reinterpret_cast<uint64_t>(page.data());
  clReleaseMemObject(mem);
  return seen;
}

Result<std::unique_ptr<DeviceImpl>> DeviceImpl::open(uint32_t index, cl_platform_id platform, cl_device_id id,
                                                     dal::DeviceDescription description, bool shared,
                                                     const std::string& identity) {
  std::unique_ptr<DeviceImpl> device(new DeviceImpl(index, id, std::move(description), shared));
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(platform), 0};
  cl_int status = CL_SUCCESS;
  device->context_ = clCreateContext(properties, 1, &id, nullptr, nullptr, &status);
  if (!device->context_) return clError("clCreateContext", status, "npu:" + std::to_string(index));
  device->programs_ = std::make_unique<ProgramCacheImpl>(device->context_, id, index, cacheDir() + "/kernels", keepOf(id));
  auto queue = std::make_unique<QueueImpl>(*device, 0, shared);
  if (auto r = queue->open(); !r) return r.error();
  device->queues_[0].store(queue.release(), std::memory_order_release);
  // Other drivers may call themselves a CPU and keep memory of their own all the same (simulators do): they are asked.
  device->direct_ = shared && (deviceValue<cl_device_type>(id, CL_DEVICE_TYPE, 0) & CL_DEVICE_TYPE_CPU) &&
                    (isPocl(id) || device->kernelsSeeOurAddresses());
  mou::PoolOptions options;
  options.device = index;
  auto pool = mou::Pool::create(*device, options);
  if (!pool) return pool.error();
  device->pool_ = std::move(*pool);
  fillRates(*device, device->description_, identity);
  return device;
}

bool DeviceImpl::tryBeforeFork() noexcept {
  for (uint32_t i = 0; i < kQueues; ++i)
    if (QueueImpl* q = existing(i)) {
      q->harvest();
      if (!q->knownDone(q->submitted())) return false;
    }
  return pool_->tryLockForFork();
}

DeviceImpl::~DeviceImpl() {
  for (auto& q : queues_) delete q.load();
  pool_.reset();
  programs_.reset();
  if (context_) clReleaseContext(context_);
}

Queue& DeviceImpl::queue(uint32_t id) noexcept {
  id %= kQueues;
  if (QueueImpl* q = existing(id)) return *q;
  std::unique_lock lock(queues_mutex_);
  if (QueueImpl* q = existing(id)) return *q;
  auto made = std::make_unique<QueueImpl>(*this, id, shared_);
  (void)made->open();  // a queue that could not be made answers every call with the reason
  queues_[id].store(made.get(), std::memory_order_release);
  return *made.release();
}

Result<void> DeviceImpl::synchronize() noexcept {
  Result<void> first;
  for (uint32_t i = 0; i < kQueues; ++i)
    if (QueueImpl* q = existing(i))
      if (auto r = q->finish(); !r && first.ok()) first = r;
  return first;
}

mou::MemoryLimits DeviceImpl::limits() const {
  const cl_uint bits = deviceValue<cl_uint>(id_, CL_DEVICE_MEM_BASE_ADDR_ALIGN, 1024);
  return {static_cast<size_t>(description_.max_alloc_bytes), static_cast<size_t>(description_.memory_bytes),
          std::clamp<size_t>(bits / 8, 128, 4096), shared_};
}

Result<mou::SlabHandle> DeviceImpl::createSlab(void* host, size_t bytes) {
  const std::string about = "npu:" + std::to_string(index_) + ", a buffer of " + formatBytes(double(bytes)) +
                            " (limit " + formatBytes(double(description_.max_alloc_bytes)) + ")";
  if (shared_ && ::mprotect(host, bytes, PROT_READ | PROT_WRITE) != 0)
    return fail(about + ": mprotect failed: " + std::strerror(errno));
  // Kernels walk matrices in strides of pages; with small pages every step misses the address cache.
  if (shared_) (void)::madvise(host, bytes, MADV_HUGEPAGE);
  // A forked child may go on with host kernels on its own copy of the pages; it has no use for a buffer.
  if (forkedAfterOpen()) {
    if (shared_) return mou::SlabHandle{nullptr};
    return fail(about + " cannot be made in a process forked after npu was opened", "start workers with the spawn method");
  }
  cl_int status = CL_SUCCESS;
  const cl_mem mem = clCreateBuffer(context_, CL_MEM_READ_WRITE | (shared_ ? CL_MEM_USE_HOST_PTR : 0), bytes,
                                    shared_ ? host : nullptr, &status);
  if (!mem) return clError("clCreateBuffer", status, about);
  return mou::SlabHandle{mem};
}

void DeviceImpl::destroySlab(mou::SlabHandle slab) noexcept {
  if (slab && !forkedAfterOpen()) clReleaseMemObject(static_cast<cl_mem>(slab));
}

void DeviceImpl::finish(uint32_t queue) noexcept {
  // The pool has nobody to tell: a failure waits for the next wait of the queue's user.
  if (QueueImpl* q = existing(queue)) q->waitQuietly(q->submitted());
}

bool DeviceImpl::idle(uint32_t queue) const noexcept {
  const QueueImpl* q = existing(queue);
  return !q || q->knownDone(q->submitted());
}

uint64_t DeviceImpl::submitted(uint32_t queue) const noexcept {
  const QueueImpl* q = existing(queue);
  return q ? q->submitted() : 0;
}

bool DeviceImpl::isDone(uint32_t queue, uint64_t ticket) const noexcept {
  const QueueImpl* q = existing(queue);
  return !q || q->knownDone(ticket);
}

}  // namespace flagos::ocl

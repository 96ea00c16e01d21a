// The 1.x call makes queues on every driver; the 2.0 one is missing from older ones.
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include "runtime/opencl/queue.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/base/names.h"
#include "runtime/opencl/describe.h"
#include "runtime/opencl/device_impl.h"
#include "runtime/opencl/error.h"
#include "runtime/opencl/fork_guard.h"
#include "runtime/opencl/queue_impl.h"

namespace flagos::ocl {
namespace {

constexpr uint64_t kLookEvery = 16;  // submissions between looks at what is done
constexpr size_t kHostCopy = size_t{64} << 10;
constexpr size_t kSmall = 2;  // work-items: a wide kernel gives each thousands of elements

std::atomic<SiteText> site_text{nullptr};

size_t items(const Range& r) { return r.global[0] * (r.dims > 1 ? r.global[1] : 1) * (r.dims > 2 ? r.global[2] : 1); }

}  // namespace

void setSiteText(SiteText text) noexcept { site_text.store(text, std::memory_order_release); }

LaunchTag& currentTag() noexcept {
  thread_local LaunchTag tag;
  return tag;
}

QueueImpl::QueueImpl(Device& device, uint32_t id, bool shared) : device_(device), id_(id), shared_(shared) {}

QueueImpl::~QueueImpl() {
  forgetQueue(this);
  (void)finish();
  if (fault_buffer_) clReleaseMemObject(fault_buffer_);
  if (gate_) clReleaseEvent(gate_);
  if (queue_) clReleaseCommandQueue(queue_);
}

std::string QueueImpl::about() const { return "npu:" + std::to_string(device_.index()); }

Result<void> QueueImpl::open() {
  cl_int status = CL_SUCCESS;
  queue_ = clCreateCommandQueue(device_.context(), device_.id(), CL_QUEUE_PROFILING_ENABLE, &status);
  if (!queue_) {
    open_error_ = clError("clCreateCommandQueue", status, about());
    return *open_error_;
  }
  pocl_ = isPocl(device_.id());
  rememberQueue(this);
  return {};
}

void QueueImpl::harvest() noexcept {
  if (idle() || forkedAfterOpen()) return;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  flush();
  retire(true);
}

// Where the driver wakes its threads for every command, a run of small ones costs more to submit than to compute: the first
// of them waits for an event of ours, the others, in order, for it, and the driver is woken once.
cl_event QueueImpl::closeGate() {
  if (gate_) return nullptr;  // what follows waits for what stands behind it
  gate_ = clCreateUserEvent(device_.context(), nullptr);
  return gate_;
}

void QueueImpl::flush() noexcept {
  if (gate_) {
    clSetUserEventStatus(gate_, CL_COMPLETE);
    clReleaseEvent(gate_);
    gate_ = nullptr;
  }
  if (unflushed_) clFlush(queue_);
  unflushed_ = 0;
}

std::optional<Error> QueueImpl::refuse() const {
  if (forkedAfterOpen())
    return fail(about() + " was opened before this process was forked, and OpenCL does not survive fork",
                "start workers with the spawn method, or use npu only in the parent or only in the workers");
  return open_error_;
}

char* QueueImpl::hostPointer(cl_mem mem) const noexcept {
  void* host = nullptr;
  if (!shared_ || clGetMemObjectInfo(mem, CL_MEM_HOST_PTR, sizeof host, &host, nullptr) != CL_SUCCESS) return nullptr;
  return static_cast<char*>(host);
}

void QueueImpl::deliver(const Entry& e) {
  const TimingSink to = timingSink();
  if (!to && !e.stamp) return;
  cl_ulong queued = 0, start = 0, end = 0;
  const auto ask = [&](cl_profiling_info what, cl_ulong& value) {
    return clGetEventProfilingInfo(e.event, what, sizeof value, &value, nullptr) == CL_SUCCESS;
  };
  const bool known = ask(CL_PROFILING_COMMAND_QUEUED, queued) && ask(CL_PROFILING_COMMAND_START, start) &&
                     ask(CL_PROFILING_COMMAND_END, end) && end >= start && start >= queued;
  if (e.stamp) {  // a driver that does not time markers: now is the earliest time we can vouch for
    e.stamp->store(known && queued ? e.host_ns + (end - queued) : nowNs(), std::memory_order_release);
    return;
  }
  if (!known) return;
  // The driver's clock is mapped to ours at the enqueue, which both saw; an in-order queue never overlaps itself.
  const uint64_t begin = std::max<uint64_t>(e.host_ns + (start - queued), last_end_ns_);
  last_end_ns_ = begin + (end - start);
  to({e.tag, e.command, e.name, device_.index(), id_, begin, last_end_ns_, e.host_ns, e.first});
}

void QueueImpl::retire(bool ask_driver) {
  uint64_t done = done_.load(std::memory_order_relaxed);
  const uint64_t last = submitted_.load(std::memory_order_relaxed);
  while (done < last) {
    Entry& e = at(done + 1);
    cl_int state = CL_COMPLETE;
    if (ask_driver)
      if (clGetEventInfo(e.event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, nullptr) != CL_SUCCESS) break;
    if (state > CL_COMPLETE) break;
    if (state < 0 && !failed_) {
      failed_ = clError("a command", state, about());
      failed_flag_.store(true, std::memory_order_release);
    }
    if (e.host_ns) deliver(e);
    clReleaseEvent(e.event);
    e = Entry{};
    ++done;
  }
  done_.store(done, std::memory_order_release);
}

std::optional<Error> QueueImpl::makeRoom(std::unique_lock<std::mutex>& lock) {
  const uint64_t last = submitted_.load(std::memory_order_relaxed);
  if (last % kLookEvery == 0) retire(true);
  while (submitted_.load(std::memory_order_relaxed) - done_.load(std::memory_order_relaxed) >= kRing) {
    // Half the ring, so that the queue does not run dry while we wake up.
    cl_event event = at(done_.load(std::memory_order_relaxed) + kRing / 2).event;
    clRetainEvent(event);
    flush();
    lock.unlock();
    const cl_int status = clWaitForEvents(1, &event);
    lock.lock();
    clReleaseEvent(event);
    if (status != CL_SUCCESS && status != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
      return clError("clWaitForEvents", status, about());
    retire(true);
  }
  return std::nullopt;
}

void QueueImpl::push(cl_event event, uint64_t host_ns, Command command, uint32_t name, Stamp stamp, bool first, bool small) {
  const uint64_t ticket = submitted_.load(std::memory_order_relaxed) + 1;
  at(ticket) = Entry{event, currentTag(), host_ns, command, name, first, std::move(stamp)};
  submitted_.store(ticket, std::memory_order_release);
  if (++unflushed_ < batch_ && !(gate_ && !small)) return;
  // What stands before this batch keeps the device busy meanwhile: the next one may be longer, and is woken for once.
  const bool busy = ticket - done_.load(std::memory_order_relaxed) > unflushed_;
  batch_ = busy ? std::min(batch_ * 2, kMostBatch) : kLeastBatch;
  flush();
}

// Whether a driver may compile for this launch. PoCL moreover keeps at most 128 compiled kernel shapes loaded, and aborts
// the process if it must make room while one of them runs: past a safe number such a launch waits until nothing runs.
QueueImpl::ShapeUse QueueImpl::useShape(const Kernel& kernel, const Range& range) {
  constexpr uint64_t kSafe = 100, kBigGrid = 65536;
  static std::atomic<uint64_t> loads{0};
  if (!kernel.owner) return {};
  auto& owner = *static_cast<KernelOwner*>(kernel.owner);
  const uint64_t key = (range.local[0] << 40 | range.local[1] << 20 | range.local[2]) * 2 + (items(range) >= kBigGrid);
  std::unique_lock lock(owner.mutex);
  auto shape = std::find_if(owner.shapes.begin(), owner.shapes.end(), [&](const auto& s) { return s.key == key; });
  const bool fresh = shape == owner.shapes.end();
  if (fresh) shape = owner.shapes.insert(shape, {key, 0});
  const uint64_t now = loads.load(std::memory_order_relaxed);
  const bool load = fresh || now - shape->stamp > kSafe;
  shape->stamp = load ? loads.fetch_add(1, std::memory_order_relaxed) + 1 : now;
  return {fresh, load && shape->stamp > kSafe};
}

Result<void> QueueImpl::launch(const Kernel& kernel, const Range& range, const Arg* args, size_t count) {
  for (int i = 0; i < range.dims; ++i)
    if (range.global[i] == 0) return {};
  if (auto error = refuse()) return *error;
  const ShapeUse use = useShape(kernel, range);
  if (pocl_ && use.may_evict)
    if (auto r = device_.synchronize(); !r) return r;
  std::unique_lock lock(mutex_);
  if (auto error = makeRoom(lock)) return *error;
  auto where = [&](const char* what) { return about() + ", kernel " + std::string(nameText(kernel.name)) + what; };
  const bool timed = timingEnabled(), small = pocl_ && !use.first && items(range) <= kSmall;
  cl_event event = nullptr;
  uint64_t host_ns = 0;
  {
    std::unique_lock<std::mutex> owner;
    if (kernel.owner) owner = std::unique_lock(static_cast<KernelOwner*>(kernel.owner)->mutex);
    for (size_t i = 0; i < count; ++i) {
      const Arg& a = args[i];
      if (fault_buffer_ && !a.data && a.bytes == sizeof(cl_mem) && std::memcmp(a.inline_, &fault_buffer_, sizeof(cl_mem)) == 0)
        lendFault();
      const void* value = a.is_local ? nullptr : a.data ? a.data : a.inline_;
      const cl_int status = clSetKernelArg(kernel.handle, static_cast<cl_uint>(i), a.bytes, value);
      if (status != CL_SUCCESS)
        return clError("clSetKernelArg", status, where((", argument " + std::to_string(i)).c_str()));
    }
    if (timed) host_ns = nowNs();
    const cl_event after = small ? closeGate() : nullptr;
    const cl_int status =
        clEnqueueNDRangeKernel(queue_, kernel.handle, static_cast<cl_uint>(range.dims), nullptr, range.global,
                               range.local[0] ? range.local : nullptr, after ? 1 : 0, after ? &after : nullptr, &event);
    if (status != CL_SUCCESS) return clError("clEnqueueNDRangeKernel", status, where(""));
  }
  push(event, host_ns, Command::kernel, kernel.name, {}, use.first, small);
  return {};
}

Result<void> QueueImpl::foreign(uint32_t name, const std::function<Result<cl_event>(cl_command_queue)>& enqueue) {
  if (auto error = refuse()) return *error;
  // Its kernels are not in our count of what PoCL keeps loaded (useShape): none of ours may run while it loads them.
  if (pocl_)
    if (auto r = device_.synchronize(); !r) return r;
  std::unique_lock lock(mutex_);
  if (auto error = makeRoom(lock)) return *error;
  flush();  // it may wait for what it enqueued
  const uint64_t host_ns = timingEnabled() ? nowNs() : 0;
  const Result<cl_event> event = enqueue(queue_);
  if (!event) return event.error();
  push(*event, host_ns, Command::kernel, name);
  return {};
}

Result<void> QueueImpl::write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking) {
  if (bytes == 0) return {};
  if (char* host = hostPointer(dst)) {
    if (auto r = finish(); !r) return r;
    std::memcpy(host + dst_offset, src, bytes);
    return {};
  }
  if (auto error = refuse()) return *error;
  {
    std::unique_lock lock(mutex_);
    if (auto error = makeRoom(lock)) return *error;
    cl_event event = nullptr;
    const uint64_t host_ns = timingEnabled() ? nowNs() : 0;
    const cl_int status =
        clEnqueueWriteBuffer(queue_, dst, CL_FALSE, dst_offset, bytes, src, 0, nullptr, &event);
    if (status != CL_SUCCESS) return clError("clEnqueueWriteBuffer", status, about());
    push(event, host_ns, Command::copy);
  }
  return blocking ? finish() : Result<void>();
}

Result<void> QueueImpl::read(void* dst, cl_mem src, size_t src_offset, size_t bytes, bool blocking) {
  if (bytes == 0) return {};
  if (const char* host = hostPointer(src)) {
    if (auto r = finish(); !r) return r;
    std::memcpy(dst, host + src_offset, bytes);
    return {};
  }
  if (auto error = refuse()) return *error;
  {
    std::unique_lock lock(mutex_);
    if (auto error = makeRoom(lock)) return *error;
    cl_event event = nullptr;
    const uint64_t host_ns = timingEnabled() ? nowNs() : 0;
    const cl_int status = clEnqueueReadBuffer(queue_, src, CL_FALSE, src_offset, bytes, dst, 0, nullptr, &event);
    if (status != CL_SUCCESS) return clError("clEnqueueReadBuffer", status, about());
    push(event, host_ns, Command::copy);
  }
  return blocking ? finish() : Result<void>();
}

Result<void> QueueImpl::copy(cl_mem dst, size_t dst_offset, cl_mem src, size_t src_offset, size_t bytes) {
  if (bytes == 0 || (dst == src && dst_offset == src_offset)) return {};
  const bool overlap = dst == src && dst_offset < src_offset + bytes && src_offset < dst_offset + bytes;
  if (char* to = hostPointer(dst)) {
    // Where the host sees the pages: overlapping ranges, which OpenCL refuses, and small ones with nothing to wait for.
    const char* from = hostPointer(src);
    if (from && (overlap || (bytes <= kHostCopy && idle()))) {
      if (auto r = finish(); !r) return r;
      std::memmove(to + dst_offset, from + src_offset, bytes);
      return {};
    }
  }
  if (overlap) {
    // By way of a temporary; released at once, the driver keeps it until both copies are done.
    cl_int status = CL_SUCCESS;
    const cl_mem middle = clCreateBuffer(device_.context(), CL_MEM_READ_WRITE, bytes, nullptr, &status);
    if (!middle) return clError("clCreateBuffer", status, about() + ", temporary for an overlapping copy");
    Result<void> r = copy(middle, 0, src, src_offset, bytes);
    if (r) r = copy(dst, dst_offset, middle, 0, bytes);
    clReleaseMemObject(middle);
    return r;
  }
  if (auto error = refuse()) return *error;
  std::unique_lock lock(mutex_);
  if (auto error = makeRoom(lock)) return *error;
  cl_event event = nullptr;
  const uint64_t host_ns = timingEnabled() ? nowNs() : 0;
  const cl_int status = clEnqueueCopyBuffer(queue_, src, dst, src_offset, dst_offset, bytes, 0, nullptr, &event);
  if (status != CL_SUCCESS) return clError("clEnqueueCopyBuffer", status, about());
  push(event, host_ns, Command::copy);
  return {};
}

Result<void> QueueImpl::fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes) {
  if (bytes == 0) return {};
  if (auto error = refuse()) return *error;
  std::unique_lock lock(mutex_);
  if (auto error = makeRoom(lock)) return *error;
  cl_event event = nullptr;
  const uint64_t host_ns = timingEnabled() ? nowNs() : 0;
  const cl_int status = clEnqueueFillBuffer(queue_, dst, pattern, pattern_bytes, offset, bytes, 0, nullptr, &event);
  if (status != CL_SUCCESS) return clError("clEnqueueFillBuffer", status, about());
  push(event, host_ns, Command::fill);
  return {};
}

bool QueueImpl::isDone(uint64_t ticket) noexcept {
  if (knownDone(ticket)) return true;
  if (forkedAfterOpen()) return false;
  std::unique_lock lock(mutex_);
  flush();
  retire(true);
  return knownDone(ticket);
}

Result<void> QueueImpl::wait(uint64_t ticket) noexcept {
  if (auto r = waitDone(ticket); !r) return r;
  // A failure is reported once, by the first wait after it.
  const uint64_t lent = fault_ticket_.load(std::memory_order_acquire);
  const bool fault = lent && knownDone(lent);
  if (!fault && !failed_flag_.load(std::memory_order_acquire)) return {};
  std::unique_lock lock(mutex_);
  if (fault) readFault();
  return takeFailure();
}

Result<void> QueueImpl::waitDone(uint64_t ticket) noexcept {
  if (knownDone(ticket)) return {};
  if (auto error = refuse()) return *error;
  std::unique_lock lock(mutex_);
  if (!knownDone(ticket)) {
    cl_event event = at(std::min(ticket, submitted_.load(std::memory_order_relaxed))).event;
    clRetainEvent(event);
    flush();
    lock.unlock();
    const cl_int status = clWaitForEvents(1, &event);
    lock.lock();
    clReleaseEvent(event);
    if (status != CL_SUCCESS && status != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
      return clError("clWaitForEvents", status, about());
    retire(true);
    if (waits_ < 4) {
      ++waits_;
      waitAtExit();
    }
  }
  return {};
}

Result<cl_mem> QueueImpl::faultRecord() noexcept {
  if (auto error = refuse()) return *error;
  std::unique_lock lock(mutex_);
  if (!fault_buffer_) {
    cl_int status = CL_SUCCESS;
    const cl_mem_flags how = shared_ ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR;
    fault_buffer_ = clCreateBuffer(device_.context(), CL_MEM_READ_WRITE | how, sizeof fault_, &fault_, &status);
    if (!fault_buffer_) return clError("clCreateBuffer", status, about() + ", the record of index faults");
  }
  return fault_buffer_;
}

void QueueImpl::lendFault() {
  fault_ticket_.store(submitted_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  const uint32_t site = currentTag().site;
  const auto end = fault_sites_.begin() + static_cast<std::ptrdiff_t>(std::min(fault_lent_, fault_sites_.size()));
  if (std::find(fault_sites_.begin(), end, site) != end) return;
  if (fault_lent_ < fault_sites_.size()) fault_sites_[fault_lent_] = site;
  ++fault_lent_;
}

std::string QueueImpl::faultAsked() const {
  const SiteText text = site_text.load(std::memory_order_acquire);
  if (!text || !fault_lent_ || fault_lent_ > fault_sites_.size()) return {};
  std::string all, last;
  for (size_t i = 0; i < fault_lent_; ++i) {
    const std::string one = text(fault_sites_[i]);
    if (one.empty()) return {};
    if (one != last) all += (i ? " or " : ", asked for by ") + one;  // one line may make several calls
    last = one;
  }
  return all;
}

void QueueImpl::readFault() {
  const uint64_t lent = fault_ticket_.load(std::memory_order_relaxed);
  if (!lent || !knownDone(lent)) return;   // lent again meanwhile
  fault_ticket_.store(0, std::memory_order_release);
  if (!shared_ && clEnqueueReadBuffer(queue_, fault_buffer_, CL_TRUE, 0, sizeof fault_, &fault_, 0, nullptr, nullptr) != CL_SUCCESS) return;
  const FaultRecord found = fault_;
  const std::string asked = found.taken ? faultAsked() : std::string();
  fault_lent_ = 0;
  if (!found.taken) return;
  fault_ = {};
  if (!shared_) clEnqueueWriteBuffer(queue_, fault_buffer_, CL_TRUE, 0, sizeof fault_, &fault_, 0, nullptr, nullptr);
  if (failed_) return;
  const std::string what(nameText(static_cast<NameId>(found.name)));
  const std::string where = found.size < 0 ? what  // no index: a sentence of its own
                                           : what + ": index " + std::to_string(found.index) + " is out of bounds for a dimension of size " +
                                                 std::to_string(found.size);
  failed_ = fail(where + asked + " (found by a kernel on " + about() + "; this is the first wait since)",
                 "The results since that call are not usable");
  failed_flag_.store(true, std::memory_order_release);
}

Result<uint64_t> QueueImpl::mark(Stamp stamp) noexcept {
  if (idle()) {
    stamp->store(nowNs(), std::memory_order_release);
    return submitted();
  }
  if (auto error = refuse()) return *error;
  std::unique_lock lock(mutex_);
  if (auto error = makeRoom(lock)) return *error;
  cl_event event = nullptr;
  const uint64_t host_ns = nowNs();
  const cl_int status = clEnqueueMarkerWithWaitList(queue_, 0, nullptr, &event);
  if (status != CL_SUCCESS) return clError("clEnqueueMarkerWithWaitList", status, about());
  push(event, host_ns, Command::kernel, 0, std::move(stamp));
  return submitted();
}

Result<void> QueueImpl::waitFor(Queue& other, uint64_t ticket) noexcept {
  auto& from = static_cast<QueueImpl&>(other);
  if (&from == this || from.knownDone(ticket)) return {};
  if (auto error = refuse()) return *error;
  if (from.device_.context() != device_.context()) return from.wait(ticket);
  cl_event event = nullptr;
  {
    std::unique_lock lock(from.mutex_);
    if (from.knownDone(ticket)) return {};
    event = from.at(std::min(ticket, from.submitted())).event;
    clRetainEvent(event);
    from.flush();
  }
  std::unique_lock lock(mutex_);
  std::optional<Error> error = makeRoom(lock);
  if (!error) {
    cl_event barrier = nullptr;
    const cl_int status = clEnqueueBarrierWithWaitList(queue_, 1, &event, &barrier);
    if (status != CL_SUCCESS) error = clError("clEnqueueBarrierWithWaitList", status, about());
    else push(barrier, 0);
  }
  clReleaseEvent(event);
  return error ? Result<void>(*error) : Result<void>();
}

Result<void> QueueImpl::takeFailure() {
  if (!failed_) return {};
  const Error error = std::move(*failed_);
  failed_.reset();
  failed_flag_.store(false, std::memory_order_release);
  return error;
}

}  // namespace flagos::ocl

// Internal: one in-order OpenCL queue with its own count of what is outstanding.
#pragma once
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/opencl/queue.h"

namespace flagos::ocl {

// What a kernel's owner holds: clSetKernelArg and the enqueue that uses the arguments must not interleave.
struct KernelOwner {
  std::mutex mutex;
  // What was launched of this kernel (work-group size and grid class: PoCL compiles each by itself) and when last.
  struct Shape { uint64_t key, stamp; };
  std::vector<Shape> shapes;
};

class QueueImpl final : public Queue {
 public:
  // Outstanding commands are capped: a driver that keeps every command in memory would grow without bound.
  static constexpr size_t kRing = 512;

  QueueImpl(Device& device, uint32_t id, bool shared);
  ~QueueImpl() override;
  // Creates the OpenCL queue; until it succeeds every call returns its error.
  Result<void> open();

  uint32_t id() const noexcept override { return id_; }
  Device& device() noexcept override { return device_; }
  using Queue::launch;
  Result<void> launch(const Kernel& kernel, const Range& range, const Arg* args, size_t count) override;
  // Commands of a library that enqueues by itself, as one command here: `enqueue` gives the event of its last one, and is
  // counted and timed under `name`.
  Result<void> foreign(uint32_t name, const std::function<Result<cl_event>(cl_command_queue)>& enqueue);
  Result<void> write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking) override;
  Result<void> read(void* dst, cl_mem src, size_t src_offset, size_t bytes, bool blocking) override;
  Result<void> copy(cl_mem dst, size_t dst_offset, cl_mem src, size_t src_offset, size_t bytes) override;
  Result<void> fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes) override;
  Result<cl_mem> faultRecord() noexcept override;
  uint64_t submitted() const noexcept override { return submitted_.load(std::memory_order_acquire); }
  bool idle() const noexcept override {
    return done_.load(std::memory_order_acquire) == submitted() && fault_ticket_.load(std::memory_order_acquire) == 0;
  }
  Result<void> finish() noexcept override { return wait(submitted()); }
  bool isDone(uint64_t ticket) noexcept override;
  Result<void> wait(uint64_t ticket) noexcept override;
  Result<uint64_t> mark(Stamp stamp) noexcept override;
  Result<void> waitFor(Queue& other, uint64_t ticket) noexcept override;

  // As wait(), but failures are kept for the next wait that can tell someone.
  void waitQuietly(uint64_t ticket) noexcept { (void)waitDone(ticket); }

  // Takes in what has finished, so that timings arrive although nobody launches or waits.
  void harvest() noexcept;
  // Done by our own counters, without asking the driver.
  bool knownDone(uint64_t ticket) const noexcept { return done_.load(std::memory_order_acquire) >= ticket; }

 private:
  struct Entry {
    cl_event event = nullptr;
    LaunchTag tag;
    uint64_t host_ns = 0;  // nowNs() at the enqueue; 0 = not timed
    Command command = Command::kernel;
    uint32_t name = 0;
    bool first = false;    // as Timing::first
    Stamp stamp;           // a mark: nothing else is told of it
  };

  std::string about() const;
  std::optional<Error> refuse() const;   // forked, or the queue could not be made
  std::optional<Error> makeRoom(std::unique_lock<std::mutex>& lock);
  void push(cl_event event, uint64_t host_ns, Command command = Command::kernel, uint32_t name = 0, Stamp stamp = {},
            bool first = false, bool small = false);
  cl_event closeGate();                  // the event to wait for, or null
  void flush() noexcept;                 // what is submitted starts
  void retire(bool ask_driver);          // takes completed entries off the ring
  void deliver(const Entry& entry);
  struct ShapeUse { bool first = false, may_evict = false; };
  static ShapeUse useShape(const Kernel& kernel, const Range& range);
  Result<void> waitDone(uint64_t ticket) noexcept;
  Result<void> takeFailure();
  void lendFault();                      // to the launch that comes next, under mutex_
  std::string faultAsked() const;        // ", asked for by train.py:12"
  void readFault();                      // under mutex_, when the launch it was lent to is done
  Entry& at(uint64_t ticket) noexcept { return ring_[ticket % kRing]; }
  char* hostPointer(cl_mem mem) const noexcept;

  Device& device_;
  const uint32_t id_;
  const bool shared_;
  bool pocl_ = false;
  cl_command_queue queue_ = nullptr;
  std::optional<Error> open_error_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> submitted_{0}, done_{0};
  // What was submitted starts in batches: small ones where the device is idle, larger ones while it is busy anyhow.
  static constexpr uint64_t kLeastBatch = 16, kMostBatch = 128;
  uint64_t unflushed_ = 0, batch_ = kLeastBatch;
  cl_event gate_ = nullptr;              // what was submitted since the last flush waits for it
  uint64_t last_end_ns_ = 0;
  int waits_ = 0;                        // real ones, counted up to a few
  std::optional<Error> failed_;          // first command that failed and was not reported yet
  std::atomic<bool> failed_flag_{false};
  struct FaultRecord { int64_t taken, index, size, name; };
  alignas(128) FaultRecord fault_{};     // the record itself where host and device share memory
  cl_mem fault_buffer_ = nullptr;
  std::array<uint32_t, 3> fault_sites_{};   // whose launches it was lent to since it was read; more than fit are not named
  size_t fault_lent_ = 0;
  std::atomic<uint64_t> fault_ticket_{0};   // the last launch it was lent to; 0 = none since it was read
  std::array<Entry, kRing> ring_{};      // tickets done_+1 .. submitted_
};

// timing.cpp
bool timingEnabled() noexcept;
TimingSink timingSink() noexcept;
void rememberQueue(QueueImpl* queue);
void forgetQueue(QueueImpl* queue) noexcept;

}  // namespace flagos::ocl

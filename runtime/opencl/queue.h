// One in-order command queue. Launches carry a tag (who asked, which route) for timings.
// Threads: a Queue may be used from any thread; launches are serialised by its mutex. After fork every launch fails
// with an error that says so (an OpenCL context does not survive fork).
#pragma once
#include <CL/cl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <initializer_list>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/opencl/program.h"

namespace flagos::ocl {

class Device;

// Credited with a launch's device time and counted per kernel.
struct LaunchTag {
  uint32_t site = 0;     // telemetry::SiteId
  uint32_t route = 0;    // kde::RouteId
  uint64_t correlation = 0;  // PyTorch's profiler: the operator that runs; 0 = no profiler
};
// The tag used by launches of this thread; set by the torch glue at operator entry.
LaunchTag& currentTag() noexcept;

// One kernel argument: plain old data (up to 16 bytes kept inside, more by pointer), a buffer, or local memory.
struct Arg {
  const void* data;  // null: the value is in inline_
  size_t bytes;
  alignas(16) unsigned char inline_[16];
  bool is_local = false;

  static Arg buffer(cl_mem m) noexcept { return of(m); }
  static Arg local(size_t bytes) noexcept { return Arg{nullptr, bytes, {}, true}; }
  // Plain old data of any size; `p` must live until launch() returns.
  static Arg pointer(const void* p, size_t bytes) noexcept { return Arg{p, bytes, {}}; }
  template <class T> static Arg of(T v) noexcept;
};

// The moment a queue reached a point in its work, on the clock of nowNs(); 0 until it is known.
using Stamp = std::shared_ptr<std::atomic<uint64_t>>;

struct Range { int dims = 1; size_t global[3] = {1, 1, 1}; size_t local[3] = {0, 0, 0}; };  // local[0] = 0: driver's choice

class Queue {
 public:
  virtual ~Queue() = default;
  virtual uint32_t id() const noexcept = 0;       // index within the device; 0 = default queue
  virtual Device& device() noexcept = 0;

  // A range with a global size of 0 does nothing. Throttled: blocks while too many commands are outstanding.
  virtual Result<void> launch(const Kernel& kernel, const Range& range, const Arg* args, size_t count) = 0;
  Result<void> launch(const Kernel& kernel, const Range& range, std::initializer_list<Arg> args) {
    return launch(kernel, range, args.begin(), args.size());
  }
  // Host <-> device. Shared memory: a plain memcpy after a wait. Discrete: enqueued copies. `blocking` returns when done.
  virtual Result<void> write(cl_mem dst, size_t dst_offset, const void* src, size_t bytes, bool blocking) = 0;
  virtual Result<void> read(void* dst, cl_mem src, size_t src_offset, size_t bytes, bool blocking) = 0;
  virtual Result<void> copy(cl_mem dst, size_t dst_offset, cl_mem src, size_t src_offset, size_t bytes) = 0;
  virtual Result<void> fill(cl_mem dst, size_t offset, size_t bytes, const void* pattern, size_t pattern_bytes) = 0;

  // A few longs on the device into which a kernel writes the first index out of range it meets: {int taken, index, size,
  // NameId}. Pass it as an argument: the first wait after that launch fails with a sentence that names index and size, and
  // clears the record. Until then idle() is false.
  virtual Result<cl_mem> faultRecord() noexcept = 0;

  // Work submitted so far has a ticket number; done() is the last finished one we know of.
  virtual uint64_t submitted() const noexcept = 0;
  // Never calls the driver if nothing is pending by our own counters.
  virtual bool idle() const noexcept = 0;
  virtual Result<void> finish() noexcept = 0;
  virtual bool isDone(uint64_t ticket) noexcept = 0;             // may ask the driver, never blocks
  virtual Result<void> wait(uint64_t ticket) noexcept = 0;
  // `stamp` gets the time at which what is submitted now is done. Returns the ticket to wait for.
  virtual Result<uint64_t> mark(Stamp stamp) noexcept = 0;
  // Later work here starts only after `ticket` of `other` is done (streams).
  virtual Result<void> waitFor(Queue& other, uint64_t ticket) noexcept = 0;
};

// Names a LaunchTag's site in messages ("train.py:12"; "" = not known). Set once by the glue; any thread, must not take the GIL.
using SiteText = std::string (*)(uint32_t site);
void setSiteText(SiteText text) noexcept;

enum class Command : uint8_t { kernel, copy, fill };

// When a command ran on the device, on the clock of nowNs().
struct Timing {
  LaunchTag tag;
  Command command;
  uint32_t name;         // NameId of a kernel's function; 0 for copies and fills
  uint32_t device, queue;
  uint64_t start_ns, end_ns;
  uint64_t enqueued_ns = 0;  // when the host enqueued it
  bool first = false;        // this process's first launch of the kernel at this work-group size: a driver may compile inside it
};

// Sink for timings, set once by the glue. Called from a launching or harvesting thread under the queue's lock: it must not
// call back into the queue nor take the GIL.
using TimingSink = void (*)(const Timing&) noexcept;
void setTimingSink(TimingSink sink) noexcept;
// Timings are collected while somebody wants them.
enum class TimingUser : uint8_t { viewer = 1, profiler = 2 };
void setTimingEnabled(bool on, TimingUser who = TimingUser::viewer) noexcept;

template <class T>
Arg Arg::of(T v) noexcept {
  static_assert(sizeof(T) <= 16, "use Arg::pointer");
  Arg a{nullptr, sizeof(T), {}};
  __builtin_memcpy(a.inline_, &v, sizeof(T));
  return a;
}

}  // namespace flagos::ocl

// A live OpenCL device behind npu:N. Made from the DAL's inventory; the context is created at first real use, never
// by enumeration (fork safety).
#pragma once
#include <CL/cl.h>

#include <memory>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/dal/description.h"
#include "runtime/mou/pool.h"
#include "runtime/opencl/program.h"
#include "runtime/opencl/queue.h"

namespace flagos::ocl {

class Device {
 public:
  virtual ~Device() = default;
  virtual uint32_t index() const noexcept = 0;              // N of npu:N
  virtual const dal::DeviceDescription& description() const noexcept = 0;
  virtual cl_device_id id() const noexcept = 0;
  virtual cl_context context() const noexcept = 0;
  virtual bool sharedMemory() const noexcept = 0;           // after FLAGOS_SHARED_MEMORY
  // Kernels run in this process on the pool's own pages: an address in the range means to them what it means to us, so
  // a launch may carry addresses in place of buffers, whose bookkeeping costs a driver more than a small kernel runs.
  virtual bool directAddresses() const noexcept = 0;
  virtual ProgramCache& programs() noexcept = 0;
  virtual mou::Pool& pool() noexcept = 0;
  virtual Queue& queue(uint32_t id = 0) noexcept = 0;       // 0 = default; others made on demand (at most 32)
  virtual Result<void> synchronize() noexcept = 0;          // all queues
};

// Number of npu devices (from the DAL, no context is made). Never throws; 0 without an OpenCL driver.
int deviceCount() noexcept;
// Opens npu:index on first call (context, default queue, pool). Later calls are one load. The error names the index
// and how many devices there are.
Result<Device*> device(int index);
// True once device(index) has succeeded in this process.
bool isOpen(int index) noexcept;
// True in a child forked after a device was opened: launches are refused there.
bool inBadFork() noexcept;
// At a normal end of the process, while it still stands (Python: atexit): waits for the queues, keeps built programs on
// disk so that the next process builds none, stops our threads. Devices stay open.
void shutdown() noexcept;

}  // namespace flagos::ocl

// What the glue knows of the process: which device and stream a thread is on, which devices are open, and the router of
// each. Opening a device is the first real use: it makes the OpenCL context, the router and the telemetry server.
//
// Threads: any. Nothing here takes the GIL. Functions that throw c10::Error are called from PyTorch's side only.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>

#include "runtime/kde/router.h"
#include "runtime/opencl/device.h"
#include "runtime/telemetry/recorder.h"

namespace flagos::glue {

inline constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;
inline constexpr int kMaxDevices = 64;
inline constexpr uint32_t kMaxQueues = 32;   // per device: the default stream and 31 pool streams

int deviceCount() noexcept;

// Index of a device argument: -1 means the current one. Throws if it does not exist, naming index and count.
int checkedIndex(c10::DeviceIndex index);

int currentDevice() noexcept;
void setCurrentDevice(int index);            // throws for an index that does not exist
void setCurrentDeviceUnchecked(int index) noexcept;

// An opened device. Throws with the device's own reason (no such index, no driver, fork).
ocl::Device& openDevice(int index);
kde::Router& router(int index);              // of an open device
ocl::Device* openedDevice(int index) noexcept;  // null if it is not open; never opens one
inline bool isOpen(int index) noexcept { return openedDevice(index) != nullptr; }
int openedLimit() noexcept;                  // devices with index >= this are not open

// Stream ids are queue ids: 0 is the default stream.
uint32_t currentQueueId(int device) noexcept;
uint32_t exchangeQueueId(int device, uint32_t id) noexcept;
uint32_t nextPoolQueueId(int device) noexcept;  // round robin over 1 .. kMaxQueues - 1
ocl::Queue& currentQueue(ocl::Device& device);
ocl::Queue& queueOf(const c10::Stream& stream);
inline c10::Stream streamOf(int device, uint32_t queue) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kNpu, static_cast<c10::DeviceIndex>(device)), queue);
}

// Throws a Result's error as c10::Error (RuntimeError in Python).
void check(const Result<void>& r);

// Waits for the current queue of the device if, and only if, it has work pending. The host may touch memory afterwards.
void waitForHost(ocl::Device& device);

// The source line that asked for the work of this thread. The outermost operator reads it; what it calls inherits it.
class SiteScope {
 public:
  SiteScope() noexcept;
  ~SiteScope();
  SiteScope(const SiteScope&) = delete;
  SiteScope& operator=(const SiteScope&) = delete;
  telemetry::SiteId site() const noexcept { return ocl::currentTag().site; }

 private:
  bool outermost_;
};
// The site of the running operator, or of the caller where none runs (an allocation outside operators).
telemetry::SiteId siteNow() noexcept;

// Stops telemetry; called once at interpreter exit.
void shutDown() noexcept;

}  // namespace flagos::glue

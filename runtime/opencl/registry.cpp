// Which devices there are, and the one live Device behind each npu:N.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/base/settings.h"
#include "runtime/dal/inventory.h"
#include "runtime/opencl/describe.h"
#include "runtime/opencl/device_impl.h"
#include "runtime/opencl/error.h"
#include "runtime/opencl/fork_guard.h"
#include "runtime/opencl/pocl_cache.h"

namespace flagos::ocl {
namespace {

constexpr int kMaxDevices = 64;

// Devices live as long as the process: drivers may already be gone when static objects are destroyed.
std::array<std::atomic<DeviceImpl*>, kMaxDevices> open_devices{};
std::mutex open_mutex;
thread_local uint64_t locked_for_fork = 0;  // a bit per device, between the two hooks of one fork

template <class F>
void eachOpen(F&& f) noexcept {
  for (auto& slot : open_devices)
    if (DeviceImpl* d = slot.load(std::memory_order_acquire)) f(*d);
}

// Bounded: a driver may fork inside a call of ours (to run its linker), in a thread that holds our locks or that the
// queue waits for. Such a child runs another program at once and needs nothing of us.
void beforeFork() noexcept {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::milliseconds(500);
  eachOpen([&](DeviceImpl& d) {
    bool ready = d.tryBeforeFork();
    while (!ready && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      ready = d.tryBeforeFork();
    }
    if (ready) locked_for_fork |= uint64_t{1} << d.index();
  });
}

void afterFork(bool) noexcept {
  eachOpen([](DeviceImpl& d) {
    if (locked_for_fork >> d.index() & 1) d.afterFork();
  });
  locked_for_fork = 0;
}

const dal::Inventory& inventory() {
  privatePoclCache();
  const dal::Inventory& machine = dal::machine();
  // Asking a driver which devices there are already starts its threads (PoCL): a child forked from here on is lost to it.
  if (std::any_of(machine.devices.begin(), machine.devices.end(), [](const dal::Device& d) { return d.opencl.has_value(); }))
    watchForks({beforeFork, afterFork});
  return machine;
}

const dal::Device* indexed(int index) {
  for (const dal::Device& d : inventory().devices)
    if (d.index && *d.index == index) return &d;
  return nullptr;
}

struct Handles { cl_platform_id platform; cl_device_id device; };

Result<Handles> resolve(const dal::Device& device, const std::string& about) {
  if (setting("FLAGOS_ROOT").value_or("/") != "/")
    return fail(about + " is part of the recorded machine in FLAGOS_ROOT and cannot run anything", "unset FLAGOS_ROOT");
  if (!device.opencl) return fail(about + " (" + device.name + ") has no OpenCL driver", "run `flagos doctor`", Exit::no_device);
  const dal::OpenClPlace place = *device.opencl;
  cl_uint count = 0;
  cl_int status = clGetPlatformIDs(0, nullptr, &count);
  std::vector<cl_platform_id> platforms(count);
  if (status == CL_SUCCESS) status = clGetPlatformIDs(count, platforms.data(), nullptr);
  if (status != CL_SUCCESS) return clError("clGetPlatformIDs", status, about);
  if (place.platform >= count) return fail(about + ": the OpenCL platform it was found on is gone", "start the program again");
  cl_uint devices = 0;
  status = clGetDeviceIDs(platforms[place.platform], CL_DEVICE_TYPE_ALL, 0, nullptr, &devices);
  std::vector<cl_device_id> ids(devices);
  if (status == CL_SUCCESS)
    status = clGetDeviceIDs(platforms[place.platform], CL_DEVICE_TYPE_ALL, devices, ids.data(), nullptr);
  if (status != CL_SUCCESS) return clError("clGetDeviceIDs", status, about);
  if (place.device >= devices) return fail(about + " is gone from its OpenCL platform", "start the program again");
  return Handles{platforms[place.platform], ids[place.device]};
}

// The DAL's description, with what only the driver knows filled in where the DAL has no word.
dal::DeviceDescription complete(dal::DeviceDescription d, cl_device_id id) {
  const dal::DeviceDescription driver = describe(id);
  if (d.name.empty()) d.name = driver.name;
  if (d.vendor.empty()) d.vendor = driver.vendor;
  if (!d.compute_units) d.compute_units = driver.compute_units;
  if (!d.clock_mhz) d.clock_mhz = driver.clock_mhz;
  if (!d.local_bytes) d.local_bytes = driver.local_bytes;
  // What can be allocated is the driver's to say.
  d.memory_bytes = driver.memory_bytes;
  d.max_alloc_bytes = driver.max_alloc_bytes;
  d.fp16 = driver.fp16;
  d.fp64 = driver.fp64;
  d.shared_memory = driver.shared_memory;
  return d;
}

}  // namespace

int deviceCount() noexcept {
  try {
    int count = 0;
    for (const dal::Device& d : inventory().devices) count += d.index.has_value();
    return std::min(count, kMaxDevices);
  } catch (...) {
    return 0;
  }
}

bool isOpen(int index) noexcept {
  return index >= 0 && index < kMaxDevices && open_devices[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

bool inBadFork() noexcept { return forkedAfterOpen(); }

void waitAtExit() noexcept {
  static std::atomic<int> times{0};
  if (times.fetch_add(1, std::memory_order_relaxed) >= 8) return;
  std::atexit([] {
    if (!forkedAfterOpen()) eachOpen([](DeviceImpl& d) { (void)d.synchronize(); });
  });
}

void shutdown() noexcept {
  if (forkedAfterOpen()) return;
  setTimingEnabled(false, TimingUser::viewer);
  setTimingEnabled(false, TimingUser::profiler);
  eachOpen([](DeviceImpl& d) { (void)d.synchronize(); });
}

Result<Device*> device(int index) {
  if (index >= 0 && index < kMaxDevices)
    if (DeviceImpl* d = open_devices[static_cast<size_t>(index)].load(std::memory_order_acquire))
      return static_cast<Device*>(d);
  const std::string about = "npu:" + std::to_string(index);
  const dal::Device* found = index >= 0 && index < kMaxDevices ? indexed(index) : nullptr;
  if (!found) {
    const int count = deviceCount();
    return fail(about + " does not exist: this machine has " + std::to_string(count) +
                    (count == 1 ? " npu device" : " npu devices"),
                count == 0 ? "run `flagos doctor` to see what was looked for" : "run `flagos devices` for the list",
                Exit::no_device);
  }
  if (forkedAfterOpen())
    return fail(about + " cannot be opened in a process forked after its parent looked for devices: OpenCL does not survive fork",
                "start workers with the spawn method");
  std::unique_lock lock(open_mutex);
  auto& slot = open_devices[static_cast<size_t>(index)];
  if (DeviceImpl* d = slot.load(std::memory_order_acquire)) return static_cast<Device*>(d);
  const auto handles = resolve(*found, about);
  if (!handles) return handles.error();
  dal::DeviceDescription description = complete(found->description, handles->device);
  description.shared_memory = description.shared_memory && settingIsOn("FLAGOS_SHARED_MEMORY", true);
  auto opened = DeviceImpl::open(static_cast<uint32_t>(index), handles->platform, handles->device, description,
                                 description.shared_memory, found->fingerprint.identity + found->fingerprint.build);
  if (!opened) return opened.error();
  slot.store(opened->release(), std::memory_order_release);
  waitAtExit();
  return static_cast<Device*>(slot.load());
}

}  // namespace flagos::ocl

// Which devices there are, and the one live Device behind each npu:N.
#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/base/settings.h"
#include "runtime/opencl/describe.h"
#include "runtime/opencl/device_impl.h"
#include "runtime/opencl/error.h"
#include "runtime/opencl/fork_guard.h"

namespace flagos::ocl {
namespace {

constexpr int kMaxDevices = 64;

struct Place { cl_platform_id platform; cl_device_id device; dal::DeviceDescription description; };

std::vector<Place> enumerate() {
  std::vector<Place> all;
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) return all;
  std::vector<cl_platform_id> platforms(count);
  if (clGetPlatformIDs(count, platforms.data(), nullptr) != CL_SUCCESS) return all;
  for (const cl_platform_id p : platforms) {
    cl_uint n = 0;
    if (clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, nullptr, &n) != CL_SUCCESS || n == 0) continue;
    std::vector<cl_device_id> ids(n);
    if (clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, n, ids.data(), nullptr) != CL_SUCCESS) continue;
    for (const cl_device_id id : ids) all.push_back({p, id, describe(id)});
  }
  return all;
}

const std::vector<Place>& places() {
  static const std::vector<Place> all = enumerate();
  return all;
}

// Devices live as long as the process: drivers may already be gone when static objects are destroyed.
std::array<std::atomic<DeviceImpl*>, kMaxDevices> open_devices{};
std::mutex open_mutex;

}  // namespace

int deviceCount() noexcept {
  try {
    return static_cast<int>(std::min<size_t>(places().size(), kMaxDevices));
  } catch (...) {
    return 0;
  }
}

bool isOpen(int index) noexcept {
  return index >= 0 && index < kMaxDevices && open_devices[static_cast<size_t>(index)].load(std::memory_order_acquire);
}

bool inBadFork() noexcept { return forkedAfterOpen(); }

Result<Device*> device(int index) {
  if (index >= 0 && index < kMaxDevices)
    if (DeviceImpl* d = open_devices[static_cast<size_t>(index)].load(std::memory_order_acquire)) return static_cast<Device*>(d);
  const int count = deviceCount();
  if (index < 0 || index >= count)
    return fail("npu:" + std::to_string(index) + " does not exist: this machine has " + std::to_string(count) +
                    (count == 1 ? " npu device" : " npu devices"),
                count == 0 ? "run `flagos doctor` to see what was looked for" : "run `flagos devices` for the list", Exit::no_device);
  std::unique_lock lock(open_mutex);
  auto& slot = open_devices[static_cast<size_t>(index)];
  if (DeviceImpl* d = slot.load(std::memory_order_acquire)) return static_cast<Device*>(d);
  if (forkedAfterOpen())
    return fail("npu:" + std::to_string(index) + " cannot be opened in a process forked after npu was used",
                "start workers with the spawn method");
  const Place& place = places()[static_cast<size_t>(index)];
  const bool shared = place.description.shared_memory && settingIsOn("FLAGOS_SHARED_MEMORY", true);
  auto opened = DeviceImpl::open(static_cast<uint32_t>(index), place.platform, place.device, place.description, shared);
  if (!opened) return opened.error();
  watchForks({});
  slot.store(opened->release(), std::memory_order_release);
  return static_cast<Device*>(slot.load());
}

}  // namespace flagos::ocl

#include "runtime/torch/state.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "runtime/dal/inventory.h"
#include "runtime/torch/service.h"
#include "runtime/torch/site.h"

namespace flagos::glue {
namespace {

struct OpenDevice {
  ocl::Device* device = nullptr;
  std::unique_ptr<kde::Router> router;
};

std::array<std::atomic<OpenDevice*>, kMaxDevices> open_devices{};
std::atomic<int> opened_limit{0};
std::mutex open_mutex;
std::array<std::atomic<uint32_t>, kMaxDevices> next_queue{};

thread_local int tls_device = 0;
thread_local std::array<uint8_t, kMaxDevices> tls_queue{};
thread_local int tls_site_depth = 0;

std::string noSuchDevice(int index) {
  const int n = deviceCount();
  if (n == 0)
    return "npu:" + std::to_string(index) + " does not exist: 0 devices were found. `flagos doctor` says what was looked "
           "for and what to install.";
  return "npu:" + std::to_string(index) + " does not exist: this machine has " + std::to_string(n) +
         (n == 1 ? " device (npu:0)." : " devices (npu:0 to npu:" + std::to_string(n - 1) + ").");
}

kde::RouterOptions routerOptions(const ocl::Device& device) {
  kde::RouterOptions options;
  options.device = device.description();
  kde::switchesFromEnvironment(options);
  options.deterministic = at::globalContext().deterministicAlgorithms();
  for (const auto& d : dal::machine().devices)
    if (d.index && *d.index == static_cast<int>(device.index())) options.identity = d.fingerprint.identity + d.fingerprint.build;
  return options;
}

}  // namespace

int deviceCount() noexcept {
  // Asked at every operator; the machine's inventory is taken once a process.
  static const int n = std::min(ocl::deviceCount(), kMaxDevices);
  return n;
}

int checkedIndex(c10::DeviceIndex index) {
  // PyTorch keeps an index in eight bits: 128 to 255 arrive as negative ones.
  TORCH_CHECK(index >= -1, "this npu device does not exist: its index is over 127, and this machine has ", deviceCount(), " of them");
  if (index < 0) return tls_device;
  TORCH_CHECK(index < deviceCount(), noSuchDevice(index));
  return index;
}

int currentDevice() noexcept { return tls_device; }

void setCurrentDevice(int index) {
  TORCH_CHECK(index >= 0 && index < deviceCount(), noSuchDevice(index));
  tls_device = index;
}

void setCurrentDeviceUnchecked(int index) noexcept {
  if (index >= 0 && index < kMaxDevices) tls_device = index;
}

ocl::Device* openedDevice(int index) noexcept {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  const auto* open = open_devices[static_cast<size_t>(index)].load(std::memory_order_acquire);
  return open ? open->device : nullptr;
}

int openedLimit() noexcept { return opened_limit.load(std::memory_order_acquire); }

ocl::Device& openDevice(int index) {
  if (auto* open = openedDevice(index)) [[likely]] return *open;
  TORCH_CHECK(index >= 0 && index < deviceCount(), noSuchDevice(index));
  auto& slot = open_devices[static_cast<size_t>(index)];
  if (auto* open = slot.load(std::memory_order_acquire)) return *open->device;
  std::lock_guard lock(open_mutex);
  if (auto* open = slot.load(std::memory_order_acquire)) return *open->device;
  auto device = ocl::device(index);
  TORCH_CHECK(device.ok(), device.error().text());
  auto* open = new OpenDevice{*device, kde::Router::create(routerOptions(**device))};  // lives as long as the process
  for (const auto& problem : open->router->problems()) TORCH_WARN("FlagOS routing: ", problem);
  slot.store(open, std::memory_order_release);
  if (index >= opened_limit.load(std::memory_order_relaxed)) opened_limit.store(index + 1, std::memory_order_release);
  startService();
  return *open->device;
}

kde::Router& router(int index) {
  auto* open = open_devices[static_cast<size_t>(index)].load(std::memory_order_acquire);
  TORCH_INTERNAL_ASSERT(open != nullptr);
  return *open->router;
}

uint32_t currentQueueId(int device) noexcept { return tls_queue[static_cast<size_t>(device)]; }

uint32_t exchangeQueueId(int device, uint32_t id) noexcept {
  const uint32_t old = tls_queue[static_cast<size_t>(device)];
  tls_queue[static_cast<size_t>(device)] = static_cast<uint8_t>(id);
  return old;
}

uint32_t nextPoolQueueId(int device) noexcept {
  return 1 + next_queue[static_cast<size_t>(device)].fetch_add(1, std::memory_order_relaxed) % (kMaxQueues - 1);
}

ocl::Queue& currentQueue(ocl::Device& device) { return device.queue(currentQueueId(static_cast<int>(device.index()))); }

ocl::Queue& queueOf(const c10::Stream& stream) {
  return openDevice(checkedIndex(stream.device_index())).queue(static_cast<uint32_t>(stream.id()));
}

void check(const Result<void>& r) { TORCH_CHECK(r.ok(), r.error().text()); }

void waitForHost(ocl::Device& device) {
  ocl::Queue& queue = currentQueue(device);
  if (!queue.idle()) check(queue.finish());
}

SiteScope::SiteScope() noexcept : outermost_(tls_site_depth++ == 0) {
  if (outermost_) ocl::currentTag().site = readSite();
}

SiteScope::~SiteScope() {
  --tls_site_depth;
  if (outermost_) ocl::currentTag().site = ocl::currentTag().route = 0;
}

telemetry::SiteId siteNow() noexcept { return tls_site_depth > 0 ? ocl::currentTag().site : readSite(); }

void shutDown() noexcept {
  stopService();
  ocl::shutdown();  // the next process finds every built program on disk
}

}  // namespace flagos::glue

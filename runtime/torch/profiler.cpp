#include "runtime/torch/profiler.h"

#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/names.h"
#include "runtime/kde/router.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

using libkineto::ActivityType;

std::atomic<bool> collecting{false};
std::mutex rows_mutex;
std::vector<ocl::Timing> rows;
thread_local std::vector<uint64_t> correlations;  // of the operators that run on this thread, outermost first

// Kineto's clock is the wall's; ours is the monotonic one.
int64_t wallMinusOurs() {
  timespec t;
  ::clock_gettime(CLOCK_REALTIME, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec - static_cast<int64_t>(nowNs());
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(bool wanted) : wanted_(wanted) {}

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    if (!wanted_) return;
    offset_ = wallMinusOurs();
    waitForDevices();  // what ran before the profile is not part of it
    {
      std::lock_guard lock(rows_mutex);
      rows.clear();
    }
    collecting.store(true, std::memory_order_release);
    ocl::setTimingEnabled(true, ocl::TimingUser::profiler);
  }

  void stop() override {
    status_ = libkineto::TraceStatus::PROCESSING;
    if (!wanted_) return;
    waitForDevices();
    ocl::setTimingEnabled(false, ocl::TimingUser::profiler);
    collecting.store(false, std::memory_order_release);
  }

  std::vector<std::string> errors() override { return errors_; }
  void processTrace(libkineto::ActivityLogger&) override {}
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t, int64_t) override {
    if (!wanted_) return;
    std::vector<ocl::Timing> taken;
    {
      std::lock_guard lock(rows_mutex);
      taken.swap(rows);
    }
    const auto keep = [&](std::unique_ptr<libkineto::GenericTraceActivity> a) {
      if (!a) return;
      buffer_->activities.push_back(std::move(a));
      buffer_->activities.back()->log(logger);
    };
    uint32_t arrow = 0;  // one for each command: an operator may enqueue several
    for (const auto& t : taken) {
      ++arrow;
      keep(activity(t, arrow, linked));
      keep(enqueue(t, arrow, linked));
    }
    buffer_->gpuOpCount = static_cast<int>(taken.size());
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (!wanted_) return nullptr;
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, libkineto::kExceedMaxPid, c10::Device(kNpu, 0).str(), "npu"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> out;
    for (const auto& a : buffer_->activities) {
      const bool seen = std::any_of(out.begin(), out.end(), [&](const auto& r) { return r.id == a->resource && r.deviceId == a->device; });
      if (!seen) out.push_back({a->resource, a->resource, a->device, "stream " + std::to_string(a->resource)});
    }
    return out;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override {
    if (!wanted_) return;
    correlations.push_back(id);
    ocl::currentTag().correlation = id;
  }
  void popCorrelationId() override {
    if (!wanted_ || correlations.empty()) return;
    correlations.pop_back();
    ocl::currentTag().correlation = correlations.empty() ? 0 : correlations.back();
  }

 private:
  void waitForDevices() {
    for (int i = 0; i < openedLimit(); ++i)
      if (auto* device = openedDevice(i))
        if (auto r = device->synchronize(); !r) errors_.push_back(r.error().text());
  }

  std::unique_ptr<libkineto::GenericTraceActivity> activity(const ocl::Timing& t, uint32_t arrow,
                                                           const libkineto::getLinkedActivityCallback& linked) {
    static constexpr ActivityType kTypes[] = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET};
    const char* const plain[] = {"kernel", "copy", "fill"};
    const auto command = static_cast<size_t>(t.command);
    auto a = std::make_unique<libkineto::GenericTraceActivity>(buffer_->span, kTypes[command],
                                                               t.name ? std::string(nameText(t.name)) : plain[command]);
    a->startTime = static_cast<int64_t>(t.start_ns) + offset_;
    a->endTime = static_cast<int64_t>(t.end_ns) + offset_;
    a->id = static_cast<int32_t>(t.tag.correlation);
    a->device = static_cast<int32_t>(t.device);
    a->resource = static_cast<int32_t>(t.queue);
    a->threadId = a->resource;
    a->flow.id = arrow;
    a->flow.type = libkineto::kLinkAsyncCpuGpu;
    a->linked = a->id ? linked(a->id) : nullptr;
    if (const auto* route = kde::route(t.tag.route)) {
      a->addMetadataQuoted("route", std::string(nameText(route->kernel)));
      a->addMetadataQuoted("operator", std::string(nameText(route->op)));
    }
    return a;
  }

  // The host's side, inside the operator that asked: where the arrow to the command starts.
  std::unique_ptr<libkineto::GenericTraceActivity> enqueue(const ocl::Timing& t, uint32_t arrow,
                                                          const libkineto::getLinkedActivityCallback& linked) {
    const auto* op = t.tag.correlation ? linked(static_cast<int32_t>(t.tag.correlation)) : nullptr;
    if (!op || !t.enqueued_ns) return nullptr;
    static constexpr const char* kNames[] = {"clEnqueueNDRangeKernel", "clEnqueueCopyBuffer", "clEnqueueFillBuffer"};
    auto a = std::make_unique<libkineto::GenericTraceActivity>(buffer_->span, ActivityType::PRIVATEUSE1_RUNTIME,
                                                               kNames[static_cast<size_t>(t.command)]);
    // Only the moment is known, so it is drawn as short as a trace can show.
    a->startTime = static_cast<int64_t>(t.enqueued_ns) + offset_;
    a->endTime = a->startTime + 1000;
    a->id = static_cast<int32_t>(t.tag.correlation);
    a->device = static_cast<int32_t>(op->deviceId());
    a->resource = static_cast<int32_t>(op->resourceId());
    a->threadId = a->resource;
    a->flow.id = arrow;
    a->flow.type = libkineto::kLinkAsyncCpuGpu;
    a->flow.start = 1;
    a->linked = op;
    return a;
  }

  const bool wanted_;
  int64_t offset_ = 0;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

class Plugin final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }
  // Kineto asks for profiles of the CPU alone too, with every runtime's type among theirs; only a device's profile has kernels.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& types,
                                                                 const libkineto::Config&) override {
    return std::make_unique<Session>(types.count(ActivityType::PRIVATEUSE1_RUNTIME) && types.count(ActivityType::CONCURRENT_KERNEL));
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  std::string name_ = "flagos";
  std::set<ActivityType> types_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::PRIVATEUSE1_DRIVER};
};

}  // namespace

void installProfiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      []() -> std::unique_ptr<libkineto::IActivityProfiler> { return std::make_unique<Plugin>(); });
}

void profilerTiming(const ocl::Timing& timing) noexcept {
  if (!collecting.load(std::memory_order_acquire)) return;
  try {
    std::lock_guard lock(rows_mutex);
    rows.push_back(timing);
  } catch (...) {  // no memory for the row: the profile lacks it, the program goes on
  }
}

}  // namespace flagos::glue

// flagos._C: what the Python package needs of the runtime. Thin: arguments in, values out; long waits release the GIL.
#include <torch/csrc/Generator.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <map>

#include "runtime/base/clock.h"
#include "runtime/base/settings.h"
#include "runtime/base/version.h"
#include "runtime/dal/inventory.h"
#include "runtime/kde/catalog/native_ops.h"
#include "runtime/kde/router.h"
#include "runtime/python/sites/sites.h"
#include "runtime/telemetry/recorder.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/generator.h"
#include "runtime/torch/host_route.h"
#include "runtime/torch/install.h"
#include "runtime/torch/memory_history.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/profiler.h"
#include "runtime/torch/refusals.h"
#include "runtime/torch/service.h"
#include "runtime/torch/state.h"
#include "runtime/torch/structured.h"

namespace py = pybind11;

namespace flagos::glue {
namespace {

// Registers everything. Called once, when it is known that PyTorch's slot for outside devices is ours.
void install(const std::string& torch_dir, const std::string& flagos_dir, std::string script,
             std::vector<std::string> argv) {
  static bool done = false;
  TORCH_CHECK(!done, "the flagos backend is installed already");
  done = true;
  telemetry::initSites(torch_dir, flagos_dir);
  setScript(std::move(script), std::move(argv));
  installDecisions();
  installAllocators();
  installGuardAndHooks();
  installHostRoute();
  installCoreOps();
  installHostKernels();
  registerNativeOps();
  installFastPath();
  installStructuredForms();
  installAutocast();
  installAttentionBatching();
  installRefusals();
  installProfiler();
}

const dal::Device* inventoryEntry(int index) {
  for (const auto& d : dal::machine().devices)
    if (d.index && *d.index == index) return &d;
  return nullptr;
}

std::string deviceName(int index) {
  const int i = checkedIndex(static_cast<c10::DeviceIndex>(index));
  if (const auto* d = inventoryEntry(i)) return d->name;
  return openDevice(i).description().name;
}

// Facts of a device without opening it (fork safety), all from the DAL, each with its source; what is unknown is None
// and its reason is in "why_missing".
py::dict deviceFacts(int index) {
  const int i = checkedIndex(static_cast<c10::DeviceIndex>(index));
  const auto* entry = inventoryEntry(i);
  TORCH_CHECK(entry, "npu:", i, " is not in the list of devices");
  py::dict out, sources, missing;
  const auto put = [&](const char* name, py::object value, const std::string& source, const std::string& why) {
    out[name] = std::move(value);
    if (source.empty()) missing[name] = why;
    else sources[name] = source;
  };
  const auto fact = [&](const char* name, const dal::Fact& f) {
    put(name, f.value.empty() ? py::object(py::none()) : py::object(py::str(f.value)), f.source, f.why_missing);
  };
  const auto number = [&](const char* name, const Metric& m, double unit = 1) {
    put(name, m.value ? py::object(py::int_(static_cast<int64_t>(*m.value / unit))) : py::object(py::none()), m.source,
        m.why_missing);
  };
  const dal::TorchDevice& t = entry->torch;
  const auto* open = openedDevice(i);
  fact("name", t.name);
  out["vendor"] = entry->vendor;
  out["kind"] = dal::kindName(entry->kind);
  fact("stable_id", t.stable_id);
  fact("architecture", t.architecture);
  put("major", t.capability ? py::object(py::int_(t.capability->first)) : py::object(py::none()),
      t.capability ? "opencl" : "", t.why_no_capability);
  put("minor", t.capability ? py::object(py::int_(t.capability->second)) : py::object(py::none()),
      t.capability ? "opencl" : "", t.why_no_capability);
  number("total_memory", dal::memoryAtEnumeration(*entry).total);
  number("max_allocation", t.max_allocation);
  number("multi_processor_count", t.compute_units);
  number("clock_mhz", t.clock, 1e6);
  number("local_memory", t.local_memory);
  number("memory_bandwidth", entry->bandwidth);
  out["shared_memory"] = open ? open->sharedMemory() : t.shared_memory && settingIsOn("FLAGOS_SHARED_MEMORY", true);
  out["supported_dtypes"] = t.supported_dtypes;
  out["fp16"] = entry->description.fp16;
  out["fp64"] = entry->description.fp64;
  out["sources"] = sources;
  out["why_missing"] = missing;
  return out;
}

py::dict memoryStats(int index) {
  const int i = checkedIndex(static_cast<c10::DeviceIndex>(index));
  mou::PoolStats s{};
  if (auto* device = openedDevice(i)) s = device->pool().stats();
  py::dict out;
  out["allocated_bytes.all.current"] = s.allocated;
  out["allocated_bytes.all.peak"] = s.allocated_peak;
  out["requested_bytes.all.current"] = s.requested;
  out["requested_bytes.all.peak"] = s.requested_peak;
  out["reserved_bytes.all.current"] = s.reserved;
  out["reserved_bytes.all.peak"] = s.reserved_peak;
  out["active_bytes.all.current"] = s.allocated;
  out["active_bytes.all.peak"] = s.allocated_peak;
  out["allocation.all.allocated"] = s.allocations;
  out["allocation.all.freed"] = s.frees;
  out["allocation.all.current"] = s.allocations - s.frees;
  out["segment.all.current"] = s.slabs;
  out["num_ooms"] = s.ooms;
  out["largest_free_block"] = s.largest_free;
  return out;
}

py::dict hostMemoryStats() {
  const auto s = hostAllocator()->get_stats();
  py::dict out;
  const auto put = [&](const char* name, const auto& stat) {
    const std::string n = name;
    out[py::str(n + ".current")] = stat.current;
    out[py::str(n + ".peak")] = stat.peak;
    out[py::str(n + ".allocated")] = stat.allocated;
    out[py::str(n + ".freed")] = stat.freed;
  };
  put("allocations", s.allocations);
  put("allocated_bytes", s.allocated_bytes);
  put("active_requests", s.active_requests);
  put("active_bytes", s.active_bytes);
  return out;
}

void synchronize(int index) {
  const int i = checkedIndex(static_cast<c10::DeviceIndex>(index));
  auto* device = openedDevice(i);
  if (!device) return;  // nothing was ever enqueued
  py::gil_scoped_release release;
  check(device->synchronize());
}

// Counters as a list of rows, for tests and for `flagos certify`: what ran, by which kernel, how often.
py::list routeCounts() {
  py::list out;
  for (const auto& r : telemetry::readCounters().routes) {
    py::dict row;
    row["op"] = std::string(nameText(r.op));
    row["kernel"] = std::string(nameText(r.kernel));
    row["reason"] = std::string(nameText(r.reason));
    row["calls"] = r.calls;
    row["site"] = r.site;
    row["device_ns"] = r.device_ns;  // grows only while launches are counted
    row["launches"] = r.launches;
    out.append(row);
  }
  return out;
}

// The same, summed by operator and kernel, with the launches that the driver reported as run: the proof of which kernel it was.
py::list kernelLog() {
  std::map<std::pair<NameId, NameId>, std::pair<uint64_t, uint64_t>> sums;
  for (const auto& r : telemetry::readCounters().routes) {
    auto& [calls, launches] = sums[{r.op, r.kernel}];
    calls += r.calls;
    launches += r.launches;
  }
  py::list out;
  for (const auto& [key, sum] : sums)
    out.append(py::make_tuple(std::string(nameText(key.first)), std::string(nameText(key.second)), sum.first, sum.second));
  return out;
}

py::list fallbackCounts() {
  py::list out;
  for (const auto& f : telemetry::readCounters().fallbacks) {
    py::dict row;
    row["op"] = std::string(nameText(f.op));
    row["calls"] = f.calls;
    row["bytes"] = f.bytes;
    row["site"] = f.site;
    out.append(row);
  }
  return out;
}

py::list siteCounts() {
  py::list out;
  for (const auto& c : telemetry::readCounters().sites) {
    py::dict row;
    const auto* site = telemetry::site(c.site);
    row["file"] = site ? py::object(py::str(site->file)) : py::object(py::none());
    row["line"] = site ? site->line : 0;
    row["qualname"] = site ? site->qualname : "";
    row["backward"] = site && site->backward_of != 0;
    row["device"] = c.device;
    row["live_bytes"] = c.live_bytes;
    row["peak_bytes"] = c.peak_bytes;
    row["calls"] = c.calls;
    out.append(row);
  }
  return out;
}

py::list framesOf(telemetry::SiteId id) {
  py::list out;
  if (const auto* site = telemetry::site(id)) {
    py::dict frame;
    frame["filename"] = site->file;
    frame["line"] = site->line;
    frame["name"] = site->qualname;
    out.append(std::move(frame));
  }
  return out;
}

// Segments in the words of torch.cuda.memory_snapshot().
py::list memorySegments() {
  static constexpr const char* kStates[] = {"active_allocated", "active_pending_free", "inactive"};
  py::list out;
  for (int i = 0; i < openedLimit(); ++i) {
    auto* device = openedDevice(i);
    if (!device) continue;
    for (const auto& slab : device->pool().snapshot()) {
      uint64_t used = 0, active = 0, requested = 0;
      py::list blocks;
      for (const auto& b : slab.blocks) {
        py::dict block;
        block["address"] = b.address;
        block["size"] = b.bytes;
        block["requested_size"] = b.requested;
        block["state"] = kStates[static_cast<size_t>(b.state)];
        block["frames"] = framesOf(b.site);
        blocks.append(std::move(block));
        if (b.state == mou::BlockState::used) used += b.bytes, requested += b.requested;
        if (b.state != mou::BlockState::unused) active += b.bytes;
      }
      py::dict segment;
      segment["device"] = i;
      segment["address"] = slab.address;
      segment["total_size"] = slab.bytes;
      segment["allocated_size"] = used;
      segment["active_size"] = active;
      segment["requested_size"] = requested;
      segment["stream"] = 0;
      segment["segment_type"] = "large";
      segment["segment_pool_id"] = py::make_tuple(0, 0);
      segment["is_expandable"] = false;
      segment["frames"] = py::list();
      segment["blocks"] = std::move(blocks);
      out.append(std::move(segment));
    }
  }
  return out;
}

// One list of events for each device.
py::list memoryTraces() {
  const int64_t wall_minus_ours = static_cast<int64_t>(wallSeconds() * 1e9) - static_cast<int64_t>(nowNs());
  std::vector<py::list> traces(static_cast<size_t>(deviceCount()));
  for (const auto& e : memoryHistory()) {
    if (e.device >= traces.size()) continue;
    static constexpr const char* kActions[][2] = {
        {"alloc", nullptr}, {"free_requested", "free_completed"}, {"segment_alloc", nullptr}, {"segment_free", nullptr}};
    for (const char* action : kActions[static_cast<size_t>(e.action)]) {
      if (!action) continue;
      py::dict row;
      row["action"] = action;
      row["addr"] = e.address;
      row["size"] = e.bytes;
      row["stream"] = e.queue;
      row["time_us"] = (static_cast<int64_t>(e.ns) + wall_minus_ours) / 1000;
      row["frames"] = framesOf(e.site);
      traces[e.device].append(std::move(row));
    }
  }
  py::list out;
  for (auto& t : traces) out.append(std::move(t));
  return out;
}

py::list nativeOpNames() {
  py::list out;
  for (const NativeOp* op : nativeOps()) out.append(py::make_tuple(op->schema, op->family));
  return out;
}

kde::Fallback fallbackFromName(const std::string& name) {
  if (name == "allow") return kde::Fallback::allow;
  if (name == "warn") return kde::Fallback::warn;
  if (name == "forbid") return kde::Fallback::forbid;
  TORCH_CHECK_VALUE(false, "fallback policy must be allow, warn or forbid; got ", name);
}

}  // namespace
}  // namespace flagos::glue

PYBIND11_MODULE(_C, m) {
  using namespace flagos;
  using namespace flagos::glue;
  m.doc() = "FlagOS runtime for PyTorch";
  m.def("_install", &install);
  m.def("_shut_down", &shutDown, py::call_guard<py::gil_scoped_release>());
  m.def("version", [] { return std::string(kVersion); });
  m.def("setting_warnings", &settingWarnings);
  m.def("device_count", &deviceCount);
  m.def("current_device", &currentDevice);
  m.def("set_device", &setCurrentDevice);
  m.def("exchange_device", [](int index) {
    const int old = currentDevice();
    setCurrentDevice(index);
    return old;
  });
  m.def("maybe_exchange_device", [](int index) {
    const int old = currentDevice();
    if (index >= 0 && index < deviceCount()) setCurrentDeviceUnchecked(index);
    return old;
  });
  m.def("checked_index", [](int index) { return checkedIndex(static_cast<c10::DeviceIndex>(index)); });
  m.def("device_name", &deviceName);
  m.def("device_facts", &deviceFacts);
  m.def("is_open", [](int index) { return isOpen(index); });
  m.def("open", [](int index) { openDevice(checkedIndex(static_cast<c10::DeviceIndex>(index))); },
        py::call_guard<py::gil_scoped_release>());
  m.def("in_bad_fork", [] { return ocl::inBadFork(); });
  m.def("synchronize", &synchronize);
  m.def("memory_stats", &memoryStats);
  m.def("memory_info", [](int index) {
    const auto [free, total] = deviceAllocator()->getMemoryInfo(static_cast<c10::DeviceIndex>(index));
    return py::make_tuple(free, total);
  });
  m.def("empty_cache", [] { deviceAllocator()->emptyCache({0, 0}); }, py::call_guard<py::gil_scoped_release>());
  m.def("reset_peak_stats", [](int index) { deviceAllocator()->resetPeakStats(static_cast<c10::DeviceIndex>(index)); });
  m.def("reset_accumulated_stats",
        [](int index) { deviceAllocator()->resetAccumulatedStats(static_cast<c10::DeviceIndex>(index)); });
  m.def("default_generator", [](int index) { return defaultGenerator(static_cast<c10::DeviceIndex>(index)); });
  m.def("host_view", &hostView);
  m.def("program_builds", [](int index) { return openDevice(index).programs().builds(); });
  m.def("program_disk_hits", [](int index) { return openDevice(index).programs().diskHits(); });
  m.def("set_fallback", [](int index, const std::string& name) {
    openDevice(index);
    router(index).setFallback(fallbackFromName(name));
  });
  // What `flagos route set` does, for this process; an empty operator takes all such rules back.
  m.def("route_set", [](const std::string& op, const std::string& use) {
    for (int i = 0; i < openedLimit(); ++i) {
      if (!isOpen(i)) continue;
      if (op.empty()) {
        router(i).resetRules();
        continue;
      }
      const auto done = router(i).setRule(op, use);
      TORCH_CHECK_VALUE(done.ok(), done.error().text());
    }
  });
  m.def("kernel_builds", [] {
    uint64_t builds = 0;
    for (int i = 0; i < openedLimit(); ++i)
      if (auto* device = openedDevice(i)) builds += device->programs().builds();
    return builds;
  });
  m.def("_measure_site", [](int n) {  // nanoseconds of one look-up of the calling Python line
    telemetry::currentSite();
    const uint64_t start = nowNs();
    telemetry::SiteId sum = 0;
    for (int i = 0; i < n; ++i) sum += telemetry::currentSite();
    const double ns = static_cast<double>(nowNs() - start) / n;
    return py::make_tuple(ns, sum);
  });
  m.def("host_memory_stats", &hostMemoryStats);
  m.def("memory_segments", &memorySegments);
  m.def("memory_traces", &memoryTraces);
  m.def("record_memory_history", &recordMemoryHistory);
  m.def("route_counts", &routeCounts);
  m.def("kernel_log", &kernelLog);
  // Launches are counted only while kernels are timed; a viewer that comes or goes sets this too.
  m.def("count_launches", [](bool on) {
    telemetry::setTimingWanted(on);
    ocl::setTimingEnabled(on);
  });
  m.def("fallback_counts", &fallbackCounts);
  m.def("site_counts", &siteCounts);
  m.def("native_ops", &nativeOpNames);
  m.def("catalog_differences", &kde::catalogDifferences);
}

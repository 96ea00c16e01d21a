// The live half of the NVML probe. Only NVIDIA's own library is asked: look-alikes (libixml, libefml, libhgml) share
// its function names but not its struct sizes, and a wrong size is memory corruption, not a wrong number.
#include <dlfcn.h>

#include <cstdio>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {
namespace {

using Handle = void*;
struct Memory { unsigned long long total, free, used; };                 // nvmlMemory_t
struct Utilization { unsigned int gpu, memory; };                        // nvmlUtilization_t
struct PciInfo {                                                         // nvmlPciInfo_t of the v2 and v3 calls
  char bus_id_legacy[16];
  unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
  char reserve[64];                                                      // newer structs may grow
};
constexpr int kOk = 0, kNotSupported = 3;

// Symbols are tried newest first; a missing one makes its fact unknown.
template <class F>
F symbol(void* lib, std::initializer_list<const char*> names) {
  for (const char* n : names)
    if (void* p = ::dlsym(lib, n)) return reinterpret_cast<F>(p);
  return nullptr;
}

std::string errorText(int e) {
  if (e == kNotSupported) return "NVML: NVML_ERROR_NOT_SUPPORTED";
  return "NVML: error " + std::to_string(e);
}

struct Api {
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*vbios)(Handle, char*, unsigned) = nullptr;
  int (*pci)(Handle, PciInfo*) = nullptr;
  int (*memory)(Handle, Memory*) = nullptr;
  int (*utilization)(Handle, Utilization*) = nullptr;
  int (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
  int (*mig_count)(Handle, unsigned*) = nullptr;
  int (*mig_handle)(Handle, unsigned, Handle*) = nullptr;
};

std::string text(int (*call)(Handle, char*, unsigned), Handle h) {
  char buf[128] = {};
  return call && call(h, buf, sizeof buf - 1) == kOk ? buf : "";
}
NvmlMemory memory(const Api& api, Handle h) {
  Memory m{};
  if (!api.memory || api.memory(h, &m) != kOk) return {};
  return {m.total, m.used, m.free};
}
void busy(const Api& api, Handle h, std::optional<double>& out, std::string& why) {
  Utilization u{};
  const int e = api.utilization ? api.utilization(h, &u) : kNotSupported;
  if (e == kOk && u.gpu <= 100) out = u.gpu; else why = errorText(e);
}

NvmlFacts ask(const Api& api, Handle h) {
  NvmlFacts n;
  n.name = text(api.name, h);
  n.uuid = text(api.uuid, h);
  n.vbios = text(api.vbios, h);
  PciInfo p{};
  if (api.pci && api.pci(h, &p) == kOk) {
    n.pci = PciAddress{p.domain, p.bus & 0xff, p.device & 31, 0}.text();
    char id[8];
    std::snprintf(id, sizeof id, "%04x", (p.pci_device_id >> 16) & 0xffff);
    n.device_id = id;
  }
  n.memory = memory(api, h);
  busy(api, h, n.busy_percent, n.why_no_busy);
  unsigned current = 0, pending = 0, count = 0;
  n.mig = api.mig_mode && api.mig_mode(h, &current, &pending) == kOk && current == 1;
  if (!n.mig || !api.mig_count || !api.mig_handle || api.mig_count(h, &count) != kOk) return n;
  for (unsigned i = 0; i < count && i < 64; ++i) {
    Handle s = nullptr;
    if (api.mig_handle(h, i, &s) != kOk) continue;  // an unused place
    NvmlSlice slice;
    slice.uuid = text(api.uuid, s);
    slice.name = text(api.name, s);
    slice.memory = memory(api, s);
    busy(api, s, slice.busy_percent, slice.why_no_busy);
    n.slices.push_back(std::move(slice));
  }
  return n;
}

}  // namespace

std::string askNvml(Facts& facts) {
  void* lib = nullptr;
  for (const char* name : {"libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"})
    if (!lib) lib = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!lib) return "libnvidia-ml.so.1 was looked for and is not there: no NVIDIA driver is installed";
  const auto init = symbol<int (*)()>(lib, {"nvmlInit_v2", "nvmlInit"});
  const auto count = symbol<int (*)(unsigned*)>(lib, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
  const auto handle =
      symbol<int (*)(unsigned, Handle*)>(lib, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
  const auto shutdown = symbol<int (*)()>(lib, {"nvmlShutdown"});
  if (!init || !count || !handle) return "libnvidia-ml.so.1 lacks nvmlInit or nvmlDeviceGetCount: it is no NVML";
  if (const int e = init(); e != kOk) return errorText(e) + " from nvmlInit: the NVIDIA kernel driver does not answer";
  Api api;
  api.name = symbol<decltype(api.name)>(lib, {"nvmlDeviceGetName"});
  api.uuid = symbol<decltype(api.uuid)>(lib, {"nvmlDeviceGetUUID"});
  api.vbios = symbol<decltype(api.vbios)>(lib, {"nvmlDeviceGetVbiosVersion"});
  api.pci = symbol<decltype(api.pci)>(lib, {"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"});
  api.memory = symbol<decltype(api.memory)>(lib, {"nvmlDeviceGetMemoryInfo"});
  api.utilization = symbol<decltype(api.utilization)>(lib, {"nvmlDeviceGetUtilizationRates"});
  api.mig_mode = symbol<decltype(api.mig_mode)>(lib, {"nvmlDeviceGetMigMode"});
  api.mig_count = symbol<decltype(api.mig_count)>(lib, {"nvmlDeviceGetMaxMigDeviceCount"});
  api.mig_handle = symbol<decltype(api.mig_handle)>(lib, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  char version[128] = {};
  if (const auto v = symbol<int (*)(char*, unsigned)>(lib, {"nvmlSystemGetDriverVersion"});
      v && v(version, sizeof version - 1) == kOk)
    facts.nvml_driver = version;
  unsigned n = 0;
  const int e = count(&n);
  for (unsigned i = 0; e == kOk && i < n; ++i)
    if (Handle h = nullptr; handle(i, &h) == kOk) facts.nvml.push_back(ask(api, h));
  if (shutdown) (void)shutdown();
  if (!facts.nvml.empty()) return "";
  return e == kOk ? "NVML answers, but lists no device" : errorText(e) + " from nvmlDeviceGetCount";
}

}  // namespace flagos::dal

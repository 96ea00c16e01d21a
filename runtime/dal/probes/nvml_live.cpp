// NVML and its look-alikes, live.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"

namespace flagos::dal {
namespace {

using Handle = void*;
constexpr int kOk = 0, kNotSupported = 3;
constexpr unsigned kMaxDevices = 256, kMaxSlices = 64, kMaxLinks = 36;

// Room for any struct of the family; the library writes what it thinks is its size.
struct Answer {
  alignas(16) unsigned char bytes[4096] = {};
  template <class T>
  T at(size_t offset) const {
    T v;
    std::memcpy(&v, bytes + offset, sizeof v);
    return v;
  }
};
using Ask = int (*)(Handle, void*);

struct Api {
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*vbios)(Handle, char*, unsigned) = nullptr;
  Ask pci = nullptr, memory = nullptr, utilization = nullptr;
  int (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
  int (*mig_count)(Handle, unsigned*) = nullptr;
  int (*mig_handle)(Handle, unsigned, Handle*) = nullptr;
  int (*gpu_instance)(Handle, unsigned*) = nullptr;
  int (*compute_instance)(Handle, unsigned*) = nullptr;
  int (*link_state)(Handle, unsigned, unsigned*) = nullptr;
  int (*link_remote)(Handle, unsigned, void*) = nullptr;
};

class Library {
 public:
  explicit Library(const VendorLibrary& v) : title_(v.title), prefix_(v.prefix) {
    for (const std::string& f : v.files)
      if (!lib_) lib_ = ::dlopen(f.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  bool open() const { return lib_ != nullptr; }
  // Tried newest first; a missing one makes its fact unknown.
  template <class F>
  void find(F& out, std::initializer_list<const char*> names) const {
    out = nullptr;
    for (const char* n : names)
      if (!out) out = reinterpret_cast<F>(::dlsym(lib_, (prefix_ + n).c_str()));
  }
  std::string error(int e) const {
    if (e == kNotSupported) return title_ + ": NVML_ERROR_NOT_SUPPORTED";
    return title_ + ": error " + std::to_string(e);
  }

 private:
  std::string title_, prefix_;
  void* lib_ = nullptr;   // never closed: drivers leave threads and exit handlers behind
};

std::string text(int (*call)(Handle, char*, unsigned), Handle h) {
  char buf[4096] = {};
  if (!call || call(h, buf, 128) != kOk) return "";
  buf[sizeof buf - 1] = '\0';
  return buf;
}

NvmlMemory memory(const Api& api, Handle h, std::string* why, const std::string& title) {
  Answer a;
  if (!api.memory || api.memory(h, a.bytes) != kOk) return {};
  const auto total = a.at<uint64_t>(0), free = a.at<uint64_t>(8), used = a.at<uint64_t>(16);
  if (saneMemory(total, used, free)) return {total, used, free};
  if (why) *why = title + "'s memory answer makes no sense and was dropped";
  return {};
}

void busy(const Library& lib, const Api& api, Handle h, std::optional<double>& out, std::string& why) {
  Answer a;
  const int e = api.utilization ? api.utilization(h, a.bytes) : kNotSupported;
  const auto gpu = a.at<unsigned>(0);
  if (e == kOk && gpu <= 100) out = gpu;
  else why = e == kOk ? "the utilisation answer is no percentage and was dropped" : lib.error(e);
}

NvmlFacts ask(const Library& lib, const Api& api, Handle h, const VendorLibrary& v) {
  NvmlFacts n;
  n.vendor = v.vendor;
  n.name = text(api.name, h);
  n.uuid = text(api.uuid, h);
  n.vbios = text(api.vbios, h);
  Answer p;
  if (api.pci && api.pci(h, p.bytes) == kOk) {
    n.pci = addressIn(p.bytes, sizeof p.bytes);
    // pciDeviceId stands after busIdLegacy[16], domain, bus and device: device id in the upper half, vendor in the
    // lower.
    if (const auto id = p.at<uint32_t>(28); (id & 0xffff) == 0x10de && v.vendor == "10de") {
      char hex[8];
      std::snprintf(hex, sizeof hex, "%04x", id >> 16);
      n.device_id = hex;
    }
  }
  n.memory = memory(api, h, &n.why_no_memory, v.title);
  busy(lib, api, h, n.busy_percent, n.why_no_busy);
  for (unsigned i = 0; api.link_state && api.link_remote && i < kMaxLinks; ++i) {
    unsigned active = 0;
    Answer remote;
    if (api.link_state(h, i, &active) != kOk || active != 1 || api.link_remote(h, i, remote.bytes) != kOk) continue;
    if (std::string pci = addressIn(remote.bytes, sizeof remote.bytes); !pci.empty()) n.links.push_back(std::move(pci));
  }
  unsigned current = 0, pending = 0, count = 0;
  n.mig = api.mig_mode && api.mig_mode(h, &current, &pending) == kOk && current == 1;
  if (!n.mig || !api.mig_count || !api.mig_handle || api.mig_count(h, &count) != kOk) return n;
  for (unsigned i = 0; i < std::min(count, kMaxSlices); ++i) {
    Handle s = nullptr;
    if (api.mig_handle(h, i, &s) != kOk) continue;  // an unused place
    NvmlSlice slice;
    unsigned instance = 0;
    if (api.gpu_instance && api.gpu_instance(s, &instance) == kOk) slice.gpu_instance = static_cast<int>(instance);
    if (api.compute_instance && api.compute_instance(s, &instance) == kOk)
      slice.compute_instance = static_cast<int>(instance);
    slice.uuid = text(api.uuid, s);
    slice.name = text(api.name, s);
    slice.memory = memory(api, s, nullptr, v.title);
    busy(lib, api, s, slice.busy_percent, slice.why_no_busy);
    if (!slice.uuid.empty()) n.slices.push_back(std::move(slice));
  }
  return n;
}

}  // namespace

const std::vector<VendorLibrary>& nvmlFamily() {
  static const std::vector<VendorLibrary> list = {
      {"10de", "NVML", "nvml", {"libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"}},
      {"1e3e",
       "Iluvatar's library",
       "nvml",
       {"libixml.so", "/usr/local/corex/lib/libixml.so", "/usr/local/corex/lib64/libixml.so"}},
      {"1e36", "Enflame's library", "efml", {"libefml.so.1", "libefml.so"}},
      {"1ded", "T-Head's library", "hgml", {"libhgml.so.1", "libhgml.so"}},
  };
  return list;
}

bool saneMemory(uint64_t total, uint64_t used, uint64_t free) {
  // Reserved memory may belong to neither; more than a tenth of the whole would be another struct.
  return total >= (64ull << 20) && total <= (16ull << 40) && used <= total && free <= total - used &&
         total - used - free <= total / 10;
}

std::string addressIn(const unsigned char* bytes, size_t size) {
  std::string found;
  for (size_t i = 0; i + 7 < size; ++i) {
    if (!std::isxdigit(bytes[i]) || (i > 0 && (std::isxdigit(bytes[i - 1]) || bytes[i - 1] == ':'))) continue;
    const char* begin = reinterpret_cast<const char*>(bytes + i);
    const size_t length = ::strnlen(begin, std::min<size_t>(size - i, 32));
    if (std::string pci = normalPciAddress(std::string_view(begin, length)); !pci.empty()) found = std::move(pci);
  }
  return found;
}

std::string askNvml(const VendorLibrary& v, Facts& facts) {
  const Library lib(v);
  const bool nvidia = v.vendor == "10de";
  if (!lib.open())
    return v.files.front() + " was looked for and is not there" + (nvidia ? ": no NVIDIA driver is installed" : "");
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Handle*) = nullptr;
  lib.find(init, {"Init_v2", "Init"});
  lib.find(shutdown, {"Shutdown"});
  lib.find(count, {"DeviceGetCount_v2", "DeviceGetCount"});
  lib.find(handle, {"DeviceGetHandleByIndex_v2", "DeviceGetHandleByIndex"});
  if (!init || !count || !handle)
    return v.files.front() + " lacks " + v.prefix + "Init or " + v.prefix + "DeviceGetCount: it is no NVML";
  if (const int e = init(); e != kOk) return lib.error(e) + " from its start: the kernel driver does not answer";
  Api api;
  lib.find(api.name, {"DeviceGetName"});
  lib.find(api.uuid, {"DeviceGetUUID"});
  lib.find(api.vbios, {"DeviceGetVbiosVersion"});
  lib.find(api.pci, {"DeviceGetPciInfo_v3", "DeviceGetPciInfo_v2", "DeviceGetPciInfo"});
  lib.find(api.memory, {"DeviceGetMemoryInfo"});
  lib.find(api.utilization, {"DeviceGetUtilizationRates"});
  if (nvidia) {
    lib.find(api.mig_mode, {"DeviceGetMigMode"});
    lib.find(api.mig_count, {"DeviceGetMaxMigDeviceCount"});
    lib.find(api.mig_handle, {"DeviceGetMigDeviceHandleByIndex"});
    lib.find(api.gpu_instance, {"DeviceGetGpuInstanceId"});
    lib.find(api.compute_instance, {"DeviceGetComputeInstanceId"});
    lib.find(api.link_state, {"DeviceGetNvLinkState"});
    lib.find(api.link_remote, {"DeviceGetNvLinkRemotePciInfo_v2", "DeviceGetNvLinkRemotePciInfo"});
    char version[4096] = {};
    int (*driver)(char*, unsigned) = nullptr;
    lib.find(driver, {"SystemGetDriverVersion"});
    if (driver && driver(version, 128) == kOk) facts.nvml_driver = version;
  }
  unsigned n = 0, added = 0, dropped = 0;
  const int e = count(&n);
  for (unsigned i = 0; e == kOk && i < std::min(n, kMaxDevices); ++i) {
    Handle h = nullptr;
    if (handle(i, &h) != kOk) continue;
    NvmlFacts answer = ask(lib, api, h, v);
    // A struct of another shape gives another address: then nothing of it is believed.
    const Card* card = facts.find(answer.pci);
    if (!nvidia && (!card || card->vendor != v.vendor)) { ++dropped; continue; }
    facts.nvml.push_back(std::move(answer));
    ++added;
  }
  if (shutdown) (void)shutdown();
  if (added) return "";
  if (dropped) return v.title + " answers, but not with the address of a card that is here: its answers were dropped";
  return e == kOk ? v.title + " answers, but lists no device" : lib.error(e) + " from its count of devices";
}

}  // namespace flagos::dal

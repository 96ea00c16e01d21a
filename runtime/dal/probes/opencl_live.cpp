// The live half of the OpenCL probe. The loader is opened at run time, so that everything builds and runs on a machine
// without it; only platform and device queries are made, never a context (a context would not survive fork).
#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/base/temporary.h"
#include "runtime/dal/opencl_vendors.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {
namespace {

// From the OpenCL registry; declared here so that no OpenCL header is needed to build a viewer.
using Handle = void*;
using GetPlatformIds = int32_t (*)(uint32_t, Handle*, uint32_t*);
using GetPlatformInfo = int32_t (*)(Handle, uint32_t, size_t, void*, size_t*);
using GetDeviceIds = int32_t (*)(Handle, uint64_t, uint32_t, Handle*, uint32_t*);
using GetDeviceInfo = int32_t (*)(Handle, uint32_t, size_t, void*, size_t*);
enum : uint32_t {
  kPlatformVersion = 0x0901,
  kPlatformName = 0x0902,
  kType = 0x1000,
  kVendorId = 0x1001,
  kComputeUnits = 0x1002,
  kClock = 0x100C,
  kMaxAlloc = 0x1010,
  kGlobalMem = 0x101F,
  kLocalMem = 0x1023,
  kAvailable = 0x1027,
  kName = 0x102B,
  kVendor = 0x102C,
  kDriverVersion = 0x102D,
  kVersion = 0x102F,
  kExtensions = 0x1030,
  kDoubleConfig = 0x1032,
  kHalfConfig = 0x1033,
  kUnified = 0x1035,
  kNativeWidthFloat = 0x103A,
  kUuid = 0x106A,
  kPciBusInfo = 0x410F,
  kTopologyAmd = 0x4037,
  kFreeMemoryAmd = 0x4039,
  kBoardNameAmd = 0x4038,
  kMajorNv = 0x4000,
  kMinorNv = 0x4001,
  kPciBusNv = 0x4008,
  kPciSlotNv = 0x4009,
  kPciDomainNv = 0x400A,
};
constexpr uint64_t kAllTypes = 0xFFFFFFFF;

struct Api {
  GetPlatformIds platforms = nullptr;
  GetPlatformInfo platform_info = nullptr;
  GetDeviceIds devices = nullptr;
  GetDeviceInfo device_info = nullptr;
};

std::string platformText(const Api& api, Handle p, uint32_t what) {
  size_t n = 0;
  if (api.platform_info(p, what, 0, nullptr, &n) != 0 || n == 0 || n > (1u << 20)) return "";
  std::string s(n, '\0');
  if (api.platform_info(p, what, n, s.data(), nullptr) != 0) return "";
  return s.c_str();
}

class Query {
 public:
  Query(const Api& api, Handle device) : api_(api), device_(device) {}
  int32_t first_error = 0;

  std::string text(uint32_t what) {
    size_t n = 0;
    const int32_t e = api_.device_info(device_, what, 0, nullptr, &n);
    if (e != 0) { note(e); return ""; }
    if (n == 0 || n > (1u << 20)) return "";
    std::string s(n, '\0');
    if (api_.device_info(device_, what, n, s.data(), nullptr) != 0) return "";
    s = s.c_str();
    const auto begin = s.find_first_not_of(' ');
    return begin == std::string::npos ? "" : s.substr(begin);
  }
  template <class T>
  std::optional<T> value(uint32_t what) {
    T v{};
    size_t n = 0;
    if (api_.device_info(device_, what, sizeof v, &v, &n) != 0 || n != sizeof v) return std::nullopt;
    return v;
  }

 private:
  void note(int32_t e) { if (first_error == 0) first_error = e; }
  const Api& api_;
  Handle device_;
};

std::string pciOf(Query& q) {
  struct KhrBus { uint32_t domain, bus, device, function; };
  if (const auto b = q.value<KhrBus>(kPciBusInfo)) return PciAddress{b->domain, b->bus, b->device, b->function}.text();
  const auto bus = q.value<uint32_t>(kPciBusNv), slot = q.value<uint32_t>(kPciSlotNv);
  if (bus && slot)  // the slot holds device << 3 | function
    return PciAddress{q.value<uint32_t>(kPciDomainNv).value_or(0), *bus & 0xff, (*slot >> 3) & 31, *slot & 7}.text();
  struct AmdTopology { uint32_t type; uint8_t unused[17]; uint8_t bus, device, function; };
  static_assert(sizeof(AmdTopology) == 24);
  if (const auto t = q.value<AmdTopology>(kTopologyAmd); t && t->type == 1)
    return PciAddress{0, t->bus, t->device, t->function}.text();
  return "";
}

std::string uuidOf(Query& q) {
  struct Bytes { unsigned char b[16]; };
  const auto u = q.value<Bytes>(kUuid);
  if (!u) return "";
  std::string s;
  for (int i = 0; i < 16; ++i) {
    char two[4];
    std::snprintf(two, sizeof two, "%02x", u->b[i]);
    s += two;
    if (i == 3 || i == 5 || i == 7 || i == 9) s += '-';
  }
  return s;
}

OpenClFacts ask(const Api& api, Handle device) {
  Query q(api, device);
  OpenClFacts d;
  d.name = q.text(kName);
  d.vendor_name = q.text(kVendor);
  d.driver_version = q.text(kDriverVersion);
  d.version = q.text(kVersion);
  d.extensions = q.text(kExtensions);
  // A device that cannot even say its name is listed with the error; extensions' own queries may fail freely.
  if (q.first_error != 0) d.error = q.first_error;
  const uint64_t type = q.value<uint64_t>(kType).value_or(4);
  d.type = type & 4 ? "GPU" : type & 8 ? "ACCELERATOR" : type & 2 ? "CPU" : "CUSTOM";
  d.vendor_id = q.value<uint32_t>(kVendorId).value_or(0);
  d.compute_units = q.value<uint32_t>(kComputeUnits).value_or(0);
  d.clock_mhz = q.value<uint32_t>(kClock).value_or(0);
  d.vector_width_float = q.value<uint32_t>(kNativeWidthFloat).value_or(0);
  d.global_bytes = q.value<uint64_t>(kGlobalMem);
  d.max_alloc_bytes = q.value<uint64_t>(kMaxAlloc);
  d.local_bytes = q.value<uint64_t>(kLocalMem);
  d.fp64_config = q.value<uint64_t>(kDoubleConfig).value_or(0);
  d.fp16_config = q.value<uint64_t>(kHalfConfig).value_or(0);
  if (const auto b = q.value<uint32_t>(kUnified)) d.unified = *b != 0;
  if (const auto b = q.value<uint32_t>(kAvailable)) d.available = *b != 0;
  if (d.type != "CPU") {
    d.board_name = q.text(kBoardNameAmd);
    d.nv_major = q.value<uint32_t>(kMajorNv).value_or(0);
    d.nv_minor = q.value<uint32_t>(kMinorNv).value_or(0);
    d.pci = pciOf(q);
    d.uuid = uuidOf(q);
    if (const auto kib = q.value<size_t>(kFreeMemoryAmd)) d.free_bytes = uint64_t{*kib} << 10;
  }
  return d;
}

// PoCL lists no device where it cannot make its folder for compiled kernels: with a home that is read-only or not there.
void giveDriversAFolder() {
  if (const char* given = std::getenv("POCL_CACHE_DIR"); given && *given) return;
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::string at = cache && *cache ? cache + std::string("/pocl/kcache") : home && *home ? home + std::string("/.cache/pocl/kcache") : "/tmp";
  struct stat s;
  // The nearest folder above that is there must take a new one.
  while (at.size() > 1 && ::stat(at.c_str(), &s) != 0 && at.rfind('/') != std::string::npos) at.resize(std::max<size_t>(1, at.rfind('/')));
  if (::stat(at.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && ::access(at.c_str(), W_OK | X_OK) == 0) return;
  if (const std::string dir = temporaryDriverDir(); !dir.empty()) ::setenv("POCL_CACHE_DIR", dir.c_str(), 1);
}

}  // namespace

std::string askOpenClLoader(std::vector<OpenClFacts>& out) {
  giveDriversAFolder();
  // Never closed: drivers leave threads and exit handlers behind.
  void* lib = ::dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return "libOpenCL.so.1 was looked for and cannot be loaded; install ocl-icd-libopencl1";
  Api api;
  api.platforms = reinterpret_cast<GetPlatformIds>(::dlsym(lib, "clGetPlatformIDs"));
  api.platform_info = reinterpret_cast<GetPlatformInfo>(::dlsym(lib, "clGetPlatformInfo"));
  api.devices = reinterpret_cast<GetDeviceIds>(::dlsym(lib, "clGetDeviceIDs"));
  api.device_info = reinterpret_cast<GetDeviceInfo>(::dlsym(lib, "clGetDeviceInfo"));
  if (!api.platforms || !api.platform_info || !api.devices || !api.device_info)
    return "libOpenCL.so.1 lacks clGetPlatformIDs or clGetDeviceIDs: it is no OpenCL loader";
  uint32_t n = 0;
  const int32_t e = api.platforms(0, nullptr, &n);
  if (e == -1001 || (e == 0 && n == 0))
    return "the OpenCL loader found no driver (error -1001: no usable file in " + openClVendors().text() + ")";
  if (e != 0) return "clGetPlatformIDs failed with error " + std::to_string(e);
  std::vector<Handle> platforms(n);
  if (const int32_t e2 = api.platforms(n, platforms.data(), nullptr); e2 != 0)
    return "clGetPlatformIDs failed with error " + std::to_string(e2);
  std::string empty;
  for (uint32_t p = 0; p < n; ++p) {
    const std::string name = platformText(api, platforms[p], kPlatformName),
                      version = platformText(api, platforms[p], kPlatformVersion);
    uint32_t count = 0;
    const int32_t e3 = api.devices(platforms[p], kAllTypes, 0, nullptr, &count);
    std::vector<Handle> devices(e3 == 0 ? count : 0);
    if (devices.empty() || api.devices(platforms[p], kAllTypes, count, devices.data(), nullptr) != 0) {
      empty += (empty.empty() ? "" : ", ") + name + " (error " + std::to_string(e3) + ")";
      continue;
    }
    for (uint32_t d = 0; d < count; ++d) {
      out.push_back(ask(api, devices[d]));
      out.back().place = {p, d};
      out.back().platform = name;
      out.back().platform_version = version;
    }
  }
  return out.empty() ? std::to_string(n) + " OpenCL platform(s), none with a device: " + empty : "";
}

}  // namespace flagos::dal

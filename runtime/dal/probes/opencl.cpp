// OpenCL through the ICD loader, or its recorded answers.
#include <map>

#include "runtime/dal/opencl_vendors.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {
namespace {

// Fields of a record by the names of the OpenCL specification; a wrong type reads as missing.
std::string stringOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
std::optional<uint64_t> numberOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  if (it == j.end()) return std::nullopt;
  if (it->is_number_unsigned()) return it->get<uint64_t>();
  if (it->is_number_integer() && it->get<int64_t>() >= 0) return static_cast<uint64_t>(it->get<int64_t>());
  if (it->is_number_float() && it->get<double>() >= 0 && it->get<double>() < 9e18)
    return static_cast<uint64_t>(it->get<double>());
  if (it->is_string()) {
    const auto& s = it->get_ref<const std::string&>();
    char* end = nullptr;
    const unsigned long long v = std::strtoull(s.c_str(), &end, 0);
    if (!s.empty() && end && !*end && s[0] != '-') return v;
  }
  return std::nullopt;
}
std::optional<bool> boolOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  if (it != j.end() && it->is_boolean()) return it->get<bool>();
  const auto n = numberOf(j, key);
  return n ? std::optional<bool>(*n != 0) : std::nullopt;
}
uint32_t u32(std::optional<uint64_t> v) { return v && *v <= UINT32_MAX ? static_cast<uint32_t>(*v) : 0; }

std::string typeOf(const Json& j) {
  std::string t = stringOf(j, "CL_DEVICE_TYPE");
  if (const auto p = t.rfind("CL_DEVICE_TYPE_"); p != std::string::npos) t = t.substr(p + 15);
  if (!t.empty()) return t;
  switch (numberOf(j, "CL_DEVICE_TYPE").value_or(4)) {
    case 2: return "CPU";
    case 8: return "ACCELERATOR";
    case 16: return "CUSTOM";
    default: return "GPU";
  }
}

OpenClFacts deviceFrom(const Json& j) {
  OpenClFacts d;
  d.name = stringOf(j, "CL_DEVICE_NAME");
  d.board_name = stringOf(j, "CL_DEVICE_BOARD_NAME_AMD");
  d.nv_major = u32(numberOf(j, "CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV"));
  d.nv_minor = u32(numberOf(j, "CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV"));
  d.vendor_name = stringOf(j, "CL_DEVICE_VENDOR");
  d.driver_version = stringOf(j, "CL_DRIVER_VERSION");
  d.version = stringOf(j, "CL_DEVICE_VERSION");
  d.extensions = stringOf(j, "CL_DEVICE_EXTENSIONS");
  d.uuid = stringOf(j, "CL_DEVICE_UUID_KHR");
  d.pci = normalPciAddress(stringOf(j, "CL_DEVICE_PCI_BUS_INFO_KHR"));
  d.type = typeOf(j);
  // As text it is a PCI id, which is hexadecimal with or without 0x.
  if (const std::string id = stringOf(j, "CL_DEVICE_VENDOR_ID"); !id.empty()) {
    char* end = nullptr;
    const unsigned long long v = std::strtoull(id.c_str(), &end, 16);
    d.vendor_id = end && !*end && v <= UINT32_MAX ? static_cast<uint32_t>(v) : 0;
  } else {
    d.vendor_id = u32(numberOf(j, "CL_DEVICE_VENDOR_ID"));
  }
  d.unified = boolOf(j, "CL_DEVICE_HOST_UNIFIED_MEMORY");
  d.available = boolOf(j, "CL_DEVICE_AVAILABLE");
  d.global_bytes = numberOf(j, "CL_DEVICE_GLOBAL_MEM_SIZE");
  d.max_alloc_bytes = numberOf(j, "CL_DEVICE_MAX_MEM_ALLOC_SIZE");
  d.local_bytes = numberOf(j, "CL_DEVICE_LOCAL_MEM_SIZE");
  d.compute_units = u32(numberOf(j, "CL_DEVICE_MAX_COMPUTE_UNITS"));
  d.clock_mhz = u32(numberOf(j, "CL_DEVICE_MAX_CLOCK_FREQUENCY"));
  d.vector_width_float = u32(numberOf(j, "CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT"));
  d.fp64_config = numberOf(j, "CL_DEVICE_DOUBLE_FP_CONFIG").value_or(0);
  d.fp16_config = numberOf(j, "CL_DEVICE_HALF_FP_CONFIG").value_or(0);
  if (const auto kib = numberOf(j, "CL_DEVICE_GLOBAL_FREE_MEMORY_AMD"); kib && *kib < (UINT64_MAX >> 10))
    d.free_bytes = *kib << 10;
  if (const auto it = j.find("error"); it != j.end() && it->is_number_integer()) d.error = it->get<int>();
  return d;
}

std::string nothingBecause(int error) {
  if (error == -1001)
    return "the OpenCL loader found no driver (error -1001: no usable file in /etc/OpenCL/vendors/*.icd)";
  return "clGetPlatformIDs failed with error " + std::to_string(error);
}

// Which of the two files is missing, and what to install: the sentence a user without a driver acts on.
std::string installAdvice(const Root& root) {
  std::string icds, s;
  for (const std::string& f : root.list(kOpenClVendors))
    if (f.size() > 4 && f.substr(f.size() - 4) == ".icd") icds += (icds.empty() ? "" : ", ") + f;
  // The variable of this process says nothing about a recorded machine.
  if (const auto vendors = openClVendors(); root.live() && !vendors.variable.empty())
    s = "unset " + vendors.variable + ", or put a driver's .icd file there";
  else s = icds.empty() ? "no /etc/OpenCL/vendors/*.icd" : "/etc/OpenCL/vendors has " + icds;
  return s + "; install your card's OpenCL driver, or pocl-opencl-icd to run on the CPU";
}

}  // namespace

std::string readOpenClRecord(const std::string& text, std::vector<OpenClFacts>& out) {
  const auto doc = parseJson(text, "opencl.json");
  if (!doc) return doc.error().text();
  if (const auto it = doc->find("error"); doc->is_object() && it != doc->end() && it->is_number_integer())
    return nothingBecause(it->get<int>());
  const auto platforms = doc->is_object() ? doc->find("platforms") : doc->end();
  if (platforms == doc->end() || !platforms->is_array())
    return "opencl.json: neither \"platforms\" nor \"error\" in it";
  uint32_t p = 0;
  for (const Json& platform : *platforms) {
    uint32_t d = 0;
    const auto devices = platform.is_object() ? platform.find("devices") : platform.end();
    if (platform.is_object() && devices != platform.end() && devices->is_array())
      for (const Json& device : *devices) {
        if (device.is_object()) {
          out.push_back(deviceFrom(device));
          out.back().place = {p, d};
          out.back().platform = stringOf(platform, "name");
          out.back().platform_version = stringOf(platform, "version");
        }
        ++d;
      }
    ++p;
  }
  if (!out.empty()) return "";
  return p == 0 ? nothingBecause(-1001) : std::to_string(p) + " OpenCL platform(s), none with a device";
}

Json openClRecord(const std::vector<OpenClFacts>& devices, const std::string& why_nothing) {
  if (devices.empty() && why_nothing.find("platform(s)") == std::string::npos) return Json{{"error", -1001}};
  std::map<uint32_t, Json> platforms;
  for (const OpenClFacts& d : devices) {
    Json& p = platforms[d.place.platform];
    p["name"] = d.platform;
    p["version"] = d.platform_version;
    Json j{{"CL_DEVICE_NAME", d.name}, {"CL_DEVICE_TYPE", d.type}, {"CL_DEVICE_VENDOR_ID", d.vendor_id}};
    if (d.error) j["error"] = *d.error;
    j["CL_DEVICE_VENDOR"] = d.vendor_name;
    j["CL_DRIVER_VERSION"] = d.driver_version;
    j["CL_DEVICE_VERSION"] = d.version;
    j["CL_DEVICE_EXTENSIONS"] = d.extensions;
    j["CL_DEVICE_PCI_BUS_INFO_KHR"] = d.pci.empty() ? Json(nullptr) : Json(d.pci);
    if (!d.uuid.empty()) j["CL_DEVICE_UUID_KHR"] = d.uuid;
    if (!d.board_name.empty()) j["CL_DEVICE_BOARD_NAME_AMD"] = d.board_name;
    if (d.nv_major) {
      j["CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV"] = d.nv_major;
      j["CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV"] = d.nv_minor;
    }
    if (d.unified) j["CL_DEVICE_HOST_UNIFIED_MEMORY"] = *d.unified;
    if (d.available) j["CL_DEVICE_AVAILABLE"] = *d.available;
    if (d.global_bytes) j["CL_DEVICE_GLOBAL_MEM_SIZE"] = *d.global_bytes;
    if (d.max_alloc_bytes) j["CL_DEVICE_MAX_MEM_ALLOC_SIZE"] = *d.max_alloc_bytes;
    if (d.local_bytes) j["CL_DEVICE_LOCAL_MEM_SIZE"] = *d.local_bytes;
    if (d.free_bytes) j["CL_DEVICE_GLOBAL_FREE_MEMORY_AMD"] = *d.free_bytes >> 10;
    j["CL_DEVICE_MAX_COMPUTE_UNITS"] = d.compute_units;
    j["CL_DEVICE_MAX_CLOCK_FREQUENCY"] = d.clock_mhz;
    j["CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT"] = d.vector_width_float;
    j["CL_DEVICE_DOUBLE_FP_CONFIG"] = d.fp64_config;
    j["CL_DEVICE_HALF_FP_CONFIG"] = d.fp16_config;
    if (!p.contains("devices")) p["devices"] = Json::array();
    // A place is an index: gaps (devices that could not be read) keep their number.
    while (p["devices"].size() < d.place.device) p["devices"].push_back(nullptr);
    p["devices"].push_back(std::move(j));
  }
  Json list = Json::array();
  for (auto& [index, p] : platforms) {
    while (list.size() < index) list.push_back(Json{{"name", ""}, {"version", ""}, {"devices", Json::array()}});
    list.push_back(std::move(p));
  }
  return Json{{"platforms", std::move(list)}};
}

ProbeReport probeOpenCl(const Root& root, Facts& facts) {
  ProbeReport report{"opencl", 0, {}};
  if (root.live()) {
    report.why_nothing = askOpenClLoader(facts.opencl);
  } else if (const auto text = root.bytes("/opencl.json", 16u << 20)) {
    report.why_nothing = readOpenClRecord(*text, facts.opencl);
    if (const auto doc = parseJson(*text, root.at("/opencl.json")); !doc) facts.broken.push_back(doc.error().text());
  } else {
    report.why_nothing = "no opencl.json in " + root.dir() + ": the driver's answers were not recorded";
  }
  for (OpenClFacts& d : facts.opencl)
    for (std::string* s : {&d.platform, &d.platform_version, &d.name, &d.vendor_name, &d.driver_version, &d.version,
                           &d.uuid, &d.board_name})
      makePrintable(*s);
  report.found = static_cast<int>(facts.opencl.size());
  if (!report.why_nothing.empty()) report.why_nothing += " (" + installAdvice(root) + ")";
  facts.opencl_why_nothing = report.why_nothing;
  return report;
}

}  // namespace flagos::dal

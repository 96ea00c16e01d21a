// NVIDIA: NVML's answers (live by dlopen, or recorded), and the nodes that the NVIDIA driver uses instead of DRM's.
#include <sstream>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"

namespace flagos::dal {
namespace {

std::string stringOf(const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
std::optional<uint64_t> bytesOf(const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  if (it != j.end() && it->is_number_unsigned()) return it->get<uint64_t>();
  return it != j.end() && it->is_number_integer() && it->get<int64_t>() >= 0
             ? std::optional<uint64_t>(it->get<int64_t>())
             : std::nullopt;
}
const Json& part(const Json& j, const char* key) {
  static const Json empty;
  const auto it = j.is_object() ? j.find(key) : j.end();
  return it == j.end() ? empty : *it;
}
// Either {"gpu": 37, ...} or {"error": "NVML_ERROR_NOT_SUPPORTED"}.
void readBusy(const Json& u, std::optional<double>& busy, std::string& why) {
  const auto gpu = bytesOf(u, "gpu");
  if (gpu && *gpu <= 100) busy = static_cast<double>(*gpu);
  else
    why = "NVML: " + (stringOf(u, "error").empty() ? std::string("utilisation is not reported") : stringOf(u, "error"));
}
NvmlMemory memoryOf(const Json& m) { return {bytesOf(m, "total"), bytesOf(m, "used"), bytesOf(m, "free")}; }

// "Device Minor: 3" of /proc/driver/nvidia/gpus/BDF/information.
std::string fieldOf(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line.compare(0, colon, key) != 0) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

void readNodes(const Root& root, Facts& facts) {
  for (Card& c : facts.cards) {
    if (c.vendor != "10de" || c.kernel_driver != "nvidia") continue;
    // The render node that DRM shows is not what CUDA and OpenCL open.
    c.nodes.clear();
    if (c.asleep) continue;
    const auto info = root.text("/proc/driver/nvidia/gpus/" + c.pci + "/information", 16384);
    if (!info) continue;
    c.vbios = fieldOf(*info, "Video BIOS");
    c.firmware = fieldOf(*info, "GPU Firmware");
    c.product_name = fieldOf(*info, "Model");
    for (std::string* s : {&c.vbios, &c.firmware, &c.product_name}) makePrintable(*s);
    const std::string minor = fieldOf(*info, "Device Minor");
    if (minor.empty() || minor.find_first_not_of("0123456789") != std::string::npos) continue;
    for (const std::string& node : {"/dev/nvidia" + minor, std::string("/dev/nvidiactl")})
      c.nodes.push_back({node, root.node(node)});
  }
}

}  // namespace

std::string readNvmlRecord(const std::string& text, Facts& facts) {
  const auto doc = parseJson(text, "nvml.json");
  if (!doc) return doc.error().text();
  if (!doc->is_object()) return "nvml.json: not an object";
  if (const std::string e = stringOf(*doc, "error"); !e.empty()) return "NVML: " + e;
  facts.nvml_driver = stringOf(*doc, "driverVersion");
  const Json& devices = part(*doc, "devices");
  if (!devices.is_array()) return "nvml.json: no \"devices\" list in it";
  for (const Json& j : devices) {
    if (!j.is_object()) continue;
    NvmlFacts n;
    n.uuid = stringOf(j, "uuid");
    n.name = stringOf(j, "name");
    n.pci = normalPciAddress(stringOf(j, "pciBusId"));
    n.vbios = stringOf(j, "vbiosVersion");
    n.device_id = stringOf(j, "deviceId");
    if (const std::string v = stringOf(j, "vendor"); v.size() == 4) n.vendor = v;
    if (part(j, "nvLinks").is_array())
      for (const Json& l : part(j, "nvLinks"))
        if (std::string to = normalPciAddress(stringOf(l, "remotePciBusId")); !to.empty())
          n.links.push_back(std::move(to));
    n.memory = memoryOf(part(j, "memory"));
    n.why_no_memory = stringOf(part(j, "memory"), "error");
    readBusy(part(j, "utilization"), n.busy_percent, n.why_no_busy);
    n.mig = part(j, "migMode").is_number() && part(j, "migMode").get<double>() == 1;
    if (part(j, "migDevices").is_array())
      for (const Json& s : part(j, "migDevices")) {
        if (!s.is_object()) continue;
        NvmlSlice slice;
        slice.uuid = stringOf(s, "uuid");
        slice.name = stringOf(s, "name");
        slice.gpu_instance = static_cast<int>(bytesOf(s, "gpuInstanceId").value_or(0));
        slice.compute_instance = static_cast<int>(bytesOf(s, "computeInstanceId").value_or(0));
        slice.memory = memoryOf(part(s, "memory"));
        readBusy(part(s, "utilization"), slice.busy_percent, slice.why_no_busy);
        n.slices.push_back(std::move(slice));
      }
    facts.nvml.push_back(std::move(n));
  }
  return facts.nvml.empty() ? "NVML answers, but lists no device" : "";
}

Json nvmlRecord(const Facts& facts) {
  const auto memory = [](const NvmlMemory& m) {
    Json j = Json::object();
    if (m.total) j["total"] = *m.total;
    if (m.used) j["used"] = *m.used;
    if (m.free) j["free"] = *m.free;
    return j;
  };
  const auto busy = [](const std::optional<double>& b, const std::string& why) {
    return b ? Json{{"gpu", static_cast<int>(*b)}} : Json{{"error", why.rfind("NVML: ", 0) == 0 ? why.substr(6) : why}};
  };
  Json devices = Json::array();
  for (const NvmlFacts& n : facts.nvml) {
    Json slices = Json::array();
    for (const NvmlSlice& s : n.slices)
      slices.push_back(Json{{"uuid", s.uuid},
                            {"name", s.name},
                            {"gpuInstanceId", s.gpu_instance},
                            {"computeInstanceId", s.compute_instance},
                            {"memory", memory(s.memory)},
                            {"utilization", busy(s.busy_percent, s.why_no_busy)}});
    Json links = Json::array();
    for (const std::string& l : n.links) links.push_back(Json{{"remotePciBusId", l}});
    devices.push_back(Json{{"uuid", n.uuid},
                           {"vendor", n.vendor},
                           {"nvLinks", std::move(links)},
                           {"name", n.name},
                           {"pciBusId", n.pci},
                           {"vbiosVersion", n.vbios},
                           {"deviceId", n.device_id},
                           {"memory", memory(n.memory)},
                           {"utilization", busy(n.busy_percent, n.why_no_busy)},
                           {"migMode", n.mig ? 1 : 0},
                           {"migDevices", std::move(slices)}});
  }
  return Json{{"driverVersion", facts.nvml_driver}, {"devices", std::move(devices)}};
}

// Every library of the family; why nothing was found, or "". A library is asked only about cards that sysfs shows, but
// NVIDIA's, which also knows cards that it does not (WSL2).
std::string askFamily(Facts& facts) {
  std::string why;
  for (const VendorLibrary& v : nvmlFamily()) {
    bool here = v.vendor == "10de";
    std::string asleep;
    for (const Card& c : facts.cards)
      if (c.vendor == v.vendor) {
        here = true;
        if (c.asleep) asleep = c.pci;
      }
    if (!here) continue;
    // Starting such a library resumes every card of its vendor.
    const std::string nothing =
        asleep.empty() ? askNvml(v, facts) : asleep + " is asleep, and asking " + v.title + " would wake it";
    if (!nothing.empty()) why += (why.empty() ? "" : "; ") + nothing;
  }
  return facts.nvml.empty() ? why : "";
}

ProbeReport probeNvml(const Root& root, Facts& facts) {
  ProbeReport report{"nvml", 0, {}};
  readNodes(root, facts);
  const size_t before = facts.nvml.size();   // DCMI's answers, of the Ascend probe
  if (root.live()) {
    report.why_nothing = askFamily(facts);
  } else if (const auto text = root.bytes("/nvml.json", 16u << 20)) {
    report.why_nothing = readNvmlRecord(*text, facts);
    if (const auto doc = parseJson(*text, root.at("/nvml.json")); !doc) facts.broken.push_back(doc.error().text());
  } else {
    report.why_nothing = "no nvml.json in the recorded machine: NVML was not there or was not recorded";
  }
  makePrintable(facts.nvml_driver);
  for (NvmlFacts& n : facts.nvml) {
    for (std::string* s : {&n.uuid, &n.name, &n.vbios, &n.why_no_busy, &n.why_no_memory}) makePrintable(*s);
    for (NvmlSlice& slice : n.slices)
      for (std::string* s : {&slice.uuid, &slice.name, &slice.why_no_busy}) makePrintable(*s);
  }
  report.found = static_cast<int>(facts.nvml.size() - before);
  if (report.found == 0 && report.why_nothing.empty()) report.why_nothing = "no library of the NVML family answers";
  for (const NvmlFacts& n : facts.nvml) {
    if (n.pci.empty()) continue;
    Card& c = facts.card(n.pci);  // a card that sysfs does not show (WSL2, a container) is added
    if (c.vendor.empty()) c.vendor = n.vendor;
    if (c.device.empty() && n.device_id.size() == 4) c.device = n.device_id;
    if (c.vbios.empty()) c.vbios = n.vbios;
  }
  return report;
}

}  // namespace flagos::dal

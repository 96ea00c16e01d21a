// `flagos devices`: every device found, with the source of each number, and why each probe found nothing.
#include <sys/stat.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "profiler/cli/command.h"
#include "runtime/base/settings.h"
#include "runtime/dal/inventory.h"
#include "runtime/dal/topology.h"

namespace flagos::cli {
namespace {

struct Options {
  bool json = false, why = false, topology = false;
  std::string root;
};

std::string withSource(const Metric& m) {
  std::string s = format(m);
  if (m.value) s += " [" + m.source + "]";
  return s;
}

std::string bandwidthText(const Metric& m) {
  if (!m.value) return format(m);
  char buf[48];
  std::snprintf(buf, sizeof buf, "%.4g GB/s [%s]", *m.value / 1e9, m.source.c_str());
  return buf;
}

bool has(const std::vector<std::string>& all, std::string_view one) { return std::find(all.begin(), all.end(), one) != all.end(); }

void printDevice(const dal::Device& d, const std::string& torch_name, bool why) {
  std::cout << (d.index ? torch_name + ":" + std::to_string(*d.index) : std::string("-")) << "  " << d.name << "  ("
            << dal::kindName(d.kind);
  if (!d.pci.empty()) std::cout << ", " << d.pci;
  std::cout << ")\n";
  if (!d.usable) std::cout << "    not usable: " << d.why_unusable << "\n";
  if (!d.why_no_index.empty()) std::cout << "    no index: " << d.why_no_index << "\n";
  if (!d.parent.empty()) std::cout << "    part of " << d.parent << "\n";
  for (size_t i = 0; i < d.pci_candidates.size(); ++i)
    std::cout << (i == 0 ? "    the driver tells no PCI address; it may be " : " or ") << d.pci_candidates[i]
              << (i + 1 == d.pci_candidates.size() ? "\n" : "");
  std::cout << "    memory: dedicated " << withSource(d.memory_dedicated) << "\n"
            << "            shared " << withSource(d.memory_shared) << "\n"
            << "            used " << withSource(d.memory_used) << ", free " << withSource(d.memory_free) << "\n"
            << "    utilisation: " << withSource(d.utilisation) << "\n"
            << "    bandwidth: " << bandwidthText(d.bandwidth) << "\n";
  for (const dal::Driver& x : d.drivers)
    std::cout << "    driver: " << x.platform << " " << x.version << (x.chosen ? " (chosen: " : " (not chosen: ")
              << x.why << ")\n";
  std::cout << "    fingerprint: " << d.fingerprint.result
            << (d.fingerprint.model.empty() ? "" : ", " + d.fingerprint.model) << "\n";
  if (!d.dtypes.empty()) {
    std::cout << "    dtypes:";
    for (const std::string& t : d.dtypes) std::cout << " " << t;
    std::cout << "\n            float16 bfloat16 are kept in 2 bytes and computed in float32"
              << (has(d.dtypes, "float16") ? ", although the device computes float16 itself" : "") << "\n";
    if (!has(d.dtypes, "float64")) std::cout << "            float64 has no kernels here: the device computes none\n";
  }
  std::cout << "    stable id: " << d.stable_id << "\n";
  if (!why) return;
  std::cout << "    sort key:";
  for (const std::string& k : d.sort_key) std::cout << " " << (k.empty() ? "-" : k);
  std::cout << "\n    identity: " << d.fingerprint.identity << "\n    build: " << d.fingerprint.build << "\n";
  for (const dal::Candidate& c : d.fingerprint.candidates) {
    std::cout << "    candidate " << c.model << ", score " << c.score << "\n";
    for (const std::string& e : c.evidence_for) std::cout << "      for: " << e << "\n";
    for (const std::string& e : c.evidence_against) std::cout << "      against: " << e << "\n";
  }
}

Exit run(const Options& o) {
  dal::EnumerateOptions e = dal::optionsFromEnvironment();
  if (!o.root.empty()) e.root = o.root;
  struct stat s;
  if (::stat(e.root.c_str(), &s) != 0 || !S_ISDIR(s.st_mode))
    return report("devices",
                  fail("--root " + e.root + " is not a folder", "Record one with flagos doctor --record DIR"));
  const dal::Inventory inventory = dal::enumerate(e);
  bool usable = false;
  for (const dal::Device& d : inventory.devices) usable = usable || d.usable;
  std::optional<dal::Topology> topology;
  if (o.topology) topology = dal::readTopology(dal::Root(e.root), inventory);
  if (o.json) {
    Json j = dal::toJson(inventory);
    if (topology) j["topology"] = dal::toJson(*topology);
    std::cout << dump(j) << "\n";
  } else {
    const std::string torch_name = setting("FLAGOS_DEVICE_NAME").value_or("npu");
    if (inventory.devices.empty()) std::cout << "no device found\n";
    for (const dal::Device& d : inventory.devices) printDevice(d, torch_name, o.why);
    std::cout << "probes:\n";
    for (const dal::ProbeReport& p : inventory.probes) {
      std::cout << "    " << p.name << ": " << p.found << " found"
                << (p.why_nothing.empty() ? "" : " (" + p.why_nothing + ")") << "\n";
    }
    for (const std::string& w : inventory.warnings) std::cout << "warning: " << w << "\n";
    if (topology) std::cout << dal::topologyText(*topology);
  }
  std::cout.flush();
  for (const std::string& b : inventory.broken) std::cerr << "flagos devices: " << b << "\n";
  if (!inventory.broken.empty()) return Exit::broken_input;
  return usable ? Exit::ok : Exit::no_device;
}

}  // namespace

Run setupDevices(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_flag("--json", o->json, "one JSON document");
  app.add_flag("--why", o->why, "the evidence behind each line");
  app.add_flag("--topology", o->topology, "how the devices reach each other and the host");
  app.add_option("--root", o->root, "read the machine from this folder (also FLAGOS_ROOT)");
  return [o] { return run(*o); };
}

}  // namespace flagos::cli

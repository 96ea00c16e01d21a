#include "runtime/dal/inventory.h"

#include <algorithm>
#include <exception>

#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/match.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/pci_address.h"

namespace flagos::dal {
namespace {
// What kernels take beside `dtypes`: kept in 2 bytes, computed wider. Empty for a device that cannot be used.
Json stored(const Device& d) {
  Json out = Json::array();
  for (const char* t : {"float16", "bfloat16"})
    if (!d.dtypes.empty()) out.push_back(Json{{"dtype", t}, {"computed_in", "float32"}});
  return out;
}

Json orNull(const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); }
}  // namespace

EnumerateOptions optionsFromEnvironment() {
  EnumerateOptions o;
  o.root = setting("FLAGOS_ROOT").value_or("/");
  o.visible = setting("FLAGOS_VISIBLE_DEVICES");
  o.include_cpu = settingIsOn("FLAGOS_INCLUDE_CPU", false);
  return o;
}

Inventory enumerate(const EnumerateOptions& options) { return enumerateAt(Root(options.root), options); }

Inventory enumerateAt(const Root& root, const EnumerateOptions& options) {
  Inventory inventory;
  // Out of memory is the only thing that can throw here; it must not reach a training process that only asked what is
  // there.
  try {
    Facts facts;
    for (const Probe& p : probes()) inventory.probes.push_back(p.run(root, facts));
    std::sort(facts.cards.begin(), facts.cards.end(), [](const Card& a, const Card& b) {
      return parsePciAddress(a.pci).value_or(PciAddress{}) < parsePciAddress(b.pci).value_or(PciAddress{});
    });
    inventory.broken = facts.broken;
    inventory.fabric = fabricOf(facts);
    inventory.devices = mergeDevices(root, facts);
    orderDevices(inventory.devices, options, &inventory.warnings);
  } catch (const std::exception& e) {
    inventory.devices.clear();
    inventory.probes.push_back({"all", 0, std::string("enumeration failed: ") + e.what()});
  }
  return inventory;
}

const Inventory& machine() {
  static const Inventory* inventory = new Inventory(enumerate(optionsFromEnvironment()));
  return *inventory;
}

Json toJson(const Inventory& inventory) {
  Json devices = Json::array(), probes = Json::array();
  const std::string torch_name = setting("FLAGOS_DEVICE_NAME").value_or("npu");
  for (const Device& d : inventory.devices) {
    Json drivers = Json::array();
    for (const Driver& x : d.drivers)
      drivers.push_back(Json{{"platform", x.platform}, {"version", x.version}, {"chosen", x.chosen}, {"why", x.why}});
    Json j{{"index", d.index ? Json(*d.index) : Json(nullptr)},
           {"device", d.index ? Json(torch_name + ":" + std::to_string(*d.index)) : Json(nullptr)},
           {"name", d.name},
           {"vendor", d.vendor},
           {"kind", kindName(d.kind)},
           {"usable", d.usable},
           {"why_unusable", orNull(d.why_unusable)},
           {"why_no_index", orNull(d.why_no_index)},
           {"pci", orNull(d.pci)},
           {"parent", orNull(d.parent)},
           {"stable_id", d.stable_id},
           {"drivers", std::move(drivers)},
           {"fingerprint", toJson(d.fingerprint)},
           {"memory",
            {{"dedicated", toJson(d.memory_dedicated)},
             {"shared", toJson(d.memory_shared)},
             {"used", toJson(d.memory_used)},
             {"free", toJson(d.memory_free)}}},
           {"utilisation", toJson(d.utilisation)},
           {"bandwidth", toJson(d.bandwidth)},
           {"torch", toJson(d.torch)},
           {"dtypes", d.dtypes},
           {"dtypes_stored", stored(d)},
           {"sort_key", d.sort_key}};
    if (!d.pci_candidates.empty()) j["pci_candidates"] = d.pci_candidates;
    devices.push_back(std::move(j));
  }
  for (const ProbeReport& p : inventory.probes)
    probes.push_back(Json{{"name", p.name}, {"found", p.found}, {"why_nothing", orNull(p.why_nothing)}});
  return Json{{"version", 1},
              {"devices", std::move(devices)},
              {"probes", std::move(probes)},
              {"warnings", inventory.warnings}};
}

}  // namespace flagos::dal

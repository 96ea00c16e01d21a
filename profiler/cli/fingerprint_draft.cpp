// `flagos fingerprints new`: draft entries for the cards of this machine (or a recorded one) that the table does not
// match exactly, with everything that the machine itself tells. docs/adding-a-device.md is the contributor's page.
#include <sys/stat.h>

#include <cmath>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <memory>
#include <set>

#include "profiler/cli/command.h"
#include "runtime/base/json.h"
#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/fingerprint/match.h"
#include "runtime/dal/inventory.h"
#include "runtime/dal/pci_ids.h"
#include "runtime/dal/root.h"

namespace flagos::cli {
namespace {

struct Options {
  std::string root, vendor;
  bool all = false;
};

// "vvvv:dddd/subsystem/revision/size"
struct Identity { std::string vendor, device, subsystem, revision; };
std::optional<Identity> identityOf(const dal::Device& d) {
  const std::string& s = d.fingerprint.identity;
  const auto slash = s.find('/', 10), end = slash == std::string::npos ? slash : s.find('/', slash + 1);
  if (d.pci.empty() || !d.parent.empty() || s.size() < 10 || s[4] != ':' || s[9] != '/' || end == std::string::npos)
    return std::nullopt;
  return Identity{s.substr(0, 4), s.substr(5, 4), s.substr(10, slash - 10), s.substr(slash + 1, end - slash - 1)};
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  char buf[16] = "";
  if (::gmtime_r(&now, &utc)) std::strftime(buf, sizeof buf, "%Y-%m-%d", &utc);
  return buf;
}

// "4x16" of what the card says it can do; "" if sysfs does not tell.
std::string linkOf(const dal::Root& root, const std::string& pci) {
  const std::string dir = "/sys/bus/pci/devices/" + pci;
  const auto speed = root.text(dir + "/max_link_speed");
  const auto width = root.number(dir + "/max_link_width");
  if (!speed || !width || (*width != 1 && *width != 2 && *width != 4 && *width != 8 && *width != 16)) return "";
  struct Row { const char* text; int generation; };
  for (const Row& r : {Row{"2.5 ", 1}, Row{"5.0 ", 2}, Row{"5 ", 2}, Row{"8.0 ", 3}, Row{"8 ", 3}, Row{"16.0 ", 4},
                       Row{"16 ", 4}, Row{"32.0 ", 5}, Row{"32 ", 5}, Row{"64.0 ", 6}, Row{"64 ", 6}})
    if (speed->rfind(r.text, 0) == 0) return std::to_string(r.generation) + "x" + std::to_string(*width);
  return "";
}

Json entryOf(const dal::Root& root, const dal::Device& d, const Identity& id, std::string_view pci_ids) {
  const std::string listed = dal::pciDeviceName(pci_ids, id.vendor, id.device);
  // The driver's own name without the ids behind it, else the list's, else what is shown.
  std::string name = d.fingerprint.result == "exact" ? d.fingerprint.model : d.name;
  const std::string ids = " (" + id.vendor + ":" + id.device + ")";
  if (name.size() > ids.size() && name.compare(name.size() - ids.size(), ids.size(), ids) == 0) name.resize(name.size() - ids.size());
  else if (d.torch.name.source == "sysfs" && !listed.empty()) name = listed;
  Json e{{"id", id.device}, {"model", name}, {"kind", dal::kindName(d.kind == dal::Kind::cpu ? dal::Kind::other : d.kind)}};
  if (d.torch.architecture.source != "table" && !d.torch.architecture.value.empty()) e["arch"] = d.torch.architecture.value;
  std::string figures, told;
  if (d.memory_dedicated.value && d.memory_dedicated.source != "table" && d.kind != dal::Kind::integrated) {
    const double gib = dal::memoryClassGib(*d.memory_dedicated.value);
    if (gib > 0) {
      e["memory"] = Json{{"gib", Json::array({gib == std::floor(gib) ? Json(static_cast<int>(gib)) : Json(gib)})}, {"confidence", "B"}};
      figures = "memory reported by the " + std::string(d.memory_dedicated.source == "sysfs" ? "kernel" : "driver");
      // Entries of one id are told apart by what differs.
      for (const dal::Model* m : dal::database().find(id.vendor, id.device))
        if (m->memory_gib != std::vector<double>{gib}) told = "vram=" + dump(e["memory"]["gib"][0]);
    }
  }
  if (!told.empty()) e["told_by"] = told;
  if (const std::string link = linkOf(root, d.pci); !link.empty()) {
    e["pcie"] = Json{{"link", link}, {"confidence", "B"}};
    figures += (figures.empty() ? "" : "; ") + std::string("link reported by the card");
  }
  if (!listed.empty()) e["pci_ids_name"] = listed;
  e["sources"] = Json{{"id", "read from the device (" + d.pci + ")"}, {"date", today()}};
  if (!figures.empty()) e["sources"]["figures"] = figures;
  std::string note = "subsystem " + id.subsystem + ", revision " + id.revision + ", " + d.fingerprint.build;
  if (d.bandwidth.value && d.bandwidth.source == "measured") {
    char text[64];
    std::snprintf(text, sizeof text, "; a copy test measured %.4g GB/s", *d.bandwidth.value / 1e9);
    note += text;   // no nominal figure: those come from the vendor's page
  }
  e["note"] = note;
  return e;
}

Exit draft(const Options& o) {
  dal::EnumerateOptions options = dal::optionsFromEnvironment();
  if (!o.root.empty()) options.root = o.root;
  struct stat s;
  if (::stat(options.root.c_str(), &s) != 0 || !S_ISDIR(s.st_mode))
    return report("fingerprints new", fail("--root " + options.root + " is not a folder", "Record one with flagos doctor --record DIR"));
  const dal::Root root(options.root);
  const dal::Inventory inventory = dal::enumerate(options);
  const std::string pci_ids = root.bytes(dal::kPciIds, 8u << 20).value_or("");
  Json entries = Json::array();
  std::string vendor, vendor_name;
  std::set<std::string> seen, others;
  size_t exact = 0;
  for (const dal::Device& d : inventory.devices) {
    const auto id = identityOf(d);
    if (!id || (!o.vendor.empty() && id->vendor != o.vendor)) continue;
    if (d.fingerprint.result == "exact" && !o.all) { ++exact; continue; }
    if (vendor.empty()) { vendor = id->vendor; vendor_name = d.vendor; }
    if (id->vendor != vendor) { others.insert(id->vendor); continue; }
    Json e = entryOf(root, d, *id, pci_ids);
    if (seen.insert(id->device + e.value("memory", Json()).dump()).second) entries.push_back(std::move(e));
  }
  if (entries.empty())
    return report("fingerprints new",
                  fail(exact ? "every card here is matched exactly" : "there is no card here to draft an entry from",
                       exact ? "--all drafts entries for them too" : "`flagos devices --why` says what was looked for", Exit::no_device));
  std::cout << dump(Json{{"$schema", "schema.json"}, {"version", 1}, {"vendor", {{"id", vendor}, {"name", vendor_name}}}, {"devices", entries}}, 2)
            << "\n";
  std::cerr << "flagos fingerprints new: " << entries.size() << (entries.size() == 1 ? " entry" : " entries") << " of vendor " << vendor
            << "; correct the names, add nominal figures with their sources, then: flagos fingerprints check FILE\n";
  for (const std::string& v : others) std::cerr << "flagos fingerprints new: there are cards of vendor " << v << " too: --vendor " << v << "\n";
  return Exit::ok;
}

}  // namespace

Run setupFingerprintDraft(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_option("--root", o->root, "read the machine from this folder");
  app.add_option("--vendor", o->vendor, "only cards of this PCI vendor, for example 1002");
  app.add_flag("--all", o->all, "also cards that are matched exactly");
  return [o] { return draft(*o); };
}

}  // namespace flagos::cli

// PCI sysfs: which accelerators are plugged in, who they are, and whether they may be touched at all.
#include <algorithm>

#include "runtime/base/bytes.h"
#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/vendors.h"

namespace flagos::dal {
namespace {

const std::string kDevices = "/sys/bus/pci/devices";

// "0x1002" -> "1002", lower case, at least `digits` wide; "" if it is no number.
std::string hexId(const std::optional<std::string>& text, size_t digits) {
  if (!text) return "";
  std::string s = *text;
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) s.erase(0, 2);
  if (s.empty() || s.size() > 8) return "";
  for (char& c : s) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return "";
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (s.size() < digits) s.insert(0, digits - s.size(), '0');
  return s;
}

// Classes 03xx (display), 0b40 (co-processor), 1200 (processing accelerator). Vendors that make nothing but
// accelerators also count under odd classes, and a listed (vendor, device) pair under any: a filter on class 03 loses
// most NPUs.
bool isAccelerator(const Card& c) {
  const std::string base = c.class_code.substr(0, 2);
  if (base == "03" || c.class_code.substr(0, 4) == "0b40" || c.class_code.substr(0, 4) == "1200") return true;
  if (database().knows(c.vendor, c.device)) return true;
  const Vendor* v = findVendor(c.vendor);
  return v && v->only_accelerators &&
         (base == "00" || base == "08" || base == "0b" || base == "11" || base == "12" || base == "ff");
}

bool allOnes(const std::string& bytes) {
  return bytes.size() >= 4 && std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '\xff'; });
}

}  // namespace

std::optional<Card> readPciCard(const Root& root, const std::string& address, bool (*wanted)(const Card&)) {
  const std::string dir = kDevices + "/" + address;
  Card c;
  c.pci = normalPciAddress(address);
  // These are the kernel's cached copies: reading them touches no hardware. A card that was pulled out meanwhile has
  // none.
  c.class_code = hexId(root.text(dir + "/class"), 6);
  c.vendor = hexId(root.text(dir + "/vendor"), 4);
  c.device = hexId(root.text(dir + "/device"), 4);
  if (c.class_code.empty() || c.vendor.empty() || c.device.empty() || (wanted && !wanted(c))) return std::nullopt;
  const std::string sv = hexId(root.text(dir + "/subsystem_vendor"), 4),
                    sd = hexId(root.text(dir + "/subsystem_device"), 4);
  // 0000:0000 is what a card without a subsystem id reports.
  if (!sv.empty() && !sd.empty() && sv + sd != "00000000") c.subsystem = sv + ":" + sd;
  c.revision = hexId(root.text(dir + "/revision"), 2);
  c.in_sysfs = true;
  const auto power = root.text(dir + "/power/runtime_status");
  c.asleep = power && (*power == "suspended" || *power == "suspending");
  if (const auto driver = root.linkName(dir + "/driver")) c.kernel_driver = *driver;
  if (const auto physical = root.linkName(dir + "/physfn")) c.parent = normalPciAddress(*physical);
  return c;
}

ProbeReport probePci(const Root& root, Facts& facts) {
  ProbeReport report{"pci", 0, {}};
  const auto names = root.list(kDevices);
  if (names.empty()) {
    report.why_nothing = root.exists(kDevices) ? kDevices + " is empty: this machine shows no PCI bus"
                                               : kDevices + " does not exist: no PCI bus, or /sys is not mounted";
    return report;
  }
  for (const std::string& name : names) {
    auto c = normalPciAddress(name).empty() ? std::nullopt : readPciCard(root, name, isAccelerator);
    if (!c) continue;
    // Reading the config space resumes a suspended device.
    if (!c->asleep)
      if (const auto config = root.bytes(kDevices + "/" + name + "/config", 64)) c->dead = allOnes(*config);
    c->dead = c->dead || c->vendor == "ffff";
    facts.card(c->pci) = std::move(*c);
    ++report.found;
  }
  if (report.found == 0)
    report.why_nothing =
        "none of the " + counted(names.size(), "function") + " in " + kDevices +
        " is a display (03xx), co-processor (0b40) or accelerator (1200), or of a listed accelerator vendor";
  return report;
}

}  // namespace flagos::dal

#include "runtime/dal/merge.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "runtime/dal/fingerprint/match.h"
#include "runtime/dal/pci_ids.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/rates.h"
#include "runtime/dal/vendors.h"

namespace flagos::dal {
namespace {

// Caches of cards hold up to 256 MiB: a copy test of fewer bytes may have measured the cache.
constexpr double kTrustedCopy = 512.0 * (1 << 20);

// The rates measured on this machine (or recorded with it).
RatesTable ratesOf(const Root& root) {
  if (root.live()) return storedRates();
  const auto text = root.bytes("/rates.json", 1u << 20);
  return text ? readRates(*text) : RatesTable{};
}

// The match of a board, with its measured bandwidth if there is one for this identity and build.
Fingerprint fingerprintOf(const Board& b, const RatesTable& rates) {
  Fingerprint f = match(database(), b);
  const auto row = rates.find(f.identity + f.build);
  if (row == rates.end() || row->second.measured_bytes < kTrustedCopy || row->second.rates.bandwidth_bps <= 0) return f;
  return matchMeasured(database(), b, row->second.rates.bandwidth_bps / 1e9);
}

void fillBandwidth(Device& dev, const RatesTable& rates) {
  const auto row = rates.find(dev.fingerprint.identity + dev.fingerprint.build);
  if (row != rates.end() && row->second.rates.bandwidth_bps > 0)
    dev.bandwidth = Metric::of(row->second.rates.bandwidth_bps, "B/s", "measured", std::nullopt);
  else if (dev.description.bandwidth_bps > 0)
    dev.bandwidth = Metric::of(dev.description.bandwidth_bps, "B/s", dev.description.rates_source, std::nullopt);
  else
    dev.bandwidth = Metric::missing("B/s", dev.usable ? "it is measured when a program uses the device, and kept once the machine is quiet enough for it to repeat"
                                                      : "it was never measured, and the table has no rated figure");
}

std::string slug(const std::string& s) {
  std::string out;
  for (const char c : s) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

// The name of a vendor: ours, the table's, the machine's pci.ids, else the number.
std::string vendorText(const Root& root, const std::string& id) {
  if (id.empty()) return "Unknown";
  if (const Vendor* v = findVendor(id)) return std::string(v->name);
  if (std::string t = database().vendorName(id); !t.empty()) return t;
  if (const auto ids = root.bytes(kPciIds, 8u << 20))
    if (std::string t = pciVendorName(*ids, id); !t.empty()) return t;
  return "Unknown";
}

void fillDrivers(Device& dev, const std::vector<const OpenClFacts*>& members) {
  const OpenClFacts* best = members.empty() ? nullptr : members.front();
  for (const OpenClFacts* m : members) {
    Driver d{m->platform, m->driver_version, m == best, {}};
    if (m->error) d.why = "its calls fail with OpenCL error " + std::to_string(*m->error);
    else if (m->available == std::optional<bool>(false)) d.why = "it says CL_DEVICE_AVAILABLE = false";
    else if (m == best)
      d.why = members.size() == 1 ? "the only driver" : whyPreferred(*best, *members[1]);
    else d.why = best->platform + " is preferred: " + whyPreferred(*best, *m);
    if (m == best && (m->error || m->available == std::optional<bool>(false))) d.chosen = false;
    dev.drivers.push_back(std::move(d));
  }
}

// The reason why the chosen driver's device cannot run, or "".
std::string driverTrouble(const std::vector<const OpenClFacts*>& members) {
  const OpenClFacts& best = *members.front();
  if (best.error)
    return "the OpenCL driver " + best.platform + " lists it, but its calls fail with error " +
           std::to_string(*best.error);
  if (best.name.empty())
    return "the OpenCL driver " + best.platform + " lists it, but tells no name: its answers cannot be trusted";
  if (best.available == std::optional<bool>(false))
    return "the OpenCL driver " + best.platform + " says that it is not available";
  if (best.type == "CUSTOM") return "it is a custom OpenCL device, which runs no user kernels";
  return "";
}

std::string packageFor(const std::string& vendor) {
  if (vendor == "10de") return "install the NVIDIA driver's OpenCL part (nvidia-opencl-icd)";
  if (vendor == "1002") return "install ROCm's OpenCL (rocm-opencl-icd) or Mesa's (mesa-opencl-icd)";
  if (vendor == "8086") return "install intel-opencl-icd";
  return "install the vendor's OpenCL driver";
}

std::string whyUnusable(const Card& c, const std::vector<const OpenClFacts*>& members, const Facts& facts,
                        const NvmlFacts* nv) {
  const Vendor* v = findVendor(c.vendor);
  if (c.dead)
    return "its config space reads all ones: the card has fallen off the bus (reseat it or power-cycle the machine)";
  if (nv && nv->mig)
    return nv->slices.empty()
               ? "it is in MIG mode without instances: create one with nvidia-smi mig -cgi, or switch MIG off"
               : "it is in MIG mode: its slices are listed instead";
  if ((v && v->makes == Makes::display) || (c.vendor == "19e5" && c.class_code.substr(0, 2) == "03"))
    return c.vendor == "1414" ? "it is Windows' stand-in for its GPUs: the real ones are listed by their own drivers"
                              : "it is a management or virtual display and computes nothing";
  for (const NodeFact& n : c.nodes)
    if (n.required && n.access.judged && n.access.exists && !n.access.allowed) return n.access.why;
  if (!members.empty()) return driverTrouble(members);
  for (const NodeFact& n : c.nodes)
    if (n.access.judged && n.access.exists && !n.access.allowed) return n.access.why;
  for (const NodeFact& n : c.nodes)
    if (!n.access.exists) return "present, but not granted: " + n.path + " does not exist here (container, or no udev)";
  if (c.kernel_driver == "vfio-pci") return "it is bound to vfio-pci: it belongs to a virtual machine";
  if (c.nodes.empty() && c.in_sysfs && c.kernel_driver.empty())
    return "no device node: no kernel driver is bound to it";
  if (facts.wsl && !c.in_sysfs)
    return "WSL2 passes the card to Windows' own interface only, and no OpenCL driver lists it; " +
           packageFor(c.vendor);
  if (c.asleep) return "it is asleep, and no OpenCL driver lists it; " + packageFor(c.vendor);
  if (!facts.opencl_why_nothing.empty()) return "no OpenCL driver: " + facts.opencl_why_nothing;
  return "no OpenCL driver lists it; " + packageFor(c.vendor);
}

Board boardOf(const Card& c, const OpenClFacts* cl, const NvmlFacts* nv) {
  Board b{c.vendor, c.device, c.subsystem, c.revision, {}, {}, {}, {}, {}};
  // The driver's answer first, then sysfs. Shared memory says nothing of the model.
  // A virtual function reports its share, which says nothing of the card.
  if (!c.parent.empty()) b.memory_bytes.reset();
  else if (nv && nv->memory.total) b.memory_bytes = static_cast<double>(*nv->memory.total);
  else if (c.vram_total && c.apu != std::optional<bool>(true)) b.memory_bytes = static_cast<double>(*c.vram_total);
  else if (cl && cl->global_bytes && cl->unified != std::optional<bool>(true))
    b.memory_bytes = static_cast<double>(*cl->global_bytes);
  b.firmware = c.firmware;
  if (!c.vbios.empty()) b.firmware += (b.firmware.empty() ? "" : " ") + ("vbios " + c.vbios);
  if (nv && c.vbios.empty() && !nv->vbios.empty())
    b.firmware += (b.firmware.empty() ? "" : " ") + ("vbios " + nv->vbios);
  b.driver = cl && !cl->driver_version.empty() ? cl->platform + " " + cl->driver_version : c.kernel_driver;
  if (nv) b.reported_name = nv->name;
  else if (cl) b.reported_name = cl->board_name.empty() ? cl->name : cl->board_name;
  else b.reported_name = c.product_name;
  return b;
}

std::string nameOf(const Root& root, const Fingerprint& f, const std::string& own, const std::string& vendor,
                   const std::string& device) {
  if (f.result == "exact") return f.model;
  const std::string ids = vendor.empty() || device.empty() ? "" : vendor + ":" + device;
  if (!own.empty()) return ids.empty() ? own : own + " (" + ids + ")";
  return vendorText(root, vendor) + " device" + (ids.empty() ? "" : " " + ids);
}

Device fromCard(const Root& root, const Facts& facts, const Card& c, const std::vector<const OpenClFacts*>& members,
                const NvmlFacts* nv, const RatesTable& rates) {
  Device dev;
  const OpenClFacts* cl = members.empty() ? nullptr : members.front();
  const Board board = boardOf(c, cl, nv);
  dev.pci = c.pci;
  dev.parent = c.parent;
  dev.vendor = vendorText(root, c.vendor);
  dev.fingerprint = fingerprintOf(board, rates);
  dev.name = nameOf(root, dev.fingerprint, board.reported_name, c.vendor, c.device);
  dev.kind = kindOf(c, cl, dev.fingerprint);
  fillDrivers(dev, members);
  dev.why_unusable = whyUnusable(c, members, facts, nv);
  dev.usable = dev.why_unusable.empty();
  // Ids and place only: what a driver adds (memory, names) may be missing on the next boot.
  std::string subsystem = c.subsystem;
  std::replace(subsystem.begin(), subsystem.end(), ':', '.');
  dev.stable_id = (c.vendor.empty() ? "x" : c.vendor) + "." + (c.device.empty() ? "x" : c.device) +
                  (subsystem.empty() ? "" : "." + subsystem) + "@" + c.pci;
  if (cl && dev.usable) {
    dev.opencl = cl->place;
    dev.dtypes = dtypesOf(*cl);
  }
  fillMemory(dev, root, &c, cl, nv);
  fillDescription(dev, &c, cl);
  fillBandwidth(dev, rates);
  fillTorch(dev, &c, cl, board.reported_name.empty() ? "sysfs" : nv ? "driver" : cl ? "opencl" : "sysfs");
  return dev;
}

bool isSlice(const OpenClFacts& d, const NvmlSlice& s) {
  return !d.uuid.empty() && (s.uuid == d.uuid || s.uuid == "MIG-" + d.uuid);
}

// The OpenCL devices of one slice, from those that the driver lists for its card: by UUID, else by the only slice there
// is, else by a memory size that only this slice has.
std::vector<const OpenClFacts*> membersOfSlice(const std::vector<const OpenClFacts*>& of_card, const NvmlFacts& nv,
                                               const NvmlSlice& s) {
  std::vector<const OpenClFacts*> out;
  for (const OpenClFacts* d : of_card) {
    bool told = false;
    for (const NvmlSlice& x : nv.slices) told = told || isSlice(*d, x);
    if (told) {
      if (isSlice(*d, s)) out.push_back(d);
      continue;
    }
    size_t could = 0;
    bool this_one = false;
    for (const NvmlSlice& x : nv.slices) {
      const bool fits =
          nv.slices.size() == 1 || (d->global_bytes && x.memory.total && *d->global_bytes <= *x.memory.total &&
                                    *d->global_bytes >= *x.memory.total * 0.9);
      could += fits;
      this_one = this_one || (fits && &x == &s);
    }
    if (could == 1 && this_one) out.push_back(d);
  }
  return out;
}

Device fromSlice(const Root& root, const std::vector<const OpenClFacts*>& of_card, const Card& c, const NvmlFacts& nv,
                 const NvmlSlice& s, const RatesTable& rates) {
  Device dev;
  dev.pci = c.pci;
  dev.parent = nv.uuid;
  dev.vendor = vendorText(root, c.vendor.empty() ? "10de" : c.vendor);
  dev.kind = Kind::discrete;
  dev.fingerprint = match(database(), boardOf(c, nullptr, &nv));
  // A slice is not its card: the card's model is a candidate, never the answer.
  for (Candidate& candidate : dev.fingerprint.candidates)
    candidate.evidence_against.push_back("a MIG slice, not the whole card");
  if (dev.fingerprint.result == "exact") dev.fingerprint.result = "family";
  dev.fingerprint.model.clear();
  // Slices of one card differ in what they can do: what is measured on one says nothing of the others.
  if (s.memory.total) {
    char share[32];
    std::snprintf(share, sizeof share, "/mig %.0fMiB", static_cast<double>(*s.memory.total) / 1048576);
    dev.fingerprint.identity += share;
  }
  dev.name = nameOf(root, dev.fingerprint, s.name, c.vendor, c.device);
  dev.stable_id = s.uuid;
  NvmlFacts own;
  own.memory = s.memory;
  own.busy_percent = s.busy_percent;
  own.why_no_busy = s.why_no_busy;
  // The driver's OpenCL lists one slice a process.
  const auto members = membersOfSlice(of_card, nv, s);
  const OpenClFacts* cl = members.empty() ? nullptr : members.front();
  fillDrivers(dev, members);
  for (const NodeFact& n : c.nodes)
    if (dev.why_unusable.empty() && n.access.judged && n.access.exists && !n.access.allowed)
      dev.why_unusable = n.access.why;
  if (dev.why_unusable.empty())
    dev.why_unusable =
        cl ? driverTrouble(members)
           : "no OpenCL device can be told to be this slice; choose it for this process with CUDA_VISIBLE_DEVICES=" +
                 s.uuid;
  dev.usable = dev.why_unusable.empty();
  if (cl && dev.usable) {
    dev.opencl = cl->place;
    dev.dtypes = dtypesOf(*cl);
  }
  fillMemory(dev, root, nullptr, cl, &own);
  fillDescription(dev, nullptr, cl);
  fillBandwidth(dev, rates);
  fillTorch(dev, nullptr, cl, "driver");
  return dev;
}

// A group without a card: the processor, or a device whose card cannot be told.
Device fromGroup(const Root& root, const Facts& facts, const Group& g, std::map<std::string, int>& seen,
                 const RatesTable& rates) {
  const OpenClFacts& cl = *g.members.front();
  Device dev;
  dev.pci_candidates = g.pci_candidates;
  dev.kind = cl.type == "CPU" ? Kind::cpu : cl.type == "ACCELERATOR" ? Kind::npu : cl.type == "CUSTOM" ? Kind::other
             : cl.unified == std::optional<bool>(true) ? Kind::integrated
             : cl.unified == std::optional<bool>(false) ? Kind::discrete : Kind::other;
  Board b;
  if (dev.kind != Kind::cpu && !g.pci_candidates.empty()) {
    // All cards that can be meant are of one kind of board: then the board is known, only its slot is not.
    const Card* first = facts.find(g.pci_candidates[0]);
    bool same = first != nullptr;
    for (const std::string& p : g.pci_candidates) {
      const Card* c = facts.find(p);
      same = same && c && c->vendor == first->vendor && c->device == first->device &&
             c->subsystem == first->subsystem && c->revision == first->revision;
    }
    if (same) b = boardOf(*first, &cl, nullptr);
    if (same && dev.kind == Kind::other && cl.type == "GPU") dev.kind = kindOf(*first, &cl, match(database(), b));
    if (same && cl.global_bytes && cl.unified != std::optional<bool>(true))
      b.memory_bytes = static_cast<double>(*cl.global_bytes);
    dev.vendor = first ? vendorText(root, first->vendor) : "";
  }
  b.driver = cl.platform + " " + cl.driver_version;
  dev.fingerprint = fingerprintOf(b, rates);
  if (dev.vendor.empty()) dev.vendor = cl.vendor_name.empty() ? "Unknown" : cl.vendor_name;
  dev.name = nameOf(root, dev.fingerprint, cl.name, b.vendor, b.device);
  std::string what;
  if (dev.kind == Kind::cpu) {
    // The processor is itself, whatever driver names it.
    if (const auto info = root.bytes("/proc/cpuinfo", 65536)) {
      const auto p = info->find("model name");
      const auto colon = p == std::string::npos ? p : info->find(": ", p);
      if (colon != std::string::npos) what = slug(info->substr(colon + 2, info->find('\n', colon) - colon - 2));
    }
    if (what.empty()) what = slug(cl.name);
    dev.fingerprint.identity = "cpu:" + what;
    what = "cpu." + what;
  } else {
    what = cl.uuid.empty() ? "opencl." + slug(cl.name) : cl.uuid;
    if (b.device.empty()) dev.fingerprint.identity = what;
  }
  dev.stable_id = what + "@" + std::to_string(seen[what]++);
  fillDrivers(dev, g.members);
  dev.why_unusable = driverTrouble(g.members);
  dev.usable = dev.why_unusable.empty();
  if (dev.usable) {
    dev.opencl = cl.place;
    dev.dtypes = dtypesOf(cl);
  }
  fillMemory(dev, root, nullptr, &cl, nullptr);
  fillDescription(dev, nullptr, &cl);
  fillBandwidth(dev, rates);
  fillTorch(dev, nullptr, &cl, "opencl");
  return dev;
}

}  // namespace

std::vector<FabricLink> fabricOf(const Facts& facts) {
  std::vector<FabricLink> out;
  const auto isCard = [&](const std::string& pci) {
    return std::any_of(facts.nvml.begin(), facts.nvml.end(), [&](const NvmlFacts& n) { return n.pci == pci; });
  };
  for (size_t a = 0; a < facts.nvml.size(); ++a)
    for (size_t b = a + 1; b < facts.nvml.size(); ++b) {
      const NvmlFacts &x = facts.nvml[a], &y = facts.nvml[b];
      const auto direct = std::count(x.links.begin(), x.links.end(), y.pci);
      const bool by_switch = std::any_of(x.links.begin(), x.links.end(), [&](const std::string& s) {
        return !isCard(s) && std::find(y.links.begin(), y.links.end(), s) != y.links.end();
      });
      if (x.pci.empty() || y.pci.empty() || (!direct && !by_switch)) continue;
      out.push_back({x.pci, y.pci,
                     direct ? std::to_string(direct) + (direct == 1 ? " NVLink" : " NVLinks") : "an NVLink switch"});
    }
  return out;
}

std::vector<Device> mergeDevices(const Root& root, const Facts& facts) {
  std::vector<Device> out;
  const std::vector<Group> groups = groupOpenCl(facts);
  const RatesTable rates = ratesOf(root);
  std::map<std::string, const Group*> by_card;
  std::set<std::string> ambiguous;   // cards that a stand-alone device may be: not listed a second time
  for (const Group& g : groups) {
    if (!g.pci.empty()) by_card[g.pci] = &g;
    ambiguous.insert(g.pci_candidates.begin(), g.pci_candidates.end());
  }
  const auto nvmlOf = [&](const std::string& pci) -> const NvmlFacts* {
    for (const NvmlFacts& n : facts.nvml)
      if (n.pci == pci) return &n;
    return nullptr;
  };
  for (const Card& c : facts.cards) {
    const auto it = by_card.find(c.pci);
    if (it == by_card.end() && ambiguous.count(c.pci)) continue;
    const NvmlFacts* nv = nvmlOf(c.pci);
    const auto members = it == by_card.end() ? std::vector<const OpenClFacts*>{} : it->second->members;
    out.push_back(fromCard(root, facts, c, members, nv, rates));
    if (nv && nv->mig)
      for (const NvmlSlice& s : nv->slices) out.push_back(fromSlice(root, members, c, *nv, s, rates));
  }
  // A driver may see a card that sysfs does not show (WSL2, a container without /sys).
  std::map<std::string, int> seen;
  for (const Group& g : groups) {
    if (!g.pci.empty() && facts.find(g.pci)) continue;
    if (g.pci.empty()) { out.push_back(fromGroup(root, facts, g, seen, rates)); continue; }
    // Of a class that the PCI probe passed over, or not in sysfs at all.
    Card c = readPciCard(root, g.pci).value_or(Card{});
    c.pci = g.pci;
    if (c.in_sysfs) {
      out.push_back(fromCard(root, facts, c, g.members, nvmlOf(g.pci), rates));
      continue;
    }
    const uint32_t id = g.members.front()->vendor_id;
    if (id != 0 && id <= 0xffff) {
      char buf[8];
      std::snprintf(buf, sizeof buf, "%04x", id);
      c.vendor = buf;
    }
    out.push_back(fromCard(root, facts, c, g.members, nvmlOf(g.pci), rates));
  }
  return out;
}

}  // namespace flagos::dal

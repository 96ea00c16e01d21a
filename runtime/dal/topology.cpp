#include "runtime/dal/topology.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "runtime/dal/pci_address.h"

namespace flagos::dal {
namespace {

// Bytes per second of one lane after coding, by the transfer rate that sysfs prints.
double laneRate(double gigatransfers) {
  struct Row { double rate, gbps; };
  for (const Row& r : {Row{2.5, 0.25}, Row{5, 0.5}, Row{8, 0.985}, Row{16, 1.97}, Row{32, 3.94}, Row{64, 7.56}})
    if (gigatransfers == r.rate) return r.gbps * 1e9;
  return 0;
}

// One function's own link; nullopt where speed or width is missing, no number, or one of hardware's words for "none".
std::optional<double> linkRate(const Root& root, const std::string& dir, const char* which) {
  const auto speed = root.text(dir + "/" + which + "_link_speed"), width = root.text(dir + "/" + which + "_link_width");
  if (!speed || !width) return std::nullopt;
  const double rate = laneRate(std::strtod(speed->c_str(), nullptr));
  const long lanes = std::strtol(width->c_str(), nullptr, 10);
  if (rate <= 0 || lanes <= 0 || lanes == 63 || lanes >= 255) return std::nullopt;
  return rate * static_cast<double>(lanes);
}

bool asleep(const Root& root, const std::string& dir) {
  const auto s = root.text(dir + "/power/runtime_status");
  return s && (*s == "suspended" || *s == "suspending");
}

struct Narrowest { std::optional<double> now, max; std::string at; bool asleep = false; };

// The narrowest link of the last `count` places of a chain (root to device).
Narrowest narrowest(const Root& root, const std::vector<std::string>& chain, size_t from) {
  Narrowest n;
  for (size_t i = from; i < chain.size(); ++i) {
    const std::string dir = "/sys/bus/pci/devices/" + chain[i];
    // Reading the link asks the config space, which resumes a sleeping device.
    if (asleep(root, dir)) { n.asleep = true; continue; }
    const auto now = linkRate(root, dir, "current"), max = linkRate(root, dir, "max");
    if (now && (!n.now || *now < *n.now)) { n.now = now; n.at = chain[i]; }
    if (max && (!n.max || *max < *n.max)) n.max = max;
  }
  return n;
}

Metric rate(const std::optional<double>& v, const Narrowest& n) {
  if (v) return Metric::of(*v, "B/s", "sysfs");
  return Metric::missing(
      "B/s", n.asleep ? "a device on the way is asleep and was not woken" : "no link speed and width in sysfs");
}

std::vector<std::string> chainOf(const TopologyNode& n) {
  std::vector<std::string> c = n.bridges;
  c.push_back(n.pci);
  return c;
}

struct Fabric { double bytes_per_s; };

// XGMI links between GPUs by address pair, from KFD's tables (cached by the kernel).
std::map<std::pair<std::string, std::string>, Fabric> fabricLinks(const Root& root) {
  const std::string base = "/sys/class/kfd/kfd/topology/nodes";
  std::map<std::string, std::string> pci;   // node number -> address
  const auto read = [&](const std::string& path) {
    std::map<std::string, uint64_t> p;
    std::istringstream lines(root.text(path, 16384).value_or(""));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream row(line);
      std::string key;
      uint64_t v = 0;
      if (row >> key >> v) p[key] = v;
    }
    return p;
  };
  const auto nodes = root.list(base);
  for (const std::string& n : nodes) {
    auto p = read(base + "/" + n + "/properties");
    if (p["simd_count"] == 0) continue;
    const auto loc = static_cast<uint32_t>(p["location_id"]);
    pci[n] = PciAddress{static_cast<uint32_t>(p["domain"]), (loc >> 8) & 0xff, (loc >> 3) & 31, loc & 7}.text();
  }
  std::map<std::pair<std::string, std::string>, Fabric> out;
  for (const auto& [n, address] : pci)
    for (const std::string& l : root.list(base + "/" + n + "/io_links")) {
      auto p = read(base + "/" + n + "/io_links/" + l + "/properties");
      const auto to = pci.find(std::to_string(p["node_to"]));
      if (p["type"] != 3 || to == pci.end()) continue;
      out[std::minmax(address, to->second)] = Fabric{static_cast<double>(p["max_bandwidth"]) * 1e6};
    }
  return out;
}

TopologyNode nodeOf(const Root& root, const Device& d, const std::string& name) {
  TopologyNode n;
  n.name = name;
  n.link = n.link_max =
      Metric::missing("B/s", d.pci.empty() ? "it has no PCI address" : "sysfs does not show where it is plugged in");
  if (d.pci.empty()) return n;
  const auto path = root.resolve("/sys/bus/pci/devices/" + d.pci);
  if (!path) return n;
  std::istringstream parts(*path);
  for (std::string part; std::getline(parts, part, '/');) {
    if (part.rfind("pci", 0) == 0 && part.find(':') != std::string::npos) n.host_bridge = part;
    else if (const std::string a = normalPciAddress(part); !a.empty() && a != d.pci) n.bridges.push_back(a);
  }
  if (n.host_bridge.empty()) return n;
  n.pci = d.pci;
  if (const auto numa = root.text("/sys/bus/pci/devices/" + d.pci + "/numa_node"))
    n.numa_node = std::isdigit(static_cast<unsigned char>((*numa + "x")[0])) ? std::atoi(numa->c_str()) : -1;
  const Narrowest link = narrowest(root, chainOf(n), 0);
  n.link = rate(link.now, link);
  n.link_max = rate(link.max, link);
  n.narrowest = link.at;
  return n;
}

bool oneNumaNode(const Root& root) {
  int nodes = 0;
  for (const std::string& n : root.list("/sys/devices/system/node"))
    nodes += n.rfind("node", 0) == 0 && n.size() > 4 && std::isdigit(static_cast<unsigned char>(n[4]));
  return nodes == 1;
}

TopologyEdge edgeOf(const Root& root, const std::vector<TopologyNode>& nodes, size_t a, size_t b,
                    const std::map<std::pair<std::string, std::string>, Fabric>& fabric, bool one_numa) {
  const TopologyNode &x = nodes[a], &y = nodes[b];
  TopologyEdge e;
  e.a = a;
  e.b = b;
  e.latency = Metric::missing("s", "not measured");
  e.bandwidth = Metric::missing("B/s", "no path is known");
  e.best = "host";
  if (x.pci.empty() || y.pci.empty()) {
    e.why = (x.pci.empty() ? x.name : y.name) + " has no known place in the PCI tree: copies go through host memory";
    return e;
  }
  if (x.pci == y.pci) {
    e.cls = "SELF";
    e.why = "both are parts of one card";
    return e;
  }
  const auto link = fabric.find(std::minmax(x.pci, y.pci));
  if (link != fabric.end()) {
    e.cls = "FABRIC";
    e.best = "fabric";
    e.why = "an XGMI link joins them";
    if (link->second.bytes_per_s > 0) e.bandwidth = Metric::of(link->second.bytes_per_s, "B/s", "sysfs");
    else e.bandwidth = Metric::missing("B/s", "KFD reports no bandwidth for the link");
    return e;
  }
  const auto cx = chainOf(x), cy = chainOf(y);
  size_t common = 0;
  if (x.host_bridge == y.host_bridge)
    while (common + 1 < std::min(cx.size(), cy.size()) && cx[common] == cy[common]) ++common;
  const Narrowest nx = narrowest(root, cx, common), ny = narrowest(root, cy, common);
  if (nx.now && ny.now) e.bandwidth = Metric::of(std::min(*nx.now, *ny.now), "B/s", "sysfs");
  else e.bandwidth = rate(std::nullopt, nx.now ? ny : nx);
  // Bridges below the common one, on the longer side.
  const size_t below = std::max(cx.size(), cy.size()) - common - 1;
  if (x.host_bridge == y.host_bridge && common > 0) {
    e.cls = below <= 1 ? "PIX" : "PXB";
    e.best = "peer";
    e.provisional = true;
    e.why = "the kernel grants peer copies below bridge " + cx[common - 1] +
            (below <= 1 ? "" : ", " + std::to_string(below) + " bridges deep") +
            "; whether access control (ACS) sends them up to the root was not read";
  } else if (x.host_bridge == y.host_bridge) {
    e.cls = "PHB";
    e.provisional = true;
    e.why = "they meet only in the host bridge " + x.host_bridge +
            ", where the kernel grants peer copies for listed platforms only";
  } else if ((x.numa_node >= 0 && x.numa_node == y.numa_node) || one_numa) {
    e.cls = "NODE";
    e.why = "different host bridges of one NUMA node: copies go through host memory";
  } else if (x.numa_node >= 0 && y.numa_node >= 0) {
    e.cls = "SYS";
    e.why = "NUMA nodes " + std::to_string(x.numa_node) + " and " + std::to_string(y.numa_node) +
            ": copies cross the sockets";
  } else {
    e.why = "different host bridges, and sysfs does not say on which NUMA node: copies go through host memory";
  }
  return e;
}

}  // namespace

Topology readTopology(const Root& root, const Inventory& inventory) {
  Topology t;
  for (const Device& d : inventory.devices)
    t.nodes.push_back(nodeOf(root, d,
                             d.index         ? "npu:" + std::to_string(*d.index)
                             : d.pci.empty() ? d.stable_id
                                             : d.pci));
  const auto fabric = fabricLinks(root);
  const bool one_numa = oneNumaNode(root);
  for (size_t a = 0; a < t.nodes.size(); ++a)
    for (size_t b = a + 1; b < t.nodes.size(); ++b) t.edges.push_back(edgeOf(root, t.nodes, a, b, fabric, one_numa));
  return t;
}

Json toJson(const Topology& t) {
  const auto orNull = [](const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); };
  Json nodes = Json::array(), edges = Json::array();
  for (const TopologyNode& n : t.nodes)
    nodes.push_back(Json{{"name", n.name},
                         {"pci", orNull(n.pci)},
                         {"host_bridge", orNull(n.host_bridge)},
                         {"bridges", n.bridges},
                         {"numa_node", n.numa_node < 0 ? Json(nullptr) : Json(n.numa_node)},
                         {"link", flagos::toJson(n.link)},
                         {"link_max", flagos::toJson(n.link_max)},
                         {"narrowest", orNull(n.narrowest)}});
  for (const TopologyEdge& e : t.edges)
    edges.push_back(Json{{"a", t.nodes[e.a].name},
                         {"b", t.nodes[e.b].name},
                         {"class", orNull(e.cls)},
                         {"bandwidth", flagos::toJson(e.bandwidth)},
                         {"latency", flagos::toJson(e.latency)},
                         {"best", e.best},
                         {"why", e.why},
                         {"provisional", e.provisional}});
  return Json{{"devices", std::move(nodes)}, {"edges", std::move(edges)}};
}

namespace {
std::string gigabytes(const Metric& m) {
  if (!m.value) return "unknown (" + m.why_missing + ")";
  char buf[64];
  std::snprintf(buf, sizeof buf, "%.1f GB/s [%s]", *m.value / 1e9, m.source.c_str());
  return buf;
}
}  // namespace

std::string topologyText(const Topology& t) {
  size_t width = 8;
  for (const TopologyNode& n : t.nodes) width = std::max(width, n.name.size() + 2);
  const auto pad = [&](std::string s) { s.resize(std::max(width, s.size() + 1), ' '); return s; };
  std::string out = "topology (FABRIC > PIX one bridge > PXB several > PHB host bridge > NODE > SYS):\n    " + pad("");
  for (const TopologyNode& n : t.nodes) out += pad(n.name);
  out += "\n";
  for (size_t a = 0; a < t.nodes.size(); ++a) {
    out += "    " + pad(t.nodes[a].name);
    for (size_t b = 0; b < t.nodes.size(); ++b) {
      std::string cell = "X";
      for (const TopologyEdge& e : t.edges)
        if ((e.a == a && e.b == b) || (e.a == b && e.b == a)) cell = e.cls.empty() ? "?" : e.cls;
      out += pad(cell);
    }
    out += "\n";
  }
  for (const TopologyNode& n : t.nodes)
    out += "    " + n.name + ": to the host " + gigabytes(n.link) + ", at most " + gigabytes(n.link_max) +
           (n.narrowest.empty() || n.narrowest == n.pci ? "" : ", narrowest at " + n.narrowest) + "\n";
  for (const TopologyEdge& e : t.edges)
    out += "    " + t.nodes[e.a].name + " - " + t.nodes[e.b].name + ": " + e.best + ", " + gigabytes(e.bandwidth) +
           (e.provisional ? ", provisional" : "") + ": " + e.why + "\n";
  return out;
}

}  // namespace flagos::dal

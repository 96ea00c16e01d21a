#include "runtime/dal/topology.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "runtime/dal/acs.h"
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

// Each bridge is on the way between many devices; it is read once.
class Tree {
 public:
  explicit Tree(const Root& root) : root_(root) {}
  struct Link { std::optional<double> now, max; bool asleep = false; };

  const Link& link(const std::string& address) {
    const auto [it, fresh] = links_.emplace(address, Link{});
    if (!fresh) return it->second;
    const std::string dir = "/sys/bus/pci/devices/" + address;
    const auto power = root_.text(dir + "/power/runtime_status");
    // Reading the link asks the config space, which resumes a sleeping device.
    it->second.asleep = power && (*power == "suspended" || *power == "suspending");
    if (it->second.asleep) return it->second;
    it->second.now = linkRate(root_, dir, "current");
    it->second.max = linkRate(root_, dir, "max");
    return it->second;
  }
  const AcsState& acs(const std::string& address) {
    const auto it = acs_.find(address);
    return it != acs_.end() ? it->second : acs_.emplace(address, readAcs(root_, address)).first->second;
  }
  const Root& root() const { return root_; }

 private:
  const Root& root_;
  std::map<std::string, Link> links_;
  std::map<std::string, AcsState> acs_;
};

struct Narrowest { std::optional<double> now, max; std::string at; bool asleep = false; };

// The narrowest link of the last `count` places of a chain (root to device).
Narrowest narrowest(Tree& tree, const std::vector<std::string>& chain, size_t from) {
  Narrowest n;
  for (size_t i = from; i < chain.size(); ++i) {
    const Tree::Link& l = tree.link(chain[i]);
    n.asleep = n.asleep || l.asleep;
    if (l.now && (!n.now || *l.now < *n.now)) { n.now = l.now; n.at = chain[i]; }
    if (l.max && (!n.max || *l.max < *n.max)) n.max = l.max;
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

struct Fabric {
  std::string name;                  // "an XGMI link"
  Metric bandwidth, latency;
};
using FabricLinks = std::map<std::pair<std::string, std::string>, Fabric>;

// Links between GPUs by address pair: XGMI from KFD's tables (cached by the kernel), and what the vendor's library
// told.
FabricLinks fabricLinks(const Root& root, const Inventory& inventory) {
  FabricLinks out;
  for (const FabricLink& l : inventory.fabric)
    out[std::minmax(l.a, l.b)] = {l.name, Metric::missing("B/s", "the library tells the links, not their speed"),
                                  Metric::missing("s", "the library does not tell it")};
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
  for (const auto& [n, address] : pci)
    for (const std::string& l : root.list(base + "/" + n + "/io_links")) {
      auto p = read(base + "/" + n + "/io_links/" + l + "/properties");
      const auto to = pci.find(std::to_string(p["node_to"]));
      if (p["type"] != 3 || to == pci.end()) continue;
      const double mbps = static_cast<double>(p["max_bandwidth"]), ns = static_cast<double>(p["max_latency"]);
      out[std::minmax(address, to->second)] = {
          "an XGMI link",
          mbps > 0 ? Metric::of(mbps * 1e6, "B/s", "sysfs", std::nullopt)
                   : Metric::missing("B/s", "KFD reports no bandwidth for the link"),
          ns > 0 ? Metric::of(ns / 1e9, "s", "sysfs", std::nullopt)
                 : Metric::missing("s", "KFD reports no latency for the link")};
    }
  return out;
}

TopologyNode nodeOf(Tree& tree, const Device& d, const std::string& name) {
  const Root& root = tree.root();
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
  const Narrowest link = narrowest(tree, chainOf(n), 0);
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

// Row x, column y of the machine's NUMA table; "" if it tells none.
std::string numaDistance(const Root& root, int x, int y) {
  std::vector<int> nodes;
  for (const std::string& n : root.list("/sys/devices/system/node"))
    if (n.rfind("node", 0) == 0 && n.size() > 4 && std::isdigit(static_cast<unsigned char>(n[4])))
      nodes.push_back(std::atoi(n.c_str() + 4));
  std::sort(nodes.begin(), nodes.end());
  std::istringstream row(root.text("/sys/devices/system/node/node" + std::to_string(x) + "/distance").value_or(""));
  int distance = 0;
  for (const int n : nodes) {
    if (!(row >> distance)) return "";
    if (n == y) return ", NUMA distance " + std::to_string(distance) + " (one's own is 10)";
  }
  return "";
}

Metric narrower(const Narrowest& x, const Narrowest& y) {
  if (x.now && y.now) return Metric::of(std::min(*x.now, *y.now), "B/s", "sysfs");
  return rate(std::nullopt, x.now ? y : x);
}

// Whether the bridges between the common one and each device let a copy go straight across.
AcsState accessControl(Tree& tree, const std::vector<std::string>& cx, const std::vector<std::string>& cy,
                       size_t common, std::string* at) {
  AcsState worst{Redirect::off, {}};
  for (const auto* chain : {&cx, &cy})
    for (size_t i = common; i + 1 < chain->size(); ++i) {
      AcsState s = tree.acs((*chain)[i]);
      if (s.redirect == Redirect::on) { *at = (*chain)[i]; return s; }
      if (s.redirect == Redirect::unknown) worst = std::move(s);
    }
  return worst;
}

TopologyEdge edgeOf(Tree& tree, const std::vector<TopologyNode>& nodes, size_t a, size_t b, const FabricLinks& fabric,
                    bool one_numa) {
  const TopologyNode &x = nodes[a], &y = nodes[b];
  TopologyEdge e;
  e.a = a;
  e.b = b;
  e.latency = Metric::missing("s", "neither sysfs nor a driver tells it, and it is not measured");
  if (x.pci.empty() || y.pci.empty()) {
    e.why = (x.pci.empty() ? x.name : y.name) + " has no known place in the PCI tree";
    e.paths.push_back({"host", Metric::missing("B/s", "no path is known"), "copies go through host memory"});
    return e;
  }
  if (x.pci == y.pci) {
    e.cls = "SELF";
    e.why = "both are parts of one card";
    e.paths.push_back(
        {"host", Metric::missing("B/s", "no path is known"), "parts of one card see no memory of each other"});
    return e;
  }
  const auto cx = chainOf(x), cy = chainOf(y);
  size_t common = 0;
  if (x.host_bridge == y.host_bridge)
    while (common + 1 < std::min(cx.size(), cy.size()) && cx[common] == cy[common]) ++common;
  const Metric across = narrower(narrowest(tree, cx, common), narrowest(tree, cy, common));
  // Bridges below the common one, on the longer side.
  const size_t below = std::max(cx.size(), cy.size()) - common - 1;
  std::string host_why = "copies go through host memory";
  if (x.host_bridge == y.host_bridge && common > 0) {
    e.cls = below <= 1 ? "PIX" : "PXB";
    e.why =
        "they meet at bridge " + cx[common - 1] + (below <= 1 ? "" : ", " + std::to_string(below) + " bridges deep");
    std::string at;
    const AcsState acs = accessControl(tree, cx, cy, common, &at);
    if (acs.redirect == Redirect::on)
      host_why = "access control (ACS) of bridge " + at + " sends peer copies up to the root";
    else
      e.paths.push_back(
          {"peer", across,
           acs.redirect == Redirect::off
               ? "the kernel grants peer copies below one bridge, and access control (ACS) lets them across"
               : "the kernel grants peer copies below one bridge; provisional: " + acs.why,
           acs.redirect == Redirect::unknown});
  } else if (x.host_bridge == y.host_bridge) {
    e.cls = "PHB";
    e.why = "they meet only in the host bridge " + x.host_bridge;
    host_why = "the kernel grants peer copies across a host bridge for listed platforms only";
  } else if ((x.numa_node >= 0 && x.numa_node == y.numa_node) || one_numa) {
    e.cls = "NODE";
    e.why = "different host bridges of one NUMA node";
  } else if (x.numa_node >= 0 && y.numa_node >= 0) {
    e.cls = "SYS";
    e.why = "NUMA nodes " + std::to_string(x.numa_node) + " and " + std::to_string(y.numa_node) +
            numaDistance(tree.root(), x.numa_node, y.numa_node);
    host_why = "copies cross the sockets through host memory";
  } else {
    e.why = "different host bridges, and sysfs does not say on which NUMA node";
  }
  e.paths.push_back({"host", narrower(narrowest(tree, cx, 0), narrowest(tree, cy, 0)), host_why});
  if (const auto link = fabric.find(std::minmax(x.pci, y.pci)); link != fabric.end()) {
    e.cls = "FABRIC";
    e.why = link->second.name + " joins them; " + e.why;
    e.latency = link->second.latency;
    e.paths.insert(e.paths.begin(), {"fabric", link->second.bandwidth, link->second.name + " joins them"});
  }
  return e;
}

}  // namespace

Topology readTopology(const Root& root, const Inventory& inventory) {
  Topology t;
  Tree tree(root);
  for (const Device& d : inventory.devices)
    t.nodes.push_back(nodeOf(tree, d,
                             d.index         ? "npu:" + std::to_string(*d.index)
                             : d.pci.empty() ? d.stable_id
                                             : d.pci));
  const auto fabric = fabricLinks(root, inventory);
  const bool one_numa = oneNumaNode(root);
  for (size_t a = 0; a < t.nodes.size(); ++a)
    for (size_t b = a + 1; b < t.nodes.size(); ++b) t.edges.push_back(edgeOf(tree, t.nodes, a, b, fabric, one_numa));
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
  for (const TopologyEdge& e : t.edges) {
    Json paths = Json::array();
    for (const TopologyPath& p : e.paths)
      paths.push_back(Json{
          {"via", p.via}, {"bandwidth", flagos::toJson(p.bandwidth)}, {"why", p.why}, {"provisional", p.provisional}});
    edges.push_back(Json{{"a", t.nodes[e.a].name},
                         {"b", t.nodes[e.b].name},
                         {"class", orNull(e.cls)},
                         {"bandwidth", flagos::toJson(e.best().bandwidth)},
                         {"latency", flagos::toJson(e.latency)},
                         {"best", e.best().via},
                         {"why", e.why + ": " + e.best().why},
                         {"provisional", e.best().provisional},
                         {"paths", std::move(paths)}});
  }
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
  for (const TopologyEdge& e : t.edges) {
    out += "    " + t.nodes[e.a].name + " - " + t.nodes[e.b].name + ": " + (e.cls.empty() ? "unknown" : e.cls) + ", " +
           e.why + "\n";
    for (const TopologyPath& p : e.paths)
      out += std::string(&p == &e.paths.front() ? "        best: " : "        else: ") + p.via + ", " +
             gigabytes(p.bandwidth) + (p.provisional ? ", provisional" : "") + ": " + p.why + "\n";
  }
  return out;
}

}  // namespace flagos::dal

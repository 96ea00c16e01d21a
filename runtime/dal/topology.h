// How devices reach each other and the host: the PCIe tree of sysfs, fabric links of KFD, and the best path between two
// devices with its reason. Paths rank by fabric link, then across the tree if access control lets them, then through
// the host. Reads only; a sleeping device's link is left unread.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/dal/inventory.h"
#include "runtime/dal/root.h"

namespace flagos::dal {

// One place in the tree. The link is the narrowest of the device and all its ancestors: a card behind a switch of its
// own always reports full speed at its end point.
struct TopologyNode {
  std::string name;                    // "npu:0", else the PCI address, else the stable id
  std::string pci;                     // "" = no place in the tree
  std::string host_bridge;             // "pci0000:00"
  std::vector<std::string> bridges;    // from the root down to the device's parent
  int numa_node = -1;                  // -1 = unknown
  Metric link, link_max;               // bytes/s towards the host, now and at most
  std::string narrowest;               // the function whose link is the narrowest
};

// Ranked: FABRIC (XGMI), PIX one bridge, PXB several bridges, PHB one host bridge, NODE one NUMA node, SYS across
// sockets.
// One way for a copy between two devices.
struct TopologyPath {
  std::string via;                     // "fabric" | "peer" (across the PCIe tree) | "host" (through its memory)
  Metric bandwidth;                    // of the narrowest link on the way
  std::string why;                     // why it may be taken, or may not be relied on
  bool provisional = false;            // access control (ACS) of the bridges is unknown: measure before relying on it
};
struct TopologyEdge {
  size_t a = 0, b = 0;
  std::string cls;                     // "" = cannot be told, see why
  Metric latency;                      // of the best path
  std::string why;                     // the reason of the class
  std::vector<TopologyPath> paths;     // best first; never empty: the host's memory always works
  const TopologyPath& best() const { return paths.front(); }
};

struct Topology {
  std::vector<TopologyNode> nodes;     // in the inventory's order
  std::vector<TopologyEdge> edges;     // a < b
};

Topology readTopology(const Root&, const Inventory&);
Json toJson(const Topology&);
// The matrix and the links, for terminals.
std::string topologyText(const Topology&);

}  // namespace flagos::dal

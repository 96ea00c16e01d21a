// The ladder of path classes and the narrowest link, on machines that have every step.
#include <cstdlib>
#include <filesystem>

#include "runtime/dal/acs.h"
#include "runtime/dal/topology.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;

namespace {

dal::Topology of(const std::string& name) {
  const auto options = machines::expected(name).options;
  return dal::readTopology(dal::Root(options.root), dal::enumerate(options));
}
const dal::TopologyEdge& edge(const dal::Topology& t, size_t a, size_t b) {
  for (const auto& e : t.edges)
    if (e.a == a && e.b == b) return e;
  FAIL("no edge " << a << " " << b);
  return t.edges[0];
}

}  // namespace

TEST_CASE("every step of the ladder, with the narrowest link of each path") {
  const dal::Topology t = of("topology-ladder");
  REQUIRE(t.nodes.size() == 6);
  REQUIRE(t.edges.size() == 15);
  struct Row { size_t a, b; const char* cls; const char* best; double gbps; };  // 0 = unknown
  for (const Row& r : {Row{0, 1, "PIX", "peer", 63.04}, Row{0, 2, "PXB", "peer", 7.88}, Row{1, 2, "PXB", "peer", 7.88},
                       Row{0, 3, "PHB", "host", 4}, Row{2, 3, "PHB", "host", 4}, Row{0, 4, "NODE", "host", 0},
                       Row{3, 4, "NODE", "host", 0}, Row{0, 5, "SYS", "host", 15.76}, Row{4, 5, "SYS", "host", 0}}) {
    INFO(r.a << " - " << r.b);
    const auto& e = edge(t, r.a, r.b);
    CHECK(e.cls == r.cls);
    CHECK(e.best().via == r.best);
    CHECK_FALSE(e.why.empty());
    CHECK_FALSE(e.latency.value.has_value());
    if (r.gbps > 0) CHECK(*e.best().bandwidth.value / 1e9 == Approx(r.gbps));
    else CHECK_FALSE(e.best().bandwidth.value.has_value());
  }
  CHECK(edge(t, 0, 1).best().provisional);
  // To the host: the minimum over all ancestors, which the end point does not show.
  CHECK(*t.nodes[0].link.value / 1e9 == Approx(31.52));
  CHECK(t.nodes[0].narrowest == "0000:00:01.1");
  CHECK(*t.nodes[2].link.value / 1e9 == Approx(7.88));
  CHECK(t.nodes[2].narrowest == "0000:02:02.0");
  CHECK(*t.nodes[2].link_max.value / 1e9 == Approx(15.76));
  // Trained down at idle: what is possible stands beside it.
  CHECK(*t.nodes[3].link.value / 1e9 == Approx(4));
  CHECK(*t.nodes[3].link_max.value / 1e9 == Approx(31.52));
  CHECK_FALSE(t.nodes[4].link.value.has_value());
  CHECK(t.nodes[5].numa_node == 1);
}

TEST_CASE("fabric links rank above PCIe, in either direction, and only where they are") {
  const dal::Topology t = of("amd-mi300x-fabric");
  REQUIRE(t.nodes.size() == 3);
  CHECK(edge(t, 0, 1).cls == "FABRIC");
  CHECK(edge(t, 0, 1).best().via == "fabric");
  CHECK(*edge(t, 0, 1).best().bandwidth.value == 64e9);
  CHECK(edge(t, 0, 2).cls == "NODE");
  CHECK(edge(t, 1, 2).cls == "NODE");
}

TEST_CASE("what has no place in the tree is said, and slices of one card are one place") {
  const dal::Topology alone = of("equal-cards-no-address");
  REQUIRE(alone.edges.size() == 1);
  CHECK(alone.edges[0].cls.empty());
  CHECK_THAT(alone.edges[0].why, Catch::Contains("no known place"));
  const dal::Topology mig = of("nvidia-a100-mig");
  REQUIRE(mig.edges.size() == 3);
  for (const auto& e : mig.edges) CHECK(e.cls == "SELF");
  const std::string text = dal::topologyText(of("topology-ladder"));
  CHECK_THAT(text, Catch::Contains("PIX") && Catch::Contains("SYS") && Catch::Contains("narrowest at 0000:02:02.0"));
  const Json j = dal::toJson(of("topology-ladder"));
  CHECK(j["edges"].size() == 15);
  CHECK(j["edges"][0]["class"] == "PIX");
  CHECK(j["devices"][4]["link"]["value"].is_null());
}

TEST_CASE("a sleeping card's link is not read") {
  const auto options = machines::expected("laptop-asleep").options;
  dal::Root root(options.root);
  const auto inventory = dal::enumerate(options);
  std::vector<std::string> read;
  root.on_read = [&](const std::string& p) { read.push_back(p); };
  (void)dal::readTopology(root, inventory);
  for (const std::string& p : read)
    CHECK((p.find("0000:01:00.0") == std::string::npos || p.find("link_") == std::string::npos));
  CHECK_FALSE(read.empty());
}

namespace {

// A config space of 4,096 bytes with capabilities at the given offsets: {offset, id, control}.
struct Capability { size_t at; int id, control; };
std::string config(std::vector<Capability> list) {
  std::string c(4096, '\0');
  for (size_t i = 0; i < list.size(); ++i) {
    const size_t next = i + 1 < list.size() ? list[i + 1].at : 0, at = list[i].at;
    c[at] = static_cast<char>(list[i].id);
    c[at + 2] = static_cast<char>(1 | (next & 0xf) << 4);
    c[at + 3] = static_cast<char>(next >> 4);
    c[at + 6] = static_cast<char>(list[i].control);
  }
  return c;
}

}  // namespace

TEST_CASE("access control of bridges: on, off, absent, unreadable") {
  using dal::Redirect;
  struct Row { std::string bytes; Redirect redirect; };
  std::string loop = config({{0x100, 3, 0}, {0x140, 4, 0}});
  loop[0x142] = 0x01;   // next = 0x140: itself
  loop[0x143] = 0x14;
  std::string outside = config({{0x100, 3, 0}});
  outside[0x102] = static_cast<char>(0xc1), outside[0x103] = static_cast<char>(0xff);   // next = 0xffc
  for (const Row& r :
       {Row{config({{0x100, 0x0d, 0x04}}), Redirect::on}, Row{config({{0x100, 0x0d, 0x1f}}), Redirect::on},
        Row{config({{0x100, 0x0d, 0x01}}), Redirect::off},
        Row{config({{0x100, 1, 0}, {0x148, 0x0d, 0x0c}}), Redirect::on}, Row{config({{0x100, 1, 0}}), Redirect::off},
        Row{config({}), Redirect::off}, Row{std::string(64, '\x11'), Redirect::unknown}, Row{"", Redirect::unknown},
        Row{loop, Redirect::unknown}, Row{outside, Redirect::unknown}}) {
    const auto s = dal::acsOf(r.bytes);
    CHECK(s.redirect == r.redirect);
    CHECK((s.redirect == Redirect::unknown) == !s.why.empty());
  }
  std::string serial = config({{0x100, 3, 0}, {0x140, 0x0d, 4}});
  for (size_t i = 0x104; i < 0x10c; ++i) serial[i] = 'S';
  const std::string clean = dal::withoutSerialNumber(serial);
  CHECK(clean.size() == serial.size());
  CHECK(clean.find('S') == std::string::npos);
  CHECK(dal::acsOf(clean).redirect == Redirect::on);
}

TEST_CASE("access control decides between straight across and up to the root") {
  char name[] = "/tmp/flagos-acs-XXXXXX";
  const std::string root = ::mkdtemp(name);
  std::filesystem::copy(machines::kFolder + "/topology-ladder", root,
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  auto options = machines::expected("topology-ladder").options;
  options.root = root;
  const auto read = [&] { return dal::readTopology(dal::Root(root), dal::enumerate(options)); };
  const auto between = read();
  const std::vector<std::string>& bridges = between.nodes[0].bridges;
  REQUIRE_FALSE(bridges.empty());
  const auto setAll = [&](const std::string& bytes) {
    for (const auto& n : between.nodes)
      for (const std::string& b : n.bridges)
        REQUIRE(writeFileAtomic(root + "/sys/bus/pci/devices/" + b + "/config", bytes));
  };
  setAll(config({{0x100, 0x0d, 0}}));
  auto e = edge(read(), 0, 2);
  CHECK(e.best().via == "peer");
  CHECK_FALSE(e.best().provisional);
  CHECK(e.paths.back().via == "host");
  setAll(config({{0x100, 0x0d, 4}}));
  e = edge(read(), 0, 2);
  CHECK(e.cls == "PXB");
  CHECK(e.best().via == "host");
  CHECK_THAT(e.best().why, Catch::Contains("sends peer copies up to the root"));
  setAll(std::string(64, '\0'));
  e = edge(read(), 0, 2);
  CHECK(e.best().via == "peer");
  CHECK(e.best().provisional);
  CHECK_THAT(e.best().why, Catch::Contains("only root may read"));
  std::filesystem::remove_all(root);
}

TEST_CASE("what a vendor's library tells of links is a fabric, with its missing numbers said") {
  auto inventory = dal::enumerate(machines::expected("topology-ladder").options);
  inventory.fabric.push_back({inventory.devices[5].pci, inventory.devices[0].pci, "4 NVLinks"});
  const auto t = dal::readTopology(dal::Root(machines::expected("topology-ladder").options.root), inventory);
  const auto& e = edge(t, 0, 5);
  CHECK(e.cls == "FABRIC");
  CHECK(e.best().via == "fabric");
  CHECK_FALSE(e.best().bandwidth.value.has_value());
  CHECK_FALSE(e.best().bandwidth.why_missing.empty());
  CHECK_FALSE(e.latency.why_missing.empty());
  REQUIRE(e.paths.size() == 2);
  CHECK(e.paths[1].via == "host");
  CHECK(edge(t, 0, 1).cls == "PIX");
}

// The ladder of path classes and the narrowest link, on machines that have every step.
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
    CHECK(e.best == r.best);
    CHECK_FALSE(e.why.empty());
    CHECK_FALSE(e.latency.value.has_value());
    if (r.gbps > 0) CHECK(*e.bandwidth.value / 1e9 == Approx(r.gbps));
    else CHECK_FALSE(e.bandwidth.value.has_value());
  }
  CHECK(edge(t, 0, 1).provisional);
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
  CHECK(edge(t, 0, 1).best == "fabric");
  CHECK(*edge(t, 0, 1).bandwidth.value == 64e9);
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

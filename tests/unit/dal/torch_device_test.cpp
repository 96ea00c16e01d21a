// What PyTorch is told of a device: every fact with its source, nothing invented; measured bandwidth as evidence.
#include <cstdlib>
#include <filesystem>

#include "runtime/dal/fingerprint/match.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/rates.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;

namespace {

const dal::Device& cardOf(const dal::Inventory& inventory) {
  for (const dal::Device& d : inventory.devices)
    if (!d.pci.empty()) return d;
  FAIL("no card");
  return inventory.devices.front();
}

}  // namespace

TEST_CASE("each fact of each device is a value with a known source, or missing with a reason") {
  const std::string sources = " opencl sysfs driver measured table predicted ";
  for (const std::string& name : machines::names()) {
    const dal::Inventory inventory = dal::enumerate(machines::expected(name).options);
    for (const dal::Device& d : inventory.devices) {
      INFO(name << ": " << d.name);
      const dal::TorchDevice& t = d.torch;
      for (const dal::Fact* f : {&t.name, &t.stable_id, &t.architecture}) {
        CHECK(f->value.empty() == !f->why_missing.empty());
        CHECK(f->value.empty() == f->source.empty());
        if (!f->source.empty()) CHECK(sources.find(" " + f->source + " ") != std::string::npos);
      }
      CHECK(t.name.value == d.name);
      CHECK(t.stable_id.value == d.stable_id);
      CHECK(t.name.source == (d.fingerprint.result == "exact" ? "table" : t.name.source));
      CHECK(t.capability.has_value() == t.why_no_capability.empty());
      if (t.capability) CHECK(t.capability->first >= 1);
      for (const Metric* m : {&t.compute_units, &t.clock, &t.max_allocation, &t.local_memory, &d.bandwidth}) {
        CHECK(m->value.has_value() == m->why_missing.empty());
        CHECK(m->value.has_value() == !m->source.empty());
        if (m->value) CHECK(*m->value > 0);
      }
      CHECK(t.supported_dtypes == d.dtypes);
      const Json j = dal::toJson(t);
      CHECK(j["capability"]["value"].is_null() == j["capability"]["source"].is_null());
      CHECK(j["name"]["value"] == d.name);
    }
  }
}

TEST_CASE("capability is the OpenCL version, architecture the compilers' word") {
  // OpenCL's version text of the chosen driver decides, whatever the vendor.
  dal::Facts f;
  dal::OpenClFacts d;
  d.type = "CPU";
  d.name = "p";
  for (const auto& [text, expected] : {std::pair{"OpenCL 3.0 PoCL", 3000},
                                       {"OpenCL 1.2 pocl", 1002},
                                       {"OpenCL x", 0},
                                       {"", 0},
                                       {"OpenCL -1.0", 0},
                                       {"OpenCL 2", 2000}}) {
    d.version = text;
    CHECK(dal::openClVersion(d) == expected);
  }
  d.version = "OpenCL 3.0 CUDA";
  d.type = "GPU";
  d.vendor_id = 0x10de;
  d.pci = "0000:01:00.0";
  d.nv_major = 9;
  f.opencl.push_back(d);
  f.card("0000:01:00.0").vendor = "10de";
  auto devices = dal::mergeDevices(dal::Root("/nonexistent"), f);
  REQUIRE(devices.size() == 1);
  CHECK(devices[0].torch.capability == std::pair{3, 0});
  CHECK(devices[0].torch.architecture.value == "sm_90");
  f.cards[0].vendor = "1002";
  for (const auto& [version, word] :
       {std::pair{110000u, "gfx1100"}, {90010u, "gfx90a"}, {90402u, "gfx942"}, {110501u, "gfx1151"}}) {
    f.cards[0].gfx_target = version;
    f.opencl[0].nv_major = 0;
    CHECK(dal::mergeDevices(dal::Root("/nonexistent"), f)[0].torch.architecture.value == word);
  }
}

TEST_CASE("memory as it is now agrees with the enumeration of a moment ago") {
  for (const dal::Device& d : dal::enumerate({}).devices) {
    INFO(d.name);
    const dal::MemoryInfo then = dal::memoryAtEnumeration(d), now = dal::memoryInfo(d);
    CHECK(now.total.value == then.total.value);
    CHECK(now.total.source == then.total.source);
    CHECK(now.free.value.has_value() == then.free.value.has_value());
    if (now.free.value && now.total.value) CHECK(*now.free.value <= *now.total.value);
  }
}

TEST_CASE("a measured bandwidth is evidence upwards only, and never changes identity") {
  // 1002:73df with 12 GB: RX 6700 XT (384 GB/s) or RX 6750 XT (432 GB/s).
  dal::Board b;
  b.vendor = "1002";
  b.device = "73df";
  b.memory_bytes = 12272.0 * 1048576;
  const auto without = dal::match(dal::database(), b);
  REQUIRE(without.result == "family");
  struct Row { double gbps; const char* result; const char* model; const char* said; };
  for (const Row& r : {Row{400, "exact", "Radeon RX 6750 XT", ""}, Row{350, "family", "", ""},
                       Row{150, "family", "", "a busy or throttled card measures low"},
                       Row{900, "family", "", "no model that fits reaches it"}}) {
    INFO(r.gbps);
    const auto f = dal::matchMeasured(dal::database(), b, r.gbps);
    CHECK(f.result == r.result);
    CHECK(f.model == r.model);
    CHECK(f.identity == without.identity);
    CHECK(f.build == without.build);
    bool said = false;
    for (const auto& c : f.candidates)
      for (const auto& e : c.evidence_against) said = said || (*r.said && e.find(r.said) != std::string::npos);
    CHECK(said == (*r.said != '\0'));
  }
  // A throttled XTX must not become an XT or a GRE: without memory all three fit, and a low figure proves nothing.
  dal::Board trio;
  trio.vendor = "1002";
  trio.device = "744c";
  for (double gbps : {100.0, 300.0, 470.0}) CHECK(dal::matchMeasured(dal::database(), trio, gbps).result == "family");
  CHECK(dal::matchMeasured(dal::database(), trio, 850).model == "Radeon RX 7900 XTX");
  trio.device = "ffff";
  CHECK(dal::matchMeasured(dal::database(), trio, 850).result == "unknown");
}

TEST_CASE("a machine's measured rates are read by identity and build; a copy that fits a cache is no evidence") {
  char name[] = "/tmp/flagos-rates-XXXXXX";
  const std::string root = ::mkdtemp(name);
  std::filesystem::copy(machines::kFolder + "/amd-744c-no-driver", root,
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  auto options = machines::expected("amd-744c-no-driver").options;
  options.root = root;
  const auto before = dal::enumerate(options);
  const dal::Device& card = cardOf(before);
  REQUIRE(card.fingerprint.result == "family");
  CHECK_FALSE(card.bandwidth.value.has_value());
  struct Row { double bytes; const char* build; const char* result; bool shown; };
  for (const Row& r :
       {Row{1e9, "", "exact", true}, Row{1e8, "", "family", true}, Row{1e9, " other", "family", false}}) {
    const Json rates{{"version", 1},
                     {"devices",
                      {{card.fingerprint.identity + card.fingerprint.build + r.build,
                        {{"bandwidth_bps", 850e9}, {"measured_bytes", r.bytes}}}}}};
    REQUIRE(writeFileAtomic(root + "/rates.json", dump(rates)));
    const auto after = dal::enumerate(options);
    CHECK(cardOf(after).fingerprint.result == r.result);
    CHECK(cardOf(after).fingerprint.identity == card.fingerprint.identity);
    CHECK(cardOf(after).stable_id == card.stable_id);
    CHECK(cardOf(after).bandwidth.value.has_value() == r.shown);
    if (r.shown) CHECK(cardOf(after).bandwidth.source == "measured");
  }
  std::filesystem::remove_all(root);
}

TEST_CASE("a visibility list that names nothing is said, entry by entry") {
  struct Row { const char* list; size_t warnings; const char* says; };
  for (const Row& r :
       {Row{"0", 0, ""}, Row{"0,1", 0, ""},
        Row{"0,7", 1, "'7' names no device; without the variable there are indices 0 to 1"}, Row{"-1", 1, "'-1'"},
        Row{"gpu", 1, "'gpu'"}, Row{",, 0 ,", 0, ""}, Row{"0000:ff:00.0", 1, "0000:ff:00.0"}, Row{"a,b", 2, "'a'"}}) {
    auto o = machines::expected("nvidia-h100-pair").options;
    o.visible = r.list;
    const auto inventory = dal::enumerate(o);
    INFO(r.list);
    REQUIRE(inventory.warnings.size() == r.warnings);
    if (r.warnings) CHECK_THAT(inventory.warnings[0], Catch::Contains(r.says));
  }
  auto o = machines::expected("permission-render").options;
  for (const dal::Device& d : dal::enumerate(o).devices)
    if (!d.usable) {
      o.visible = d.pci;
      const auto inventory = dal::enumerate(o);
      REQUIRE(inventory.warnings.size() == 1);
      CHECK_THAT(inventory.warnings[0], Catch::Contains("cannot be used"));
      break;
    }
}

TEST_CASE("the choice between drivers is told by the step that decided it") {
  const auto driver = [](const char* platform, const char* version, std::optional<int> error = {}) {
    dal::OpenClFacts d;
    d.platform = platform;
    d.version = version;
    d.error = error;
    return d;
  };
  const auto vendor = driver("AMD Accelerated Parallel Processing", "OpenCL 2.0"),
             rusticl = driver("rusticl", "OpenCL 3.0"), pocl = driver("Portable Computing Language", "OpenCL 3.0"),
             old = driver("A", "OpenCL 1.2"), broken = driver("AMD", "OpenCL 3.0", -5),
             twin = driver("B", "OpenCL 1.2");
  struct Row { const dal::OpenClFacts *best, *other; const char* why; };
  for (const Row& r :
       {Row{&vendor, &rusticl, "the vendor's own driver before a generic one"},
        Row{&rusticl, &pocl, "of generic drivers rusticl"}, Row{&vendor, &old, "the newer OpenCL version"},
        Row{&pocl, &broken, "a working driver before one whose calls fail"},
        Row{&old, &twin, "the platform's name decides"}}) {
    CHECK(dal::betterDriver(*r.best, *r.other));
    CHECK_FALSE(dal::betterDriver(*r.other, *r.best));
    CHECK_THAT(dal::whyPreferred(*r.best, *r.other), Catch::Contains(r.why));
  }
}

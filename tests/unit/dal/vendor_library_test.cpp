// Vendors' libraries as they answer, from small libraries of our own, well-behaved and not.
#include "runtime/dal/merge.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"
#include "runtime/dal/topology.h"
#include "tests/unit/catch.h"

using namespace flagos;

namespace {

const std::string kFolder = std::string(FLAGOS_BINARY_DIR) + "/tests/";

dal::Facts cards(const char* vendor, const char* class_code, std::initializer_list<const char*> addresses) {
  dal::Facts f;
  for (const char* a : addresses) {
    dal::Card& c = f.card(a);
    c.vendor = vendor;
    c.device = "0001";
    c.class_code = class_code;
    c.in_sysfs = true;
  }
  return f;
}

}  // namespace

TEST_CASE("NVML: facts, links between cards, and what makes no sense is dropped") {
  dal::Facts f = cards("10de", "030200", {"0000:41:00.0", "0000:42:00.0"});
  REQUIRE(dal::askNvml({"10de", "NVML", "nvml", {kFolder + "libfake_nvml.so"}}, f) == "");
  CHECK(f.nvml_driver == "999.1");
  REQUIRE(f.nvml.size() == 2);
  const dal::NvmlFacts &a = f.nvml[0], &b = f.nvml[1];
  CHECK(a.pci == "0000:41:00.0");
  CHECK(a.name == "Model A");
  CHECK(a.uuid == "GPU-a");
  CHECK(a.device_id == "2330");
  CHECK(a.memory.total == 80ull << 30);
  CHECK(a.memory.used == 20ull << 30);
  CHECK(a.memory.free == 60ull << 30);
  CHECK(a.busy_percent == 37.0);
  CHECK(a.links == std::vector<std::string>(4, "0000:42:00.0"));
  CHECK_FALSE(b.memory.total.has_value());
  CHECK_THAT(b.why_no_memory, Catch::Contains("makes no sense"));
  CHECK_FALSE(b.busy_percent.has_value());
  CHECK_THAT(b.why_no_busy, Catch::Contains("no percentage"));
  const auto links = dal::fabricOf(f);
  REQUIRE(links.size() == 1);
  CHECK(links[0].name == "4 NVLinks");
  // The same from the record of it.
  dal::Facts again = cards("10de", "030200", {"0000:41:00.0", "0000:42:00.0"});
  REQUIRE(dal::readNvmlRecord(dump(dal::nvmlRecord(f)), again) == "");
  REQUIRE(again.nvml.size() == 2);
  CHECK(again.nvml[0].links == a.links);
  CHECK(again.nvml[0].vendor == "10de");
  CHECK(dump(dal::nvmlRecord(again)) == dump(dal::nvmlRecord(f)));
}

TEST_CASE("a look-alike is believed only where it names a card of its vendor that is here") {
  const dal::VendorLibrary library{"1e36", "Enflame's library", "efml", {kFolder + "libfake_efml.so"}};
  dal::Facts both = cards("1e36", "120000", {"0000:41:00.0", "0000:42:00.0"});
  REQUIRE(dal::askNvml(library, both) == "");
  REQUIRE(both.nvml.size() == 1);   // the second one's address struct is of another shape
  CHECK(both.nvml[0].pci == "0000:41:00.0");
  CHECK(both.nvml[0].vendor == "1e36");
  CHECK(both.nvml[0].device_id == "");
  CHECK(both.nvml[0].links.empty());
  dal::Facts other = cards("10de", "030200", {"0000:41:00.0"});
  CHECK_THAT(dal::askNvml(library, other), Catch::Contains("its answers were dropped"));
  CHECK(other.nvml.empty());
  // One card whose memory the library knows: the number's source is the driver.
  (void)dal::probeNvml(dal::Root("/nonexistent"), both);
  const auto devices = dal::mergeDevices(dal::Root("/nonexistent"), both);
  REQUIRE(devices.size() == 2);
  CHECK(devices[0].memory_dedicated.value == double(80ull << 30));
  CHECK(devices[0].memory_dedicated.source == "driver");
}

TEST_CASE("a library that is missing or something else is said so") {
  dal::Facts f;
  CHECK_THAT(dal::askNvml({"10de", "NVML", "nvml", {"libnone-such.so"}}, f),
             Catch::Contains("libnone-such.so was looked for and is not there"));
  CHECK_THAT(dal::askNvml({"1ded", "T-Head's library", "hgml", {kFolder + "libfake_nvml.so"}}, f),
             Catch::Contains("lacks hgmlInit"));
  CHECK_THAT(dal::askDcmi({"libnone-such.so"}, f), Catch::Contains("libnone-such.so"));
  CHECK_THAT(dal::askDcmi({kFolder + "libfake_nvml.so"}, f), Catch::Contains("lacks dcmi_init"));
  CHECK(f.nvml.empty());
  for (const dal::VendorLibrary& v : dal::nvmlFamily()) CHECK_FALSE(v.files.empty());
  CHECK(dal::nvmlFamily().front().vendor == "10de");
}

TEST_CASE("DCMI: name, memory in MiB and load of the chips whose cards are here") {
  dal::Facts f = cards("19e5", "120000", {"0000:c1:00.0"});
  REQUIRE(dal::askDcmi({kFolder + "libfake_dcmi.so"}, f) == "");
  REQUIRE(f.nvml.size() == 1);
  CHECK(f.nvml[0].pci == "0000:c1:00.0");
  CHECK(f.nvml[0].name == "Ascend 910B2");
  CHECK(f.nvml[0].memory.total == 64ull << 30);
  CHECK(f.nvml[0].memory.used == 4ull << 30);
  CHECK(f.nvml[0].busy_percent == 55.0);
  dal::Facts none = cards("19e5", "120000", {"0000:c2:00.0"});
  CHECK_THAT(dal::askDcmi({kFolder + "libfake_dcmi.so"}, none), Catch::Contains("dropped"));
}

TEST_CASE("an address is found in a struct of unknown layout, and memory must make sense") {
  struct Row { std::string bytes; const char* address; };
  for (const Row& r :
       {Row{std::string("\x01\0\0\0", 4) + "0000:41:00.0" + std::string(8, '\0'), "0000:41:00.0"},
        Row{"0000:41:00.0" + std::string(4, '\0') + "00010000:e1:00.0" + std::string(4, '\0'), "10000:e1:00.0"},
        Row{std::string(64, 'Z'), ""}, Row{std::string(64, '0'), ""}, Row{"", ""}})
    CHECK(dal::addressIn(reinterpret_cast<const unsigned char*>(r.bytes.data()), r.bytes.size()) == r.address);
  constexpr uint64_t gib = 1ull << 30;
  CHECK(dal::saneMemory(80 * gib, 20 * gib, 60 * gib));
  CHECK(dal::saneMemory(80 * gib, 20 * gib, 59 * gib));    // a reserved part belongs to neither
  CHECK_FALSE(dal::saneMemory(80 * gib, 20 * gib, 61 * gib));
  CHECK_FALSE(dal::saneMemory(80 * gib, 20 * gib, 1));
  CHECK_FALSE(dal::saneMemory(1, 0, 1));
  CHECK_FALSE(dal::saneMemory(~0ull, 0, ~0ull));
}

TEST_CASE("cards behind one NVLink switch are joined, cards behind two are not") {
  dal::Facts f;
  for (const auto& [pci, to] : {std::pair{"0000:01:00.0", "0000:c1:00.0"}, {"0000:02:00.0", "0000:c1:00.0"},
                                {"0000:03:00.0", "0000:c2:00.0"}}) {
    dal::NvmlFacts n;
    n.pci = pci;
    n.links = {to};
    f.nvml.push_back(n);
  }
  const auto links = dal::fabricOf(f);
  REQUIRE(links.size() == 1);
  CHECK(links[0].a == "0000:01:00.0");
  CHECK(links[0].b == "0000:02:00.0");
  CHECK(links[0].name == "an NVLink switch");
}

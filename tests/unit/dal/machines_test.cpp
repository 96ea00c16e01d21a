// Every recorded machine against its table, and the promises that hold on all of them.
#include <cmath>
#include <set>

#include "runtime/dal/merge.h"
#include "runtime/dal/probes/probes.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;

namespace {

std::string dedicated(const dal::Device& d) {
  if (!d.memory_dedicated.value) return "-";
  return std::to_string(static_cast<long long>(std::llround(*d.memory_dedicated.value / 1048576))) + " " +
         d.memory_dedicated.source;
}

}  // namespace

TEST_CASE("each recorded machine gives its table") {
  const auto all = machines::names();
  REQUIRE(all.size() >= 24);
  for (const std::string& name : all) {
    const auto expected = machines::expected(name);
    const dal::Inventory inventory = dal::enumerate(expected.options);
    INFO(name << "\n" << dump(dal::toJson(inventory), 1));
    CHECK(inventory.devices.size() == expected.rows.size());
    for (size_t i = 0; i < std::min(inventory.devices.size(), expected.rows.size()); ++i) {
      const dal::Device& d = inventory.devices[i];
      const auto& row = expected.rows[i];
      INFO("row " << i << " of " << name);
      REQUIRE(row.size() == 7);
      CHECK((d.index ? "npu:" + std::to_string(*d.index) : "-") == row[0]);
      CHECK((d.pci.empty() ? "-" : d.pci) == row[1]);
      CHECK(std::string(dal::kindName(d.kind)) == row[2]);
      CHECK(d.fingerprint.result == row[3]);
      CHECK(d.name == row[4]);
      CHECK(dedicated(d) == row[5]);
      if (row[6] == "-") CHECK(d.why_unusable == "");
      else CHECK_THAT(d.why_unusable, Catch::Contains(row[6]));
    }
  }
}

TEST_CASE(
    "on every machine: indices are dense and first, reasons are given, ids are unique, probes explain themselves") {
  for (const std::string& name : machines::names()) {
    INFO(name);
    const dal::Inventory inventory = dal::enumerate(machines::expected(name).options);
    std::set<std::string> ids;
    int next = 0;
    bool ended = false;
    for (const dal::Device& d : inventory.devices) {
      INFO(d.name);
      CHECK(ids.insert(d.stable_id).second);
      CHECK(d.stable_id.find(',') == std::string::npos);
      if (d.index) {
        CHECK_FALSE(ended);
        CHECK(*d.index == next++);
        CHECK(d.usable);
      } else {
        ended = true;
      }
      CHECK(d.usable == d.why_unusable.empty());
      CHECK(d.usable == d.opencl.has_value());
      CHECK((d.index.has_value() || !d.usable) == d.why_no_index.empty());
      CHECK(d.sort_key == std::vector<std::string>{dal::kindName(d.kind), d.pci, d.stable_id});
      for (const Metric* m : {&d.memory_dedicated, &d.memory_shared, &d.memory_used, &d.memory_free, &d.utilisation}) {
        CHECK(m->value.has_value() == m->why_missing.empty());
        CHECK(m->value.has_value() == !m->source.empty());
      }
      int chosen = 0;
      for (const dal::Driver& x : d.drivers) chosen += x.chosen;
      if (d.usable) CHECK(chosen == 1);
      CHECK((d.fingerprint.result == "exact") == !d.fingerprint.model.empty());
    }
    CHECK(inventory.probes.size() == 8);
    for (const dal::ProbeReport& p : inventory.probes) {
      INFO(p.name);
      CHECK((p.found > 0) == p.why_nothing.empty());
    }
  }
}

TEST_CASE("two boots of one machine give the same ids, whatever the card numbers") {
  const auto one = dal::enumerate(machines::expected("amd-boot-one").options);
  const auto two = dal::enumerate(machines::expected("amd-boot-two").options);
  REQUIRE(one.devices.size() == 2);
  REQUIRE(two.devices.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(one.devices[i].stable_id == two.devices[i].stable_id);
    CHECK(one.devices[i].fingerprint.identity == two.devices[i].fingerprint.identity);
    CHECK(one.devices[i].drivers[0].platform == "AMD Accelerated Parallel Processing");
    CHECK(two.devices[i].drivers[0].platform == "AMD Accelerated Parallel Processing");
    REQUIRE(one.devices[i].drivers.size() == 2);
    CHECK_FALSE(one.devices[i].drivers[1].chosen);
  }
  CHECK(one.devices[0].stable_id == "1002.73df.1043.04b0@0000:03:00.0");
  // The runtime must open the device where this boot's loader lists it.
  CHECK(one.devices[0].opencl->platform == 0);
  CHECK(one.devices[0].opencl->device == 0);
  CHECK(two.devices[0].opencl->platform == 1);
  CHECK(two.devices[0].opencl->device == 1);
}

TEST_CASE("equal cards without addresses carry both candidates; slices and functions name their parent") {
  const auto equal = dal::enumerate(machines::expected("equal-cards-no-address").options);
  REQUIRE(equal.devices.size() == 2);
  for (const dal::Device& d : equal.devices)
    CHECK(d.pci_candidates == std::vector<std::string>{"0000:03:00.0", "0000:07:00.0"});
  const auto mig = dal::enumerate(machines::expected("nvidia-a100-mig").options);
  REQUIRE(mig.devices.size() == 3);
  CHECK(mig.devices[0].parent == "GPU-5d5ba0d6");
  CHECK_FALSE(mig.devices[0].utilisation.value.has_value());
  CHECK_THAT(mig.devices[0].utilisation.why_missing, Catch::Contains("NVML_ERROR_NOT_SUPPORTED"));
  CHECK(mig.devices[2].parent == "GPU-5d5ba0d6");
  const auto functions = dal::enumerate(machines::expected("sriov-flex170").options);
  REQUIRE(functions.devices.size() == 3);
  CHECK(functions.devices[0].parent == "0000:4d:00.0");
  CHECK(functions.devices[1].parent.empty());
}

TEST_CASE("memory keeps its parts apart") {
  const auto apu = dal::enumerate(machines::expected("apu-strix-halo").options);
  REQUIRE(apu.devices.size() == 1);
  const dal::Device& d = apu.devices[0];
  CHECK(*d.memory_dedicated.value == 512.0 * 1048576);
  CHECK(*d.memory_shared.value == 64.0 * 1073741824);
  CHECK(d.memory_shared.source == "opencl");
  CHECK(d.description.shared_memory);
  CHECK(*d.utilisation.value == 37);
  const auto gb10 = dal::enumerate(machines::expected("nvidia-gb10").options);
  REQUIRE(gb10.devices.size() == 1);
  CHECK(*gb10.devices[0].memory_shared.value == 122000.0 * 1048576);
  CHECK_FALSE(gb10.devices[0].memory_dedicated.value.has_value());
  const auto trio = dal::enumerate(machines::expected("amd-744c-trio").options);
  CHECK(*trio.devices[0].memory_used.value == 512.0 * 1048576);
  CHECK(*trio.devices[0].memory_free.value == (24560.0 - 512) * 1048576);
  CHECK(trio.devices[0].memory_free.source == "sysfs");
  CHECK_FALSE(trio.devices[0].description.shared_memory);
  CHECK(trio.devices[0].description.bandwidth_bps == 960e9);
  CHECK(trio.devices[0].description.rates_source == "table");
}

TEST_CASE("the CPU gets an index beside a card only when asked for") {
  auto options = machines::expected("intel-npu-igpu").options;
  options.include_cpu = true;
  const auto asked = dal::enumerate(options);
  REQUIRE(asked.devices.size() == 3);
  CHECK(asked.devices[1].kind == dal::Kind::cpu);
  CHECK(*asked.devices[1].index == 1);
  options.include_cpu = false;
  const auto plain = dal::enumerate(options);
  CHECK(plain.devices[2].kind == dal::Kind::cpu);
  CHECK(plain.devices[2].usable);
  CHECK_FALSE(plain.devices[2].index.has_value());
  CHECK_THAT(plain.devices[2].why_no_index, Catch::Contains("FLAGOS_INCLUDE_CPU=1"));
  // Named in the list is asked for.
  options.visible = plain.devices[2].stable_id;
  const auto named = dal::enumerate(options);
  CHECK(named.devices[0].kind == dal::Kind::cpu);
  CHECK(*named.devices[0].index == 0);
}

TEST_CASE("visibility takes indices, addresses and stable ids, and ignores what matches nothing") {
  auto options = machines::expected("hidden-by-variable").options;
  struct Row { const char* list; std::vector<std::string> shown; };
  for (const Row& row :
       {Row{"0", {"0000:03:00.0"}}, Row{"83:00.0", {"0000:83:00.0"}}, Row{" 1 , 0", {"0000:03:00.0", "0000:0c:00.0"}},
        Row{"1002.7551.1002.0e32@0000:0c:00.0", {"0000:0c:00.0"}}, Row{"7", {}}, Row{"-1", {}}, Row{"0x1,,", {}}}) {
    INFO(row.list);
    options.visible = row.list;
    std::vector<std::string> shown;
    for (const dal::Device& d : dal::enumerate(options).devices)
      if (d.usable) shown.push_back(d.pci);
    CHECK(shown == row.shown);
  }
}

TEST_CASE("a slice without a UUID is told by being alone or by its size, else not at all") {
  const auto facts = [](std::vector<uint64_t> slices, std::vector<std::pair<std::string, uint64_t>> devices) {
    dal::Facts f;
    dal::Card& c = f.card("0000:47:00.0");
    c.vendor = "10de";
    c.device = "20b2";
    c.class_code = "030200";
    dal::NvmlFacts n;
    n.uuid = "GPU-1";
    n.pci = c.pci;
    n.mig = true;
    for (const uint64_t mib : slices) {
      dal::NvmlSlice s;
      s.uuid = "MIG-" + std::to_string(n.slices.size());
      s.memory.total = mib << 20;
      n.slices.push_back(s);
    }
    f.nvml.push_back(n);
    for (const auto& [uuid, mib] : devices) {
      dal::OpenClFacts d;
      d.name = "slice";
      d.pci = c.pci;
      d.uuid = uuid;
      d.vendor_id = 0x10de;
      d.global_bytes = mib << 20;
      d.place.device = static_cast<uint32_t>(f.opencl.size());
      f.opencl.push_back(d);
    }
    return f;
  };
  struct Row {
    std::vector<uint64_t> slices;
    std::vector<std::pair<std::string, uint64_t>> devices;
    std::vector<std::string> usable;
  };
  for (const Row& r : {Row{{9728}, {{"", 9700}}, {"MIG-0"}}, Row{{9728, 19968}, {{"", 19900}}, {"MIG-1"}},
                       Row{{9728, 9728}, {{"", 9700}}, {}}, Row{{9728, 9728}, {{"1", 9700}}, {"MIG-1"}},
                       Row{{9728, 19968}, {{"MIG-0", 19900}}, {"MIG-0"}}, Row{{9728}, {}, {}}}) {
    const dal::Facts f = facts(r.slices, r.devices);
    std::vector<std::string> usable;
    for (const dal::Device& d : dal::mergeDevices(dal::Root("/nonexistent"), f))
      if (d.usable) usable.push_back(d.stable_id);
    CHECK(usable == r.usable);
  }
}

TEST_CASE("a vendor id as text is hexadecimal, a broken record is named by line") {
  std::vector<dal::OpenClFacts> out;
  const std::string why = dal::readOpenClRecord(
      R"({"platforms":[{"name":"p","devices":[{"CL_DEVICE_NAME":"a","CL_DEVICE_VENDOR_ID":"1002"},{"CL_DEVICE_NAME":"b","CL_DEVICE_VENDOR_ID":"0x10de"},{"CL_DEVICE_NAME":"c","CL_DEVICE_VENDOR_ID":4098}]}]})",
      out);
  CHECK(why.empty());
  REQUIRE(out.size() == 3);
  CHECK(out[0].vendor_id == 0x1002);
  CHECK(out[1].vendor_id == 0x10de);
  CHECK(out[2].vendor_id == 0x1002);
  out.clear();
  CHECK_THAT(dal::readOpenClRecord("{\n  \"platforms\": [,]}", out), Catch::Contains("opencl.json:2:"));
  CHECK_THAT(dal::readOpenClRecord("{\"error\": -1001}", out),
             Catch::Contains("-1001") && Catch::Contains("/etc/OpenCL/vendors"));
  CHECK_THAT(dal::readOpenClRecord("{\"error\": -6}", out), Catch::Contains("-6"));
  CHECK_THAT(dal::readOpenClRecord("{\"platforms\": [{\"name\": \"x\", \"devices\": []}]}", out),
             Catch::Contains("none with a device"));
}

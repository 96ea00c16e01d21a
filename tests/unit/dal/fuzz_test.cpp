// Short fuzzing of every reader: mutated records, tables and machines must give an answer that keeps the promises, and
// never an exception. The generator is seeded, so a failure repeats.
#include <sys/stat.h>

#include <cstdlib>
#include <random>

#include "runtime/dal/fingerprint/check.h"
#include "runtime/dal/fingerprint/match.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/topology.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;

namespace {

std::string mutate(std::string s, std::mt19937& rng) {
  static const char* const kPieces[] = {
      "null", "-1", "1e999", "[]", "{}", "\"", "\\u0000",      "\xff\xfe", "18446744073709551616",
      "true", "0x", ",",     "]",  "}",  "\n", "0000:ff:1f.7", "\x01"};
  const int edits = 1 + static_cast<int>(rng() % 4);
  for (int i = 0; i < edits; ++i) {
    const size_t at = s.empty() ? 0 : rng() % s.size();
    switch (rng() % 6) {
      case 0: if (!s.empty()) s[at] = static_cast<char>(rng()); break;
      case 1: s.insert(at, kPieces[rng() % std::size(kPieces)]); break;
      case 2: s.erase(at, rng() % 16); break;
      case 3: s.resize(at); break;
      case 4: if (!s.empty()) s.insert(at, s.substr(rng() % s.size(), rng() % 64)); break;
      default: s.replace(at, std::min<size_t>(s.size() - at, rng() % 8), kPieces[rng() % std::size(kPieces)]); break;
    }
  }
  return s;
}

void promises(const dal::Inventory& inventory) {
  int next = 0;
  for (const dal::Device& d : inventory.devices) {
    if (d.index && *d.index != next++) FAIL("indices are not dense");
    if (d.usable != d.why_unusable.empty()) FAIL("usable and its reason disagree");
    if (d.usable != d.opencl.has_value()) FAIL("usable without a place, or a place without use");
    for (const Metric* m : {&d.memory_dedicated, &d.memory_shared, &d.memory_used, &d.memory_free, &d.utilisation})
      if (m->value.has_value() == !m->why_missing.empty()) FAIL("a number and its absence at once");
    if (d.name.empty() || d.stable_id.empty()) FAIL("no name or id");
  }
  for (const dal::ProbeReport& p : inventory.probes)
    if (p.name == "all") FAIL("an exception: " << p.why_nothing);
  if (dump(dal::toJson(inventory)).empty()) FAIL("no JSON");
}

}  // namespace

TEST_CASE("fuzz: records of driver libraries") {
  std::mt19937 rng(1);
  std::vector<std::string> cl, nv;
  for (const std::string& name : machines::names()) {
    if (const auto t = readFile(machines::kFolder + "/" + name + "/opencl.json")) cl.push_back(*t);
    if (const auto t = readFile(machines::kFolder + "/" + name + "/nvml.json")) nv.push_back(*t);
  }
  REQUIRE(cl.size() > 20);
  REQUIRE(nv.size() > 3);
  size_t read = 0;
  for (int i = 0; i < 3000; ++i) {
    dal::Facts facts;
    const std::string why = dal::readOpenClRecord(mutate(cl[rng() % cl.size()], rng), facts.opencl);
    if (why.empty() == facts.opencl.empty()) FAIL("an answer and a reason why there is none");
    (void)dal::readNvmlRecord(mutate(nv[rng() % nv.size()], rng), facts);
    read += facts.opencl.size();
    std::vector<dal::Device> devices = dal::mergeDevices(dal::Root("/nonexistent"), facts);
    dal::Inventory inventory;
    dal::orderDevices(devices, {});
    inventory.devices = std::move(devices);
    promises(inventory);
    // What was read is written and read again unchanged.
    std::vector<dal::OpenClFacts> again;
    (void)dal::readOpenClRecord(dump(dal::openClRecord(facts.opencl, why)), again);
    if (again.size() != facts.opencl.size()) FAIL("a record loses devices");
    for (size_t k = 0; k < again.size(); ++k)
      if (again[k].place.device != facts.opencl[k].place.device || again[k].pci != facts.opencl[k].pci ||
          again[k].global_bytes != facts.opencl[k].global_bytes)
        FAIL("a record changes a device");
  }
  CHECK(read > 500);
}

TEST_CASE("fuzz: fingerprint files and match lines") {
  std::mt19937 rng(2);
  const std::string line =
      R"({"vendor":"1002","device":"744c","subsystem":"1da2:e471","revision":"c8","memory_bytes":25753026560,"bandwidth_gbps":812.0,"firmware":null,"driver":"x","reported_name":"y"})";
  size_t parsed = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto doc = parseJson(mutate(line, rng), "line");
    if (!doc) continue;
    const auto board = dal::boardFromJson(*doc);
    if (!board) continue;
    ++parsed;
    const dal::Fingerprint f = dal::match(dal::database(), *board);
    if ((f.result == "exact") == f.model.empty()) FAIL("exact without a model");
    if (dump(dal::toJson(f)).empty()) FAIL("no JSON");
  }
  CHECK(parsed > 300);
  const std::string file(dal::builtinText("habana"));
  REQUIRE(file.size() > 1000);
  size_t rejected = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string text = mutate(file, rng);
    const auto errors = dal::checkFingerprints(text, "f.json", "\n1da3  Habana Labs Ltd.\n\t0001  HL-1000\n");
    rejected += !errors.empty();
    for (const auto& e : errors)
      if (e.line < 1 || e.reason.empty()) FAIL("an error without line or reason");
    (void)dal::checkTogether({{"a", file}, {"b", text}});
    dal::Database db;
    (void)db.add(text, "f.json");
  }
  CHECK(rejected > 500);
  for (int i = 0; i < 5000; ++i) {
    const std::string normal = dal::normalPciAddress(mutate("0000:03:00.0", rng));
    if (!normal.empty() && dal::normalPciAddress(normal) != normal) FAIL("not a normal form: " << normal);
  }
}

TEST_CASE("fuzz: files of a machine") {
  std::mt19937 rng(3);
  char folder[] = "/tmp/flagos-fuzz-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  const std::string dir = folder;
  for (const char* name : {"amd-mi300x-fabric", "apu-strix-halo", "intel-npu-igpu", "sriov-flex170", "ascend-310p",
                           "nvidia-4090-rebuilt", "topology-ladder"}) {
    const std::string root = dir + "/" + name;
    REQUIRE(std::system(("cp -a '" + machines::kFolder + "/" + name + "' '" + root + "'").c_str()) == 0);
    std::vector<std::string> files;
    dal::Root watch(root);
    watch.on_read = [&](const std::string& p) {
      struct stat s;
      if (::stat((root + p).c_str(), &s) == 0 && S_ISREG(s.st_mode)) files.push_back(root + p);
    };
    dal::EnumerateOptions options;
    options.root = root;
    (void)dal::readTopology(watch, dal::enumerateAt(watch, options));
    REQUIRE(files.size() > 5);
    for (int i = 0; i < 40; ++i) {
      const std::string file = files[rng() % files.size()];
      const auto before = readFile(file);
      REQUIRE(before);
      REQUIRE(writeFileAtomic(file, mutate(*before, rng)));
      const dal::Inventory inventory = dal::enumerate(options);
      promises(inventory);
      const dal::Topology t = dal::readTopology(dal::Root(root), inventory);
      CHECK(t.edges.size() ==
            inventory.devices.size() * (inventory.devices.size() - (inventory.devices.empty() ? 0 : 1)) / 2);
      REQUIRE(writeFileAtomic(file, *before));
    }
  }
  (void)!std::system(("rm -rf '" + dir + "'").c_str());
}

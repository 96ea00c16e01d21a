#include "runtime/telemetry/recorder.h"

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "runtime/telemetry/snapshot.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::telemetry;

namespace {

SiteId makeSite(int line) {
  Site s;
  s.file = "/x/recorder.py";
  s.qualname = "f";
  s.line = s.end_line = line;
  return internSite(s);
}
const SiteCounters* find(const Counters& c, SiteId site, uint32_t device = 0) {
  for (const auto& r : c.sites)
    if (r.site == site && r.device == device) return &r;
  return nullptr;
}
const RouteCounters* find(const Counters& c, SiteId site, RouteId route, int) {
  for (const auto& r : c.routes)
    if (r.site == site && r.route == route) return &r;
  return nullptr;
}

}  // namespace

TEST_CASE("the same place has one id, another place another") {
  const SiteId a = makeSite(1), b = makeSite(2);
  CHECK(a != 0);
  CHECK(a != b);
  CHECK(makeSite(1) == a);
  REQUIRE(site(a) != nullptr);
  CHECK(site(a)->line == 1);
  CHECK(site(0) == nullptr);
  CHECK(site(siteCount() + 1) == nullptr);

  const SiteId twin = backwardSite(a);
  CHECK(twin != a);
  CHECK(backwardSite(a) == twin);
  CHECK(site(twin)->backward_of == a);
  CHECK(site(twin)->line == 1);
  CHECK(backwardSite(twin) == twin);     // double backward stays with its forward line
  CHECK(backwardSite(0) == 0);
}

TEST_CASE("live and peak bytes follow a scripted sequence") {
  resetForTest();
  const SiteId s = makeSite(10);
  struct Step { int64_t bytes; uint64_t live, peak; };   // > 0 allocates, < 0 frees
  const Step steps[] = {{100, 100, 100}, {50, 150, 150}, {-100, 50, 150}, {90, 140, 150}, {11, 151, 151}, {-151, 0, 151}};
  uint64_t allocations = 0;
  for (const Step& step : steps) {
    if (step.bytes > 0) countAlloc(0, s, static_cast<uint64_t>(step.bytes)), ++allocations;
    else countFree(0, s, static_cast<uint64_t>(-step.bytes));
    const Counters c = readCounters();
    const auto* row = find(c, s);
    REQUIRE(row);
    CHECK(row->live_bytes == step.live);
    CHECK(row->peak_bytes == step.peak);
    CHECK(row->allocations == allocations);
  }
}

TEST_CASE("bytes of different devices and of nobody's line are rows of their own") {
  resetForTest();
  const SiteId s = makeSite(11);
  countAlloc(0, s, 10);
  countAlloc(1, s, 20);
  countAlloc(1, 0, 7);
  const Counters c = readCounters();
  REQUIRE(find(c, s, 0));
  REQUIRE(find(c, s, 1));
  REQUIRE(find(c, 0, 1));
  CHECK(find(c, s, 0)->live_bytes == 10);
  CHECK(find(c, s, 1)->live_bytes == 20);
  CHECK(find(c, 0, 1)->live_bytes == 7);
  uint64_t sum = 0;
  for (const auto& r : c.sites) sum += r.live_bytes;
  CHECK(sum == 37);
}

TEST_CASE("calls are counted per line and route, and credited to the line") {
  resetForTest();
  const SiteId a = makeSite(20), b = makeSite(21);
  defineRoute(900, internName("aten::mm"), internName("opencl.gemm.wide"), internName("built-in"), 1e-3, internName("compute"));
  defineRoute(901, internName("aten::mm"), internName("host.aten"), internName("rule x"), -1, 0, 1);
  for (int i = 0; i < 5; ++i) countCall(a, 900);
  countCall(a, 901);
  countCall(b, 900);
  countCall(b, 999);                     // never defined: counted all the same, its names unknown
  const Counters c = readCounters();
  const auto* r = find(c, a, 900, 0);
  REQUIRE(r);
  CHECK(r->calls == 5);
  CHECK(nameText(r->op) == "aten::mm");
  CHECK(nameText(r->kernel) == "opencl.gemm.wide");
  CHECK(nameText(r->reason) == "built-in");
  CHECK(nameText(r->bound) == "compute");
  CHECK(r->predicted_s == 1e-3);
  CHECK(find(c, a, 901, 0)->device == 1);
  CHECK(find(c, a, 901, 0)->predicted_s < 0);
  REQUIRE(find(c, b, 999, 0));
  CHECK(find(c, b, 999, 0)->predicted_s < 0);
  CHECK(find(c, a, 0)->calls == 5);      // of npu:0
  CHECK(find(c, a, 1)->calls == 1);      // of npu:1
  CHECK(find(c, b, 0)->calls == 2);
}

TEST_CASE("fallbacks and copies add up calls and bytes") {
  resetForTest();
  const SiteId s = makeSite(30);
  const NameId op = internName("aten::sort");
  countFallback(s, op, 100);
  countFallback(s, op, 50);
  countFallback(s, internName("aten::mode"), 0);
  countCopy(s, CopyKind::host_to_device, 64);
  countCopy(s, CopyKind::device_to_host, 8);
  countCopy(s, CopyKind::device_to_host, 8);
  const Counters c = readCounters();
  REQUIRE(c.fallbacks.size() == 2);
  CHECK(c.fallbacks[0].op == op);
  CHECK(c.fallbacks[0].calls == 2);
  CHECK(c.fallbacks[0].bytes == 150);
  CHECK(c.fallbacks[1].bytes == 0);
  std::map<CopyKind, std::pair<uint64_t, uint64_t>> copies;
  for (const auto& k : c.copies) copies[k.kind] = {k.calls, k.bytes};
  CHECK(copies[CopyKind::host_to_device] == std::pair<uint64_t, uint64_t>(1, 64));
  CHECK(copies[CopyKind::device_to_host] == std::pair<uint64_t, uint64_t>(2, 16));
  CHECK(copies.count(CopyKind::device_to_device) == 0);
}

TEST_CASE("counts of four threads are exact") {
  resetForTest();
  constexpr int kThreads = 4, kRounds = 20000;
  SiteId sites[3] = {makeSite(40), makeSite(41), makeSite(42)};
  const NameId op = internName("aten::sort");
  std::thread threads[kThreads];
  for (int t = 0; t < kThreads; ++t)
    threads[t] = std::thread([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const SiteId s = sites[(i + t) % 3];
        countAlloc(0, s, 16);
        countCall(s, static_cast<RouteId>(1 + i % 2));
        countFallback(s, op, 3);
        if (i % 2) countFree(0, s, 16);
        if (i % 1000 == 0) (void)readCounters();       // readers do not disturb
      }
    });
  for (auto& t : threads) t.join();
  const Counters c = readCounters();
  uint64_t live = 0, allocations = 0, calls = 0, falls = 0, bytes = 0;
  for (const auto& r : c.sites) live += r.live_bytes, allocations += r.allocations;
  for (const auto& r : c.routes) calls += r.calls;
  for (const auto& f : c.fallbacks) falls += f.calls, bytes += f.bytes;
  constexpr uint64_t n = uint64_t{kThreads} * kRounds;
  CHECK(allocations == n);
  CHECK(live == n / 2 * 16);
  CHECK(calls == n);
  CHECK(falls == n);
  CHECK(bytes == 3 * n);
  for (const auto& r : c.sites) CHECK(r.peak_bytes >= r.live_bytes);
}

TEST_CASE("more places than a thread's cache holds are still counted apart") {
  resetForTest();
  const SiteId first = makeSite(5000);
  constexpr int kSites = 3000;
  std::vector<SiteId> ids;
  for (int i = 0; i < kSites; ++i) ids.push_back(makeSite(5000 + i));
  for (int round = 0; round < 3; ++round)
    for (const SiteId s : ids) countCall(s, 7);
  const Counters c = readCounters();
  CHECK(c.routes.size() == kSites);
  for (const auto& r : c.routes)
    if (r.calls != 3) FAIL("site " << r.site << " has " << r.calls);
  CHECK(find(c, first)->calls == 3);
}

TEST_CASE("busy time is the union of the kernels' intervals") {
  struct Span { uint64_t start, end; };
  struct Case { const char* name; std::vector<Span> spans; uint64_t busy; };
  const Case cases[] = {
      {"apart", {{0, 10}, {20, 30}}, 20},
      {"touching", {{0, 10}, {10, 20}}, 20},
      {"overlapping", {{0, 10}, {5, 15}}, 15},
      {"inside", {{0, 100}, {10, 20}}, 100},
      {"around", {{10, 20}, {0, 100}}, 100},
      {"late, into a gap", {{0, 10}, {20, 30}, {12, 15}}, 23},
      {"late, bridging a gap", {{0, 10}, {20, 30}, {5, 25}}, 30},
      {"late, bridging three", {{0, 1}, {2, 3}, {4, 5}, {9, 10}, {0, 5}}, 6},
      {"twice the same", {{3, 9}, {3, 9}}, 6},
      {"empty", {{5, 5}}, 0},
  };
  for (const Case& c : cases) {
    resetForTest();
    defineRoute(1, internName("aten::add"), internName("k"), 0, -1, 0, 0);
    for (const Span& s : c.spans) addDeviceTime(0, 1, s.start, s.end);
    INFO(c.name);
    CHECK(deviceBusyNs(0) == c.busy);
  }
}

TEST_CASE("busy time agrees with a bitmap for random intervals") {
  resetForTest();
  std::mt19937 random(7);
  std::vector<bool> bitmap(20000);
  uint64_t begin = 0, time = 0, calls = 0;
  for (int i = 0; i < 500; ++i) {
    begin += random() % 30;
    const uint64_t late = random() % 3 == 0 ? std::min<uint64_t>(begin, random() % 200) : 0;
    const uint64_t start = begin - late, end = start + random() % 40;
    addDeviceTime(0, 1, start, end);
    for (uint64_t k = start; k < end; ++k) bitmap[k] = true;
    time += end - start, ++calls;
  }
  CHECK(deviceBusyNs(0) == static_cast<uint64_t>(std::count(bitmap.begin(), bitmap.end(), true)));
  const Counters c = readCounters();
  REQUIRE(c.routes.size() == 1);
  CHECK(c.routes[0].device_ns == time);        // the sum, where busy time is the union
  CHECK(c.routes[0].launches == calls);
  CHECK(c.routes[0].calls == 0);
}

TEST_CASE("the time of one call covers all kernels it launched") {
  resetForTest();
  const SiteId s = makeSite(60);
  countCall(s, 1);                             // before anybody looked: no timings
  setTimingWanted(true);
  countCall(s, 1);
  for (uint64_t k = 0; k < 3; ++k) addDeviceTime(s, 1, k * 100, k * 100 + 50);
  setTimingWanted(false);
  countCall(s, 1);
  const Counters c = readCounters();
  REQUIRE(c.routes.size() == 1);
  CHECK(c.routes[0].calls == 3);
  CHECK(c.routes[0].timed_calls == 1);
  CHECK(c.routes[0].launches == 3);
  CHECK(c.routes[0].device_ns == 150);
  CHECK(find(c, s)->timed_calls == 1);
  CHECK(find(c, s)->launches == 3);
}

TEST_CASE("a first launch takes the time of the next one of its kernel") {
  resetForTest();
  const SiteId s = makeSite(61), other = makeSite(62);
  const NameId a = internName("gemm"), b = internName("pack");
  const auto ns = [](SiteId of) {
    for (const RouteCounters& r : readCounters().routes)
      if (r.site == of) return std::pair{r.device_ns, r.launches};
    return std::pair{uint64_t{0}, uint64_t{0}};
  };
  addDeviceTime(s, 1, 0, 5000, a, true);       // the compiler
  CHECK(ns(s) == std::pair{uint64_t{0}, uint64_t{1}});
  CHECK(deviceBusyNs(0) == 5000);              // the device was busy all the same
  const Metric unknown = siteRow(*find(readCounters(), s)).device_time;
  CHECK_FALSE(unknown.value);
  CHECK(unknown.why_missing == "only first launches were timed so far, in which the driver may have compiled");
  addDeviceTime(s, 1, 5000, 5010, b);          // another kernel vouches for nothing
  CHECK(ns(s) == std::pair{uint64_t{10}, uint64_t{2}});
  addDeviceTime(other, 1, 5010, 5017, a);      // nor does another line
  CHECK(ns(other) == std::pair{uint64_t{7}, uint64_t{1}});
  addDeviceTime(s, 1, 5020, 5023, a);
  CHECK(ns(s) == std::pair{uint64_t{16}, uint64_t{3}});
  addDeviceTime(s, 1, 5030, 5034, a);          // paid back once
  CHECK(ns(s) == std::pair{uint64_t{20}, uint64_t{4}});
  // Two work-group sizes of one kernel before either was launched again.
  addDeviceTime(s, 1, 6000, 7000, a, true);
  addDeviceTime(s, 1, 7000, 8000, a, true);
  addDeviceTime(s, 1, 8000, 8002, a);
  CHECK(ns(s) == std::pair{uint64_t{26}, uint64_t{7}});
}

TEST_CASE("many gaps never make busy time larger than the truth") {
  resetForTest();
  for (uint64_t i = 0; i < 1000; ++i) addDeviceTime(0, 1, i * 10, i * 10 + 5);
  CHECK(deviceBusyNs(0) == 5000);
  addDeviceTime(0, 1, 0, 9995);                // far too late: what is settled is not counted twice
  CHECK(deviceBusyNs(0) <= 9995);
  CHECK(deviceBusyNs(0) >= 5000);
}

TEST_CASE("a source file is recorded once") {
  recordFile({"/x/once.py", "0123456789abcdef", 12.5, ""});
  recordFile({"/x/once.py", "ffffffffffffffff", 99, ""});
  int seen = 0;
  for (const File& f : recordedFiles())
    if (f.path == "/x/once.py") {
      ++seen;
      CHECK(f.hash == "0123456789abcdef");
    }
  CHECK(seen == 1);
}

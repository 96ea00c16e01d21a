// Router::choose: which candidate, why, and what the switches and rules do to it.
#include <atomic>
#include <thread>

#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {
const char* kWideMm = R"({"version":1, "rules":[
  {"name":"big-mm", "op":"aten::mm", "when":{"m":"> 1024"}, "use":"opencl.gemm.tiled"}]})";
}

TEST_CASE("the kind of device decides between the CPU-shaped and the GPU-shaped kernel") {
  auto cpu = router(cpuDevice());
  auto card = router(cardDevice());
  struct Case { Signature s; const char* on_cpu; const char* on_card; };
  const Case cases[] = {
      {mm(256, 256, 256), "opencl.gemm.wide", "opencl.gemm.tiled"},
      {call("aten::add.out", {arg({1000}), arg({1000})}), "opencl.pointwise.wide", "opencl.pointwise.tiled"},
      {call("aten::convolution_overrideable", {arg({8, 16, 8, 8}), arg({32, 16, 3, 3})}, {1, 1, 1, 1, 1, 1, 0, 1}),
       "opencl.conv.wide", "opencl.conv.tiled"},
      {call("aten::_log_softmax.out", {arg({64, 10})}, {1}), "opencl.softmax.wide", "opencl.softmax.tiled"},
      {call("aten::sum.IntList_out", {arg({64, 10})}, {10}), "opencl.reduce.wide", "opencl.reduce.tiled"},
      {call("aten::linalg_svd.U", {arg({8, 8})}), "host.aten", "cpu.fallback"},
      {call("aten::median", {arg({64})}), "host.aten", "opencl.composed"},
      {call("aten::sort.values_stable", {arg({64})}), "host.aten", "opencl.index.tiled"},
      {call("aten::special_airy_ai.out", {arg({64})}), "host.aten", "opencl.pointwise.tiled"},
      {mm(8, 8, 8, DType::int64), "host.aten", "cpu.fallback"},
      {mm(8, 8, 8, DType::float64), "opencl.gemm.wide", "cpu.fallback"},
      {mm(8, 8, 8, DType::complex64), "host.aten", "cpu.fallback"},
  };
  for (const Case& c : cases) {
    INFO(text(c.s));
    CHECK(chosen(*cpu, c.s) == c.on_cpu);
    CHECK(chosen(*card, c.s) == c.on_card);
  }
}

TEST_CASE("a composed operator runs as others wherever the host cannot have it") {
  const Signature median = call("aten::median", {arg({64})});
  CHECK(reason(*router(cpuDevice()), median) == "host kernel on shared memory");
  CHECK(chosen(*router(cpuDevice(), Mode::opencl, Fallback::forbid), median) == "opencl.composed");
  CHECK(chosen(*router(cpuDevice(), Mode::host), median) == "host.aten");
  CHECK(reason(*router(cardDevice()), median) == "other operators on the device do it");
  const Signature complex = call("aten::median", {arg({64}, DType::complex64)});
  CHECK(chosen(*router(cardDevice()), complex) == "cpu.fallback");
}

TEST_CASE("without rates nothing is predicted, and the kind still decides") {
  dal::DeviceDescription d = cardDevice();
  d.bandwidth_bps = d.flops_f32 = d.launch_s = 0;
  auto r = router(d);
  const Route& route = r->choose(mm(256, 256, 256));
  CHECK(candidateName(route.chosen) == "opencl.gemm.tiled");
  CHECK(route.predicted_s < 0);
  CHECK(route.bound == 0);
  CHECK(nameText(route.reason) == "GPU-shaped kernel on a device of kind discrete");
}

TEST_CASE("the mode and the fallback policy bound what is legal") {
  const Signature add = call("aten::add.out", {arg({16}), arg({16})});
  const Signature svd = call("aten::linalg_svd.U", {arg({8, 8})});
  struct Case { Mode mode; Fallback fallback; const char* add; const char* svd; };
  const Case cases[] = {
      {Mode::automatic, Fallback::warn, "opencl.pointwise.wide", "host.aten"},
      {Mode::automatic, Fallback::forbid, "opencl.pointwise.wide", "host.aten"},
      {Mode::opencl, Fallback::allow, "opencl.pointwise.wide", "cpu.fallback"},
      {Mode::opencl, Fallback::forbid, "opencl.pointwise.wide", ""},
      {Mode::host, Fallback::warn, "host.aten", "host.aten"},
  };
  for (const Case& c : cases) {
    auto r = router(cpuDevice(), c.mode, c.fallback);
    CHECK(chosen(*r, add) == c.add);
    CHECK(chosen(*r, svd) == c.svd);
  }
  auto card = router(cardDevice(), Mode::automatic, Fallback::forbid);
  CHECK(chosen(*card, svd) == "");
  CHECK(reason(*card, svd) == "aten::linalg_svd.U has no OpenCL kernel; FLAGOS_FALLBACK=forbid");
  CHECK(chosen(*router(cardDevice(), Mode::host), add) == "opencl.pointwise.tiled");
}

TEST_CASE("a call that the launcher refuses goes to the host, and says so") {
  Signature s = mm(8, 8, 8);
  s.native = false;
  auto r = router(cpuDevice());
  CHECK(chosen(*r, s) == "host.aten");
  CHECK(reason(*r, s) == "no OpenCL kernel for this call");
  CHECK(chosen(*r, mm(8, 8, 8)) == "opencl.gemm.wide");
  CHECK(chosen(*router(cpuDevice(), Mode::opencl, Fallback::forbid), s) == "");
}

TEST_CASE("a user rule on m > 1024 changes 1025 and not 1024, while running") {
  auto r = router(cpuDevice());
  const Route& before = r->choose(mm(1025, 64, 64));
  CHECK(candidateName(before.chosen) == "opencl.gemm.wide");
  REQUIRE(r->setRules(kWideMm, "rules.json").ok());
  CHECK(chosen(*r, mm(1025, 64, 64)) == "opencl.gemm.tiled");
  CHECK(reason(*r, mm(1025, 64, 64)) == "rule big-mm (rules.json:2)");
  CHECK(chosen(*r, mm(1024, 64, 64)) == "opencl.gemm.wide");
  r->resetRules();
  const Route& after = r->choose(mm(1025, 64, 64));
  CHECK(after.id == before.id);   // the same decision is the same route: counters go on
  CHECK(&after == route(before.id));
}

TEST_CASE("a wrong rule text changes nothing") {
  auto r = router(cpuDevice());
  REQUIRE(r->setRules(kWideMm, "rules.json").ok());
  const auto bad = r->setRules(R"({"version":1,"rules":[{"use":"opencl.gemm.wid"}]})", "bad.json");
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().where == "bad.json:1:30");
  CHECK(bad.error().what == "no candidate is named 'opencl.gemm.wid'; did you mean opencl.gemm.wide?");
  CHECK(bad.error().exit == Exit::broken_input);
  CHECK(chosen(*r, mm(1025, 64, 64)) == "opencl.gemm.tiled");
}

TEST_CASE("route set puts one rule before all others, the newest first") {
  auto r = router(cpuDevice());
  REQUIRE(r->setRules(kWideMm, "rules.json").ok());
  REQUIRE(r->setRule("aten::*mm", "host.aten").ok());
  CHECK(chosen(*r, mm(1025, 64, 64)) == "host.aten");
  REQUIRE(r->setRule("aten::mm", "opencl.gemm.wide").ok());
  CHECK(chosen(*r, mm(1025, 64, 64)) == "opencl.gemm.wide");
  CHECK(reason(*r, mm(1025, 64, 64)) == "rule set-2 (flagos route set)");
  const auto wrong = r->setRule("aten::mm", "opencl.gem.wide");
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().text() == "no candidate is named 'opencl.gem.wide'. Did you mean opencl.gemm.wide?");
  CHECK_FALSE(r->setRule("mm", "host.aten").ok());
  const auto family = r->setRule("aten::mm", "opencl.conv.tiled");
  REQUIRE_FALSE(family.ok());
  CHECK(family.error().text() ==
        "opencl.conv.tiled runs conv operators; aten::mm is in family gemm, composed. Did you mean opencl.gemm.tiled?");
  const auto none = r->setRule("aten::linalg_eigh", "opencl.gemm.wide");
  REQUIRE_FALSE(none.ok());
  CHECK_THAT(none.error().text(), Catch::Contains("aten::linalg_eigh has no OpenCL kernel"));
  const Json listed = r->rulesJson();
  CHECK(listed["rules"][0]["name"] == "set-2");
  CHECK(listed["rules"][0]["op"] == "aten::mm");
  CHECK(listed["rules"][0]["use"] == "opencl.gemm.wide");
  r->resetRules();
  CHECK(chosen(*r, mm(1025, 64, 64)) == "opencl.gemm.wide");
}

TEST_CASE("use that cannot be done is passed over and reported once; prefer is passed over silently; forbid removes") {
  auto r = router(cpuDevice());
  REQUIRE(r->setRules(R"({"version":1,"rules":[
    {"name":"wrong", "op":"aten::*", "use":"opencl.conv.wide"},
    {"name":"soft", "op":"aten::*", "prefer":"opencl.pool.wide"},
    {"name":"none", "op":"aten::mm", "forbid":"opencl.*"}]})", "r.json").ok());
  CHECK(chosen(*r, mm(100, 64, 64)) == "host.aten");
  CHECK(chosen(*r, mm(101, 64, 64)) == "host.aten");
  CHECK(reason(*r, mm(101, 64, 64)) == "forbidden by rule none (r.json:4)");
  REQUIRE(r->problems().size() == 1);
  CHECK(r->problems()[0] == "r.json:2: rule wrong: it asks for opencl.conv.wide, which cannot run this: it runs conv operators; "
                            "aten::mm.out is in family gemm");
}

TEST_CASE("device predicates are decided by the description") {
  const char* rules = R"({"version":1,"rules":[
    {"op":"aten::mm", "when":{"device.kind":["discrete","npu"], "device.memory":">= 16 GiB"}, "use":"opencl.gemm.wide"}]})";
  auto card = router(cardDevice());
  auto cpu = router(cpuDevice());
  REQUIRE(card->setRules(rules, "r").ok());
  REQUIRE(cpu->setRules(rules, "r").ok());
  CHECK(reason(*card, mm(100, 64, 64)) == "rule #1 (r:2)");
  CHECK(reason(*cpu, mm(100, 64, 64)) == "CPU-shaped kernel on a device of kind cpu");
}

TEST_CASE("a rule on a composite operator is a rule on what PyTorch runs instead") {
  auto r = router(cpuDevice());
  REQUIRE(r->setRules(R"({"version":1,"rules":[{"name":"lin","op":"aten::linear","when":{"batch":"> 1024"},"use":"opencl.gemm.tiled"}]})", "r").ok());
  const auto addmm = [](int64_t rows) { return call("aten::addmm.out", {arg({2048}), arg({rows, 512}), arg({512, 2048})}); };
  CHECK(chosen(*r, addmm(1025)) == "opencl.gemm.tiled");
  CHECK(chosen(*r, addmm(1024)) == "opencl.gemm.wide");
  CHECK(chosen(*r, call("aten::linear", {arg({1025, 512}), arg({2048, 512}), arg({2048})})) == "opencl.gemm.tiled");
}

TEST_CASE("the state of the queue chooses only where all routes give the same bits") {
  auto r = router(cpuDevice());
  Signature copy = call("aten::_copy_from", {arg({16}), arg({16})}), add = call("aten::add.out", {arg({16}), arg({16})});
  // The host's call (2 us) is cheaper than nothing here; only a launch that costs more lets the idle queue matter.
  dal::DeviceDescription slow = cpuDevice();
  slow.launch_s = 5e-6;
  auto s = router(slow);
  copy.queue_idle = add.queue_idle = false;
  CHECK(chosen(*s, copy) == "opencl.copy.wide");
  CHECK(chosen(*s, add) == "opencl.pointwise.wide");
  copy.queue_idle = add.queue_idle = true;
  CHECK(chosen(*s, copy) == "host.aten");
  CHECK(chosen(*s, add) == "opencl.pointwise.wide");
  CHECK(chosen(*r, copy) == "opencl.copy.wide");
}

TEST_CASE("beyond the cap routes are shared per operator and choice, and stay right") {
  RouterOptions o;
  o.device = cpuDevice();
  o.read_files = false;
  o.max_routes = 4;
  auto r = Router::create(o);
  for (int64_t m = 1; m <= 4; ++m) r->choose(mm(m + 100, 8, 8));
  const Route& a = r->choose(mm(1000, 8, 8));
  const Route& b = r->choose(mm(2000, 8, 8));
  CHECK(a.id == b.id);
  CHECK(a.predicted_s < 0);   // it stands for many sizes
  CHECK(candidateName(a.chosen) == "opencl.gemm.wide");
  CHECK(chosen(*r, mm(2000, 8, 8, DType::int64)) == "host.aten");
  CHECK(r->choose(mm(101, 8, 8)).id != a.id);
}

TEST_CASE("choosing while rules change always gives a decision of one of the two rule sets") {
  auto r = router(cpuDevice());
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0}, asked{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
        const Route& route = r->choose(mm(1025 + (i + t) % 50, 64, 64));
        const auto name = candidateName(route.chosen);
        if (name != "opencl.gemm.wide" && name != "opencl.gemm.tiled") ++wrong;
        ++asked;
      }
    });
  for (int i = 0; i < 200; ++i) {
    if (i % 2) r->resetRules();
    else REQUIRE(r->setRules(kWideMm, "rules.json").ok());
    const int before = asked.load();
    while (asked.load() < before + 20) std::this_thread::yield();
  }
  stop = true;
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  REQUIRE(r->setRules(kWideMm, "rules.json").ok());
  for (int64_t m = 1025; m < 1075; ++m) CHECK(chosen(*r, mm(m, 64, 64)) == "opencl.gemm.tiled");
}

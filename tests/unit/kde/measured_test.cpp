// Measured choice: the store of times on disk, and what it does to decisions.
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/kde/measured.h"
#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {

struct Cache {
  std::string dir;
  Cache() {
    char tmpl[] = "/tmp/flagos-measured-XXXXXX";
    dir = ::mkdtemp(tmpl);
  }
  ~Cache() { std::filesystem::remove_all(dir); }
};

double seconds(const std::optional<Measurement>& m) { return m ? m->seconds : -1; }

std::unique_ptr<Router> measuring(const Cache& cache, Measure measure = Measure::on, Mode mode = Mode::automatic, bool deterministic = false) {
  RouterOptions o;
  o.device = cpuDevice();
  o.mode = mode;
  o.read_files = false;
  o.identity = "id";
  o.cache_dir = cache.dir;
  o.measure = measure;
  o.deterministic = deterministic;
  return Router::create(o);
}

std::vector<std::string> names(const std::vector<CandidateId>& ids) {
  std::vector<std::string> out;
  for (const CandidateId id : ids) out.emplace_back(candidateName(id));
  return out;
}

void keep(Router& r, const Signature& s, double wide, double host) {
  r.measured().add(shapeClass(s), "opencl.gemm.wide", {wide, 5, 1000});
  r.measured().add(shapeClass(s), "host.aten", {host, 3, 1000});
  REQUIRE(r.measured().save().ok());
}

}  // namespace

TEST_CASE("stored measurements: the first value stays, processes merge, a broken file is replaced") {
  const Cache cache;
  const Signature s = mm(300, 64, 10);
  CHECK(shapeClass(s) == "aten::mm.out(float32[512,64] contiguous, float32[64,16] contiguous)");
  MeasuredStore a, b;
  REQUIRE(a.open(cache.dir, "id|build").ok());
  REQUIRE(b.open(cache.dir, "id|build").ok());
  CHECK(a.empty());
  CHECK(a.add(shapeClass(s), "opencl.gemm.wide", {1e-3}));
  CHECK_FALSE(a.add(shapeClass(s), "opencl.gemm.wide", {5e-3}));
  CHECK_FALSE(a.add(shapeClass(s), "host.aten", {-1}));
  CHECK(seconds(a.find(shapeClass(s), "opencl.gemm.wide")) == 1e-3);
  REQUIRE(a.save().ok());
  CHECK(b.add(shapeClass(s), "opencl.gemm.wide", {9e-3}));
  CHECK(b.add("other", "host.aten", {2e-3}));
  REQUIRE(b.save().ok());
  CHECK(seconds(b.find(shapeClass(s), "opencl.gemm.wide")) == 1e-3);   // what was on disk first wins
  MeasuredStore c, d;
  REQUIRE(c.open(cache.dir, "id|build").ok());
  CHECK(seconds(c.find(shapeClass(s), "opencl.gemm.wide")) == 1e-3);
  CHECK(seconds(c.find("other", "host.aten")) == 2e-3);
  REQUIRE(d.open(cache.dir, "another build").ok());
  CHECK(d.empty());
  REQUIRE(writeFileAtomic(cache.dir + "/measured.json", "{\"devices\":").ok());
  MeasuredStore e;
  CHECK_FALSE(e.open(cache.dir, "id|build").ok());
  CHECK(e.add("x", "host.aten", {1e-6}));
  REQUIRE(e.save().ok());
  MeasuredStore f;
  REQUIRE(f.open(cache.dir, "id|build").ok());
  CHECK(seconds(f.find("x", "host.aten")) == 1e-6);
}

TEST_CASE("the router opens the stored measurements of its device") {
  const Cache cache;
  const Signature s = mm(300, 256, 256);
  MeasuredStore store;
  REQUIRE(store.open(cache.dir, "id").ok());
  store.add(shapeClass(s), "opencl.gemm.wide", {2e-3});
  store.add(shapeClass(s), "host.aten", {1e-3});
  REQUIRE(store.save().ok());
  RouterOptions o;
  o.device = cpuDevice();
  o.read_files = false;
  o.identity = "id";
  o.cache_dir = cache.dir;
  CHECK(chosen(*Router::create(o), s) == "host.aten");
  o.identity = "another";
  CHECK(chosen(*Router::create(o), s) == "opencl.gemm.wide");
}

TEST_CASE("stored measurements choose where the model cannot tell, and never where it can") {
  auto r = router(cpuDevice());
  const Signature s = mm(300, 256, 256);
  r->measured().add(shapeClass(s), "opencl.gemm.wide", {2e-3});
  r->measured().add(shapeClass(s), "host.aten", {1e-3});
  r->measured().add(shapeClass(s), "opencl.gemm.tiled", {1e-4});
  CHECK(chosen(*r, s) == "host.aten");       // within 3x of wide by prediction; tiled is predicted ten times slower
  CHECK(reason(*r, s) == "measured fastest of 3 legal candidates");
  CHECK(chosen(*r, mm(3000, 256, 256)) == "opencl.gemm.wide");
}

TEST_CASE("a choice that the cost model cannot make is open until its candidates are timed") {
  const Cache cache;
  auto r = measuring(cache);
  const Signature s = mm(300, 256, 256);
  const Route& first = r->choose(s);
  CHECK(first.open);
  CHECK(candidateName(first.chosen) == "opencl.gemm.wide");
  CHECK(names(r->contenders(s)) == std::vector<std::string>{"opencl.gemm.wide", "host.aten"});   // tiled is ten times slower
  keep(*r, s, 2e-3, 1e-3);
  CHECK(r->choose(s).open);   // what was decided stays until it is asked for again
  const Route& settled = r->reconsider(s);
  CHECK_FALSE(settled.open);
  CHECK(candidateName(settled.chosen) == "host.aten");
  CHECK(nameText(settled.reason) == "measured fastest of 3 legal candidates");
  CHECK(&r->choose(s) == &settled);
  CHECK(r->contenders(s).empty());
  // All shapes of the class, in this run and in the next.
  CHECK(chosen(*r, mm(290, 200, 250)) == "host.aten");
  CHECK(chosen(*measuring(cache), mm(290, 200, 250)) == "host.aten");
  CHECK(chosen(*measuring(cache, Measure::use), s) == "host.aten");
}

TEST_CASE("the wait for the queue counts against the host's time") {
  const Cache cache;
  auto r = measuring(cache);
  const Signature s = mm(300, 256, 256);
  keep(*r, s, 1.02e-3, 1e-3);   // 20 us apart; the wait is 40
  CHECK(chosen(*r, s) == "opencl.gemm.wide");
}

TEST_CASE("nothing is open, and no kept time chooses, where a run must repeat itself or a route is asked for") {
  const Cache cache;
  const Signature s = mm(300, 256, 256);
  keep(*measuring(cache), s, 2e-3, 1e-3);
  for (const auto& r : {measuring(cache, Measure::off), measuring(cache, Measure::on, Mode::opencl), measuring(cache, Measure::on, Mode::automatic, true)}) {
    CHECK(chosen(*r, s) == "opencl.gemm.wide");
    CHECK_FALSE(r->choose(mm(5000, 256, 256)).open);
    CHECK(r->contenders(mm(5000, 256, 256)).empty());
  }
  CHECK(chosen(*measuring(cache, Measure::on, Mode::host), s) == "host.aten");
  auto r = measuring(cache);
  r->setDeterministic(true);
  CHECK(chosen(*r, s) == "opencl.gemm.wide");
  r->setDeterministic(false);
  CHECK(chosen(*r, s) == "host.aten");
  REQUIRE(r->setRule("aten::mm", "opencl.gemm.tiled").ok());
  CHECK(chosen(*r, s) == "opencl.gemm.tiled");
  CHECK_FALSE(r->choose(mm(5000, 256, 256)).open);
}

TEST_CASE("only read, an open choice is the model's") {
  const Cache cache;
  auto r = measuring(cache, Measure::use);
  CHECK_FALSE(r->choose(mm(300, 256, 256)).open);
  CHECK(chosen(*r, mm(300, 256, 256)) == "opencl.gemm.wide");
}

TEST_CASE("what is clear, too large, or more than its results is not timed") {
  const Cache cache;
  auto r = measuring(cache);
  CHECK_FALSE(r->choose(mm(100, 8, 8)).open);            // shorter than what timing can tell
  CHECK_FALSE(r->choose(mm(1 << 15, 1024, 1024)).open);  // 128 MiB of operands
  CHECK(r->choose(call("aten::add.out", {arg({1 << 20}), arg({1 << 20})})).open);
  for (const char* op : {"aten::normal_", "aten::index.Tensor_out", "aten::_copy_from", "aten::_foreach_add_.List"})
    CHECK_FALSE(r->choose(call(op, {arg({1 << 20}), arg({1 << 20})})).open);
  // All of a class or none: the limit is taken at the class's largest sizes.
  CHECK_FALSE(r->choose(call("aten::add.out", {arg({(1 << 24) + 1})})).open == r->choose(call("aten::add.out", {arg({1 << 24})})).open);
}

TEST_CASE("what was given up is the model's, in this process") {
  const Cache cache;
  auto r = measuring(cache);
  const Signature s = mm(300, 256, 256);
  r->measured().add(shapeClass(s), "opencl.gemm.wide", {2e-3});
  r->measured().giveUp(shapeClass(s));
  CHECK_FALSE(r->reconsider(s).open);
  CHECK(chosen(*r, s) == "opencl.gemm.wide");
  CHECK(r->measured().size() == 0);
  CHECK(measuring(cache)->choose(s).open);
}

TEST_CASE("choices are forgotten by operator, here and on disk") {
  const Cache cache;
  auto r = measuring(cache);
  const Signature s = mm(300, 256, 256);
  keep(*r, s, 2e-3, 1e-3);
  keep(*r, mm(600, 256, 256), 2e-3, 1e-3);
  r->measured().add(shapeClass(call("aten::add.out", {arg({1 << 20})})), "host.aten", {1e-3, 1, 1});
  REQUIRE(r->measured().save().ok());
  CHECK(chosen(*r, s) == "host.aten");
  CHECK(*r->forgetMeasured("aten::mm") == 2);
  CHECK(r->choose(s).open);
  CHECK(measuring(cache)->measured().size() == 1);
  CHECK(*MeasuredStore::forgetFile(cache.dir, "aten::mm") == 0);
  CHECK(*MeasuredStore::forgetFile(cache.dir, "") == 1);
  CHECK(measuring(cache)->measured().size() == 0);
  CHECK(*MeasuredStore::forgetFile("/no/such/folder", "") == 0);
}

TEST_CASE("entries that are no times are no entries, and a store that cannot be written says so") {
  const Cache cache;
  REQUIRE(writeFileAtomic(cache.dir + "/measured.json", R"({"version": 1, "devices": {"id": {"a": {"host.aten": 0.5, "x": {"seconds": "1"},
    "y": {"seconds": -1}, "z": {"seconds": 2, "runs": "many", "at": null}}, "b": 7}, "other": []}})").ok());
  MeasuredStore store;
  REQUIRE(store.open(cache.dir, "id").ok());
  CHECK(store.size() == 1);
  CHECK(seconds(store.find("a", "z")) == 2);
  CHECK(store.find("a", "z")->runs == 0);
  for (const char* name : {"host.aten", "x", "y"}) CHECK_FALSE(store.find("a", name));
  MeasuredStore nowhere;
  REQUIRE(nowhere.open("/proc/nowhere", "id").ok());
  CHECK(nowhere.add("a", "host.aten", {1}));
  CHECK_FALSE(nowhere.save().ok());
}

TEST_CASE("explain tells what was timed, how often and when") {
  const Cache cache;
  auto r = measuring(cache);
  const Signature s = mm(300, 256, 256);
  const auto now = static_cast<int64_t>(std::time(nullptr));
  r->measured().add(shapeClass(s), "opencl.gemm.wide", {2e-3, 5, now - 3 * 86400 - 60});
  r->measured().add(shapeClass(s), "host.aten", {1e-3, 1, now - 7300});
  const Json doc = r->explain(s);
  CHECK(doc["chosen"] == "host.aten");
  CHECK(doc["reason"] == "measured fastest of 3 legal candidates");
  Json wide, tiled;
  for (const Json& step : doc["steps"]) {
    if (step["name"] == "opencl.gemm.wide") wide = step;
    if (step["name"] == "opencl.gemm.tiled") tiled = step;
  }
  CHECK(wide["measured_choice"]["seconds"] == 2e-3);
  CHECK(wide["measured_choice"]["runs"] == 5);
  CHECK(wide["measured_choice"]["age_s"] >= 3 * 86400 + 60);
  CHECK(tiled["measured_choice"].is_null());
  const std::string text = explainText(doc);
  CHECK(text.find("timed to choose: 2 ms in 5 runs, 3 days ago") != std::string::npos);
  CHECK(text.find("timed to choose: 1 ms in 1 run, 2 hours ago") != std::string::npos);
  CHECK(r->rulesJson()["measured"] == Json{{"mode", "on"}, {"shapes", 1}});
}

// view: tables sort on what is shown, missing is never 0, screens carry the process's own values, drift is honest.
#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "profiler/view/screens.h"
#include "profiler/view/session.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::view;
using telemetry::ProcessRow;

namespace {

Table numbers() {
  Table t;
  t.columns = {{"Name", false, ""}, {"Bytes", true, ""}, {"Calls", true, ""}};
  t.rows = {{{textCell("b"), metricCell(Metric::of(2048, "B", "measured")), countCell(1)}, "", 0},
            {{textCell("a"), metricCell(Metric::missing("B", "not timed")), countCell(9)}, "", 0},
            {{textCell("c"), metricCell(Metric::of(512, "B", "measured")), countCell(1)}, "", 0}};
  return t;
}

std::string order(const Table& t) {
  std::string s;
  for (const Row& r : t.rows) s += r.cells[0].text;
  return s;
}

ProcessRow process() {
  ProcessRow p;
  p.pid = 4242;
  p.state = "live";
  p.script = "/w/train.py";
  telemetry::DeviceRow d;
  d.device = "npu:0";
  d.name = "Test card";
  d.allocated = Metric::of(3072, "B", "measured");
  d.allocated_peak = Metric::of(4096, "B", "measured");
  d.reserved = Metric::of(65536, "B", "measured");
  d.total = Metric::of(1048576, "B", "opencl");
  d.free = Metric::missing("B", "the driver does not report it");
  d.utilisation = Metric::of(63, "%", "measured");
  p.devices.push_back(d);
  telemetry::SiteRow s;
  s.id = 1;
  s.file = "/w/train.py";
  s.line = 7;
  s.qualname = "main";
  s.device = "npu:0";
  s.live_bytes = Metric::of(1024, "B", "measured");
  s.peak_bytes = Metric::of(2048, "B", "measured");
  s.device_time = Metric::of(0.25, "s", "measured");
  s.calls = 5;
  p.sites.push_back(s);
  s.id = 2;
  s.backward_of = 1;
  s.live_bytes = Metric::of(2048, "B", "measured");
  s.device_time = Metric::of(0.75, "s", "measured");
  p.sites.push_back(s);
  telemetry::RouteRow r;
  r.op = "aten::mm.out";
  r.kernel = "opencl.gemm.wide";
  r.reason = "fastest predicted";
  r.bound = "compute";
  r.calls = 4;
  r.timed_calls = 2;
  r.device_time = Metric::of(0.004, "s", "measured");
  r.predicted = Metric::of(0.0015, "s", "predicted");
  r.site = 1;
  p.routes.push_back(r);
  r.site = 2;
  r.calls = 6;
  r.timed_calls = 2;
  r.device_time = Metric::of(0.002, "s", "measured");
  p.routes.push_back(r);
  return p;
}

const Cell& cell(const Table& t, size_t row, const char* column) {
  for (size_t i = 0; i < t.columns.size(); ++i)
    if (t.columns[i].title == column) return t.rows.at(row).cells.at(i);
  throw std::runtime_error(std::string("no column ") + column);
}

}  // namespace

TEST_CASE("rows sort by raw values, and missing ones come last both ways") {
  Table t = numbers();
  sortRows(t, {{1, true}});
  CHECK(order(t) == "bca");
  sortRows(t, {{1, false}});
  CHECK(order(t) == "cba");
}

TEST_CASE("several sort keys apply in order") {
  Table t = numbers();
  sortRows(t, {{2, false}, {0, true}});
  CHECK(order(t) == "cba");
  sortRows(t, {{2, true}, {0, false}});
  CHECK(order(t) == "abc");
}

TEST_CASE("a filter looks at every cell and ignores case") {
  Table t = numbers();
  filterRows(t, "kib");
  CHECK(order(t) == "b");
  filterRows(t, "");
  CHECK(order(t) == "b");
  filterRows(t, "zzz");
  CHECK(t.rows.empty());
}

TEST_CASE("text output aligns numbers right and cuts to the width") {
  const std::string text = renderText(numbers());
  CHECK(text == "Name  Bytes  Calls\n"
                "b     2 KiB      1\n"
                "a         –      9\n"
                "c     512 B      1\n");
  CHECK(renderText(numbers(), 8).find("Name  B…\n") == 0);
  Table empty;
  empty.note = "why it is empty";
  CHECK(renderText(empty) == "why it is empty\n");
}

TEST_CASE("a missing value is a dash with its reason") {
  const Cell c = metricCell(Metric::missing("B", "the driver does not report it"));
  CHECK(c.text == "–");
  CHECK(c.missing);
  CHECK(c.tooltip == "the driver does not report it");
  CHECK(metricCell(Metric::of(1, "s", "measured", 2.5)).tooltip == "source: measured, 2.5 s old");
}

TEST_CASE("the lines screen shows bytes, time and share of each line") {
  const Table t = linesScreen({process()});
  REQUIRE(t.rows.size() == 2);
  CHECK(cell(t, 0, "Line").text == "backward of train.py:7");
  CHECK(cell(t, 0, "Live").text == "2 KiB");
  CHECK(cell(t, 0, "Share").text == "75.0 %");
  CHECK(cell(t, 1, "Line").text == "train.py:7");
  CHECK(cell(t, 1, "Peak").text == "2 KiB");
  CHECK(cell(t, 1, "Share").text == "25.0 %");
  CHECK(cell(t, 1, "PID").text == "4242");
}

TEST_CASE("several calls of one line are told apart by column and text") {
  ProcessRow p = process();
  telemetry::SiteRow s = p.sites[0];
  s.id = 77;
  s.column = 19;
  s.text = "torch.sin(a)";
  p.sites[0].column = 4;
  p.sites[0].text = "a @ b";
  s.live_bytes = Metric::of(0, "B", "measured");
  s.device_time = Metric::of(0.01, "s", "measured");
  p.sites.push_back(s);
  const Table t = linesScreen({p});
  REQUIRE(t.rows.size() == 3);
  std::map<std::string, std::string> calls;
  for (size_t i = 0; i < 3; ++i) calls[cell(t, i, "Line").text] = cell(t, i, "Call").text;
  CHECK(calls == std::map<std::string, std::string>{{"backward of train.py:7", ""}, {"train.py:7:5", "a @ b"}, {"train.py:7:20", "torch.sin(a)"}});
}

TEST_CASE("a long call is cut between characters") {
  char path[] = "/tmp/flagos-call-XXXXXX";
  REQUIRE(::mkstemp(path) >= 0);
  const std::string call = "f('" + std::string(34, 'x') + "äöü" + std::string(20, 'y') + "')";
  REQUIRE(writeFileAtomic(path, call + "\n"));
  ProcessRow p;
  telemetry::SiteRow s;
  s.file = path;
  s.line = s.end_line = 1;
  s.column = 0;
  s.end_column = static_cast<int>(call.size());
  p.sites.push_back(s);
  p.files.push_back({path, [&] { char hex[20]; std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(telemetry::fnv1a(call + "\n"))); return std::string(hex); }(), 0});
  markDrift(p);
  CHECK(p.sites[0].text == "f('" + std::string(34, 'x') + "ä…");
  std::remove(path);
}

TEST_CASE("an ended process says so on each of its lines") {
  ProcessRow p = process();
  p.state = "ended";
  CHECK(cell(linesScreen({p}), 0, "State").text == "exact, ended");
}

TEST_CASE("routes are summed over their call sites, measured beside predicted") {
  const Table t = routesScreen({process()});
  REQUIRE(t.rows.size() == 1);
  CHECK(cell(t, 0, "Calls").text == "10");
  CHECK(cell(t, 0, "Time").text == "6 ms");
  CHECK(cell(t, 0, "Per call").text == "1.50 ms");
  CHECK(cell(t, 0, "Predicted").text == "1.50 ms");
  CHECK(cell(t, 0, "Bound by").text == "compute");
  CHECK(cell(t, 0, "Why").text == "fastest predicted");
}

TEST_CASE("a route without timings shows no time, not 0") {
  ProcessRow p = process();
  for (auto& r : p.routes) {
    r.timed_calls = 0;
    r.device_time = Metric::missing("s", "no viewer asked for timings");
    r.predicted = Metric::missing("s", "no rate");
  }
  const Table t = routesScreen({p});
  CHECK(cell(t, 0, "Time").missing);
  CHECK(cell(t, 0, "Time").tooltip == "no viewer asked for timings");
  CHECK(cell(t, 0, "Predicted").text == "–");
}

TEST_CASE("the devices screen keeps missing values missing") {
  const Table t = devicesScreen({process()});
  REQUIRE(t.rows.size() == 1);
  CHECK(cell(t, 0, "Allocated").text == "3 KiB");
  CHECK(cell(t, 0, "Busy").text == "63 %");
  CHECK(cell(t, 0, "Free").text == "–");
}

TEST_CASE("every screen says why it is empty") {
  for (const Screen& s : screens()) {
    INFO(s.name);
    CHECK_FALSE(s.make({}).note.empty());
    CHECK(s.make({}).rows.empty());
  }
  CHECK(screen("nonsense") == nullptr);
}

TEST_CASE("a saved document comes back as the same rows") {
  const Json doc = topDocument({process()});
  CHECK(doc["version"] == 1);
  char path[] = "/tmp/flagos-view-XXXXXX";
  const int fd = ::mkstemp(path);
  REQUIRE(fd >= 0);
  REQUIRE(writeFileAtomic(path, dump(doc)));
  SessionOptions o;
  o.file = path;
  auto s = Session::open(o);
  REQUIRE(s);
  auto rows = s->refresh();
  REQUIRE(rows);
  REQUIRE(rows->size() == 1);
  CHECK(renderText(linesScreen(*rows)) == renderText(linesScreen({process()})));
  CHECK(renderText(routesScreen(*rows)) == renderText(routesScreen({process()})));
  REQUIRE(writeFileAtomic(path, "{\"processes\": 3}"));
  auto bad = Session::open(o);
  REQUIRE_FALSE(bad);
  CHECK(bad.error().exit == Exit::broken_input);
  std::remove(path);
}

TEST_CASE("a line is exact, moved, edited or gone against the file on disk") {
  const std::string call = "model(\n    x)";
  const std::string before = "import torch\ny = " + call + "\n";
  char path[] = "/tmp/flagos-drift-XXXXXX";
  REQUIRE(::mkstemp(path) >= 0);
  const auto state = [&](const std::string& now) {
    ProcessRow p;
    telemetry::SiteRow s;
    s.file = path;
    s.line = 2;
    s.end_line = 3;
    s.column = 4;
    s.end_column = 6;
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(telemetry::callHash(call)));
    s.call_hash = hex;
    p.sites.push_back(s);
    if (now.empty()) std::remove(path);
    else REQUIRE(writeFileAtomic(path, now));
    markDrift(p);
    CHECK(p.sites[0].text == (p.sites[0].state == "exact" ? "model( x)" : ""));
    return p.sites[0].state;
  };
  CHECK(state(before) == "exact");
  CHECK(state("# a comment below leaves the call alone\n" + before) == "moved");
  CHECK(state("import torch\ny = model(\n    z)\n") == "edited");
  CHECK(state("import torch") == "gone");
  CHECK(state("") == "gone");
}

#include "lsp/live/join.h"
#include "lsp/features/phrases.h"
#include "lsp/features/snapshot.h"
#include "lsp/predict/predict.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::lsp;

namespace {

const std::string kRan =
    "import torch\n"                                   // 1
    "def step(x, net):\n"                              // 2
    "    a = x.to('npu:0')\n"                          // 3
    "    y = net(a)\n"                                 // 4
    "    return y\n"                                   // 5
    "net = torch.nn.Linear(2, 3).to('npu:0')\n"        // 6
    "b = step(torch.zeros(4, 2), net)\n";              // 7

telemetry::SiteRow row(uint32_t id, int line, int column, int end, const std::string& call, double bytes) {
  telemetry::SiteRow r;
  r.id = id;
  r.file = "/t.py";
  r.line = r.end_line = line;
  r.column = column;
  r.end_column = end;
  r.call_hash = hash16(telemetry::callHash(call));
  r.device = "npu:0";
  r.live_bytes = Metric::of(bytes, "B", "measured");
  r.peak_bytes = Metric::of(bytes, "B", "measured");
  r.device_time = Metric::of(bytes * 1e-3, "s", "measured");
  r.calls = 5;
  return r;
}

telemetry::ProcessRow process() {
  telemetry::ProcessRow p;
  p.pid = 77;
  p.state = "live";
  p.script = "/t.py";
  p.files = {{"/t.py", hash16(telemetry::fnv1a(kRan)), 0}};
  p.sites = {row(1, 3, 8, 21, "x.to('npu:0')", 100), row(2, 4, 8, 14, "net(a)", 200), row(3, 6, 6, 39, "torch.nn.Linear(2, 3).to('npu:0')", 300)};
  auto backward = row(4, 4, 8, 14, "net(a)", 0);
  backward.backward_of = 2;
  backward.device_time = Metric::of(0.4, "s", "measured");
  p.sites.push_back(backward);
  telemetry::RouteRow r;
  r.op = "aten::addmm";
  r.kernel = "opencl.gemm.wide";
  r.reason = "cheapest";
  r.bound = "memory";
  r.calls = 5;
  r.timed_calls = 4;
  r.device_time = Metric::of(0.2, "s", "measured");
  r.predicted = Metric::of(0.04, "s", "predicted");
  r.site = 2;
  p.routes = {r};
  p.fallbacks = {{"aten::nonzero", 3, 4096, 1}};
  return p;
}

LiveFile joined(const std::string& now, const telemetry::ProcessRow& p, Analysis* out = nullptr) {
  Workspace workspace;
  AnalysisOptions options;
  options.machine.known = true;
  options.machine.devices = {"npu:0"};
  Analysis a = analyse(makeUnit("/t.py", now), workspace, options);
  LiveFile live = joinLive(a, now, p);
  if (out) *out = std::move(a);
  return live;
}

const LiveSite* at(const Analysis& a, const LiveFile& live, int line) {
  for (size_t i = 0; i < a.sites.size(); ++i) if (a.sites[i].line == line) return &live.sites[i];
  return nullptr;
}

}  // namespace

TEST_CASE("values land on their sites, other measured calls beside, backward with its forward") {
  Analysis a;
  const LiveFile live = joined(kRan, process(), &a);
  CHECK(live.ran);
  CHECK(live.same_text);
  const LiveSite* x = at(a, live, 3);
  REQUIRE(x);
  CHECK(x->state == "exact");
  CHECK(x->live_bytes.value == 100);
  CHECK(x->pid == 77);
  REQUIRE(x->fallbacks.size() == 1);
  CHECK(x->fallbacks[0].op == "aten::nonzero");
  CHECK(at(a, live, 6)->live_bytes.value == 300);
  REQUIRE(live.also.size() == 1);
  const auto& net = live.also[0];
  CHECK(net.text == "net(a)");
  CHECK(net.live.live_bytes.value == 200);
  CHECK(net.live.calls == 5);
  CHECK(net.live.backward_time.value == Approx(0.4));
  CHECK(net.live.share == Approx(0.6));   // (0.2 + 0.4) of 0.1 + 0.2 + 0.3 + 0.4
  REQUIRE(net.live.routes.size() == 1);
  const std::string line = routeLine(net.live.routes[0]);
  CHECK(line.find("measured 50 ms a call") != std::string::npos);
  CHECK(line.find("predicted 40 ms") != std::string::npos);
  CHECK(line.find("bound by memory") != std::string::npos);
}

TEST_CASE("drift with the text that ran: exact, moved, edited, gone") {
  rememberBaseline(kRan);
  struct Row { const char* name; std::string find, replace; const char* state; int line; };
  const Row rows[] = {
      {"a line inserted above", "import torch\n", "import torch\nimport os\n", "moved", 4},
      {"an identical call inserted below", "    y = net(a)\n", "    a = x.to('npu:0')\n    y = net(a)\n", "exact", 3},
      {"another variable, same call", "    a = x.to('npu:0')\n", "    b = x.to('npu:0')\n", "exact", 3},
      {"the argument edited", "x.to('npu:0')", "x.to('npu:1')", "edited", 3},
      {"indented further", "    a = x.to('npu:0')\n", "    if x is not None:\n        a = x.to('npu:0')\n", "moved", 4},
      {"removed", "    a = x.to('npu:0')\n", "", "gone", 0},
      {"only white space inside", "x.to('npu:0')", "x.to( 'npu:0' )", "exact", 3},
  };
  for (const auto& r : rows) {
    INFO(r.name);
    std::string now = kRan;
    now.replace(now.find(r.find), r.find.size(), r.replace);
    Analysis a;
    const LiveFile live = joined(now, process(), &a);
    CHECK_FALSE(live.same_text);
    std::string state = "none";
    int line = 0, painted = 0;
    for (const auto& s : live.sites) if (s.live_bytes.value == 100) { state = s.state; line = s.line; ++painted; }
    for (const auto& g : live.gone) if (g.live_bytes.value == 100) { state = g.state; ++painted; }
    CHECK(painted == 1);   // on one line only, never on its twin
    CHECK(state == r.state);
    CHECK(line == r.line);
  }
}

TEST_CASE("lines followed through edits tell identical neighbours apart") {
  rememberBaseline(kRan);
  Document d("file:///t.py", "/t.py", 1, kRan);
  struct Row { const char* name; std::vector<TextChange> edits; int line; };
  const std::string twin = "    a = x.to('npu:0')\n";
  const Row rows[] = {
      {"put above", {{Range{{2, 0}, {2, 0}}, twin}}, 4},
      {"put below", {{Range{{3, 0}, {3, 0}}, twin}}, 3},
      {"typed at the end of the line", {{Range{{2, 21}, {2, 21}}, "\n    a = x.to('npu:0')"}}, 3},
      {"two lines above, then one taken away", {{Range{{2, 0}, {2, 0}}, twin + twin}, {Range{{2, 0}, {3, 0}}, ""}}, 4},
      {"put above, and the one that ran edited", {{Range{{2, 0}, {2, 0}}, twin}, {Range{{3, 18}, {3, 19}}, "1"}}, 4},
      {"the rest of the file removed", {{Range{{4, 0}, {7, 0}}, ""}}, 3},
  };
  for (const auto& r : rows) {
    INFO(r.name);
    Document now("file:///t.py", "/t.py", 1, kRan);
    now.apply(r.edits, 2, Encoding::utf16);
    Workspace workspace;
    AnalysisOptions options;
    options.machine.known = true;
    const Analysis a = analyse(makeUnit("/t.py", now.text()), workspace, options);
    const LiveFile live = joinLive(a, now.text(), process(), &now.origins());
    std::vector<int> painted;
    for (const auto& s : live.sites) if (s.live_bytes.value == 100) painted.push_back(s.line);
    CHECK(painted == std::vector<int>{r.line});
  }
}

TEST_CASE("without the text that ran, only calls that can be told apart get their values") {
  auto p = process();
  p.files[0].hash = "0123456789abcdef";
  std::string now = "# a new first line\n" + kRan;
  Analysis a;
  LiveFile live = joined(now, p, &a);
  CHECK_FALSE(live.have_baseline);
  CHECK(at(a, live, 4)->state == "moved");
  now.replace(now.find("    y = net"), 0, "    a = x.to('npu:0')\n");   // a twin: which one was measured?
  live = joined(now, p, &a);
  for (const auto& s : live.sites) CHECK(s.live_bytes.value != std::optional<double>(100));
  REQUIRE(live.gone.size() >= 1);
  CHECK(live.gone[0].why.find("told apart") != std::string::npos);
}

TEST_CASE("not executed, ended and never ran are different sentences") {
  auto p = process();
  p.sites.clear();
  Analysis a;
  LiveFile live = joined(kRan, p, &a);
  CHECK(liveLines(*at(a, live, 3))[0] == "attached to pid 77, line not executed yet");
  p = process();
  p.state = "ended";
  live = joined(kRan, p, &a);
  CHECK(liveLines(*at(a, live, 3))[0].find("last seen in pid 77, which ended") != std::string::npos);
  p.files[0].path = "/other.py";
  p.script = "/other.py";
  for (auto& s : p.sites) s.file = "/other.py";
  CHECK_FALSE(joined(kRan, p).ran);
}

TEST_CASE("a value that is missing stays missing, with its reason") {
  auto p = process();
  p.sites[0].live_bytes = Metric::missing("B", "the driver gives no per-process memory");
  Analysis a;
  const LiveFile live = joined(kRan, p, &a);
  const LiveSite* x = at(a, live, 3);
  CHECK_FALSE(x->live_bytes.value);
  CHECK(liveLines(*x)[1].find("live not reported by the driver (the driver gives no per-process memory)") != std::string::npos);
}

TEST_CASE("a reason that mentions the driver is not yet a silence of the driver") {
  auto p = process();
  p.sites[0].device_time = Metric::missing("s", "only first launches were timed so far, in which the driver may have compiled");
  Analysis a;
  const LiveFile live = joined(kRan, p, &a);
  const auto lines = liveLines(*at(a, live, 3));
  for (const auto& l : lines) CHECK(l.find("not reported by the driver") == std::string::npos);
  p.sites[0].device_time = Metric::missing("s", "the driver gives no times");
  const LiveFile silent = joined(kRan, p, &a);
  bool said = false;
  for (const auto& l : liveLines(*at(a, silent, 3))) said = said || l.find("device time not reported by the driver (the driver gives no times)") != std::string::npos;
  CHECK(said);
}

TEST_CASE("what one run of a line took is only said where the calls that ran are those that were predicted") {
  LinePrediction line;
  line.line = 7;
  line.calls = 3;
  LiveFile live;
  live.sites.resize(2);
  const auto route = [](const char* op, uint64_t calls, double each) {
    telemetry::RouteRow r;
    r.op = op;
    r.calls = calls;
    r.timed_calls = calls;
    r.device_time = Metric::of(each * static_cast<double>(calls), "s", "measured");
    return r;
  };
  for (auto& s : live.sites) { s.state = "exact"; s.line = 7; }
  live.sites[0].routes = {route("aten::addmm", 20, 3e-3), route("aten::relu", 10, 1e-3)};
  live.sites[0].backward_routes = {route("aten::mm", 40, 9e-3)};          // no part of a forward run
  REQUIRE(measuredRun(line, live));
  CHECK(*measuredRun(line, live) == Approx(2 * 3e-3 + 1e-3));
  live.sites[1].routes = {route("aten::sum", 10, 2e-3)};                  // a fourth call that was not predicted
  CHECK_FALSE(measuredRun(line, live));
  line.calls = 4;
  CHECK(*measuredRun(line, live) == Approx(2 * 3e-3 + 1e-3 + 2e-3));
  live.sites[1].routes[0].timed_calls = 0;                                // only a part was timed
  CHECK_FALSE(measuredRun(line, live));
  live.sites[1].routes = {route("aten::sum", 10, 2e-3)};
  live.sites[1].state = "edited";                                         // another text than the predicted one
  CHECK_FALSE(measuredRun(line, live));
  live.sites[1].state = "moved";
  CHECK(measuredRun(line, live));
  line.why_missing = "the sizes of a call do not follow";
  CHECK_FALSE(measuredRun(line, live));
}

TEST_CASE("matchLines gives the longest common matching in order") {
  const auto match = [](std::vector<std::string_view> a, std::vector<std::string_view> b) { return matchLines(a, b); };
  CHECK(match({"a", "b", "c"}, {"a", "b", "c"}) == std::vector<int>{0, 1, 2});
  CHECK(match({"a", "b", "c"}, {"a", "x", "b", "c"}) == std::vector<int>{0, 2, 3});
  CHECK(match({"a", "b", "c"}, {"a", "c"}) == std::vector<int>{0, -1, 1});
  CHECK(match({"a", "x", "b", "y", "c"}, {"a", "p", "b", "q", "c"}) == std::vector<int>{0, -1, 2, -1, 4});
  CHECK(match({"a"}, {}) == std::vector<int>{-1});
  CHECK(match({}, {"a"}).empty());
  // Against the textbook table, on random short texts.
  unsigned seed = 3;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string_view> a, b;
    const std::string_view alphabet[] = {"p", "q", "r"};
    const auto next = [&] { seed = seed * 1103515245 + 12345; return (seed >> 16) & 0x7fff; };
    for (unsigned i = next() % 9; i > 0; --i) a.push_back(alphabet[next() % 3]);
    for (unsigned i = next() % 9; i > 0; --i) b.push_back(alphabet[next() % 3]);
    std::vector<std::vector<int>> best(a.size() + 1, std::vector<int>(b.size() + 1, 0));
    for (size_t i = 1; i <= a.size(); ++i)
      for (size_t j = 1; j <= b.size(); ++j)
        best[i][j] = a[i - 1] == b[j - 1] ? best[i - 1][j - 1] + 1 : std::max(best[i - 1][j], best[i][j - 1]);
    const auto map = matchLines(a, b);
    int matched = 0, before = -1;
    for (size_t i = 0; i < map.size(); ++i) {
      if (map[i] < 0) continue;
      CHECK(a[i] == b[static_cast<size_t>(map[i])]);
      CHECK(map[i] > before);
      before = map[i];
      ++matched;
    }
    CHECK(matched == best[a.size()][b.size()]);
  }
}

TEST_CASE("beside a prediction stands what the process measured, and how far off it is") {
  AnalysisOptions options;
  options.machine.known = true;
  options.machine.devices = {"npu:0"};
  auto& card = options.machine.details["npu:0"].description;
  card.kind = dal::Kind::discrete;
  card.copy_bps = 1e10;
  card.bandwidth_bps = 1e12;
  card.flops_f32 = 1e13;
  card.launch_s = 1e-5;
  card.rates_source = "table";
  Workspace workspace;
  const Analysis a = analyse(makeUnit("/t.py", kRan), workspace, options);
  const auto hoverOn = [&](const telemetry::ProcessRow& p) {
    const LiveFile live = joinLive(a, kRan, p);
    Snapshot s;
    s.analysis = &a;
    s.live = &live;
    s.machine = &options.machine;
    const auto h = hover(s, static_cast<uint32_t>(kRan.find("x.to(") + 2));
    return h ? h->markdown : std::string();
  };
  const double predicted = 4 * 2 * 4 / 1e10 + 1e-5;   // 32 bytes to the card, and asking for it
  auto p = process();
  telemetry::RouteRow copy;
  copy.op = "aten::_to_copy";
  copy.kernel = "copy";
  copy.calls = 5;
  copy.timed_calls = 4;
  copy.device_time = Metric::of(4 * 2 * predicted, "s", "measured");
  copy.site = 1;
  p.routes.push_back(copy);
  INFO(hoverOn(p));
  CHECK(hoverOn(p).find("the prediction is 0.5 times the measured") != std::string::npos);
  CHECK(hoverOn(p).find("predicted unknown") != std::string::npos);   // of the route: the process gave no figure
  p.routes.back().device_time = Metric::of(4 * predicted, "s", "measured");
  CHECK(hoverOn(p).find("the prediction is as measured") != std::string::npos);
  p.routes.back().timed_calls = 0;             // executed, but no call was timed: there is nothing to compare with
  CHECK(hoverOn(p).find("the prediction is") == std::string::npos);
  CHECK(hoverOn(process()).find("the prediction is") == std::string::npos);
}

TEST_CASE("of a function, the line that was measured to take most comes before what is predicted") {
  auto p = process();
  for (auto& s : p.sites) s.qualname = s.line == 6 ? "<module>" : "step";
  Analysis a;
  const LiveFile live = joined(kRan, p, &a);
  REQUIRE(a.predicted);
  FunctionPrediction f;
  f.name = "step";
  f.first_line = 2;
  f.calls = f.bottleneck_line = 3;
  f.bottleneck_share = 1;
  f.seconds = 1e-5;
  f.bound = "copy";
  const std::string predicted = functionText(f);
  CHECK(functionLine(a, &live, f) == "measured: line 4 takes most here, 60 % of the process's device time (pid 77); " + predicted);
  CHECK(functionLine(a, nullptr, f) == predicted);
  f.name = "other";
  CHECK(functionLine(a, &live, f) == functionText(f));
}

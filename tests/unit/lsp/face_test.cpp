// What editors see besides hover and diagnostics: hints, actions, settings, files, progress, explanations.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "lsp/live/drift.h"
#include "lsp/protocol/repair.h"
#include "lsp/text/parse_worker.h"
#include "tests/unit/lsp/harness.h"

using namespace flagos;
using namespace flagos::lsp;

namespace {

const std::string kUri = "file:///t.py";
const std::string kText = "import torch\nx = torch.zeros(3).to('npu:0')\ny = x + 1\n";
constexpr uint64_t kSecond = 1'000'000'000;

std::shared_ptr<telemetry::ProcessRow> process(double share = 0.6) {
  auto p = std::make_shared<telemetry::ProcessRow>();
  p->pid = 77;
  p->state = "live";
  p->script = "/t.py";
  p->files = {{"/t.py", hash16(telemetry::fnv1a(kText)), 0}};
  const auto row = [&](uint32_t id, int line, int column, int end, const char* call, double bytes, double seconds) {
    telemetry::SiteRow r;
    r.id = id;
    r.file = "/t.py";
    r.line = r.end_line = line;
    r.column = column;
    r.end_column = end;
    r.call_hash = hash16(telemetry::callHash(call));
    r.device = "npu:0";
    r.live_bytes = Metric::of(bytes, "B", "measured");
    r.device_time = Metric::of(seconds, "s", "measured");
    r.calls = 1;
    p->sites.push_back(r);
  };
  row(1, 2, 4, 30, "torch.zeros(3).to('npu:0')", 12'900'000, share);
  row(2, 3, 4, 9, "x + 1", 100, 1 - share);
  telemetry::RouteRow route;
  route.op = "aten::add";
  route.kernel = "opencl.pointwise";
  route.calls = 1;
  route.site = 2;
  p->routes = {route};
  p->fallbacks = {{"aten::nonzero", 3, 4096, 1}};
  return p;
}

void attach(Harness& h, std::shared_ptr<telemetry::ProcessRow> p) {
  auto view = std::make_shared<LiveView>();
  view->processes = {std::move(p)};
  view->version = h.view ? h.view->version + 1 : 1;
  h.view = view;
  h.server.liveChanged();
}

Json whole() { return {{"start", {{"line", 0}, {"character", 0}}}, {"end", {{"line", 9}, {"character", 0}}}}; }

}  // namespace

TEST_CASE("hints: where they stand, how long they are, and their tooltip on demand") {
  Harness h;
  h.start({{"textDocument", {{"inlayHint", {{"resolveSupport", {{"properties", {"tooltip"}}}}}}}}});
  h.open(kUri, kText);
  attach(h, process());
  Json list = h.ask("textDocument/inlayHint", {{"textDocument", {{"uri", kUri}}}, {"range", whole()}})["result"];
  REQUIRE(list.size() == 2);
  CHECK(list[0]["position"] == Json({{"line", 1}, {"character", 30}}));
  CHECK(list[0]["label"] == " 60 %   12 MiB  on CPU");
  CHECK(list[1]["label"] == " 40 %  100   B");
  CHECK_FALSE(list[0].contains("tooltip"));
  const Json full = h.ask("inlayHint/resolve", list[0])["result"];
  CHECK(full["tooltip"]["value"].get<std::string>().find("fallback: aten::nonzero ran on the CPU 3 times") != std::string::npos);
  CHECK(full["label"] == list[0]["label"]);
  // Only the lines that were asked for.
  list = h.ask("textDocument/inlayHint", {{"textDocument", {{"uri", kUri}}}, {"range", {{"start", {{"line", 2}, {"character", 0}}}, {"end", {{"line", 2}, {"character", 9}}}}}})["result"];
  CHECK(list.size() == 1);
  // A resolve for a text that is gone adds nothing, and does no harm.
  h.tell("textDocument/didChange", {{"textDocument", {{"uri", kUri}, {"version", 2}}}, {"contentChanges", {{{"text", "import torch\n"}}}}});
  CHECK_FALSE(h.ask("inlayHint/resolve", list[0])["result"].contains("tooltip"));
}

TEST_CASE("hints are refreshed seldom, not while typing, and only if a text changed") {
  Harness h;
  h.start({{"workspace", {{"inlayHint", {{"refreshSupport", true}}}}}});
  h.open(kUri, kText);
  attach(h, process(0.6));
  const auto refreshed = [&](uint64_t now) {
    h.sent.clear();
    h.server.tick(now, true);
    return h.told("workspace/inlayHint/refresh").size();
  };
  const uint64_t t = 1'000'000 * kSecond;
  CHECK(refreshed(t) == 1);
  attach(h, process(0.603));             // the same two digits
  CHECK(refreshed(t + 3 * kSecond) == 0);
  attach(h, process(0.7));
  CHECK(refreshed(t + kSecond) == 0);    // less than 2 s after the last one
  CHECK(refreshed(t + 4 * kSecond) == 1);
  CHECK(refreshed(t + 9 * kSecond) == 0);
}

TEST_CASE("actions: resolved on demand, unsafe ones say so, all safe ones at once") {
  Harness h;
  h.start({{"textDocument", {{"codeAction", {{"dataSupport", true}, {"resolveSupport", {{"properties", {"edit"}}}}}}}}});
  h.open(kUri, "import torch\na = torch.zeros(3).to('npu:0')\nb = torch.ones(3).to('npu:0')\n");
  const auto actions = [&](Json only) {
    return h.ask("textDocument/codeAction", {{"textDocument", {{"uri", kUri}}}, {"range", whole()}, {"context", {{"diagnostics", Json::array()}, {"only", only}}}})["result"];
  };
  Json list = actions(nullptr);
  REQUIRE(list.size() == 4);
  CHECK_FALSE(list[0].contains("edit"));
  const Json full = h.ask("codeAction/resolve", list[0])["result"];
  CHECK(full["edit"]["changes"][kUri].size() >= 1);
  for (const auto& a : list) CHECK((a["title"].get<std::string>().find("unsafe") == std::string::npos) == (a["isPreferred"] == true || a["title"].get<std::string>().starts_with("Ignore")));
  list = actions({"source.fixAll"});
  REQUIRE(list.size() == 1);
  CHECK(list[0]["kind"] == "source.fixAll.flagos");
  CHECK(list[0]["title"] == "Apply all 2 safe fixes of this file");
  CHECK(actions({"refactor"}).empty());
  CHECK(actions({"source.fixAllX"}).empty());
  h.tell("textDocument/didChange", {{"textDocument", {{"uri", kUri}, {"version", 2}}}, {"contentChanges", {{{"text", "import torch\n"}}}}});
  CHECK(h.ask("codeAction/resolve", list[0])["error"]["code"] == kContentModified);
}

TEST_CASE("settings come by pull, by push and by options; devices and severities follow them") {
  Harness h;
  h.start({{"workspace", {{"configuration", true}, {"didChangeConfiguration", {{"dynamicRegistration", true}}}, {"didChangeWatchedFiles", {{"dynamicRegistration", true}}}}}});
  REQUIRE(h.told("client/registerCapability").size() == 1);
  CHECK(h.told("client/registerCapability")[0]["registrations"].size() == 2);
  CHECK(h.told("workspace/configuration")[0]["items"][0]["section"] == "flagos");
  h.open(kUri, kText);
  const auto severities = [&](Json setting) {
    h.server.handle({{"id", "flagos/configuration"}, {"result", {{{"severity", setting}}}}});
    h.sent.clear();
    h.server.tick(1, true);
    std::vector<int> out;
    for (const auto& p : h.told("textDocument/publishDiagnostics")) for (const auto& d : p["diagnostics"]) out.push_back(d["severity"]);
    return out;
  };
  CHECK(severities({{"make-then-move", "error"}}) == std::vector<int>{1});
  CHECK(severities({{"make-then-move", "off"}}).empty());
  h.sent.clear();
  h.tell("workspace/didChangeConfiguration", {{"settings", {{"flagos", {{"severity", {{"make-them-move", "off"}}}}}}}});
  REQUIRE(h.told("window/logMessage").size() == 1);
  CHECK(h.told("window/logMessage")[0]["message"].get<std::string>().find("make-then-move") != std::string::npos);

  Server::World world;
  std::vector<Json> sent;
  world.send = [&](const Json& m) { sent.push_back(m); };
  Server server({}, world);
  server.handle({{"id", 1}, {"method", "initialize"}, {"params", {{"capabilities", Json::object()}, {"initializationOptions", {{"devices", {"npu:3"}}}}}}});
  server.handle({{"method", "initialized"}, {"params", Json::object()}});
  CHECK(sent.back()["params"]["text"] == "npu:3  idle");
  server.handle({{"method", "workspace/didChangeConfiguration"}, {"params", {{"settings", {{"flagos", {{"devices", Json::array()}}}}}}}});
  Machine found;
  found.known = true;
  found.devices = {"npu:0"};
  server.machineFound(found);
  CHECK(sent.back()["params"]["text"] == "npu:0  idle");
  server.handle({{"method", "workspace/didChangeConfiguration"}, {"params", {{"settings", {{"flagos", {{"devices", "none"}}}}}}}});
  CHECK(sent.back()["params"]["state"] == "no-device");
}

TEST_CASE("renamed, deleted and changed files") {
  Harness h;
  h.start({{"textDocument", {{"diagnostic", Json::object()}}}, {"workspace", {{"diagnostics", {{"refreshSupport", true}}}}}});
  attach(h, process());
  h.tell("workspace/didRenameFiles", {{"files", {{{"oldUri", "file:///"}, {"newUri", "file:///moved"}}}}});
  h.tell("workspace/didRenameFiles", {{"files", {{{"oldUri", kUri}, {"newUri", "file:///a/new%20name.py"}}}}});
  h.open("file:///a/new%20name.py", kText);
  const std::string said = h.hover("file:///a/new%20name.py", 1, 10)["contents"]["value"];
  CHECK(said.find("**exact, pid 77**") != std::string::npos);
  h.sent.clear();
  h.tell("workspace/didChangeWatchedFiles", {{"changes", {{{"uri", "file:///x.py"}, {"type", 3}}}}});
  CHECK(h.told("workspace/diagnostic/refresh").size() == 1);
  h.sent.clear();
  h.tell("workspace/didDeleteFiles", {{"files", {{{"uri", "file:///y.py"}}}}});
  CHECK(h.told("workspace/diagnostic/refresh").size() == 1);
}

TEST_CASE("the workspace is read between messages, with progress, and can be stopped") {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("flagos-index-" + std::to_string(::getpid()));
  fs::create_directories(root / "pkg");
  for (int i = 0; i < 30; ++i) std::ofstream(root / "pkg" / ("m" + std::to_string(i) + ".py")) << "import torch\nfrom . import m0\n";
  const Json folders = {{{"uri", uriOfPath(root.string())}, {"name", "w"}}};
  Harness h;
  h.ask("initialize", {{"capabilities", {{"window", {{"workDoneProgress", true}}}}}, {"workspaceFolders", folders}});
  h.sent.clear();
  h.tell("initialized", Json::object());
  CHECK(h.told("window/workDoneProgress/create").size() == 1);
  CHECK(h.server.tick(5, false) == 5);   // messages come first
  CHECK(h.told("$/progress").empty());
  uint64_t now = 10;
  while (h.server.tick(now, true) == now) ++now;
  auto told = h.told("$/progress");
  REQUIRE(told.size() >= 2);
  CHECK(told[0]["value"]["kind"] == "begin");
  CHECK(told[0]["value"]["cancellable"] == true);
  CHECK(told.back()["value"]["kind"] == "end");
  CHECK(told.back()["value"]["message"] == "30/30 files");
  h.sent.clear();
  h.tell("workspace/didChangeWorkspaceFolders", {{"event", {{"added", folders}, {"removed", folders}}}});
  h.tell("window/workDoneProgress/cancel", {{"token", "flagos/index"}});
  CHECK(h.server.tick(now, true) != now);
  h.tell("workspace/didChangeWorkspaceFolders", {{"event", {{"added", Json::array()}, {"removed", Json::array()}}}});
  h.tell("workspace/didChangeConfiguration", {{"settings", {{"flagos", {{"index", false}}}}}});
  CHECK(h.server.tick(now, true) != now);
  fs::remove_all(root);
}

TEST_CASE("explaining a line: what it needs, and exactly one answer when it is cancelled") {
  Harness h;
  h.start();
  h.open(kUri, kText);
  const auto explain = [&](int line) { return Json{{"command", "flagos.explain"}, {"arguments", {{{"uri", kUri}, {"line", line}}}}}; };
  CHECK(h.ask("workspace/executeCommand", explain(2))["result"]["why_nothing"].get<std::string>().find("no process attached") == 0);
  CHECK(h.ask("workspace/executeCommand", {{"command", "flagos.explain"}})["error"]["code"] == kInvalidParams);
  attach(h, process());
  CHECK(h.ask("workspace/executeCommand", explain(0))["result"]["why_nothing"] == "attached to pid 77, line not executed yet");
  const auto answers = [&](int id) { int n = 0; for (const auto& m : h.sent) n += m.value("id", Json()) == id && !m.contains("method"); return n; };
  h.sent.clear();
  h.server.handle({{"id", 50}, {"method", "workspace/executeCommand"}, {"params", explain(2)}});
  CHECK(answers(50) == 0);
  REQUIRE(h.jobs.size() == 1);
  h.tell("$/cancelRequest", {{"id", 50}});
  CHECK(answers(50) == 1);
  CHECK(h.sent.back()["error"]["code"] == kRequestCancelled);
  h.jobs[0]()();   // it comes back all the same
  CHECK(answers(50) == 1);
  // Of a process that does not answer, the reason is the answer.
  h.server.handle({{"id", 51}, {"method", "workspace/executeCommand"}, {"params", explain(2)}});
  h.jobs[1]()();
  CHECK(answers(51) == 1);
  CHECK(h.sent.back().contains("error"));
  // The action that an editor offers for it.
  const Json list = h.ask("textDocument/codeAction", {{"textDocument", {{"uri", kUri}}}, {"range", {{"start", {{"line", 2}, {"character", 4}}}, {"end", {{"line", 2}, {"character", 4}}}}}, {"context", {{"diagnostics", Json::array()}}}})["result"];
  REQUIRE(list.size() == 1);
  CHECK(list[0]["command"]["arguments"][0]["line"] == 2);
}

TEST_CASE("many open files keep only a few trees, and say the same") {
  Harness h;
  h.start();
  for (int i = 0; i < 40; ++i) h.open("file:///m" + std::to_string(i) + ".py", "import torch\nx = torch.zeros(" + std::to_string(i + 1) + ", device='npu:0')\n");
  h.server.tick(1, true);
  for (const int i : {0, 39, 7})
    CHECK(h.hover("file:///m" + std::to_string(i) + ".py", 1, 8)["contents"]["value"].get<std::string>().find("needs " + std::to_string(4 * (i + 1)) + " B") != std::string::npos);
}

TEST_CASE("JSON that is none is repaired: bytes that are no UTF-8, halves of surrogate pairs") {
  struct Row { const char* in; const char* out; };
  const Row rows[] = {{"\"a\"", "\"a\""}, {"\"\xff\"", "\"\xef\xbf\xbd\""}, {"\"\\ud83d\\ude00\"", "\"\\ud83d\\ude00\""}, {"\"\\ud83dx\"", "\"\\ufffdx\""},
                      {"\"\\ude00\"", "\"\\ufffd\""}, {"\"\\\\ud83d\"", "\"\\\\ud83d\""}, {"\"\xed\xa0\x80\"", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, {"\\", "\\"}, {"\\u12", "\\u12"}};
  for (const auto& r : rows) {
    INFO(r.in);
    CHECK(repaired(r.in) == r.out);
  }
}

TEST_CASE("a parse that takes too long is given up") {
  TSTree* tree = parseWatched("x = 1\n", nullptr, kSecond);
  CHECK(tree != nullptr);
  ts_tree_delete(tree);
  std::string big;
  for (int i = 0; i < 40000; ++i) big += "x = [1, (2, 3), {4: 5}]\n";
  CHECK(parseWatched(big, nullptr, 1) == nullptr);        // nothing can be read in a nanosecond
  tree = parseWatched("y = 2\n", nullptr, kSecond);   // the worker is as good as new
  CHECK(tree != nullptr);
  ts_tree_delete(tree);
}

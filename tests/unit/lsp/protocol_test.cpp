#include "lsp/protocol/frame.h"
#include "tests/unit/lsp/harness.h"
#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::lsp;

TEST_CASE("frames arrive whole from one-byte pieces") {
  FrameReader r;
  const std::string stream = frame("{\"a\":1}") + "content-type: x\r\nCONTENT-LENGTH:  2\r\n\r\n{}" + "Content-Length: 2\n\n[]";
  std::vector<std::string> bodies;
  for (const char c : stream) {
    r.feed({&c, 1});
    while (auto f = r.next()) { CHECK(f->problem.empty()); bodies.push_back(f->body); }
  }
  CHECK(bodies == std::vector<std::string>{"{\"a\":1}", "{}", "[]"});
}

TEST_CASE("a bad frame is reported and the next one is read") {
  struct Row { const char* name; std::string bytes; };
  const Row rows[] = {{"no length", "X: 1\r\n\r\n"}, {"not a number", "Content-Length: abc\r\n\r\n"}, {"negative", "Content-Length: -4\r\n\r\n"},
                      {"no header at all", "hello\r\n\r\n"}};
  for (const auto& row : rows) {
    INFO(row.name);
    FrameReader r;
    r.feed(row.bytes + frame("{\"ok\":1}"));
    std::string body;
    int problems = 0;
    while (auto f = r.next()) { if (f->problem.empty()) body = f->body; else ++problems; }
    CHECK(body == "{\"ok\":1}");
    CHECK(problems >= 1);
  }
}

TEST_CASE("a body above the cap is read past") {
  FrameReader r;
  const size_t size = kMaxBodyBytes + 5;
  r.feed("Content-Length: " + std::to_string(size) + "\r\n\r\n");
  auto f = r.next();
  REQUIRE(f);
  CHECK(f->problem.find("64 MiB") != std::string::npos);
  const std::string piece(1u << 20, 'x');
  size_t left = size;
  while (left > 0) { const auto n = std::min(left, piece.size()); r.feed(std::string_view(piece).substr(0, n)); left -= n; }
  r.feed(frame("{}"));
  f = r.next();
  REQUIRE(f);
  CHECK(f->body == "{}");
}

TEST_CASE("the life of a session: exactly one answer each, and the right codes") {
  Harness h;
  CHECK(h.ask("textDocument/hover", Json::object())["error"]["code"] == kServerNotInitialized);
  h.start();
  CHECK(h.ask("initialize", Json::object())["error"]["code"] == kInvalidRequest);
  CHECK(h.ask("no/such", Json::object())["error"]["code"] == kMethodNotFound);
  CHECK(h.ask("textDocument/hover", Json::object())["error"]["code"] == kInvalidParams);
  CHECK(h.ask("textDocument/hover", {{"textDocument", {{"uri", "file:///not/open.py"}}}, {"position", {{"line", 0}, {"character", 0}}}})["result"].is_null());
  h.cancelled.insert("9");
  CHECK(h.ask("textDocument/hover", Json::object(), 9)["error"]["code"] == kRequestCancelled);
  CHECK(h.ask("shutdown", nullptr)["result"].is_null());
  CHECK(h.ask("textDocument/hover", Json::object())["error"]["code"] == kInvalidRequest);
  h.tell("exit", nullptr);
  CHECK(h.server.exiting());
  CHECK(h.server.exitCode() == 0);
}

TEST_CASE("exit without shutdown is code 1; params of any type do no harm") {
  Harness h;
  h.start();
  for (const Json& bad : {Json(1), Json("x"), Json::array(), Json(nullptr), Json{{"textDocument", 3}}, Json{{"textDocument", {{"uri", 3}}}}})
    for (const char* method : {"textDocument/hover", "textDocument/codeAction", "textDocument/inlayHint", "textDocument/completion", "textDocument/diagnostic",
                               "textDocument/documentSymbol", "workspace/executeCommand", "flagos/tree"})
      CHECK(h.ask(method, bad).contains("id"));
  for (const char* method : {"textDocument/didOpen", "textDocument/didChange", "textDocument/didClose", "textDocument/didSave", "workspace/didChangeConfiguration"})
    for (const Json& bad : {Json(1), Json("x"), Json::array(), Json{{"textDocument", 3}}, Json{{"contentChanges", 3}}}) h.tell(method, bad);
  h.server.handle(Json(4));
  h.tell("exit", nullptr);
  CHECK(h.server.exitCode() == 1);
}

TEST_CASE("the encoding is negotiated: utf-8, else utf-32, else utf-16") {
  struct Row { Json offered; const char* chosen; };
  const Row rows[] = {{nullptr, "utf-16"}, {{"utf-16"}, "utf-16"}, {{"utf-16", "utf-32"}, "utf-32"}, {{"utf-16", "utf-32", "utf-8"}, "utf-8"}};
  for (const auto& row : rows) {
    Harness h;
    const Json answer = h.ask("initialize", {{"capabilities", {{"general", {{"positionEncodings", row.offered}}}}}});
    CHECK(answer["result"]["capabilities"]["positionEncoding"] == row.chosen);
  }
}

TEST_CASE("hover, push diagnostics with version, and both kinds of fixes") {
  Harness h;
  h.start();
  const std::string uri = "file:///x/%C3%A9.py";
  h.open(uri, "import torch\nx = torch.zeros(3).to('npu:0')\nif torch.cuda.is_available():\n    y = x.cuda()\n");
  h.sent.clear();
  h.server.tick(1, true);
  REQUIRE(h.sent.size() == 1);
  const Json p = h.sent[0]["params"];
  CHECK(h.sent[0]["method"] == "textDocument/publishDiagnostics");
  CHECK(p["version"] == 1);
  REQUIRE(p["diagnostics"].size() == 2);
  CHECK(p["diagnostics"][0]["code"] == "make-then-move");
  CHECK(p["diagnostics"][0]["source"] == "flagos");
  CHECK(p["diagnostics"][0]["range"] == Json({{"start", {{"line", 1}, {"character", 4}}}, {"end", {{"line", 1}, {"character", 30}}}}));
  CHECK(p["diagnostics"][1]["code"] == "cuda-only-check");
  const Json hover = h.hover(uri, 1, 5);
  CHECK(hover["contents"]["kind"] == "markdown");
  const std::string text = hover["contents"]["value"];
  CHECK(text.find("**npu:0** — `Tensor.to` (move)") != std::string::npos);
  CHECK(text.find("needs 12 B (float32)") != std::string::npos);
  CHECK(text.find("no process attached") != std::string::npos);
  CHECK(text.find("**make-then-move**") != std::string::npos);
  const Json actions = h.ask("textDocument/codeAction", {{"textDocument", {{"uri", uri}}}, {"range", p["diagnostics"][1]["range"]}, {"context", {{"diagnostics", Json::array()}}}})["result"];
  REQUIRE(actions.size() == 2);
  CHECK(actions[0]["isPreferred"] == true);
  // The whole idiom: the check and the move in one edit.
  CHECK(actions[0]["edit"]["changes"][uri].size() == 2);
  CHECK(actions[0]["edit"]["changes"][uri][0]["newText"] == "torch.accelerator.is_available");
  CHECK(actions[0]["edit"]["changes"][uri][1]["newText"] == "to(torch.accelerator.current_accelerator()");
  CHECK(actions[1]["edit"]["changes"][uri][0]["newText"] == "  # flagos: ignore[cuda-only-check]");
  h.sent.clear();
  h.tell("textDocument/didClose", {{"textDocument", {{"uri", uri}}}});
  REQUIRE(h.sent.size() == 1);
  CHECK(h.sent[0]["params"]["diagnostics"].empty());
}

TEST_CASE("a client that pulls gets no pushes") {
  Harness h;
  h.start({{"textDocument", {{"diagnostic", Json::object()}}}});
  h.open("file:///a.py", "import torch\nx = torch.zeros(3).to('npu:0')\n");
  h.sent.clear();
  h.server.tick(1, true);
  CHECK(h.sent.empty());
  const Json answer = h.ask("textDocument/diagnostic", {{"textDocument", {{"uri", "file:///a.py"}}}})["result"];
  CHECK(answer["kind"] == "full");
  CHECK(answer["items"].size() == 1);
}

TEST_CASE("a storm of edits keeps the text right and is analysed once") {
  Harness h;
  h.start();
  const std::string uri = "file:///a.py";
  std::string text = "import torch\nx = torch.zeros(3, device='npu:0')\n";
  for (int i = 0; i < 200; ++i) text += "# padding\n";
  h.open(uri, text);
  h.sent.clear();
  for (int i = 0; i < 200; ++i)
    h.tell("textDocument/didChange", {{"textDocument", {{"uri", uri}, {"version", i + 2}}}, {"contentChanges", {{{"range", {{"start", {{"line", 2}, {"character", 0}}}, {"end", {{"line", 3}, {"character", 0}}}}}, {"text", ""}}}}});
  h.server.tick(1'000'000'000'000, true);
  REQUIRE(h.sent.size() == 1);
  CHECK(h.sent[0]["params"]["version"] == 201);
  CHECK(h.hover(uri, 1, 8)["contents"]["value"].get<std::string>().find("npu:0") != std::string::npos);
}

TEST_CASE("device strings are completed where a device is meant") {
  Harness h({"npu:0", "npu:1"});
  h.start();
  struct Row { const char* line; size_t count; };
  const Row rows[] = {{"x.to(\"", 5}, {"x.to('npu", 3}, {"torch.zeros(2, device=\"n", 3}, {"torch.device('", 5}, {"print('", 0}, {"x = \"", 0}};
  for (const auto& row : rows) {
    INFO(row.line);
    h.open("file:///c.py", row.line);
    CHECK(h.ask("textDocument/completion", {{"textDocument", {{"uri", "file:///c.py"}}}, {"position", {{"line", 0}, {"character", static_cast<int>(std::string(row.line).size())}}}})["result"].size() == row.count);
  }
}

TEST_CASE("status: the exact texts, only on change") {
  Harness h({"npu:0"});
  h.start();
  const auto status = [&] { Json last; for (const auto& m : h.sent) if (m.value("method", "") == "flagos/status") last = m["params"]; return last; };
  CHECK(status()["state"] == "idle");
  h.open("file:///train.py", "import torch\n");
  h.view = std::make_shared<LiveView>();
  auto p = std::make_shared<telemetry::ProcessRow>();
  p->pid = 41;
  p->state = "live";
  p->script = "/train.py";
  telemetry::DeviceRow d;
  d.device = "npu:0";
  d.total = Metric::of(8.0 * 1024 * 1024 * 1024, "B", "opencl");
  d.allocated = Metric::of(1.2 * 1024 * 1024 * 1024, "B", "measured");
  d.utilisation = Metric::of(63, "%", "measured");
  p->devices = {d};
  h.view->processes = {p};
  h.view->version = 1;
  h.sent.clear();
  h.server.liveChanged();
  CHECK(status()["state"] == "attached");
  CHECK(status()["text"] == "npu:0  1.2/8.0 GiB  63 %");
  h.sent.clear();
  h.server.liveChanged();
  CHECK(status().is_null());   // nothing changed
  auto unknown = std::make_shared<telemetry::ProcessRow>(*p);
  unknown->devices[0].utilisation = Metric::missing("%", "no timings yet");
  h.view = std::make_shared<LiveView>(*h.view);
  h.view->processes = {unknown};
  h.view->version = 2;
  h.server.liveChanged();
  CHECK(status()["text"] == "npu:0  1.2/8.0 GiB  – %");
  auto ended = std::make_shared<telemetry::ProcessRow>(*p);
  ended->state = "ended";
  h.view = std::make_shared<LiveView>(*h.view);
  h.view->processes = {ended};
  h.view->version = 3;
  h.server.liveChanged();
  CHECK(status()["state"] == "ended");
  CHECK(status()["text"].get<std::string>().find("ended") != std::string::npos);
  Harness none{std::vector<std::string>{}};
  none.start();
  CHECK(none.sent.back()["params"]["state"] == "no-device");
}

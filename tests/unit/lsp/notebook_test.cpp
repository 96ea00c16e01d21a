#include "lsp/live/ran_as.h"
#include "lsp/text/magics.h"
#include "tests/unit/lsp/harness.h"

using namespace flagos;
using namespace flagos::lsp;

TEST_CASE("magics become Python of the same length") {
  struct Row { const char* cell; const char* python; };
  const Row rows[] = {
      {"x = 1\n", "x = 1\n"},
      {"%matplotlib inline\nx = 1", "0                 \nx = 1"},
      {"!ls\n", "0  \n"},
      {"!pip install \\\n  torch\ny", "0             \n       \ny"},
      {"torch.zeros?\n", "0           \n"},
      {"?x", "0 "},
      {"%time x.to('npu')", "0    ;x.to('npu')"},
      {"%timeit -n 5 f(x)", "0                "},
      {"if a:\n    %timeit f(1)\n", "if a:\n    0      ;f(1)\n"},
      {"files = !ls\n", "files = _  \n"},
      {"who = %who_ls torch\n", "who = _            \n"},
      {"%%time\nx = 1\n", "      \nx = 1\n"},
      {"\n%%bash\nrm -rf x\n", "\n      \n        \n"},
      {"s = '''\n%d\n!x\n'''\n", "s = '''\n%d\n!x\n'''\n"},
      {"y = (1\n  % 2)\n", "y = (1\n  % 2)\n"},
      {"z = 5 \\\n  % 2\n", "z = 5 \\\n  % 2\n"},
      {"x %= 3\n", "x %= 3\n"},
      {"# why?\n", "# why?\n"},
      {"f('?')", "f('?')"},
      {"a == 1\n", "a == 1\n"},
      {"%\n", "0\n"},
  };
  for (const auto& r : rows) {
    INFO(r.cell);
    CHECK(withoutMagics(r.cell) == r.python);
  }
}

TEST_CASE("ipykernel's names of cells") {
  // As ipykernel 7.4 computes them.
  CHECK(ipykernelName("") == "3990065800.py");
  CHECK(ipykernelName("a") == "2167009006.py");
  CHECK(ipykernelName("ab") == "2805137849.py");
  CHECK(ipykernelName("abc") == "3350977461.py");
  CHECK(ipykernelName("abcd") == "804720481.py");
  CHECK(ipykernelName("import torch\nx = torch.zeros(3).to('npu:0')") == "4230999797.py");
  CHECK(ipykernelName("\xc3\xa9\xf0\x9f\x98\x80") == "3108303181.py");
  CHECK(ipykernelFile("/tmp/ipykernel_41/3108303181.py") == "3108303181.py");
  for (const char* other : {"/tmp/ipykernel_x/1.py", "/tmp/ipykernel_41/a.py", "/home/ipykernel/1.py", "1.py", "", "/tmp/ipykernel_41/"}) CHECK(ipykernelFile(other).empty());
}

namespace {

const std::string kBook = "file:///project/n.ipynb";

Json cell(const char* uri, int kind = 2) { return {{"kind", kind}, {"document", uri}}; }
Json text(const char* uri, const char* content, const char* language = "python") { return {{"uri", uri}, {"languageId", language}, {"version", 1}, {"text", content}}; }

struct Book : Harness {
  explicit Book(const Json& capabilities = Json::object()) {
    start(capabilities);
    sent.clear();
    tell("notebookDocument/didOpen", {{"notebookDocument", {{"uri", kBook}, {"notebookType", "jupyter-notebook"}, {"version", 1}, {"cells", {cell("c:0", 1), cell("c:1"), cell("c:2")}}}},
                                      {"cellTextDocuments", {text("c:0", "# title\n", "markdown"), text("c:1", "%matplotlib inline\nimport torch\ndevice = 'npu:0'"), text("c:2", "x = 1\ny = torch.zeros(3).to(device)")}}});
  }
  void change(int version, Json cells) { tell("notebookDocument/didChange", {{"notebookDocument", {{"uri", kBook}, {"version", version}}}, {"change", {{"cells", cells}}}}); }
  std::vector<std::string> codes(const char* uri) {
    std::vector<std::string> out;
    for (const auto& p : told("textDocument/publishDiagnostics")) if (p["uri"] == uri) { out.clear(); for (const auto& d : p["diagnostics"]) out.push_back(d["code"]); }
    return out;
  }
  std::string hoverText(const char* uri, int line, int character) { const Json h = hover(uri, line, character); return h.is_null() ? "" : h["contents"]["value"]; }
};

}  // namespace

TEST_CASE("cells see the cells above them, and everything is said within its cell") {
  Book b;
  b.server.tick(1, true);
  CHECK(b.codes("c:2") == std::vector<std::string>{"make-then-move"});
  CHECK(b.codes("c:1").empty());
  CHECK(b.codes("c:0").empty());
  for (const auto& p : b.told("textDocument/publishDiagnostics")) {
    CHECK(p["uri"] != "c:0");   // markdown has no diagnostics at all
    for (const auto& d : p["diagnostics"]) CHECK(d["range"]["start"] == Json({{"line", 1}, {"character", 4}}));
  }
  const Json h = b.hover("c:2", 1, 22);
  CHECK(h["range"]["start"]["line"] == 1);
  const std::string said = h["contents"]["value"];
  CHECK(said.find("**npu:0** — `Tensor.to` (move)") != std::string::npos);
  CHECK(said.find("(cell 2, line 3)") != std::string::npos);
  CHECK(b.hoverText("c:0", 0, 2).empty());
  const Json symbols = b.ask("textDocument/documentSymbol", {{"textDocument", {{"uri", "c:2"}}}})["result"];
  REQUIRE(symbols.size() == 1);
  CHECK(symbols[0]["location"]["uri"] == "c:2");
  const Json fixes = b.ask("textDocument/codeAction", {{"textDocument", {{"uri", "c:2"}}}, {"range", h["range"]}, {"context", {{"diagnostics", Json::array()}}}})["result"];
  REQUIRE(!fixes.empty());
  CHECK(fixes[0]["edit"]["changes"].contains("c:2"));
}

TEST_CASE("structure edits: order, moved cells, languages, closing") {
  Book b;
  // Moved to the top: no text is sent again, and `device` is not defined there yet.
  b.change(2, {{"structure", {{"array", {{"start", 2}, {"deleteCount", 1}}}}}});
  b.change(3, {{"structure", {{"array", {{"start", 0}, {"deleteCount", 0}, {"cells", {cell("c:2")}}}}}}});
  CHECK(b.hoverText("c:2", 1, 22).find("unknown") != std::string::npos);
  b.change(4, {{"structure", {{"array", {{"start", 0}, {"deleteCount", 1}}}}}});
  b.change(5, {{"structure", {{"array", {{"start", 99}, {"deleteCount", 99}, {"cells", {cell("c:2"), cell("c:3")}}}}, {"didOpen", {text("c:3", "z = y.cpu()")}}}}});
  CHECK(b.hoverText("c:2", 1, 22).find("npu:0") != std::string::npos);
  CHECK(b.hoverText("c:3", 0, 6).find("**cpu**") != std::string::npos);
  // A changed text in one cell reaches the next.
  b.change(6, {{"textContent", {{{"document", {{"uri", "c:1"}, {"version", 2}}}, {"changes", {{{"range", {{"start", {{"line", 2}, {"character", 14}}}, {"end", {{"line", 2}, {"character", 15}}}}}, {"text", "1"}}}}}}}});
  CHECK(b.hoverText("c:2", 1, 22).find("**npu:1**") != std::string::npos);
  // Python no more: what it showed goes away.
  b.sent.clear();
  b.server.tick(2, true);
  CHECK(b.codes("c:2").size() == 1);
  b.sent.clear();
  b.change(7, {{"data", {cell("c:2", 1)}}});
  b.server.tick(3, true);
  bool cleared = false;
  for (const auto& p : b.told("textDocument/publishDiagnostics")) cleared = cleared || (p["uri"] == "c:2" && p["diagnostics"].empty());
  CHECK(cleared);
  CHECK(b.hoverText("c:2", 1, 22).empty());
  b.sent.clear();
  b.tell("notebookDocument/didClose", {{"notebookDocument", {{"uri", kBook}}}, {"cellTextDocuments", Json::array()}});
  CHECK(!b.told("textDocument/publishDiagnostics").empty());
  CHECK(b.hoverText("c:1", 1, 3).empty());
}

TEST_CASE("cells are pulled too, and a client without notebooks gets one cell at a time") {
  Book b(Json{{"textDocument", {{"diagnostic", Json::object()}}}});
  b.server.tick(1, true);
  CHECK(b.told("textDocument/publishDiagnostics").empty());
  const Json answer = b.ask("textDocument/diagnostic", {{"textDocument", {{"uri", "c:2"}}}})["result"];
  CHECK(answer["items"].size() == 1);
  CHECK(b.ask("textDocument/diagnostic", {{"textDocument", {{"uri", "c:2"}}}, {"previousResultId", answer["resultId"]}})["result"]["kind"] == "unchanged");
  Harness h;
  h.start();
  h.open("vscode-notebook-cell:/w/n.ipynb#W0", "%load_ext x\nimport torch\ny = torch.zeros(3, device='npu:0')");
  CHECK(h.hover("vscode-notebook-cell:/w/n.ipynb#W0", 2, 8)["range"]["start"]["line"] == 2);
}

namespace {

telemetry::SiteRow measured(uint32_t id, const std::string& file, int line, int column, int end, const std::string& call, double bytes) {
  telemetry::SiteRow r;
  r.id = id;
  r.file = file;
  r.line = r.end_line = line;
  r.column = column;
  r.end_column = end;
  r.call_hash = hash16(telemetry::callHash(call));
  r.device = "npu:0";
  r.live_bytes = Metric::of(bytes, "B", "measured");
  r.calls = 1;
  return r;
}

}  // namespace

TEST_CASE("live values of ipykernel's files land in their cells, whatever is edited in the others") {
  Book b;
  const std::string source = "x = 1\ny = torch.zeros(3).to(device)", file = "/tmp/ipykernel_9/" + ipykernelName(source);
  auto p = std::make_shared<telemetry::ProcessRow>();
  p->pid = 9;
  p->state = "live";
  p->script = "/usr/lib/ipykernel_launcher.py";
  p->files = {{file, hash16(telemetry::fnv1a(source + "\n")), 0}};
  p->sites = {measured(1, file, 2, 4, 29, "torch.zeros(3).to(device)", 4096)};
  b.view = std::make_shared<LiveView>();
  b.view->processes = {p};
  b.view->version = 1;
  std::string said = b.hoverText("c:2", 1, 20);
  CHECK(said.find("**exact, pid 9**") != std::string::npos);
  CHECK(said.find("live 4 KiB") != std::string::npos);
  // Another cell grows: still exact. The cell itself grows above: moved, in the cell's own lines.
  b.change(2, {{"textContent", {{{"document", {{"uri", "c:1"}, {"version", 2}}}, {"changes", {{{"range", {{"start", {{"line", 0}, {"character", 0}}}, {"end", {{"line", 0}, {"character", 0}}}}}, {"text", "a = 1\nb = 2\n"}}}}}}}});
  said = b.hoverText("c:2", 1, 20);
  CHECK(said.find("**exact, pid 9**") != std::string::npos);
  b.change(3, {{"textContent", {{{"document", {{"uri", "c:2"}, {"version", 2}}}, {"changes", {{{"range", {{"start", {{"line", 0}, {"character", 0}}}, {"end", {{"line", 0}, {"character", 0}}}}}, {"text", "new = 1\n"}}}}}}}});
  said = b.hoverText("c:2", 2, 20);
  CHECK(said.find("**moved, pid 9, measured on cell 3, line 2**") != std::string::npos);
  CHECK(said.find("file changed since the run") != std::string::npos);
  // The call itself is edited.
  b.change(4, {{"textContent", {{{"document", {{"uri", "c:2"}, {"version", 3}}}, {"changes", {{{"range", {{"start", {{"line", 2}, {"character", 22}}}, {"end", {{"line", 2}, {"character", 28}}}}}, {"text", "'npu:1'"}}}}}}}});
  CHECK(b.hoverText("c:2", 2, 20).find("**edited, pid 9: measured before this edit (cell 3, line 2)") != std::string::npos);
  // The notebook is closed and another one is open: not executed by that process.
  b.open("file:///project/other.py", "import torch\ny = torch.zeros(3, device='npu:0')\n");
  const std::string other = b.hoverText("file:///project/other.py", 1, 8);
  CHECK(other.find("no process attached: none of the running ones has executed this file (pid 9") != std::string::npos);
}

TEST_CASE("two cells with the same text: the value is given to neither") {
  Book b;
  const std::string source = "x = 1\ny = torch.zeros(3).to(device)", file = "/tmp/ipykernel_9/" + ipykernelName(source);
  b.change(2, {{"structure", {{"array", {{"start", 3}, {"deleteCount", 0}, {"cells", {cell("c:3")}}}}, {"didOpen", {text("c:3", source.c_str())}}}}});
  auto p = std::make_shared<telemetry::ProcessRow>();
  p->pid = 9;
  p->state = "live";
  p->files = {{file, "", 0}};
  p->sites = {measured(1, file, 2, 4, 29, "torch.zeros(3).to(device)", 4096)};
  b.view = std::make_shared<LiveView>();
  b.view->processes = {p};
  b.view->version = 1;
  CHECK(b.hoverText("c:2", 1, 20).find("4 KiB") == std::string::npos);
  CHECK(b.hoverText("c:3", 1, 20).find("4 KiB") == std::string::npos);
}

TEST_CASE("notebook files: formats, languages, errors") {
  struct Row { const char* json; const char* error; size_t cells; };
  const Row rows[] = {
      {R"({"cells": [{"cell_type": "code", "source": ["a\n", "b"]}, {"cell_type": "markdown", "source": "x"}], "metadata": {"kernelspec": {"language": "python"}}})", "", 2},
      {R"({"worksheets": [{"cells": [{"cell_type": "code", "input": "a"}]}]})", "", 1},
      {R"({"cells": [], "metadata": {"kernelspec": {"language": "julia"}}})", "a notebook in julia", 0},
      {R"({"cells": 5})", "not a notebook", 0},
      {R"([1])", "not a notebook", 0},
      {R"({"cells": [5, {"cell_type": 3, "source": 4}]})", "", 2},
  };
  for (const auto& r : rows) {
    INFO(r.json);
    auto n = notebookFromJson(*parseJson(r.json, "n"));
    CHECK(n.ok() == std::string(r.error).empty());
    if (n.ok()) { n->layOut(); CHECK(n->cells().size() == r.cells); }
    else CHECK(n.error().what.find(r.error) != std::string::npos);
  }
}

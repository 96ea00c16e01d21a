// Findings as a whole: every code has its page and its cases, fixes do what they say, settings and live values apply.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "lsp/findings/live.h"
#include "lsp/findings/severity.h"
#include "lsp/server/machine.h"
#include "runtime/base/json.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

const std::string kRoot = FLAGOS_SOURCE_DIR;
const std::string kFolder = kRoot + "/tests/fixtures/python";

std::vector<std::string> fixtures() {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(kFolder)) if (e.path().extension() == ".py") out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::string applied(const std::string& text, std::vector<Edit> edits) {
  std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.span.begin > b.span.begin; });
  std::string out = text;
  uint32_t limit = static_cast<uint32_t>(text.size()) + 1;
  for (const auto& e : edits) {
    REQUIRE(e.span.begin <= e.span.end);
    REQUIRE(e.span.end <= limit);   // edits never overlap
    limit = e.span.begin;
    out.replace(e.span.begin, e.span.end - e.span.begin, e.text);
  }
  return out;
}

AnalysisOptions npu() {
  AnalysisOptions o;
  o.machine = machineOf({"npu:0", "npu:1"});
  return o;
}

Analysis of(const std::string& text, const AnalysisOptions& options, const std::string& path = "/project/none/case.py") {
  Workspace workspace;
  return analyse(makeUnit(path, text), workspace, options);
}

size_t count(const Analysis& a, const std::string& code) {
  return static_cast<size_t>(std::count_if(a.findings.begin(), a.findings.end(), [&](const auto& f) { return f.code == code; }));
}

}  // namespace

TEST_CASE("every code of the list has a page, three cases, and the severity that the page names") {
  std::map<std::string, int> hits;
  for (const auto& path : fixtures()) {
    const std::string text = *flagos::readFile(path);
    for (const auto& c : findingCodes())
      for (size_t at = text.find("#! "); at != std::string::npos; at = text.find("#! ", at + 1)) {
        const std::string line = text.substr(at, text.find('\n', at) - at) + " ";
        for (size_t k = line.find(std::string(" ") + c.code + " "); k != std::string::npos; k = line.find(std::string(" ") + c.code + " ", k + 1)) ++hits[c.code];
      }
  }
  CHECK(findingCodes().size() == 24);
  for (const auto& c : findingCodes()) {
    INFO(c.code);
    CHECK(hits[c.code] >= 3);
    const auto page = flagos::readFile(kRoot + "/docs/findings/" + c.code + ".md");
    REQUIRE(page.ok());
    CHECK(page->find("**Default severity:** " + std::string(c.severity)) != std::string::npos);
    CHECK(page->find("# flagos: ignore[" + std::string(c.code) + "]") != std::string::npos);
  }
}

TEST_CASE("a fix leaves a program that parses and that no longer has the finding") {
  size_t fixes = 0;
  for (const auto& path : fixtures()) {
    const std::string text = *flagos::readFile(path);
    AnalysisOptions options = npu();
    if (text.starts_with("# devices: none")) options.machine = machineOf({});
    if (text.starts_with("# devices: cuda:0\n")) options.machine = machineOf({"cuda:0"});
    const Analysis before = of(text, options, path);
    for (const auto& f : before.findings) {
      if (!f.fix || before.unit->ast.hasErrors()) continue;
      ++fixes;
      const std::string after = applied(text, f.fix->edits);
      INFO(path << ":" << before.unit->lines.lineOf(f.span.begin) + 1 << " " << f.code << ": " << f.fix->title << "\n" << after);
      const Analysis now = of(after, options, path);
      CHECK(!now.unit->ast.hasErrors());
      CHECK(count(now, f.code) < count(before, f.code));
    }
  }
  CHECK(fixes >= 40);
}

TEST_CASE("findings and their pages advise nothing that this version does not have") {
  std::string all;
  for (const auto& c : findingCodes()) all += *flagos::readFile(kRoot + "/docs/findings/" + c.code + ".md");
  for (const auto& path : fixtures()) {
    AnalysisOptions options = npu();
    for (const auto& f : of(*flagos::readFile(path), options, path).findings) {
      all += f.message + "\n";
      if (f.fix) for (const auto& e : f.fix->edits) all += e.text + "\n";
    }
  }
  for (const char* absent : {"torch.flagos", "flagos.cpp_extension", "flagos.save", "npudist", "backend=\"flagos\"", "works on every backend"}) {
    INFO(absent);
    CHECK(all.find(absent) == std::string::npos);
  }
  const Analysis a = of("import torch\nfrom torch import nn\nm = torch.compile(nn.Linear(2, 2).to('npu:0'))\n", npu());
  REQUIRE(count(a, "inductor-bypasses-routing") == 1);
  for (const auto& f : a.findings)
    if (f.fix && f.code == "inductor-bypasses-routing") CHECK(applied(a.unit->text, f.fix->edits).find(".to('npu:0'), backend=\"aot_eager\")") != std::string::npos);
}

TEST_CASE("DataParallel is told what is true for the devices that are there") {
  const std::string text = "import torch\nm = torch.nn.DataParallel(torch.nn.Linear(2, 2))\n";
  const Analysis here = of(text, npu());
  REQUIRE(count(here, "data-parallel") == 1);
  CHECK(here.findings[0].message.find("DistributedDataParallel on npu tensors too") != std::string::npos);
  AnalysisOptions cuda;
  cuda.machine = machineOf({"cuda:0", "cuda:1"});
  const Analysis there = of(text, cuda);
  REQUIRE(count(there, "data-parallel") == 1);
  CHECK(there.findings[0].message.find("PyTorch advises DistributedDataParallel") != std::string::npos);
}

TEST_CASE("an operator without a kernel is a fallback only on a card that is known to have its own memory") {
  const std::string text = "import torch\nx = torch.linalg.svd(torch.zeros(4, 4, device='npu:0'))\n";
  AnalysisOptions options;
  options.machine = *machineFrom({"npu:0=Radeon RX 7900 XTX"});
  const Analysis a = of(text, options);
  REQUIRE(count(a, "predicted-fallback") == 1);
  CHECK(a.findings[0].message ==
        "`torch.linalg.svd` ends in an operator that has no kernel for npu:0 (`aten::_linalg_svd`): it runs on the host, on copies that go there and back");
  options.machine.details["npu:0"].description.shared_memory = true;
  CHECK(count(of(text, options), "predicted-fallback") == 0);
  CHECK(count(of(text, npu()), "predicted-fallback") == 0);
}

TEST_CASE("severities can be set, and what is milder than its default stays milder") {
  const std::string text =
      "import torch\nx = torch.zeros(3, device='npu:0')\nfor i in range(100):\n    print(x)\n    if i > 5:\n        print(x)\n";
  const auto severities = [&](const Severities& set) {
    AnalysisOptions options = npu();
    options.severity = set;
    std::string out;
    for (const auto& f : of(text, options).findings) out += f.severity + " ";
    return out;
  };
  CHECK(severities({}) == "warning hint ");
  CHECK(severities({{"sync-in-loop", "error"}}) == "error hint ");
  CHECK(severities({{"sync-in-loop", "off"}}).empty());
  CHECK(severities({{"copy-in-loop", "off"}}) == "warning hint ");
}

TEST_CASE("a severity list names what is wrong in it") {
  const auto list = parseSeverity(" sync-in-loop = off, data-parallel=warning,");
  REQUIRE(list.ok());
  CHECK(*list == Severities{{"sync-in-loop", "off"}, {"data-parallel", "warning"}});
  CHECK(parseSeverity("")->empty());
  CHECK(parseSeverity("sync-in-lop=off").error().text() == "there is no finding `sync-in-lop`. Did you mean sync-in-loop?");
  CHECK(parseSeverity("sync-in-loop=of").error().text() == "`of` is no severity for sync-in-loop. Did you mean off?");
  CHECK(parseSeverity("sync-in-loop").error().text() == "`sync-in-loop` names no severity. Write for example sync-in-loop=off");
}

TEST_CASE("a settings file is found above the folder, and its errors name the place") {
  const fs::path folder = fs::temp_directory_path() / ("flagos-findings-" + std::to_string(::getpid()));
  fs::create_directories(folder / "a" / "b");
  const std::string file = (folder / kSettingsFile).string();
  const auto write = [&](const char* text) { REQUIRE(flagos::writeFileAtomic(file, text).ok()); };
  write("{\"severity\": {\"graph-held\": \"error\"}, \"other\": 1}");
  CHECK(findSettingsFile((folder / "a" / "b").string()) == file);
  CHECK(*readSeverityFile(file) == Severities{{"graph-held", "error"}});
  write("{\n \"severity\": {\"graph-hold\": \"off\"}}");
  CHECK(readSeverityFile(file).error().text() == file + ":2:15: there is no finding `graph-hold`. Did you mean graph-held?");
  CHECK(readSeverityFile(file).error().exit == flagos::Exit::broken_input);
  write("{\"sevrity\": {\"graph-held\": \"off\"}}");
  CHECK(readSeverityFile(file).error().text() == file + ":1:2: there is no setting `sevrity`. Did you mean severity?");
  write("{\"severity\": [1]}");
  CHECK(readSeverityFile(file).error().what == "`severity` is no object of codes and severities");
  write("[]");
  CHECK(!readSeverityFile(file).ok());
  write("{");
  CHECK(!readSeverityFile(file).ok());
  fs::remove_all(folder);
}

TEST_CASE("a running process proves fallbacks and a starved device") {
  const std::string text =
      "import torch\nfrom torch.utils.data import DataLoader\nx = torch.zeros(3, device='npu:0')\nloader = DataLoader([1])\nfast = DataLoader([1], num_workers=4)\n";
  const AnalysisOptions options = npu();
  const Analysis a = of(text, options);
  REQUIRE(a.sites.size() == 1);
  LiveFile live;
  live.ran = live.same_text = true;
  live.pid = 7;
  live.process_state = "live";
  live.sites.resize(1);
  live.sites[0].pid = 7;
  live.sites[0].state = "exact";
  live.sites[0].fallbacks = {{"aten::svd", 3, 4096, 1}};
  flagos::telemetry::ProcessRow process;
  process.pid = 7;
  process.devices.resize(1);
  process.devices[0].device = "npu:0";
  process.devices[0].utilisation = flagos::Metric::of(20, "%", "measured", 0.1);
  const auto messages = [&] {
    std::string out;
    for (const auto& f : liveFindings(a, live, process, options)) out += std::to_string(a.unit->lines.lineOf(f.span.begin) + 1) + ": " + f.message + "\n";
    return out;
  };
  CHECK(messages() ==
        "3: 3 calls of aten::svd fell back to the CPU here, with 4096 bytes copied (measured in process 7)\n"
        "4: npu:0 had work in 20 % of the last second (measured in process 7), and this DataLoader loads in the main process: num_workers is 0\n");
  process.devices[0].utilisation = flagos::Metric::of(80, "%", "measured", 0.1);
  live.sites[0].state = "edited";
  CHECK(messages().empty());
  process.devices[0].utilisation = flagos::Metric::of(0, "%", "measured", 0.1);
  CHECK(messages().empty());
  process.devices[0].utilisation = flagos::Metric::missing("%", "not reported");
  CHECK(messages().empty());
  process.devices[0].utilisation = flagos::Metric::of(20, "%", "measured", 0.1);
  live.process_state = "ended";
  CHECK(messages().empty());
}

// The example projects: how many of their device sites are known, and what stays true whatever the order of reading.
#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>

#include "lsp/python/analysis.h"
#include "lsp/python/modules.h"
#include "lsp/server/machine.h"
#include "runtime/base/json.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

const std::string kProjects = FLAGOS_SOURCE_DIR "/tests/fixtures/projects";

std::vector<std::string> filesOf(const std::string& project) {
  std::vector<std::string> out;
  for (const auto& e : fs::recursive_directory_iterator(kProjects + "/" + project)) if (e.path().extension() == ".py") out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

Analysis run(Workspace& workspace, const std::string& path) {
  AnalysisOptions options;
  options.machine = machineOf({"npu:0", "npu:1"});
  return analyse(makeUnit(path, *flagos::readFile(path)), workspace, options);
}

std::string summary(const Analysis& a) {
  std::string out;
  for (const auto& s : a.sites) {
    out += std::to_string(s.line) + " " + s.call + " " + s.kind + " " + s.resolution;
    for (const auto& d : s.devices) out += " " + d.device + "@" + fs::path(d.path).filename().string() + ":" + std::to_string(d.line);
    out += "\n";
  }
  return out;
}

}  // namespace

TEST_CASE("each example project keeps its share of known sites") {
  std::istringstream table(*flagos::readFile(kProjects + "/baseline.tsv"));
  std::string line;
  size_t projects = 0;
  while (std::getline(table, line)) {
    if (line.empty() || line[0] == '#') continue;
    const auto tab = line.find('\t');
    const std::string project = line.substr(0, tab);
    const double baseline = std::stod(line.substr(tab + 1));
    Workspace workspace;
    workspace.setRoots({kProjects + "/" + project});
    double sites = 0, known = 0;
    for (const auto& path : filesOf(project)) {
      for (const auto& s : run(workspace, path).sites) { ++sites; known += s.resolution == "exact" || s.resolution == "candidates"; }
    }
    INFO(project << ": " << known << " of " << sites);
    REQUIRE(sites > 0);
    CHECK(100 * known / sites >= baseline);
    CHECK(100 * known / sites >= 70);
    ++projects;
  }
  CHECK(projects == 6);
}

TEST_CASE("a file's sites get their devices from the programs that use it") {
  Workspace workspace;
  workspace.setRoots({kProjects + "/argparse_project"});
  const Analysis engine = run(workspace, kProjects + "/argparse_project/src/engine.py");
  CHECK(summary(engine) ==
        "10 torch.zeros placement candidates npu:1@main.py:13 npu:0@main.py:13 cpu@main.py:13\n"
        "22 Tensor.to move candidates npu:1@main.py:13 npu:0@main.py:13 cpu@main.py:13\n");
}

TEST_CASE("the order in which files are read changes nothing") {
  for (const char* project : {"argparse_project", "unet_package", "lightning_like"}) {
    Workspace forwards, backwards;
    forwards.setRoots({kProjects + "/" + project});
    backwards.setRoots({kProjects + "/" + project});
    std::map<std::string, std::string> first;
    auto files = filesOf(project);
    for (const auto& f : files) first[f] = summary(run(forwards, f));
    std::reverse(files.begin(), files.end());
    for (const auto& f : files) {
      INFO(f);
      CHECK(summary(run(backwards, f)) == first[f]);
    }
    // And again with everything cached.
    for (const auto& f : files) CHECK(summary(run(forwards, f)) == first[f]);
  }
}

TEST_CASE("an imported module runs once, and again when its text changes") {
  std::string settings = "DEVICE = 'npu:0'\n";
  Workspace workspace([&](const std::string& path) -> std::optional<std::string> {
    if (path == "/w/settings.py") return settings;
    if (path == "/w/middle.py") return "from settings import DEVICE as D\n";
    return std::nullopt;
  });
  workspace.setRoots({"/w"});
  const auto device = [&] {
    AnalysisOptions options;
    options.machine = machineOf({"npu:0", "npu:1"});
    const auto a = analyse(makeUnit("/w/main.py", "import torch\nfrom middle import D\nx = torch.zeros(1, device=D)\n"), workspace, options);
    return a.sites.empty() || a.sites[0].devices.empty() ? std::string("none") : a.sites[0].devices[0].device;
  };
  CHECK(device() == "npu:0");
  const size_t modules = workspace.modules().size();
  CHECK(device() == "npu:0");
  CHECK(workspace.modules().size() == modules);
  settings = "DEVICE = 'npu:1'\n";
  CHECK(device() == "npu:1");
  workspace.modules().limitTrees(1);          // no room: all is forgotten before each analysis, and the answer stays
  for (int i = 0; i < 3; ++i) CHECK(device() == "npu:1");
  CHECK(workspace.modules().size() == modules);
}

TEST_CASE("what is left out is said") {
  Workspace workspace;
  AnalysisOptions options;
  options.machine = machineOf({"npu:0"});
  std::string deep = "import torch\nx = ";
  for (int i = 0; i < 900; ++i) deep += "(";
  deep += "torch.zeros(1, device='npu:0')";
  for (int i = 0; i < 900; ++i) deep += ")";
  std::string nested = "import torch\ny = ";
  for (int i = 0; i < 900; ++i) nested += "[";
  nested += "torch.zeros(1, device='npu:0')";
  for (int i = 0; i < 900; ++i) nested += "]";
  const Analysis b = analyse(makeUnit("/w/b.py", nested + "\n"), workspace, options);
  CHECK((b.gave_up || b.sites.size() == 1));
  if (b.gave_up) CHECK(b.gave_up_why.find("nested deeper") != std::string::npos);
  const Analysis a = analyse(makeUnit("/w/a.py", deep + "\n"), workspace, options);
  CHECK((a.gave_up || a.sites.size() == 1));
  std::string many = "import torch\ndef f(d):\n    return torch.zeros(1, device=d)\n";
  for (int i = 0; i < 1'010; ++i) many += "f('npu:0')\n";
  const Analysis c = analyse(makeUnit("/w/c.py", many), workspace, options);
  CHECK(c.gave_up);
  CHECK(c.gave_up_why.find("more than 1000 places") != std::string::npos);
}

// Runs the analysis over tests/fixtures/python and compares with what the files' comments expect.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "lsp/findings/registry.h"
#include "lsp/python/analysis.h"
#include "lsp/server/machine.h"
#include "runtime/base/json.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = FLAGOS_SOURCE_DIR "/tests/fixtures/python";

std::string trim(std::string s) {
  while (!s.empty() && s.back() == ' ') s.pop_back();
  while (!s.empty() && s.front() == ' ') s.erase(0, 1);
  return s;
}

std::vector<std::string> split(const std::string& s, const std::string& by) {
  std::vector<std::string> out;
  size_t at = 0;
  while (true) {
    const auto end = s.find(by, at);
    out.push_back(trim(s.substr(at, end == std::string::npos ? end : end - at)));
    if (end == std::string::npos) return out;
    at = end + by.size();
  }
}

// "CALL KIND DEVICES @LINES" of a site, as the comments write it.
std::string written(const Site& s, bool with_lines) {
  std::string devices, lines;
  std::vector<std::string> seen;
  for (const auto& d : s.devices) {
    lines += (lines.empty() ? "" : ",") + std::to_string(d.line);
    if (std::find(seen.begin(), seen.end(), d.device) != seen.end()) continue;
    seen.push_back(d.device);
    devices += (devices.empty() ? "" : "|") + d.device;
  }
  if (s.resolution == "runtime") devices = "runtime " + devices + (devices.empty() ? "" : "|") + s.expression;
  if (s.resolution == "unknown") devices = "unknown";
  return s.call + " " + s.kind + " " + devices + (with_lines && !lines.empty() ? " @" + lines : "");
}

struct Expectations {
  Machine machine = machineOf({});
  std::map<int, std::vector<std::string>> sites, findings;
};

Expectations read(const std::string& text) {
  Expectations out;
  int number = 0;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    ++number;
    if (number == 1 && line.starts_with("# devices: ")) {
      auto machine = machineFrom(splitDevices(line.substr(11)));
      REQUIRE(machine.ok());
      out.machine = std::move(*machine);
    }
    if (number == 2 && line.starts_with("# memory: ")) {  // "npu:0=2" in GiB
      const auto equals = line.find('=');
      auto& device = out.machine.details[line.substr(10, equals - 10)];
      device.description.memory_bytes = static_cast<uint64_t>(std::stod(line.substr(equals + 1)) * (1u << 30));
      device.description.max_alloc_bytes = device.description.memory_bytes / 4;
    }
    const auto sites = line.find("#: "), findings = line.find("#! ");
    if (sites != std::string::npos) {
      auto list = line.substr(sites + 3, findings == std::string::npos || findings < sites ? std::string::npos : findings - sites - 3);
      list = list.substr(0, list.find(" # "));
      out.sites[number] = split(list, " ; ");
    }
    if (findings != std::string::npos) out.findings[number] = split(line.substr(findings + 3), " ; ");
  }
  return out;
}

std::string joined(const std::vector<std::string>& v) {
  std::string out;
  for (const auto& s : v) out += (out.empty() ? "" : " ; ") + s;
  return out;
}

std::vector<std::string> fixtures() {
  std::vector<std::string> out;
  for (const auto& e : fs::directory_iterator(kFolder)) if (e.path().extension() == ".py") out.push_back(e.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("every fixture gives the sites and findings that its comments say") {
  const auto files = fixtures();
  REQUIRE(files.size() >= 30);
  size_t sites = 0, resolved = 0;
  for (const auto& path : files) {
    const std::string text = *flagos::readFile(path);
    const Expectations expected = read(text);
    Workspace workspace;
    workspace.setRoots({kFolder});
    AnalysisOptions options;
    options.machine = expected.machine;
    const Analysis a = analyse(makeUnit(path, text), workspace, options);
    std::map<int, std::vector<std::string>> got, findings;
    for (const auto& s : a.sites) {
      const auto& want = expected.sites.count(s.line) ? expected.sites.at(s.line) : std::vector<std::string>{};
      const size_t index = got[s.line].size();
      const bool with_lines = index < want.size() && want[index].find(" @") != std::string::npos;
      got[s.line].push_back(written(s, with_lines));
      ++sites;
      resolved += s.resolution == "exact" || s.resolution == "candidates";
    }
    for (const auto& f : a.findings)
      findings[a.unit->lines.lineOf(f.span.begin) + 1].push_back(f.code + (!f.fix ? " none" : f.fix->safe ? " safe" : " unsafe"));
    std::set<int> lines;
    using Lists = std::map<int, std::vector<std::string>>;
    for (const Lists* m : std::initializer_list<const Lists*>{&got, &findings, &expected.sites, &expected.findings}) for (const auto& [line, list] : *m) lines.insert(line);
    for (const int line : lines) {
      INFO(path << ":" << line);
      CHECK(joined(got[line]) == joined(expected.sites.count(line) ? expected.sites.at(line) : std::vector<std::string>{}));
      CHECK(joined(findings[line]) == joined(expected.findings.count(line) ? expected.findings.at(line) : std::vector<std::string>{}));
    }
  }
  // The share may only rise: these fixtures also hold what cannot be known.
  INFO(resolved << " of " << sites);
  CHECK(resolved * 100 >= sites * 85);
}

namespace {

// The same program with every variable, parameter, function and class of its own renamed. Names that are also used as a
// keyword or an attribute (they may be PyTorch's) stay.
std::string renamed(const SourceUnit& unit) {
  std::set<std::string> bound, kept;
  std::vector<std::pair<uint32_t, std::string>> places;
  for (const Node& n : unit.ast.nodes()) {
    if (n.kind == N::attribute || n.kind == N::keyword || n.kind == N::alias) kept.insert(std::string(n.text));
    if (n.kind == N::class_)
      for (const Node* s : n.list) {
        kept.insert(std::string(s->text));
        if (s->kind == N::assign && s->a) kept.insert(std::string(s->a->text));
      }
    if (n.kind == N::param || n.kind == N::def || n.kind == N::class_) bound.insert(std::string(n.text));
    if (n.kind == N::assign || n.kind == N::for_) {
      if (n.a && n.a->kind == N::name) bound.insert(std::string(n.a->text));
      if (n.a) for (const Node* t : n.a->list) if (t->kind == N::name) bound.insert(std::string(t->text));
    }
  }
  for (const Node& n : unit.ast.nodes()) {
    if (n.text.empty() || (n.kind != N::name && n.kind != N::param && n.kind != N::def && n.kind != N::class_)) continue;
    const std::string name(n.text);
    if (!bound.count(name) || kept.count(name) || name.starts_with("__")) continue;
    places.emplace_back(static_cast<uint32_t>(n.text.data() - unit.text.data()), name);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::string out;
  uint32_t at = 0;
  for (const auto& [where, name] : places) {
    out += unit.text.substr(at, where - at) + "q_" + name + "_x";
    at = where + static_cast<uint32_t>(name.size());
  }
  return out + unit.text.substr(at);
}

}  // namespace

TEST_CASE("renaming every variable and the file changes nothing but names") {
  size_t changed = 0;
  for (const auto& path : fixtures()) {
    const std::string text = *flagos::readFile(path);
    Workspace workspace;
    workspace.setRoots({kFolder});
    AnalysisOptions options;
    options.machine = read(text).machine;
    const auto unit = makeUnit(path, text);
    const std::string other = renamed(*unit);
    changed += other != text;
    const Analysis a = analyse(unit, workspace, options);
    const Analysis b = analyse(makeUnit(kFolder + "/zz_other_name.py", other), workspace, options);
    INFO(path << "\n" << other);
    REQUIRE(a.sites.size() == b.sites.size());
    for (size_t i = 0; i < a.sites.size(); ++i) {
      CHECK(a.sites[i].line == b.sites[i].line);
      if (a.sites[i].resolution != "runtime" && a.sites[i].kind != "source") CHECK(written(a.sites[i], true) == written(b.sites[i], true));
      CHECK(a.sites[i].resolution == b.sites[i].resolution);
      CHECK(a.sites[i].bytes == b.sites[i].bytes);
    }
    REQUIRE(a.findings.size() == b.findings.size());
    for (size_t i = 0; i < a.findings.size(); ++i) CHECK(a.findings[i].code == b.findings[i].code);
  }
  CHECK(changed >= 25);
}

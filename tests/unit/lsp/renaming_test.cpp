// The example projects with every variable and every file of theirs renamed: nothing changes but names.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "lsp/python/analysis.h"
#include "lsp/server/machine.h"
#include "runtime/base/json.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

const std::string kProjects = FLAGOS_SOURCE_DIR "/tests/fixtures/projects";
const std::string kMark = "_x";

struct Names {
  std::set<std::string> modules;   // files and folders of the project, by their names in imports
  std::set<std::string> kept;      // names that are also an attribute, a keyword or imported: they may be someone else's
};

std::vector<std::string> filesOf(const std::string& root) {
  std::vector<std::string> out;
  for (const auto& e : fs::recursive_directory_iterator(root)) if (e.path().extension() == ".py") out.push_back(fs::relative(e.path(), root).string());
  std::sort(out.begin(), out.end());
  return out;
}

bool special(const std::string& name) { return name.starts_with("__"); }

Names namesOf(const std::string& root) {
  Names out;
  for (const auto& file : filesOf(root)) {
    for (const auto& part : fs::path(file)) if (const std::string stem = part.stem().string(); !special(stem)) out.modules.insert(stem);
    const auto unit = makeUnit(file, *flagos::readFile(root + "/" + file));
    for (const Node& n : unit->ast.nodes()) {
      if (n.kind == N::attribute || n.kind == N::keyword || n.kind == N::alias) out.kept.insert(std::string(n.text));
      if (n.kind == N::alias) out.kept.insert(n.value);
      if (n.kind != N::class_) continue;
      for (const Node* s : n.list) {
        out.kept.insert(std::string(s->text));
        if (s->kind == N::assign && s->a) out.kept.insert(std::string(s->a->text));
      }
    }
  }
  return out;
}

bool wordChar(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Where a name of the project's own ends: variables everywhere, modules in import lines and where an import bound them.
std::set<uint32_t> ends(const SourceUnit& unit, const Names& names) {
  std::set<std::string> bound, imported;
  std::set<uint32_t> out;
  for (const Node& n : unit.ast.nodes()) {
    if (n.kind == N::param || n.kind == N::def || n.kind == N::class_) bound.insert(std::string(n.text));
    if (n.kind == N::alias && names.modules.count(std::string(n.text))) imported.insert(std::string(n.text));
    if ((n.kind == N::assign || n.kind == N::for_) && n.a) {
      if (n.a->kind == N::name) bound.insert(std::string(n.a->text));
      for (const Node* t : n.a->list) if (t->kind == N::name) bound.insert(std::string(t->text));
    }
    if (n.kind != N::import_ && n.kind != N::from_import) continue;
    const std::string from = n.kind == N::import_ ? (n.list.empty() ? "" : n.list[0]->value) : n.value;
    if (!from.starts_with('.') && !names.modules.count(from.substr(0, from.find('.')))) continue;   // another's: torch.utils.data
    for (uint32_t i = n.begin; i < n.end;) {
      uint32_t end = i;
      while (end < n.end && wordChar(unit.text[end])) ++end;
      if (names.modules.count(unit.text.substr(i, end - i))) out.insert(end);
      i = std::max(end, i + 1);
    }
  }
  for (const Node& n : unit.ast.nodes()) {
    const std::string name(n.text);
    const bool variable = (n.kind == N::name || n.kind == N::param || n.kind == N::def || n.kind == N::class_) && bound.count(name) && !names.kept.count(name);
    const bool module = n.kind == N::name && imported.count(name);
    if (!name.empty() && !special(name) && (variable || module)) out.insert(static_cast<uint32_t>(n.text.data() - unit.text.data() + n.text.size()));
  }
  return out;
}

std::string renamed(const SourceUnit& unit, const Names& names) {
  std::string out = unit.text;
  const auto places = ends(unit, names);
  for (auto it = places.rbegin(); it != places.rend(); ++it) out.insert(*it, kMark);
  return out;
}

std::string renamedPath(const std::string& file, const Names& names) {
  fs::path out;
  for (const auto& part : fs::path(file)) {
    const std::string stem = part.stem().string();
    out /= names.modules.count(stem) ? stem + kMark + part.extension().string() : part.string();
  }
  return out.string();
}

// What must stay, a line for each site and each finding: names and files are told by `files`.
std::vector<std::string> said(const std::string& root, const std::string& file, const std::map<std::string, std::string>& files, Workspace& workspace) {
  AnalysisOptions options;
  options.machine = machineOf({"npu:0", "npu:1"});
  const Analysis a = analyse(makeUnit(root + "/" + file, *flagos::readFile(root + "/" + file)), workspace, options);
  const auto place = [&](const std::string& path) {
    const auto it = files.find(path.starts_with(root) ? path.substr(root.size() + 1) : path);
    return it == files.end() ? path : it->second;
  };
  std::vector<std::string> out;
  for (const auto& s : a.sites) {
    std::string line = std::to_string(s.line) + " " + s.kind + " " + s.resolution + " " + std::to_string(s.bytes.value_or(-1));
    if (s.kind != "source") line += " " + s.call;   // a source is called what the program calls it
    for (const auto& d : s.devices) line += " " + d.device + "@" + place(d.path) + ":" + std::to_string(d.line);
    out.push_back(line);
  }
  for (const auto& f : a.findings) out.push_back(std::to_string(a.unit->lines.lineOf(f.span.begin)) + " " + f.code + " " + f.severity);
  return out;
}

}  // namespace

TEST_CASE("renaming every variable and every file of a project changes nothing but names") {
  const fs::path scratch = fs::temp_directory_path() / ("flagos-renaming-" + std::to_string(::getpid()));
  size_t sites = 0, changed = 0;
  for (const auto& e : fs::directory_iterator(kProjects)) {
    if (!e.is_directory()) continue;
    const std::string root = e.path().string(), other = (scratch / e.path().filename()).string();
    const Names names = namesOf(root);
    std::map<std::string, std::string> same, back;
    for (const auto& file : filesOf(root)) {
      const std::string to = renamedPath(file, names), text = *flagos::readFile(root + "/" + file);
      same[file] = file;
      back[to] = file;
      fs::create_directories(fs::path(other + "/" + to).parent_path());
      const std::string now = renamed(*makeUnit(file, text), names);
      changed += now != text && to != file;
      std::ofstream(other + "/" + to) << now;
    }
    Workspace first, second;
    first.setRoots({root});
    second.setRoots({other});
    while (!first.index(1'000'000'000)) {}
    while (!second.index(1'000'000'000)) {}
    for (const auto& [to, file] : back) {
      INFO(file << "\n" << *flagos::readFile(other + "/" + to));
      const auto before = said(root, file, same, first);
      CHECK(said(other, to, back, second) == before);
      sites += before.size();
    }
  }
  fs::remove_all(scratch);
  CHECK(sites >= 30);
  CHECK(changed >= 8);
}

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "lsp/check/report.h"
#include "lsp/findings/live.h"
#include "lsp/findings/severity.h"
#include "lsp/live/attach.h"
#include "lsp/live/ran_as.h"
#include "lsp/python/modules.h"
#include "lsp/server/machine.h"

namespace flagos::lsp {
namespace fs = std::filesystem;
namespace {

constexpr size_t kTrimEvery = 64;   // files

// Python files under a folder, links to folders not followed. A folder that cannot be read is listed itself: reading it says
// why, where leaving it out would be a confident "0 findings".
void filesUnder(const fs::path& folder, std::vector<std::string>& found) {
  std::error_code ec, ignored;
  fs::directory_iterator it(folder, ec);
  for (; !ec && it != fs::directory_iterator(); it.increment(ec)) {
    const auto name = it->path().filename().string();
    if (it->is_directory(ignored)) {
      const bool left_out = name.starts_with(".") || name == "node_modules" || name == "__pycache__";
      if (!left_out && !it->is_symlink(ignored)) filesUnder(it->path(), found);
      continue;
    }
    const auto suffix = it->path().extension();
    if ((suffix == ".py" || suffix == ".ipynb") && it->is_regular_file(ignored)) found.push_back(it->path().string());
  }
  if (ec) found.push_back(folder.string());
}

std::vector<std::string> expand(const std::vector<std::string>& paths, std::vector<std::string>& missing) {
  std::vector<std::string> out;
  for (const auto& p : paths) {
    std::error_code ec;
    const fs::path absolute = fs::absolute(p, ec).lexically_normal();
    if (fs::is_directory(absolute, ec)) {
      std::vector<std::string> found;
      filesUnder(absolute, found);
      std::sort(found.begin(), found.end());
      out.insert(out.end(), found.begin(), found.end());
    } else if (fs::exists(absolute, ec)) {
      out.push_back(absolute.string());
    } else {
      missing.push_back(absolute.string());
      out.push_back(absolute.string());
    }
  }
  return out;
}

// The folders that are named and those of the files that are named, without any that lies in another: a folder inside is no
// place of its own to import from, and with thousands of files every import would be looked for in each of them.
std::vector<std::string> rootsOf(const std::vector<std::string>& paths) {
  std::vector<std::string> all, roots;
  for (const auto& p : paths) {
    std::error_code ec;
    auto absolute = fs::absolute(p, ec).lexically_normal();
    if (!fs::is_directory(absolute, ec)) absolute = absolute.parent_path();
    std::string root = absolute.string();
    while (root.size() > 1 && root.back() == '/') root.pop_back();
    if (std::find(all.begin(), all.end(), root) == all.end()) all.push_back(std::move(root));
  }
  const auto inside = [](const std::string& r, const std::string& outer) { return r != outer && r.starts_with(outer == "/" ? outer : outer + "/"); };
  for (const auto& r : all)
    if (std::none_of(all.begin(), all.end(), [&](const auto& outer) { return inside(r, outer); })) roots.push_back(r);
  return roots;
}

bool isNotebook(const std::string& path) { return fs::path(path).extension() == ".ipynb"; }

Result<Notebook> readNotebook(const std::string& text) {
  auto document = parseJson(text, "notebook", {kMaxSourceBytes, 64});
  if (!document) return fail("not a notebook: " + document.error().text(), {}, Exit::broken_input);
  return notebookFromJson(*document);
}

// Thousands of trees are much memory, and what is printed needs but the text and its lines.
void slim(Analysis& a) {
  a.others.clear();
  a.notes = {};
  a.ops = {};
  for (auto& s : a.sites) s.node = nullptr;
  auto text = std::make_shared<SourceUnit>();
  if (!a.sites.empty() || !a.findings.empty() || a.predicted) {
    text->path = a.unit->path;
    text->text = a.unit->text;
    text->lines = a.unit->lines;
  }
  a.unit = std::move(text);
}

// Bytes that Python would not take as a program: reading them all the same would end in a confident "0 device sites".
const char* notPython(const std::string& text) {
  if (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")) return "UTF-16 text; Python source is UTF-8";
  if (text.find('\0') != std::string::npos) return "not Python source: it has zero bytes";
  return nullptr;
}

std::optional<Broken> brokenIn(const SourceUnit& unit, const Notebook* notebook) {
  const auto [begin, end] = unit.ast.broken();
  if (begin == end) return std::nullopt;
  const uint32_t size = static_cast<uint32_t>(unit.text.size());
  const Position from = unit.lines.position(unit.text, std::min(begin, size), Encoding::utf8);
  Broken b{from.line + 1, from.character + 1, unit.lines.lineOf(std::min(end > begin ? end - 1 : begin, size)) + 1, -1};
  if (!notebook) return b;
  const auto first = notebook->lineAt(b.line), last = notebook->lineAt(b.last);
  if (!first.cell) return b;
  b.cell = notebook->number(*first.cell);
  b.line = first.line;
  b.last = last.cell == first.cell ? last.line : first.line;
  return b;
}

}  // namespace

int runCheck(const CheckOptions& options) {
  std::vector<std::string> missing;
  const auto paths = expand(options.paths, missing);
  AnalysisOptions analysis;
  if (options.devices) {
    auto m = machineFrom(*options.devices);
    if (!m) {
      std::fprintf(stderr, "flagos-lsp: %s\n", m.error().text().c_str());
      return static_cast<int>(Exit::usage);
    }
    analysis.machine = std::move(*m);
  } else {
    analysis.machine = detectedMachine();
  }
  Workspace workspace;
  workspace.modules().limitTrees(96u << 20);
  const auto roots = rootsOf(options.paths);
  workspace.setRoots(roots);
  workspace.trustDisk();
  if (const std::string file = roots.empty() ? std::string() : findSettingsFile(roots[0]); !file.empty()) {
    auto severity = readSeverityFile(file);
    if (!severity) {
      std::fprintf(stderr, "flagos-lsp: %s\n", severity.error().text().c_str());
      return static_cast<int>(severity.error().exit);
    }
    analysis.severity = std::move(*severity);
  }
  for (const auto& [code, level] : options.severity) analysis.severity[code] = level;

  std::optional<telemetry::ProcessRow> process;
  std::string attach_problem;
  if (options.attach) {
    std::vector<RanAs> ran;
    std::vector<std::unique_ptr<Notebook>> notebooks;
    for (const auto& path : paths) {
      ran.push_back({path, {}, nullptr});
      if (!isNotebook(path)) continue;
      auto text = readFile(path, kMaxSourceBytes);
      auto notebook = text ? readNotebook(*text) : Result<Notebook>(text.error());
      if (!notebook) continue;   // said below
      notebooks.push_back(std::make_unique<Notebook>(std::move(*notebook)));
      notebooks.back()->layOut();
      ran.back().notebook = notebooks.back().get();
    }
    auto entry = chooseProcess(ran, options.pid);
    if (entry) {
      auto row = watchOnce(*entry, options.attach_ms);
      if (row) process = std::move(*row); else attach_problem = row.error().text();
    } else {
      attach_problem = entry.error().text();
    }
  }

  std::vector<FileReport> files;
  bool error_found = false;
  size_t skipped = 0;
  for (const auto& path : paths) {
    FileReport f;
    f.path = path;
    auto raw = readFile(path, kMaxSourceBytes);
    if (!raw) {
      f.skipped = raw.error().what;
    } else if (const char* reason = notPython(*raw)) {
      f.skipped = reason;
    } else {
      std::string text = raw->starts_with("\xef\xbb\xbf") ? raw->substr(3) : *raw;
      std::string why;
      RanAs ran_as{path, {}, nullptr};
      if (isNotebook(path)) {
        auto notebook = readNotebook(text);
        if (notebook) {
          const auto read = std::make_shared<Notebook>(std::move(*notebook));
          *raw = text = read->layOut();
          ran_as.notebook = read.get();
          f.notebook = read;
        } else {
          why = notebook.error().text();
        }
      }
      auto unit = why.empty() ? makeUnit(path, std::move(text), &why) : nullptr;
      if (!unit) {
        f.skipped = why;
      } else {
        f.analysis = analyse(unit, workspace, analysis);
        f.broken = brokenIn(*unit, f.notebook.get());
        if (f.notebook) sayCells(f.analysis, *f.notebook);
        if (process) {
          f.live = joinDocument(f.analysis, *raw, *process, ran_as, nullptr);
          for (auto& x : liveFindings(f.analysis, *f.live, *process, analysis)) f.analysis.findings.push_back(std::move(x));
          std::stable_sort(f.analysis.findings.begin(), f.analysis.findings.end(), [](const auto& x, const auto& y) { return x.span.begin < y.span.begin; });
        }
        slim(f.analysis);
      }
    }
    skipped += !f.skipped.empty();
    for (const auto& x : f.analysis.findings) error_found = error_found || x.severity == "error";
    files.push_back(std::move(f));
    if (files.size() % kTrimEvery == 0) ::malloc_trim(0);   // what was freed goes back to the system
  }
  std::string out;
  if (options.sarif) out = dump(reportSarif(files, options), 2) + "\n";
  else if (options.json) out = dump(reportJson(files, options)) + "\n";
  else out = reportText(files, options);
  // A report that a full disk cut short must not look like one that was written.
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
    std::fprintf(stderr, "flagos-lsp: not all of the output could be written; is the disk full, or the output closed?\n");
    return static_cast<int>(Exit::broken_input);
  }
  if (!attach_problem.empty()) std::fprintf(stderr, "flagos-lsp: %s\n", attach_problem.c_str());
  if (paths.size() == 1 && skipped == 1) {
    std::fprintf(stderr, "flagos-lsp: %s: %s\n", visible(files[0].path).c_str(), files[0].skipped.c_str());
    return static_cast<int>(Exit::broken_input);
  }
  // A path that is not there among others is said where a person looks; the contract keeps the exit code.
  for (const auto& f : files)
    if (std::find(missing.begin(), missing.end(), f.path) != missing.end()) std::fprintf(stderr, "flagos-lsp: %s: %s\n", visible(f.path).c_str(), f.skipped.c_str());
  if (!attach_problem.empty()) return static_cast<int>(Exit::no_device);
  return static_cast<int>(error_found ? Exit::found : Exit::ok);
}

}  // namespace flagos::lsp

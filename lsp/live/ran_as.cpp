#include "lsp/live/ran_as.h"

#include <algorithm>
#include <map>

#include "lsp/text/magics.h"

namespace flagos::lsp {
namespace {

using telemetry::ProcessRow;

std::vector<std::string_view> linesOf(const std::string& text) {
  const LineIndex index(text);
  std::vector<std::string_view> out;
  for (int i = 0; i < index.lineCount(); ++i) {
    const auto line = index.lineText(text, i);
    if (line.find_first_not_of(" \t") != std::string_view::npos) out.push_back(line);
  }
  return out;
}

// The share of lines that two texts have in common.
double likeness(const std::string& a, const std::string& b) {
  const auto la = linesOf(a), lb = linesOf(b);
  if (la.empty() || lb.empty()) return 0;
  const auto map = matchLines(la, lb);
  const auto same = std::count_if(map.begin(), map.end(), [](int l) { return l >= 0; });
  return static_cast<double>(same) / static_cast<double>(std::max(la.size(), lb.size()));
}

struct RanCell { const Cell* cell; std::string text; std::string path; };

// Which of ipykernel's files is which cell. A text that two cells share names neither of them.
std::vector<RanCell> ranCells(const ProcessRow& process, const Notebook& notebook) {
  std::vector<RanCell> out;
  std::map<const Cell*, std::pair<size_t, RanCell>> latest;   // by place in the cell's history
  std::vector<const telemetry::FileRow*> strangers;
  const auto cells = notebook.cells();
  for (const auto& f : process.files) {
    const auto name = ipykernelFile(f.path);
    if (name.empty()) continue;
    const Cell* found = nullptr;
    size_t place = 0, matches = 0;
    for (const Cell* c : cells) {
      if (!c->python()) continue;
      for (size_t i = c->history.size(); i-- > 0;) {
        if (c->history[i].name != name) continue;
        // A cell that has another text now yields to one that still has this one.
        const bool now = i + 1 == c->history.size(), before = found && place + 1 == found->history.size();
        if (!found || (now && !before)) { found = c; place = i; matches = 1; }
        else if (now == before) ++matches;
        break;
      }
    }
    if (!found) { strangers.push_back(&f); continue; }
    if (matches > 1) continue;
    auto& slot = latest[found];
    if (!slot.second.cell || place >= slot.first) slot = {place, {found, found->history[place].text, f.path}};
  }
  for (auto& [cell, slot] : latest) out.push_back(std::move(slot.second));
  // Cells that ran before this editor saw them, and were edited since: by the text that the runtime kept.
  for (const auto* f : strangers) {
    const auto kept = baselineText(f->hash);
    if (!kept) continue;
    const Cell* best = nullptr;
    double most = 0, second = 0;
    for (const Cell* c : cells) {
      if (!c->python()) continue;
      const double l = likeness(*kept, c->doc.text());
      if (l > most) { second = most; most = l; best = c; }
      else second = std::max(second, l);
    }
    const bool taken = best && std::any_of(out.begin(), out.end(), [&](const RanCell& r) { return r.cell == best; });
    if (best && !taken && most >= 0.5 && most > second) out.push_back({best, *kept, f->path});
  }
  return out;
}

// The notebook as it ran: present order, each cell with the text that was run. Gives each ran cell its first line.
std::string ranText(const Notebook& notebook, const std::vector<RanCell>& ran, std::map<const Cell*, int>& first) {
  std::string text;
  int line = 0;
  for (const Cell* c : notebook.cells()) {
    if (!c->python()) continue;
    const size_t begin = text.size();
    first[c] = line;
    const auto it = std::find_if(ran.begin(), ran.end(), [&](const RanCell& r) { return r.cell == c; });
    text += withoutMagics(it == ran.end() ? c->doc.text() : it->text);
    if (it == ran.end() || text.size() == begin || text.back() != '\n' || it->text == c->doc.text()) text += '\n';
    line += LineIndex(std::string_view(text).substr(begin)).lineCount() - 1;
  }
  return text;
}

}  // namespace

void sayCells(Analysis& a, const Notebook& notebook) {
  const auto say = [&](const std::string& path, int& line, int& cell) {
    if (path != a.unit->path || line <= 0) return;
    const auto at = notebook.lineAt(line);
    if (!at.cell) return;
    cell = notebook.number(*at.cell);
    line = at.line;
  };
  for (auto& s : a.sites) for (auto& d : s.devices) say(d.path, d.line, d.cell);
  for (auto& f : a.findings) for (auto& r : f.related) say(r.path, r.line, r.cell);
}

bool executed(const ProcessRow& p, const RanAs& d) {
  if (d.notebook) return !ranCells(p, *d.notebook).empty();
  return executed(p, d.path) || std::any_of(d.former.begin(), d.former.end(), [&](const auto& f) { return executed(p, f); });
}

std::shared_ptr<const ProcessRow> processFor(const LiveView& view, const RanAs& d, int pinned) {
  if (pinned > 0)
    for (const auto& p : view.processes) if (p->pid == pinned) return p;
  for (const char* state : {"live", "ended"})
    for (const auto& p : view.processes)
      if (p->state == state && executed(*p, d)) return jobOf(view, d, p).front();
  return nullptr;
}

std::vector<std::shared_ptr<const ProcessRow>> jobOf(const LiveView& view, const RanAs& d, const std::shared_ptr<const ProcessRow>& primary) {
  const auto rank = [&](const ProcessRow& p) { const auto it = view.ranks.find(p.pid); return it == view.ranks.end() ? Rank{} : it->second; };
  const std::string job = rank(*primary).job;
  std::vector<std::shared_ptr<const ProcessRow>> out;
  for (const auto& p : view.processes)
    if (p == primary || (!job.empty() && p->state == primary->state && rank(*p).job == job && executed(*p, d))) out.push_back(p);
  std::stable_sort(out.begin(), out.end(), [&](const auto& a, const auto& b) {
    const int ra = rank(*a).rank, rb = rank(*b).rank;
    return ra != rb ? ra < rb : a->pid < b->pid;
  });
  return out;
}

LiveFile joinDocument(const Analysis& analysis, std::string_view text, const ProcessRow& process, const RanAs& d, const std::vector<LineOrigins>* origins) {
  if (!d.notebook) {
    if (d.former.empty() || executed(process, d.path)) return joinLive(analysis, text, process, origins);
    ProcessRow renamed = process;
    const auto rename = [&](std::string& path) { if (std::find(d.former.begin(), d.former.end(), path) != d.former.end()) path = d.path; };
    rename(renamed.script);
    for (auto& f : renamed.files) rename(f.path);
    for (auto& s : renamed.sites) rename(s.file);
    return joinLive(analysis, text, renamed, origins);
  }
  const auto ran = ranCells(process, *d.notebook);
  std::map<const Cell*, int> first;
  const std::string baseline = ranText(*d.notebook, ran, first);
  rememberBaseline(baseline);
  ProcessRow shifted = process;
  shifted.files = {{analysis.unit->path, hash16(telemetry::fnv1a(baseline)), 0}};
  for (auto& s : shifted.sites) {
    const auto it = std::find_if(ran.begin(), ran.end(), [&](const RanCell& r) { return r.path == s.file; });
    if (it == ran.end()) continue;
    s.file = analysis.unit->path;
    s.line += first[it->cell];
    if (s.end_line > 0) s.end_line += first[it->cell];
  }
  LiveFile out = joinLive(analysis, text, shifted, nullptr);
  if (ran.empty()) out.ran = false;
  // Lines are counted within their cells: a cell that grows does not move the ones below.
  const auto within = [&](LiveSite& s) {
    if (s.measured_line <= 0) return;
    const Cell* cell = nullptr;
    for (const Cell* c : d.notebook->cells()) if (c->python() && first[c] < s.measured_line) cell = c;
    if (!cell) return;
    const auto now = d.notebook->lineAt(s.line);
    const int line = s.measured_line - first[cell];
    if (s.state == "moved" && now.cell == cell && now.line == line) s.state = "exact";
    s.measured_line = line;
    s.measured_cell = d.notebook->number(*cell);
  };
  for (auto& s : out.sites) within(s);
  for (auto& m : out.also) within(m.live);
  for (auto& g : out.gone) within(g);
  return out;
}

std::optional<LiveFile> liveOf(const LiveView& view, const Analysis& analysis, std::string_view text, const RanAs& d, int pinned,
                               const std::vector<LineOrigins>* origins) {
  const auto primary = processFor(view, d, pinned);
  if (!primary) return std::nullopt;
  LiveFile out = joinDocument(analysis, text, *primary, d, origins);
  if (!out.ran) return std::nullopt;
  const auto job = jobOf(view, d, primary);
  if (job.size() < 2) return out;
  std::vector<LiveFile> values;
  values.reserve(job.size());
  std::vector<RankValues> all;
  for (const auto& p : job) {
    values.push_back(joinDocument(analysis, text, *p, d, origins));
    all.push_back({rankName(p->pid, view.ranks), &values.back()});
  }
  addSpread(out, all);
  return out;
}

RanAt ranAt(const ProcessRow& process, const RanAs& d, const LiveSite& site) {
  if (d.notebook) {
    for (const auto& r : ranCells(process, *d.notebook))
      if (d.notebook->number(*r.cell) == site.measured_cell) return {r.path, site.measured_line};
    return {};
  }
  for (const auto& f : d.former) if (!executed(process, d.path) && executed(process, f)) return {f, site.measured_line};
  return {d.path, site.measured_line};
}

}  // namespace flagos::lsp

#include <algorithm>

#include "lsp/features/snapshot.h"

namespace flagos::lsp {
namespace {

bool overlap(const std::vector<Edit>& a, const std::vector<Edit>& b) {
  for (const auto& x : a)
    for (const auto& y : b)
      if (x.span.begin < y.span.end && y.span.begin < x.span.end) return true;
  return false;
}

bool sameEdits(const std::vector<Edit>& a, const std::vector<Edit>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Edit& x, const Edit& y) { return x.span == y.span && x.text == y.text; });
}

// Every safe fix of the file that does not touch what another one has changed already.
std::vector<Edit> allSafe(const Analysis& analysis, size_t& count) {
  std::vector<Edit> out;
  std::vector<const std::vector<Edit>*> taken;
  for (const auto& f : analysis.findings) {
    if (!f.fix || !f.fix->safe) continue;
    const auto& edits = f.fix->edits;
    const bool again = std::any_of(taken.begin(), taken.end(), [&](const auto* t) { return sameEdits(*t, edits); });
    if (!again && overlap(out, edits)) continue;
    ++count;
    if (again) continue;   // one idiom, reported at several places
    taken.push_back(&edits);
    out.insert(out.end(), edits.begin(), edits.end());
  }
  std::stable_sort(out.begin(), out.end(), [](const Edit& a, const Edit& b) { return a.span.begin < b.span.begin; });
  return out;
}

}  // namespace

std::vector<Action> actions(const Snapshot& s, Span within) {
  std::vector<Action> out;
  const auto& unit = *s.analysis->unit;
  for (const auto& f : s.analysis->findings) {
    if (f.span.end < within.begin || f.span.begin > within.end) continue;
    if (f.fix) {
      Action a;
      a.title = f.fix->title + (f.fix->safe ? "" : " (unsafe: check what it changes)");
      a.preferred = f.fix->safe;
      a.finding = &f;
      a.edits = f.fix->edits;
      out.push_back(std::move(a));
    }
    const int line = unit.lines.lineOf(f.span.end);
    const auto text = unit.lines.lineText(unit.text, line);
    const auto end = unit.lines.lineStart(line) + static_cast<uint32_t>(text.size());
    if (text.find("# flagos: ignore[") == std::string_view::npos && (text.empty() || text.back() != '\\')) {
      Action a;
      a.kind = Action::Kind::ignore;
      a.title = "Ignore " + f.code + " on this line";
      a.finding = &f;
      a.edits = {{{end, end}, "  # flagos: ignore[" + f.code + "]"}};
      out.push_back(std::move(a));
    }
  }
  size_t fixes = 0;
  auto edits = allSafe(*s.analysis, fixes);
  if (fixes > 0) {
    Action a;
    a.kind = Action::Kind::fix_all;
    a.title = fixes == 1 ? "Apply the one safe fix of this file" : "Apply all " + std::to_string(fixes) + " safe fixes of this file";
    a.edits = std::move(edits);
    out.push_back(std::move(a));
  }
  if (s.live) {
    const auto explains = [&](const LiveSite& l, Span span) {
      if (l.routes.empty() || span.end < within.begin || span.begin > within.end) return false;
      Action a;
      a.kind = Action::Kind::explain;
      a.title = "Explain the route of this line";
      a.at = span.begin;
      out.push_back(std::move(a));
      return true;
    };
    bool done = false;
    for (size_t i = 0; i < s.live->sites.size() && !done; ++i) done = explains(s.live->sites[i], s.analysis->sites[i].span);
    for (size_t i = 0; i < s.live->also.size() && !done; ++i) done = explains(s.live->also[i].live, s.live->also[i].span);
  }
  return out;
}

}  // namespace flagos::lsp

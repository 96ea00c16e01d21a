#include "lsp/features/snapshot.h"

namespace flagos::lsp {

std::vector<Action> actions(const Snapshot& s, Span within) {
  std::vector<Action> out;
  const auto& unit = *s.analysis->unit;
  for (const auto& f : s.analysis->findings) {
    if (f.span.end < within.begin || f.span.begin > within.end) continue;
    if (f.fix) out.push_back({f.fix->title, f.fix->safe, &f, f.fix->edits});
    const int line = unit.lines.lineOf(f.span.end);
    const auto text = unit.lines.lineText(unit.text, line);
    const auto end = unit.lines.lineStart(line) + static_cast<uint32_t>(text.size());
    if (text.find("# flagos: ignore[") == std::string_view::npos && (text.empty() || text.back() != '\\'))
      out.push_back({"Ignore " + f.code + " on this line", false, &f, {{{end, end}, "  # flagos: ignore[" + f.code + "]"}}});
  }
  return out;
}

}  // namespace flagos::lsp

#include <map>

#include "lsp/features/phrases.h"
#include "lsp/features/snapshot.h"

namespace flagos::lsp {
namespace {
constexpr double kWorthwhile = 0.05;  // of the device time
}

std::vector<Hint> hints(const Snapshot& s, Span within, HintLevel level) {
  std::vector<Hint> out;
  if (!s.live || level == HintLevel::off) return out;
  struct Line { double share = 0, bytes = 0; bool fallback = false, edited = false; std::string tooltip; };
  std::map<int, Line> lines;   // current line, 1-based
  double all_bytes = 0;
  const auto add = [&](const LiveSite& l) {
    if (l.line <= 0 || l.state == "gone" || l.state == "not-executed") return;
    Line& line = lines[l.line];
    if (l.share > 0) line.share += l.share;
    if (l.live_bytes.value) { line.bytes += *l.live_bytes.value; all_bytes += *l.live_bytes.value; }
    line.fallback = line.fallback || !l.fallbacks.empty();
    line.edited = line.edited || l.state == "edited";
    for (const auto& t : liveLines(l)) line.tooltip += (line.tooltip.empty() ? "" : "\n\n") + t;
  };
  for (const auto& l : s.live->sites) add(l);
  for (const auto& m : s.live->also) add(m.live);
  const auto& unit = *s.analysis->unit;
  for (const auto& [number, line] : lines) {
    if (number > unit.lines.lineCount()) continue;
    const auto start = unit.lines.lineStart(number - 1);
    const auto end = start + static_cast<uint32_t>(unit.lines.lineText(unit.text, number - 1).size());
    if (end < within.begin || start > within.end) continue;
    const bool heavy = line.share >= kWorthwhile || (all_bytes > 0 && line.bytes >= 0.1 * all_bytes);
    if (!line.fallback && !heavy && level != HintLevel::all) continue;
    std::string label;
    if (line.share >= 0.005) label += percent(line.share);
    if (line.bytes > 0) label += (label.empty() ? "" : "  ") + formatBytes(line.bytes);
    if (line.fallback) label += (label.empty() ? "" : "  ") + std::string("on CPU");
    if (line.edited) label += " (old)";
    if (!label.empty()) out.push_back({end, label, line.tooltip});
  }
  return out;
}

}  // namespace flagos::lsp

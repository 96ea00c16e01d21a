// What stands at the end of a line: only where it deserves one (a fallback, a copy, much time or memory), at most 25
// characters, numbers of two digits in a fixed width, so that most ticks of the clock change nothing.
#include <cmath>
#include <cstdio>
#include <map>

#include "lsp/features/phrases.h"
#include "lsp/features/snapshot.h"

namespace flagos::lsp {
namespace {

constexpr double kWorthwhile = 0.05;   // of the device time
constexpr double kMuchMemory = 0.1;    // of the file's live bytes
constexpr size_t kMaxCharacters = 25;

// "1.2 GiB", " 12 MiB", "120 KiB": always seven characters.
std::string shortBytes(double b) {
  static const char* units[] = {"  B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (b >= 999.5 && unit < 5) { b /= 1024; ++unit; }
  char out[24];
  if (unit > 0 && b < 9.95) std::snprintf(out, sizeof out, "%.1f %s", b, units[unit]);
  else std::snprintf(out, sizeof out, "%3.0f %s", b >= 99.5 ? 10 * std::round(b / 10) : b, units[unit]);
  return out;
}

// " 63 %", "6.3 %", "100 %": always five.
std::string shortShare(double share) {
  const double p = 100 * share;
  char out[16];
  std::snprintf(out, sizeof out, p < 9.95 ? "%.1f %%" : "%3.0f %%", p);
  return out;
}

// Counts code points and cuts at the limit.
std::string fitting(const std::string& s) {
  size_t count = 0, i = 0;
  while (i < s.size()) {
    const auto c = decode(std::string_view(s).substr(i));
    if (++count > kMaxCharacters) return s.substr(0, i);
    i += static_cast<size_t>(c.bytes);
  }
  return s;
}

struct Line {
  double share = 0, bytes = 0;
  bool fallback = false, copy = false, edited = false, ended = false, ran = false;
  std::vector<const LiveSite*> sites;
  const Site* predicted = nullptr;
};

std::map<int, Line> linesOf(const Snapshot& s, HintLevel level, double& all_bytes) {
  std::map<int, Line> lines;   // current line, 1-based
  if (s.live) {
    const auto add = [&](const LiveSite& l) {
      if (l.line <= 0 || l.state == "gone" || l.state == "not-executed") return;
      Line& line = lines[l.line];
      line.ran = true;
      if (l.share > 0) line.share += l.share;
      const double bytes = l.live_spread ? l.live_spread->most : l.live_bytes.value.value_or(0);
      line.bytes += bytes;
      all_bytes += bytes;
      line.fallback = line.fallback || !l.fallbacks.empty();
      line.copy = line.copy || !l.copies.empty();
      line.edited = line.edited || l.state == "edited";
      line.ended = line.ended || l.process_state == "ended";
      line.sites.push_back(&l);
    };
    for (const auto& l : s.live->sites) add(l);
    for (const auto& m : s.live->also) add(m.live);
  } else if (level == HintLevel::all) {
    for (const auto& site : s.analysis->sites)
      if ((site.kind == "placement" || site.kind == "move") && !lines[site.line].predicted) lines[site.line].predicted = &site;
  }
  return lines;
}

std::string labelOf(const Line& line, HintLevel level, double all_bytes) {
  if (line.predicted) {
    std::string label = devicesText(*line.predicted);
    if (line.predicted->bytes) label += "  " + shortBytes(*line.predicted->bytes);
    return fitting(label);
  }
  const bool heavy = line.share >= kWorthwhile || (all_bytes > 0 && line.bytes >= kMuchMemory * all_bytes);
  if (!line.fallback && !line.copy && !heavy && level != HintLevel::all) return {};
  std::string label;
  const auto part = [&](const std::string& text) { label += (label.empty() ? "" : "  ") + text; };
  if (line.share >= 0.005) part(shortShare(line.share));
  if (line.bytes > 0) part(shortBytes(line.bytes));
  if (line.fallback) part("on CPU");
  else if (line.copy && !heavy) part("copy");
  if (label.empty()) return {};
  if (line.edited) label += " (old)";
  else if (line.ended) label += " (end)";
  return fitting(label);
}

std::string tooltipOf(const Line& line) {
  std::string out;
  const auto add = [&](const std::vector<std::string>& list) { for (const auto& t : list) out += (out.empty() ? "" : "\n\n") + t; };
  if (line.predicted) add(originLines(*line.predicted));
  for (const LiveSite* l : line.sites) add(liveLines(*l));
  return out;
}

}  // namespace

std::vector<Hint> hints(const Snapshot& s, Span within, HintLevel level) {
  std::vector<Hint> out;
  if (!s.analysis || level == HintLevel::off) return out;
  double all_bytes = 0;
  const auto& unit = *s.analysis->unit;
  for (const auto& [number, line] : linesOf(s, level, all_bytes)) {
    if (number < 1 || number > unit.lines.lineCount()) continue;
    const auto start = unit.lines.lineStart(number - 1);
    const auto end = start + static_cast<uint32_t>(unit.lines.lineText(unit.text, number - 1).size());
    if (end < within.begin || start > within.end) continue;
    auto label = labelOf(line, level, all_bytes);
    if (!label.empty()) out.push_back({end, number, std::move(label), tooltipOf(line)});
  }
  return out;
}

std::string hintTooltip(const Snapshot& s, int number, HintLevel level) {
  if (!s.analysis) return {};
  double all_bytes = 0;
  const auto lines = linesOf(s, level, all_bytes);
  const auto it = lines.find(number);
  return it == lines.end() ? std::string() : tooltipOf(it->second);
}

}  // namespace flagos::lsp

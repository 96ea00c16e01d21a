// `--check` for people.
#include <algorithm>

#include "lsp/check/report.h"
#include "lsp/features/phrases.h"
#include "runtime/base/bytes.h"

namespace flagos::lsp {

std::string visible(std::string_view text, bool lines) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool c1 = c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;   // U+0080 to U+009F
    if ((c < 0x20 && !(lines && (c == '\n' || c == '\t'))) || c == 0x7f || c1) {
      const char* digits = "0123456789abcdef";
      out += {'\\', 'x', digits[c >> 4], digits[c & 15]};
      if (c1) { const auto d = static_cast<unsigned char>(text[++i]); out += {'\\', 'x', digits[d >> 4], digits[d & 15]}; }
    } else {
      out += text[i];
    }
  }
  return out;
}

namespace {
std::string place(const FileReport& f, Span span) {
  if (const Cell* cell = f.notebook ? f.notebook->at(span.begin) : nullptr) {
    const Position p = cell->doc.lines().position(cell->doc.text(), span.begin - cell->begin, Encoding::utf8);
    return visible(f.path) + ":cell " + std::to_string(f.notebook->number(*cell) + 1) + ":" + std::to_string(p.line + 1) + ":" + std::to_string(p.character + 1);
  }
  const Position p = f.analysis.unit->lines.position(f.analysis.unit->text, span.begin, Encoding::utf8);
  return visible(f.path) + ":" + std::to_string(p.line + 1) + ":" + std::to_string(p.character + 1);
}
}  // namespace

std::string brokenText(const Broken& b) {
  return "does not parse" + (b.last > b.line ? " from here to line " + std::to_string(b.last) : std::string(" here")) +
         "; what stands there is left out or read in part, so that sites and findings may be missing";
}

std::string reportText(const std::vector<FileReport>& files, const CheckOptions& options) {
  std::string out;
  size_t sites = 0, resolved = 0, findings = 0;
  for (const auto& f : files) {
    if (!f.skipped.empty()) { out += visible(f.path) + ": skipped: " + f.skipped + "\n"; continue; }
    const auto& a = f.analysis;
    for (size_t i = 0; i < a.sites.size(); ++i) {
      const auto& s = a.sites[i];
      out += place(f, s.span) + ": " + s.call + " (" + s.kind + "): " + devicesText(s) + "\n";
      for (const auto& l : originLines(s)) out += "    " + l + "\n";
      if (const auto b = bytesText(s); !b.empty()) out += "    " + b + "\n";
      if (const LinePrediction* l = a.predicted ? a.predicted->at(s.line) : nullptr; l && s.resolution == "exact") {
        if (l->seconds || l->at_least) out += "    " + lineText(*l) + "\n";
        if (f.live && f.live->ran)
          if (const auto run = measuredRun(*l, *f.live)) out += "    " + errorText(*l, *run) + "\n";
      }
      if (f.live && f.live->ran) for (const auto& l : liveLines(f.live->sites[i])) out += "    " + l + "\n";
      ++sites;
      resolved += s.resolution == "exact" || s.resolution == "candidates";
    }
    if (f.live && !f.live->ran) out += visible(f.path) + ": process " + std::to_string(f.live->pid) + " has not executed this file\n";
    if (f.live && f.live->ran) {
      if (!f.live->same_text) out += visible(f.path) + ": file changed since the run; the process runs the old code\n";
      if (!f.live->also.empty()) out += "also measured:\n";
      for (const auto& m : f.live->also) {
        out += place(f, m.span) + ": " + m.text + "\n";
        for (const auto& l : liveLines(m.live)) out += "    " + l + "\n";
      }
      for (const auto& g : f.live->gone) {
        out += visible(f.path) + ": ";
        for (const auto& l : liveLines(g)) { out += l + "\n"; break; }
      }
    }
    for (const auto& x : a.findings) {
      out += place(f, x.span) + ": " + x.severity + ": " + x.message + " [" + x.code + "]";
      if (x.fix) out += x.fix->safe ? " (safe fix)" : " (unsafe fix)";
      out += "\n";
      ++findings;
    }
    out += functionsText(f);
    if (const auto& b = f.broken)
      out += visible(f.path) + ":" + (b->cell >= 0 ? "cell " + std::to_string(b->cell + 1) + ":" : "") + std::to_string(b->line) + ":" + std::to_string(b->column) + ": " + brokenText(*b) + "\n";
    if (a.gave_up) out += visible(f.path) + ": not all was followed: " + a.gave_up_why + "\n";
  }
  out += memoryText(files);
  out += counted(sites, "device site");
  if (sites) out += ", " + std::to_string(100 * resolved / sites) + " % exact or candidates";
  out += ", " + counted(findings, "finding") + " in " + counted(files.size(), "file") + "\n";
  (void)options;
  return visible(out, true);
}

}  // namespace flagos::lsp

// Where a measured line is now. A viewer has only the file on disk; the language server, which sees edits as they are
// typed, does this more finely (lsp/). The rule is the same: a value is never shown as current on changed text.
#include <cstdio>
#include <map>
#include <optional>

#include "profiler/view/session.h"

namespace flagos::view {
namespace {

struct Text {
  std::string bytes;
  std::vector<size_t> lines;   // offset of each line's first byte
  std::string hash;
};

std::string hex(uint64_t h) {
  char buf[20];
  std::snprintf(buf, sizeof buf, "%016llx", static_cast<unsigned long long>(h));
  return buf;
}

std::optional<Text> load(const std::string& path) {
  auto bytes = readFile(path, 2u << 20);
  if (!bytes) return std::nullopt;
  Text t;
  t.bytes = std::move(*bytes);
  t.hash = hex(telemetry::fnv1a(t.bytes));
  t.lines.push_back(0);
  for (size_t i = 0; i < t.bytes.size(); ++i)
    if (t.bytes[i] == '\n') t.lines.push_back(i + 1);
  return t;
}

// The call text of the site's shape if it began on `line` (1-based), or "".
std::string_view placeOf(const Text& t, const telemetry::SiteRow& s, int line) {
  const int last = line + (s.end_line > s.line ? s.end_line - s.line : 0);
  if (line < 1 || s.column < 0 || s.end_column < 0 || last > static_cast<int>(t.lines.size())) return {};
  const size_t begin = t.lines[static_cast<size_t>(line) - 1] + static_cast<size_t>(s.column);
  const size_t end = t.lines[static_cast<size_t>(last) - 1] + static_cast<size_t>(s.end_column);
  if (begin >= end || end > t.bytes.size()) return {};
  return std::string_view(t.bytes).substr(begin, end - begin);
}

std::string hashAt(const Text& t, const telemetry::SiteRow& s, int line) {
  const std::string_view call = placeOf(t, s, line);
  return call.empty() ? std::string() : hex(telemetry::callHash(call));
}

// The call at the site's place in one short line.
std::string callText(const Text& t, const telemetry::SiteRow& s) {
  constexpr size_t kLongest = 40;
  const auto place = placeOf(t, s, s.line);
  std::string out;
  bool space = false;
  for (const char c : place) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') { space = !out.empty(); continue; }
    if (space) out += ' ';
    space = false;
    if (static_cast<unsigned char>(c) >= ' ' && c != 0x7f) out += c;
  }
  if (out.size() <= kLongest) return out;
  size_t cut = kLongest - 1;
  while (cut > 0 && (out[cut] & 0xc0) == 0x80) --cut;   // not inside a character
  return out.substr(0, cut) + "…";
}

}  // namespace

void markDrift(telemetry::ProcessRow& p) {
  std::map<std::string, std::optional<Text>> texts;
  for (telemetry::SiteRow& s : p.sites) {
    if (s.file.empty() || s.file[0] != '/') continue;
    auto [it, fresh] = texts.try_emplace(s.file);
    if (fresh) it->second = load(s.file);
    if (!it->second) { s.state = "gone"; continue; }
    const Text& text = *it->second;
    bool same = false;
    for (const telemetry::FileRow& f : p.files) same = same || (f.path == s.file && f.hash == text.hash);
    if (same || (!s.call_hash.empty() && hashAt(text, s, s.line) == s.call_hash)) {
      s.state = "exact";
      s.text = callText(text, s);
      continue;
    }
    s.state = s.line <= static_cast<int>(text.lines.size()) ? "edited" : "gone";
    for (int line = 1; line <= static_cast<int>(text.lines.size()); ++line)
      if (!s.call_hash.empty() && hashAt(text, s, line) == s.call_hash) { s.state = "moved"; break; }
  }
}

}  // namespace flagos::view

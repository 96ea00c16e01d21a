#include "lsp/text/magics.h"

#include <algorithm>
#include <array>

namespace flagos::lsp {
namespace {

bool isBreak(char c) { return c == '\n' || c == '\r'; }
bool isWord(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

// Magics whose argument or body is Python that runs here.
bool runsPython(std::string_view name) {
  static constexpr std::array<std::string_view, 7> names = {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

void blank(std::string& text, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) if (!isBreak(text[i])) text[i] = ' ';
}

// A statement that means nothing, in place of [begin, end). Two bytes or more: a literal; one byte: a name.
void nothing(std::string& text, size_t begin, size_t end) {
  blank(text, begin, end);
  if (begin < end) text[begin] = '0';
}

// Follows strings and brackets over lines: a magic is one only where a statement begins.
struct Scan {
  char quote = 0;        // of an open triple-quoted string
  int depth = 0;
  bool continued = false;

  void line(std::string_view s) {
    size_t i = 0;
    while (i < s.size()) {
      if (quote) {
        if (s[i] == '\\') { i += 2; continue; }
        if (s[i] == quote && i + 2 < s.size() && s[i + 1] == quote && s[i + 2] == quote) { quote = 0; i += 3; continue; }
        ++i;
        continue;
      }
      const char c = s[i];
      if (c == '#') { continued = false; return; }
      if (c == '"' || c == '\'') {
        if (i + 2 < s.size() && s[i + 1] == c && s[i + 2] == c) { quote = c; i += 3; continue; }
        for (++i; i < s.size() && s[i] != c; ++i) if (s[i] == '\\') ++i;
      } else if (c == '(' || c == '[' || c == '{') {
        ++depth;
      } else if (c == ')' || c == ']' || c == '}') {
        depth = std::max(0, depth - 1);
      }
      ++i;
    }
    continued = !quote && !s.empty() && s.back() == '\\';
  }
  bool statementBegins() const { return !quote && depth == 0 && !continued; }
};

// `s` is one line, `at` its first non-blank byte. Where the right side of `name = %magic` or `name = !command` begins, or
// npos.
size_t assignedMagic(std::string_view s, size_t at) {
  size_t i = at;
  while (i < s.size() && (isWord(s[i]) || s[i] == '.' || s[i] == ',' || s[i] == ' ')) ++i;
  if (i == at || i >= s.size() || s[i] != '=') return std::string_view::npos;
  ++i;
  while (i < s.size() && s[i] == ' ') ++i;
  return i < s.size() && (s[i] == '!' || s[i] == '%') ? i : std::string_view::npos;
}

bool asksForHelp(std::string_view s, size_t at) {
  if (s[at] == '?') return true;
  size_t end = s.size();
  while (end > at && s[end - 1] == ' ') --end;
  if (end == at || s[end - 1] != '?') return false;
  while (end > at && s[end - 1] == '?') --end;
  return std::all_of(s.begin() + static_cast<std::ptrdiff_t>(at), s.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char c) { return isWord(c) || c == '.' || c == '%' || c == '*'; });
}

// The magic's name and where its argument begins.
struct Magic { std::string_view name; size_t argument; };
Magic magicAt(std::string_view s, size_t percent) {
  size_t i = percent + 1;
  while (i < s.size() && isWord(s[i])) ++i;
  const auto name = s.substr(percent + 1, i - percent - 1);
  while (i < s.size() && s[i] == ' ') ++i;
  return {name, i};
}

}  // namespace

std::string withoutMagics(std::string_view cell) {
  std::string out(cell);
  size_t begin = 0;
  // A cell magic is the cell's first line that is not blank.
  const size_t first = cell.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && cell.substr(first).starts_with("%%")) {
    const size_t end = std::min(cell.find_first_of("\r\n", first), cell.size());
    if (!runsPython(magicAt(cell.substr(0, end), first + 1).name)) {
      blank(out, 0, out.size());
      return out;
    }
    blank(out, first, end);
    begin = end;
  }
  Scan scan;
  bool inside = false;   // the line before was a magic that ends with a backslash
  while (begin < out.size()) {
    const size_t end = std::min(out.find_first_of("\r\n", begin), out.size());
    const std::string_view line = std::string_view(out).substr(begin, end - begin);
    const size_t at = line.find_first_not_of(" \t");
    const bool goes_on = !line.empty() && line.back() == '\\';
    if (inside) {
      blank(out, begin, end);
      inside = goes_on;
    } else if (at != std::string_view::npos && scan.statementBegins()) {
      const char c = line[at];
      const auto assigned = assignedMagic(line, at);
      if (c == '%') {
        const Magic m = magicAt(line, at);
        // `%time f(x)`: the same statement after one that means nothing ("0   ; f(x)").
        const bool keeps = runsPython(m.name) && m.argument < line.size() && line[m.argument] != '-' && m.argument >= at + 2;
        const size_t argument = m.argument;
        if (keeps) {
          nothing(out, begin + at, begin + argument);
          out[begin + argument - 1] = ';';
          scan.line(std::string_view(out).substr(begin, end - begin));
        } else {
          inside = goes_on;
          nothing(out, begin + at, end);
        }
      } else if (c == '!' || asksForHelp(line, at)) {
        inside = c == '!' && goes_on;
        nothing(out, begin + at, end);
      } else if (assigned != std::string_view::npos) {
        inside = goes_on;
        blank(out, begin + assigned, end);
        out[begin + assigned] = '_';
      } else {
        scan.line(line);
      }
    } else {
      scan.line(line);
    }
    begin = end;
    if (begin < out.size()) begin += out.compare(begin, 2, "\r\n") == 0 ? 2 : 1;
  }
  return out;
}

}  // namespace flagos::lsp

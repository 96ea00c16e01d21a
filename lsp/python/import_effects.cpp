#include "lsp/python/import_effects.h"

#include <algorithm>
#include <set>

namespace flagos::lsp {
namespace {

bool wordChar(char c) { return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80); }

struct Line {
  std::string_view text;                   // without indentation
  size_t indent = 0;
  std::string_view function;               // the outermost function around it (for a dunder method: its class), or ""
};

std::string_view wordAfter(std::string_view line, std::string_view keyword) {
  if (!line.starts_with(keyword)) return {};
  line.remove_prefix(keyword.size());
  size_t n = 0;
  while (n < line.size() && wordChar(line[n])) ++n;
  return line.substr(0, n);
}

std::string_view definedBy(std::string_view line) {
  const auto name = wordAfter(line, "def ");
  return name.empty() ? wordAfter(line, "async def ") : name;
}

// Lines of code with the function that they are in, told by indentation.
std::vector<Line> linesOf(std::string_view text) {
  std::vector<Line> out;
  std::string_view function, cls;
  size_t inside = 0, cls_indent = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const size_t indent = line.find_first_not_of(" \t\f\r");
    if (indent == std::string_view::npos || line[indent] == '#') continue;
    line.remove_prefix(indent);
    // `) -> None:` closes the head of a function, not the function.
    if (!function.empty() && indent <= inside && line[0] != ')' && line[0] != ']' && line[0] != '}') function = {};
    if (function.empty()) {
      if (const auto name = wordAfter(line, "class "); !name.empty()) { cls = name; cls_indent = indent; }
      if (const auto name = definedBy(line); !name.empty()) {
        const bool method = !cls.empty() && indent > cls_indent;
        function = method && name.starts_with("__") ? cls : name;
        inside = indent;
        // What follows the head on its own line belongs to the function.
        out.push_back({line, indent, function});
        continue;
      }
    }
    out.push_back({line, indent, function});
  }
  return out;
}

bool calls(std::string_view line, std::string_view name) {
  for (size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    const size_t end = at + name.size();
    if (end < line.size() && line[end] == '(' && (at == 0 || !wordChar(line[at - 1])) && !(at >= 4 && line.substr(at - 4, 4) == "def ")) return true;
  }
  return false;
}

bool isSetting(std::string_view line) {
  for (const std::string_view f : {"set_default_device", "set_device", "putenv"}) if (calls(line, f)) return true;
  for (const std::string_view w : {"environ.setdefault(", "environ.update(", "environ |="}) if (line.find(w) != std::string_view::npos) return true;
  // os.environ[...] = ..., and not a comparison; a line that goes on somewhere else may be one.
  const auto open = line.find("environ[");
  if (open == std::string_view::npos) return false;
  const auto close = line.find(']', open);
  if (close == std::string_view::npos) return true;
  for (size_t at = line.find('=', close); at != std::string_view::npos; at = line.find('=', at + 1)) {
    if (at + 1 < line.size() && line[at + 1] == '=') { ++at; continue; }
    if (line[at - 1] != '!' && line[at - 1] != '<' && line[at - 1] != '>') return true;
  }
  return false;
}

// `a.b = value`: the "a"; "" for anything else.
std::string_view ownerAssigned(std::string_view line) {
  size_t n = 0;
  while (n < line.size() && (wordChar(line[n]) || line[n] == '.')) ++n;
  const auto dot = line.substr(0, n).find('.');
  size_t at = n;
  while (at < line.size() && line[at] == ' ') ++at;
  const bool assigns = at + 1 < line.size() && line[at] == '=' && line[at + 1] != '=';
  return dot == std::string_view::npos || !assigns ? std::string_view() : line.substr(0, dot);
}

}  // namespace

ImportEffects effectsOfImport(std::string_view text) {
  ImportEffects out;
  const auto lines = linesOf(text);
  std::set<std::string_view> setters, called, imported, assigned;
  bool importing = false;
  for (const Line& l : lines) {
    if (isSetting(l.text)) {
      if (l.function.empty()) out.sets = true; else setters.insert(l.function);
    }
    const bool begins = l.text.starts_with("import ") || l.text.starts_with("from "), names = begins || importing;
    const bool closed = l.text.find(')') != std::string_view::npos, opened = l.text.find('(') != std::string_view::npos;
    importing = names && ((begins ? opened && !closed : !closed) || l.text.ends_with('\\'));
    for (size_t at = 0; at < l.text.size();) {
      if (!wordChar(l.text[at])) { ++at; continue; }
      size_t end = at;
      while (end < l.text.size() && wordChar(l.text[end])) ++end;
      const auto word = l.text.substr(at, end - at);
      if (names) imported.insert(word);
      else if (l.function.empty() && end < l.text.size() && l.text[end] == '(') called.insert(word);
      at = end;
    }
    if (l.function.empty() && !names)
      if (const auto owner = ownerAssigned(l.text); !owner.empty()) assigned.insert(owner);
  }
  for (const auto owner : assigned) out.sets = out.sets || imported.count(owner) != 0;
  // A function that calls a setter is one.
  for (bool more = !setters.empty(); more;) {
    more = false;
    for (const Line& l : lines) {
      if (l.function.empty() || setters.count(l.function)) continue;
      if (std::none_of(setters.begin(), setters.end(), [&](std::string_view s) { return calls(l.text, s); })) continue;
      more = setters.insert(l.function).second || more;
    }
  }
  out.setters.assign(setters.begin(), setters.end());
  out.calls.assign(called.begin(), called.end());
  return out;
}

}  // namespace flagos::lsp

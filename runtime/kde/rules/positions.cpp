#include "runtime/kde/rules/positions.h"

namespace flagos::kde {

std::string pointerStep(std::string_view key) {
  std::string out = "/";
  for (const char c : key) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

// Follows the grammar without checking it. Depth is bounded by parseJson's cap.
struct JsonPositions::Scanner {
  std::string_view t;
  JsonPositions& out;
  size_t i = 0;
  LineColumn here{1, 1};

  void step() {
    if (t[i] == '\n') { ++here.line; here.column = 1; } else { ++here.column; }
    ++i;
  }
  bool at(char c) const { return i < t.size() && t[i] == c; }
  void space() {
    while (i < t.size() && (t[i] == ' ' || t[i] == '\t' || t[i] == '\n' || t[i] == '\r')) step();
  }
  // The text between the quotes; escapes are decoded by the JSON library, since keys may hold them.
  std::string string() {
    const size_t begin = i;
    step();
    while (i < t.size() && t[i] != '"') {
      if (t[i] == '\\') step();
      if (i < t.size()) step();
    }
    if (i < t.size()) step();
    const Json j = Json::parse(t.substr(begin, i - begin), nullptr, false);
    return j.is_string() ? j.get<std::string>() : std::string();
  }
  void value(const std::string& pointer) {
    space();
    out.values_.insert_or_assign(pointer, here);
    if (at('{')) {
      step();
      for (space(); i < t.size() && !at('}'); space()) {
        const LineColumn place = here;
        if (!at('"')) return;
        const std::string p = pointer + pointerStep(string());
        if (!out.keys_.emplace(p, place).second) out.duplicates_.emplace_back(p, place);
        space();
        if (at(':')) step();
        value(p);
        space();
        if (at(',')) step();
      }
      if (at('}')) step();
    } else if (at('[')) {
      step();
      size_t n = 0;
      for (space(); i < t.size() && !at(']'); space()) {
        value(pointer + "/" + std::to_string(n++));
        space();
        if (at(',')) step();
      }
      if (at(']')) step();
    } else if (at('"')) {
      string();
    } else {
      while (i < t.size() && t[i] != ',' && t[i] != '}' && t[i] != ']' && t[i] != ' ' && t[i] != '\n' && t[i] != '\t' && t[i] != '\r')
        step();
    }
  }
};

JsonPositions JsonPositions::of(std::string_view text) {
  JsonPositions p;
  Scanner s{text, p};
  if (text.substr(0, 3) == "\xEF\xBB\xBF") s.i = 3;
  s.value("");
  return p;
}

LineColumn JsonPositions::value(const std::string& pointer) const {
  std::string p = pointer;
  for (;;) {
    if (const auto it = values_.find(p); it != values_.end()) return it->second;
    const auto slash = p.rfind('/');
    if (slash == std::string::npos) return {1, 1};
    p.resize(slash);
  }
}

LineColumn JsonPositions::key(const std::string& pointer) const {
  const auto it = keys_.find(pointer);
  return it != keys_.end() ? it->second : value(pointer);
}

}  // namespace flagos::kde

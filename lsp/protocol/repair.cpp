#include "lsp/protocol/repair.h"

#include "lsp/text/position.h"

namespace flagos::lsp {
namespace {

// The value of four hex digits at `at`, or -1.
int hex4(std::string_view s, size_t at) {
  if (at + 4 > s.size()) return -1;
  int v = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const char c = s[i];
    const int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (d < 0) return -1;
    v = v * 16 + d;
  }
  return v;
}

}  // namespace

std::string repaired(std::string_view s) {
  std::string out;
  out.reserve(s.size() + 16);
  for (size_t i = 0; i < s.size();) {
    if (s[i] == '\\' && i + 1 < s.size()) {
      const int first = s[i + 1] == 'u' ? hex4(s, i + 2) : -1;
      const bool high = first >= 0xd800 && first < 0xdc00, low = first >= 0xdc00 && first < 0xe000;
      const int second = high && s.substr(i + 6, 2) == "\\u" ? hex4(s, i + 8) : -1;
      if (high && second >= 0xdc00 && second < 0xe000) { out += s.substr(i, 12); i += 12; continue; }
      if (high || low) { out += "\\ufffd"; i += 6; continue; }
      out += s.substr(i, 2);
      i += 2;
      continue;
    }
    const auto c = decode(s.substr(i));
    if (c.value == 0xfffd && c.bytes == 1) out += "\xef\xbf\xbd";
    else out += s.substr(i, static_cast<size_t>(c.bytes));
    i += static_cast<size_t>(c.bytes);
  }
  return out;
}

}  // namespace flagos::lsp

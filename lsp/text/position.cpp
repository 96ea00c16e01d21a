#include "lsp/text/position.h"

#include <algorithm>

namespace flagos::lsp {

CodePoint decode(std::string_view s) {
  const auto b0 = static_cast<unsigned char>(s[0]);
  if (b0 < 0x80) return {b0, 1};
  const int n = b0 >= 0xf0 && b0 < 0xf5 ? 4 : b0 >= 0xe0 && b0 < 0xf0 ? 3 : b0 >= 0xc2 && b0 < 0xe0 ? 2 : 0;
  if (n == 0 || s.size() < static_cast<size_t>(n)) return {0xfffd, 1};
  uint32_t v = b0 & (0xffu >> (n + 1));
  for (int i = 1; i < n; ++i) {
    const auto b = static_cast<unsigned char>(s[static_cast<size_t>(i)]);
    if ((b & 0xc0) != 0x80) return {0xfffd, 1};
    v = v << 6 | (b & 0x3f);
  }
  const bool overlong = (n == 3 && v < 0x800) || (n == 4 && v < 0x10000);
  if (overlong || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) return {0xfffd, 1};
  return {v, n};
}

namespace {
int units(const CodePoint& c, Encoding e) {
  if (e == Encoding::utf8) return c.bytes;
  return e == Encoding::utf16 && c.value >= 0x10000 ? 2 : 1;
}
}  // namespace

LineIndex::LineIndex(std::string_view text) : starts_{0} {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n' || (text[i] == '\r' && !(i + 1 < text.size() && text[i + 1] == '\n')))
      starts_.push_back(static_cast<uint32_t>(i + 1));
  }
}

std::string_view LineIndex::lineText(std::string_view text, int line) const {
  const size_t begin = starts_[static_cast<size_t>(line)];
  size_t end = line + 1 < lineCount() ? starts_[static_cast<size_t>(line) + 1] : text.size();
  while (end > begin && (text[end - 1] == '\n' || text[end - 1] == '\r')) --end;
  return text.substr(begin, end - begin);
}

int LineIndex::lineOf(uint32_t offset) const {
  return static_cast<int>(std::upper_bound(starts_.begin(), starts_.end(), offset) - starts_.begin()) - 1;
}

Position LineIndex::position(std::string_view text, uint32_t offset, Encoding e) const {
  offset = std::min(offset, static_cast<uint32_t>(text.size()));
  const int line = lineOf(offset);
  const auto content = lineText(text, line);
  const size_t stop = std::min<size_t>(offset - lineStart(line), content.size());
  if (e == Encoding::utf8) {
    for (size_t back = 1; back < 4 && back <= stop && stop < content.size(); ++back)   // inside a code point: its start
      if (static_cast<size_t>(decode(content.substr(stop - back)).bytes) > back) return {line, static_cast<int>(stop - back)};
    return {line, static_cast<int>(stop)};
  }
  int character = 0;
  for (size_t i = 0; i < stop;) {
    const auto c = decode(content.substr(i));
    if (i + static_cast<size_t>(c.bytes) > stop) break;  // inside a code point: its start
    character += units(c, e);
    i += static_cast<size_t>(c.bytes);
  }
  return {line, character};
}

uint32_t LineIndex::offset(std::string_view text, Position p, Encoding e) const {
  if (p.line < 0) return 0;
  if (p.line >= lineCount()) return static_cast<uint32_t>(text.size());
  const auto content = lineText(text, p.line);
  size_t i = 0;
  int left = std::max(0, p.character);
  while (i < content.size() && left > 0) {
    const auto c = decode(content.substr(i));
    const int u = units(c, e);
    if (u > left) break;  // half of a surrogate pair or of a code point: its start
    left -= u;
    i += static_cast<size_t>(c.bytes);
  }
  return lineStart(p.line) + static_cast<uint32_t>(i);
}

}  // namespace flagos::lsp

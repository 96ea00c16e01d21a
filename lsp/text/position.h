// Offsets in UTF-8 text <-> LSP positions in UTF-8, UTF-16 or UTF-32 units.
//
// Lines end at LF, CRLF or a lone CR, as LSP says. Positions past the end of a line or of the text are clamped, never
// an error: clients send them. Invalid UTF-8 bytes count as one unit each. ASCII lines, nearly all lines, cost nothing.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace flagos::lsp {

enum class Encoding : uint8_t { utf8, utf16, utf32 };

struct Position {
  int line = 0, character = 0;  // 0-based
  auto operator<=>(const Position&) const = default;
};
struct Range {
  Position start, end;
  bool operator==(const Range&) const = default;
};
struct Span {                    // bytes
  uint32_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
  bool contains(uint32_t at) const { return at >= begin && at <= end; }
};

class LineIndex {
 public:
  LineIndex() : starts_{0} {}
  explicit LineIndex(std::string_view text);
  int lineCount() const { return static_cast<int>(starts_.size()); }
  uint32_t lineStart(int line) const { return starts_[static_cast<size_t>(line)]; }
  // The line's text without its terminator.
  std::string_view lineText(std::string_view text, int line) const;
  int lineOf(uint32_t offset) const;  // 0-based
  Position position(std::string_view text, uint32_t offset, Encoding) const;
  uint32_t offset(std::string_view text, Position, Encoding) const;
  Range range(std::string_view text, Span s, Encoding e) const {
    return {position(text, s.begin, e), position(text, s.end, e)};
  }

 private:
  std::vector<uint32_t> starts_;
};

// Length in bytes of the code point at s[0] (1 for an invalid byte), and its value (U+FFFD if invalid).
struct CodePoint { uint32_t value; int bytes; };
CodePoint decode(std::string_view s);

}  // namespace flagos::lsp

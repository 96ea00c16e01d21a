#include "lsp/text/bodies.h"

#include <algorithm>

namespace flagos::lsp {
namespace {

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::vector<FunctionBody> run() {
    while (at_ < text_.size()) if (!line()) return {};
    if (depth_ != 0) return {};
    if (open_) close(static_cast<uint32_t>(text_.size()));
    return std::move(out_);
  }

 private:
  static constexpr int kNone = -1;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 0, depth_ = 0;
  bool open_ = false;                      // inside the body of `current_`, whose function is indented by `indent_`
  int indent_ = kNone, inner_ = kNone;     // the body's own indentation
  int opens_ = kNone;                      // the indentation of the line before, if it opens a block
  FunctionBody current_;
  std::vector<FunctionBody> out_;

  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void close(uint32_t end) {
    current_.end = end;
    if (current_.end > current_.begin) out_.push_back(current_);
    open_ = false;
  }

  // One logical line, from its start.
  bool line() {
    const size_t start = at_;
    while (peek() == ' ') ++at_;
    if (peek() == '\t' || peek() == '\f') return false;
    const int indent = static_cast<int>(at_ - start);
    if (at_ >= text_.size() || peek() == '#' || peek() == '\n' || peek() == '\r') { char last = 0; return rest(last); }
    if (opens_ != kNone && indent <= opens_) return false;   // a block that is not indented: refused by Python, read in two ways by a parser
    if (open_ && indent <= indent_) close(static_cast<uint32_t>(start));
    if (open_ && inner_ == kNone) inner_ = indent;
    if (open_ && indent < inner_) return false;   // Python itself refuses it
    const std::string_view code = text_.substr(at_);
    const bool function = !open_ && (code.starts_with("def ") || code.starts_with("async def "));
    const auto def = static_cast<uint32_t>(at_);
    char last = 0;                         // the last character of the line that is no space and no comment
    if (!rest(last)) return false;
    opens_ = last == ':' ? indent : kNone;
    if (function && last == ':') {
      indent_ = indent;
      inner_ = kNone;
      open_ = true;
      current_ = {def, static_cast<uint32_t>(at_), 0, line_};
    }
    return true;
  }

  // To the start of the next logical line.
  bool rest(char& last) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++at_;
        ++line_;
        if (depth_ == 0) return true;
        continue;
      }
      if (c == '\r' && peek(1) != '\n') return false;
      if (c == '\f' || c == '\v' || c == '\0') return false;
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
        continue;
      }
      if (c == '\\') {
        const size_t skip = peek(1) == '\n' ? 2 : peek(1) == '\r' && peek(2) == '\n' ? 3 : 0;
        if (skip == 0) return false;
        at_ += skip;
        ++line_;
        continue;
      }
      if (c == '"' || c == '\'') {
        if (!string(c)) return false;
        last = c;
        continue;
      }
      if (c == '(' || c == '[' || c == '{') ++depth_;
      if (c == ')' || c == ']' || c == '}') if (--depth_ < 0) return false;
      if (c != ' ' && c != '\t' && c != '\r') last = c;
      ++at_;
    }
    return depth_ == 0;
  }

  bool string(char quote) {
    const bool three = peek(1) == quote && peek(2) == quote;
    at_ += three ? 3 : 1;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        const bool crlf = peek(1) == '\r' && peek(2) == '\n';
        if (crlf || peek(1) == '\n') ++line_;
        at_ += crlf ? 3 : 2;
        continue;
      }
      if (c == '\0' || (c == '\r' && peek(1) != '\n') || (c == '\n' && !three)) return false;
      if (c == '\n') ++line_;
      if (c == quote && (!three || (peek(1) == quote && peek(2) == quote))) {
        at_ += three ? 3 : 1;
        return true;
      }
      ++at_;
    }
    return false;
  }
};

}  // namespace

std::vector<FunctionBody> functionBodies(std::string_view text) { return Scan(text).run(); }

std::string withoutBodies(std::string_view text, const std::vector<FunctionBody>& bodies) {
  std::string out(text);
  for (const auto& b : bodies)
    std::replace_if(out.begin() + b.begin, out.begin() + b.end, [](char c) { return c != '\n' && c != '\r'; }, ' ');
  return out;
}

}  // namespace flagos::lsp

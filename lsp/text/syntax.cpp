#include "lsp/text/syntax.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "lsp/text/parse_worker.h"

namespace flagos::lsp {
namespace {

// The number of open indentation levels at the deepest line; comments and blank lines do not count.
bool indentedTooDeep(std::string_view text) {
  std::vector<int> levels{0};
  size_t i = 0;
  while (i < text.size()) {
    int column = 0;
    while (i < text.size() && (text[i] == ' ' || text[i] == '\t' || text[i] == '\f')) {
      column = text[i] == '\t' ? column + 8 : column + 1;
      ++i;
    }
    if (i < text.size() && text[i] != '\n' && text[i] != '\r' && text[i] != '#') {
      while (levels.back() > column) levels.pop_back();
      if (column > levels.back()) levels.push_back(column);
      if (levels.size() > static_cast<size_t>(kMaxIndents)) return true;
    }
    while (i < text.size() && text[i] != '\n' && text[i] != '\r') ++i;
    while (i < text.size() && (text[i] == '\n' || text[i] == '\r')) ++i;
  }
  return false;
}

bool hasCode(std::string_view line) {
  const size_t at = line.find_first_not_of(" \t\f");
  return at != std::string_view::npos && line[at] != '#';
}

// The offset behind the first character of the line's code.
uint32_t behindFirst(std::string_view text, size_t at) {
  at = text.find_first_not_of(" \t\f", at);
  return static_cast<uint32_t>(at) + static_cast<uint32_t>(decode(text.substr(at)).bytes);
}

}  // namespace

bool SyntaxTree::readable(std::string_view text) { return text.size() <= kMaxSourceBytes && !indentedTooDeep(text); }

Result<SyntaxTree> SyntaxTree::parse(std::string_view text, const SyntaxTree* old) {
  if (text.size() > kMaxSourceBytes)
    return fail("larger than 2 MiB: device analysis is off for this file", "split the file", Exit::broken_input);
  if (indentedTooDeep(text))
    return fail("indented deeper than 100 levels, which Python itself refuses", {}, Exit::broken_input);
  std::string shown(text);
  for (size_t i = 0; i < shown.size(); ++i)
    if (shown[i] == '\r' && !(i + 1 < shown.size() && shown[i + 1] == '\n')) shown[i] = '\n';
  SyntaxTree out;
  out.tree_.reset(parseWatched(std::move(shown), old ? old->tree_.get() : nullptr, kParseBudgetNs));
  if (!out.tree_)
    return fail("reading this file's syntax took more than 2 s: device analysis is off until it changes", {},
                Exit::broken_input);
  return out;
}

void SyntaxTree::edit(std::string_view before, const LineIndex& lines, Span removed, std::string_view inserted) {
  if (!tree_) return;
  // The core in use may reuse a node although a byte that its lexer looked ahead at has changed: the lines around an edit
  // count as edited too. From the nearest line of code above, but from behind its first character: at the start of a line
  // the tokens without width that end a block begin, and where those count as edited, the core finds the state of
  // indentation changed for all that follows and reads the rest of the text anew.
  int first = lines.lineOf(removed.begin) - 1;
  while (first >= 0 && !hasCode(lines.lineText(before, first))) --first;
  const int last = lines.lineOf(removed.end) + 2;
  const uint32_t begin = first < 0 ? 0 : behindFirst(before, lines.lineStart(first));
  const uint32_t old_end = last < lines.lineCount() ? lines.lineStart(last) : static_cast<uint32_t>(before.size());
  std::string fresh(before.substr(begin, removed.begin - begin));
  fresh += inserted;
  fresh += before.substr(removed.end, old_end - removed.end);
  const auto point = [&](uint32_t at) {
    const int line = lines.lineOf(at);
    return TSPoint{static_cast<uint32_t>(line), at - lines.lineStart(line)};
  };
  TSInputEdit e{};
  e.start_byte = begin;
  e.old_end_byte = old_end;
  e.new_end_byte = begin + static_cast<uint32_t>(fresh.size());
  e.start_point = point(begin);
  e.old_end_point = point(old_end);
  const LineIndex inner(fresh);
  const auto rows = static_cast<uint32_t>(inner.lineCount() - 1);
  const auto tail = static_cast<uint32_t>(fresh.size()) - inner.lineStart(inner.lineCount() - 1);
  e.new_end_point = {e.start_point.row + rows, rows == 0 ? e.start_point.column + tail : tail};
  ts_tree_edit(tree_.get(), &e);
}

std::string SyntaxTree::sexpr() const {
  char* s = ts_node_string(root());
  std::string out(s);
  std::free(s);
  return out;
}

}  // namespace flagos::lsp

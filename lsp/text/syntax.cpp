#include "lsp/text/syntax.h"

#include <cstdlib>
#include <vector>

#include "runtime/base/clock.h"

extern "C" const TSLanguage* tree_sitter_python(void);

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

struct Feed {
  std::string_view text;
  std::string copy;        // only when there are lone CRs
  uint64_t deadline = 0;
};

const char* readChunk(void* payload, uint32_t byte, TSPoint, uint32_t* length) {
  const auto text = static_cast<Feed*>(payload)->text;
  if (byte >= text.size()) { *length = 0; return ""; }
  *length = static_cast<uint32_t>(text.size() - byte);
  return text.data() + byte;
}

}  // namespace

Result<SyntaxTree> SyntaxTree::parse(std::string_view text, const SyntaxTree* old) {
  if (text.size() > kMaxSourceBytes)
    return fail("larger than 2 MiB: device analysis is off for this file", "split the file", Exit::broken_input);
  if (indentedTooDeep(text))
    return fail("indented deeper than 100 levels, which Python itself refuses", {}, Exit::broken_input);
  thread_local std::unique_ptr<TSParser, void (*)(TSParser*)> parser{nullptr, ts_parser_delete};
  if (!parser) {
    parser.reset(ts_parser_new());
    ts_parser_set_language(parser.get(), tree_sitter_python());
  }
  Feed feed{text, {}, nowNs() + kParseBudgetNs};
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || (i + 1 < text.size() && text[i + 1] == '\n')) continue;
    if (feed.copy.empty()) feed.copy = text;
    feed.copy[i] = '\n';
  }
  if (!feed.copy.empty()) feed.text = feed.copy;
  TSInput input{&feed, readChunk, TSInputEncodingUTF8, nullptr};
  TSParseOptions options{&feed, [](TSParseState* s) { return nowNs() > static_cast<Feed*>(s->payload)->deadline; }};
  ts_parser_reset(parser.get());
  SyntaxTree out;
  out.tree_.reset(ts_parser_parse_with_options(parser.get(), old ? old->tree_.get() : nullptr, input, options));
  if (!out.tree_)
    return fail("reading this file's syntax took more than 2 s: device analysis is off until it changes", {},
                Exit::broken_input);
  return out;
}

void SyntaxTree::edit(std::string_view before, const LineIndex& lines, Span removed, std::string_view inserted) {
  if (!tree_) return;
  const auto point = [&](uint32_t at) {
    const int line = lines.lineOf(at);
    return TSPoint{static_cast<uint32_t>(line), at - lines.lineStart(line)};
  };
  TSInputEdit e{};
  e.start_byte = removed.begin;
  e.old_end_byte = removed.end;
  e.new_end_byte = removed.begin + static_cast<uint32_t>(inserted.size());
  e.start_point = point(removed.begin);
  e.old_end_point = point(removed.end);
  const LineIndex inner(inserted);
  const auto rows = static_cast<uint32_t>(inner.lineCount() - 1);
  const auto tail = static_cast<uint32_t>(inserted.size()) - inner.lineStart(inner.lineCount() - 1);
  e.new_end_point = {e.start_point.row + rows, rows == 0 ? e.start_point.column + tail : tail};
  (void)before;
  ts_tree_edit(tree_.get(), &e);
}

std::string SyntaxTree::sexpr() const {
  char* s = ts_node_string(root());
  std::string out(s);
  std::free(s);
  return out;
}

}  // namespace flagos::lsp

// One open text document: its text, version and lines, changed by LSP edits.
//
// An edit that cannot be applied marks the document out of sync; it stays so, and is not analysed, until the client
// sends the whole text. Small texts are parsed afresh (a 2,000-line file takes some milliseconds); incremental reparsing
// is for big ones, since the core in use can reuse a wrong node after an edit that touches look-ahead bytes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lsp/text/position.h"
#include "lsp/text/syntax.h"

namespace flagos::lsp {

struct TextChange {
  std::optional<Range> range;  // empty: the whole text
  std::string text;
};

// Which line of an earlier text each present line was, followed through the edits: what a diff of two texts cannot tell
// when an identical line is put beside another.
struct LineOrigins {
  std::string text;                // the earlier text
  std::vector<int> origin;         // by present line: its line there, or -1 for a new one (0-based)
};

class Document {
 public:
  Document(std::string uri, std::string path, int version, std::string text);
  void apply(const std::vector<TextChange>& changes, int version, Encoding encoding);
  const std::string& uri() const { return uri_; }
  const std::string& path() const { return path_; }     // "" if the URI is not a file
  const std::string& text() const { return text_; }
  const LineIndex& lines() const { return lines_; }
  int version() const { return version_; }
  bool outOfSync() const { return out_of_sync_; }
  // Parsed on demand and kept until the next edit; the error says why there is no tree.
  const Result<SyntaxTree>& tree();
  void dropTree() { tree_.reset(); tree_is_old_ = false; }
  // The texts that a process may have read: as opened, and as saved (the last four), each with the lines' origins.
  const std::vector<LineOrigins>& origins() const { return origins_; }
  void saved();

 private:
  void replace(Span removed, std::string_view inserted);
  void followLines(Span removed, std::string_view inserted);
  std::string uri_, path_, text_;
  LineIndex lines_;
  int version_ = 0;
  bool out_of_sync_ = false;
  std::optional<Result<SyntaxTree>> tree_;
  bool tree_is_old_ = false;
  std::vector<LineOrigins> origins_;
};

// "file:///a%20b.py" -> "/a b.py"; "" for another scheme. And back.
std::string pathOfUri(std::string_view uri);
std::string uriOfPath(std::string_view path);

}  // namespace flagos::lsp

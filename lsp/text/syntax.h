// A tree-sitter tree of Python text, with caps that keep broken input from hanging or crashing the server.
//
// Trees own nothing of the text. One thread at a time per tree. Lone CRs are shown to the parser as LF (the grammar
// knows only LF and CRLF); offsets stay the same.
#pragma once
#include <tree_sitter/api.h>

#include <memory>
#include <string>
#include <string_view>

#include "lsp/text/position.h"
#include "runtime/base/result.h"

namespace flagos::lsp {

inline constexpr size_t kMaxSourceBytes = 2u << 20;
inline constexpr int kMaxIndents = 100;            // CPython's own limit; deeper text overruns the scanner's state
inline constexpr uint64_t kParseBudgetNs = 2'000'000'000;

class SyntaxTree {
 public:
  // Errors: the text is too big, too deeply indented, or took too long. `old` (edited with edit()) makes it incremental.
  static bool readable(std::string_view text);   // of a size and a depth that is parsed
  static Result<SyntaxTree> parse(std::string_view text, const SyntaxTree* old = nullptr);
  void edit(std::string_view before, const LineIndex& lines, Span removed, std::string_view inserted);
  TSNode root() const { return ts_tree_root_node(tree_.get()); }
  bool hasErrors() const { return ts_node_has_error(root()); }
  explicit operator bool() const { return tree_ != nullptr; }
  std::string sexpr() const;

 private:
  struct Delete { void operator()(TSTree* t) const { ts_tree_delete(t); } };
  std::unique_ptr<TSTree, Delete> tree_;
};

}  // namespace flagos::lsp

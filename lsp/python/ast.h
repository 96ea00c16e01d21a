// A small syntax tree of Python, made once from tree-sitter's concrete tree: what the analysis walks many times.
//
// Broken parts of the text become `error` nodes whose readable statements are kept, so that the sites outside a broken
// span are still found. Views point into the source text, which must outlive the tree.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lsp/python/names.h"
#include "lsp/text/bodies.h"
#include "lsp/text/position.h"
#include "lsp/text/syntax.h"

namespace flagos::lsp {

enum class N : uint8_t {
  // expressions; which members are used
  name,         // text
  integer, real,  // text
  string,       // value (decoded); list = interpolations if text is "f", then parts() has the literal pieces
  bytes, true_, false_, none, ellipsis,
  attribute,    // a . text
  subscript,    // a [ list ]
  slice,        // list
  call,         // a ( list ); arguments are expressions, keyword, starred, dstarred
  keyword,      // text = a
  starred, dstarred,  // a
  binary,       // a text b
  boolean,      // a text b  ("and", "or")
  unary,        // text a
  not_,         // a
  compare,      // list (operands); text = first operator
  conditional,  // a if b else c
  lambda,       // list2 = params, a = body
  tuple, list, set,  // list
  dict,         // list of pair / dstarred
  pair,         // a : b
  comp,         // text = list|set|dict|generator; a = body; list = for_in (a = target, b = iterable) / if_clause (a)
  for_in, if_clause,
  await, yield, named,  // a ; named: a := b
  // statements
  module,       // list
  expr_stmt,    // a
  assign,       // a = b, annotation c
  aug_assign,   // a text= b
  return_, raise, assert_,  // a
  delete_,      // list
  if_,          // a, list, list2
  while_,       // a, list, list2
  for_,         // a in b, list, list2
  try_,         // list; list2 = except (a, text = alias, list) and finally_ (list), else_ (list)
  except, finally_, else_,
  with_,        // list2 = with_item (a, b = target), list
  with_item,
  def,          // text, list2 = param, list, decorators
  class_,       // text, list2 = bases (arguments), list, decorators
  param,        // text, a = default, c = annotation; value = "", "*" or "**"
  import_,      // list of alias
  from_import,  // value = module as written, list of alias; text = "*" for a star import
  alias,        // value = dotted name, text = bound name ("" if none)
  global_,      // list of name (nonlocal too)
  match,        // list = subjects, list2 = case_ (list)
  case_, pass, break_, continue_,
  error,        // list
};

struct Node {
  N kind = N::error;
  uint32_t begin = 0, end = 0;
  int line = 0;                      // 1-based
  std::string_view text;
  SlotName name = nullptr;           // of nodes that bind or read a name: `text`, interned
  std::string value;
  Node *a = nullptr, *b = nullptr, *c = nullptr;
  std::vector<Node*> list, list2, decorators;
  const Node* parent = nullptr;
  Span span() const { return {begin, end}; }
};

// Nodes in the order in which they were made, in blocks that never move.
class Nodes {
 public:
  Node* add() {
    if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<Node[]>(kBlock));
    return &blocks_.back()[size_++ % kBlock];
  }
  size_t size() const { return size_; }
  class Iterator {
   public:
    Iterator(const Nodes* all, size_t at) : all_(all), at_(at) {}
    const Node& operator*() const { return all_->blocks_[at_ / kBlock][at_ % kBlock]; }
    Iterator& operator++() { ++at_; return *this; }
    bool operator!=(const Iterator& o) const { return at_ != o.at_; }
   private:
    const Nodes* all_;
    size_t at_;
  };
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  static constexpr size_t kBlock = 64;
  std::vector<std::unique_ptr<Node[]>> blocks_;
  size_t size_ = 0;
};

class Ast {
 public:
  Ast() = default;
  Ast(Ast&&) = default;
  Ast& operator=(Ast&&) = default;
  // The text is read when something is asked of it first; it must stay where it is. Most modules that a file imports are
  // never looked into, and of the others most functions never called: their bodies are read by body().
  void readLater(std::string_view text) { text_ = text; pending_ = true; }
  const Node* root() const { settle(); return root_; }
  // The statements of a function (N::def) of this tree.
  const std::vector<Node*>& body(const Node* def) const;
  Node* add(N kind) {
    Node* n = nodes_.add();
    n->kind = kind;
    if (kind == N::import_ || kind == N::from_import) imports_.push_back(n);
    return n;
  }
  void setRoot(Node* n) { root_ = n; }
  size_t size() const { settle(); return nodes_.size(); }
  size_t bytes() const { return nodes_.size() * sizeof(Node); }   // of the nodes made so far
  bool hasErrors() const { settle(); return errors_; }
  void markError() { errors_ = true; }
  // The first part that does not parse, in bytes; {0, 0} where there is none.
  void markBroken(uint32_t begin, uint32_t end) { broken_ = {begin, end}; }
  std::pair<uint32_t, uint32_t> broken() const { settle(); return broken_; }
  bool tooDeep() const { settle(); return too_deep_; }  // parts nested deeper than the cap were left out
  void markTooDeep() { too_deep_ = errors_ = true; }
  const Nodes& nodes() const { settle(); return nodes_; }
  // The import statements, wherever they are, in the order of the text.
  const std::vector<const Node*>& imports() const { settle(); return imports_; }

 private:
  Nodes nodes_;
  void readBody(Node* def, const FunctionBody& where);
  std::map<const Node*, FunctionBody> unread_;
  void settle() const { if (pending_) const_cast<Ast*>(this)->read(); }
  void read();
  std::string_view text_;
  bool pending_ = false;
  Node* root_ = nullptr;
  std::vector<const Node*> imports_;
  bool errors_ = false, too_deep_ = false;
  std::pair<uint32_t, uint32_t> broken_{0, 0};
};

Ast lower(std::string_view text, const SyntaxTree& tree);

// "torch.cuda.is_available" of a chain of names and attributes; "" for anything else.
std::string dottedName(const Node* n);
// The innermost node of one of the given kinds that covers the byte, or null.
const Node* enclosing(const Node* n, N kind);
// The source text of a node on one line, cut at `max` bytes.
std::string shortText(std::string_view text, const Node* n, size_t max = 60);

}  // namespace flagos::lsp

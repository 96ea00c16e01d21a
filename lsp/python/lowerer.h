// Internal to lower(): walks tree-sitter's concrete tree. Expressions and statements are in files of their own.
#pragma once
#include <cstring>

#include "lsp/python/ast.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace flagos::lsp::detail {

inline constexpr int kMaxDepth = 400;  // expressions nested deeper are kept as `error`

struct Child { TSNode node{}; TSFieldId field = 0; };

struct Fields {
  TSFieldId left, right, type, object, attribute, operator_, function, arguments, body, name, value, parameters, condition,
      consequence, alternative, superclasses, alias, argument, key, subscript, expression, definition, module_name,
      subject, cause, operators, code;
  Fields() {
    const auto* l = tree_sitter_python();
    const auto f = [&](const char* n) { return ts_language_field_id_for_name(l, n, static_cast<uint32_t>(std::strlen(n))); };
    left = f("left"); right = f("right"); type = f("type"); object = f("object"); attribute = f("attribute");
    operator_ = f("operator"); function = f("function"); arguments = f("arguments"); body = f("body"); name = f("name");
    value = f("value"); parameters = f("parameters"); condition = f("condition"); consequence = f("consequence");
    alternative = f("alternative"); superclasses = f("superclasses"); alias = f("alias"); argument = f("argument");
    key = f("key"); subscript = f("subscript"); expression = f("expression"); definition = f("definition");
    module_name = f("module_name"); subject = f("subject"); cause = f("cause"); operators = f("operators"); code = f("code");
  }
};

class Lowerer {
 public:
  // `text` begins at this byte and line of the file that the nodes are of.
  Lowerer(std::string_view text, Ast& ast, uint32_t base = 0, int line = 0) : text_(text), ast_(ast), base_(base), line_(line) {}
  ~Lowerer() { if (walking_) ts_tree_cursor_delete(&cursor_); }
  Lowerer(const Lowerer&) = delete;
  Lowerer& operator=(const Lowerer&) = delete;

  void block(TSNode root, Node* owner) { statements(root, owner->list); }
  Node* module(TSNode root) {
    Node* m = make(N::module, root);
    statements(root, m->list);
    return m;
  }

 private:
  using Method = Node* (Lowerer::*)(TSNode);
  std::string_view text_;
  Ast& ast_;
  uint32_t base_;
  int line_;
  std::vector<Child> stack_;
  TSTreeCursor cursor_{};
  bool walking_ = false;
  int depth_ = 0;

  static const Fields& f() {
    static const Fields fields;
    return fields;
  }
  // The grammar's name of a node's kind, without measuring it each time.
  static std::string_view type(TSNode n) {
    static const std::vector<std::string_view> names = [] {
      std::vector<std::string_view> out;
      const auto* l = tree_sitter_python();
      for (uint32_t i = 0; i < ts_language_symbol_count(l); ++i) out.emplace_back(ts_language_symbol_name(l, static_cast<TSSymbol>(i)));
      return out;
    }();
    const TSSymbol s = ts_node_symbol(n);
    return s < names.size() ? names[s] : "ERROR";
  }
  std::string_view src(TSNode n) const {
    const auto b = ts_node_start_byte(n), e = ts_node_end_byte(n);
    return text_.substr(b, e - b);
  }
  Node* make(N kind, TSNode n) {
    Node* out = ast_.add(kind);
    out->begin = base_ + ts_node_start_byte(n);
    out->end = base_ + ts_node_end_byte(n);
    out->line = line_ + static_cast<int>(ts_node_start_point(n).row) + 1;
    return out;
  }
  // The children of a node, on a stack that all levels of the walk share.
  class Children {
   public:
    Children(std::vector<Child>& stack, size_t from) : stack_(stack), from_(from), to_(stack.size()) {}
    ~Children() { stack_.resize(from_); }
    Children(const Children&) = delete;
    Children& operator=(const Children&) = delete;
    struct Iterator {
      const std::vector<Child>* stack;
      size_t at;
      Child operator*() const { return (*stack)[at]; }   // a copy: deeper levels may move the stack
      Iterator& operator++() { ++at; return *this; }
      bool operator!=(const Iterator& o) const { return at != o.at; }
    };
    Iterator begin() const { return {&stack_, from_}; }
    Iterator end() const { return {&stack_, to_}; }
    size_t size() const { return to_ - from_; }
   private:
    std::vector<Child>& stack_;
    size_t from_, to_;
  };
  Children children(TSNode n) {
    const size_t from = stack_.size();
    if (walking_) ts_tree_cursor_reset(&cursor_, n);
    else cursor_ = ts_tree_cursor_new(n);
    walking_ = true;
    if (ts_tree_cursor_goto_first_child(&cursor_)) {
      do {
        const TSNode c = ts_tree_cursor_current_node(&cursor_);
        if (!ts_node_is_extra(c) || ts_node_is_error(c)) stack_.push_back({c, ts_tree_cursor_current_field_id(&cursor_)});
      } while (ts_tree_cursor_goto_next_sibling(&cursor_));
    }
    return {stack_, from};
  }
  TSNode field(TSNode n, TSFieldId id) const { return ts_node_child_by_field_id(n, id); }
  Node* exprField(TSNode n, TSFieldId id) {
    const TSNode c = field(n, id);
    return ts_node_is_null(c) ? nullptr : expr(c);
  }
  void exprs(TSNode n, std::vector<Node*>& out) {
    const Children all = children(n);
    out.reserve(out.size() + all.size());
    for (const auto& c : all) if (ts_node_is_named(c.node)) out.push_back(expr(c.node));
  }

  // ---- statements ----
  void block(TSNode n, std::vector<Node*>& out) {
    if (ts_node_is_null(n)) return;
    statements(n, out);
  }
  void statements(TSNode n, std::vector<Node*>& out) {
    for (const auto& c : children(n)) {
      if (ts_node_is_named(c.node)) statement(c.node, out);
    }
  }

  void statement(TSNode n, std::vector<Node*>& out);
  Node* ifStatement(TSNode n);
  Node* function(TSNode n);
  Node* classDef(TSNode n);
  Node* tryStatement(TSNode n);
  Node* withStatement(TSNode n);
  Node* importStatement(TSNode n);
  Node* fromImport(TSNode n);
  void parameters(TSNode n, std::vector<Node*>& out);
  Node* assignment(TSNode n);

  // ---- expressions ----
  Node* expr(TSNode n) {
    if (depth_ >= kMaxDepth) { ast_.markTooDeep(); return make(N::error, n); }
    ++depth_;
    Node* out = exprInner(n);
    --depth_;
    return out;
  }
  Node* exprInner(TSNode n);
  Node* stringNode(TSNode n);
  void arguments(TSNode n, std::vector<Node*>& out);
  Node* binaryLike(TSNode n, N kind) {
    Node* o = make(kind, n);
    o->a = exprField(n, f().left);
    o->b = exprField(n, f().right);
    const TSNode op = field(n, f().operator_);
    if (!ts_node_is_null(op)) o->text = src(op);
    return o;
  }
};

}  // namespace flagos::lsp::detail

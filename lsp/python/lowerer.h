// Internal to lower(): walks tree-sitter's concrete tree. Expressions and statements are in files of their own.
#pragma once
#include <cstring>

#include "lsp/python/ast.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace flagos::lsp::detail {

inline constexpr int kMaxDepth = 400;  // expressions nested deeper are kept as `error`

struct Child { TSNode node; TSFieldId field; };

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
  Lowerer(std::string_view text, Ast& ast) : text_(text), ast_(ast) {}

  Node* module(TSNode root) {
    Node* m = make(N::module, root);
    statements(root, m->list);
    return m;
  }

 private:
  using Method = Node* (Lowerer::*)(TSNode);
  std::string_view text_;
  Ast& ast_;
  int depth_ = 0;

  static const Fields& f() {
    static const Fields fields;
    return fields;
  }
  std::string_view type(TSNode n) const { return ts_node_type(n); }
  std::string_view src(TSNode n) const {
    const auto b = ts_node_start_byte(n), e = ts_node_end_byte(n);
    return text_.substr(b, e - b);
  }
  Node* make(N kind, TSNode n) {
    Node* out = ast_.add(kind);
    out->begin = ts_node_start_byte(n);
    out->end = ts_node_end_byte(n);
    out->line = static_cast<int>(ts_node_start_point(n).row) + 1;
    return out;
  }
  std::vector<Child> children(TSNode n) const {
    std::vector<Child> out;
    TSTreeCursor cursor = ts_tree_cursor_new(n);
    if (ts_tree_cursor_goto_first_child(&cursor)) {
      do {
        const TSNode c = ts_tree_cursor_current_node(&cursor);
        if (!ts_node_is_extra(c) || ts_node_is_error(c)) out.push_back({c, ts_tree_cursor_current_field_id(&cursor)});
      } while (ts_tree_cursor_goto_next_sibling(&cursor));
    }
    ts_tree_cursor_delete(&cursor);
    return out;
  }
  TSNode field(TSNode n, TSFieldId id) const { return ts_node_child_by_field_id(n, id); }
  Node* exprField(TSNode n, TSFieldId id) {
    const TSNode c = field(n, id);
    return ts_node_is_null(c) ? nullptr : expr(c);
  }
  void exprs(TSNode n, std::vector<Node*>& out) {
    for (const auto& c : children(n)) {
      if (ts_node_is_named(c.node)) out.push_back(expr(c.node));
    }
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

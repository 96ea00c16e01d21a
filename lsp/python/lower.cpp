#include <array>
#include <cstring>
#include <unordered_map>

#include "lsp/python/ast.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace flagos::lsp {
namespace {

constexpr int kMaxDepth = 400;  // expressions nested deeper are kept as `error`

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
    if (depth_ >= kMaxDepth) { ast_.markError(); return make(N::error, n); }
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

std::string unescape(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\' || i + 1 >= s.size()) { out += s[i]; continue; }
    switch (s[++i]) {
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case '\n': break;
      case '\\': case '\'': case '"': out += s[i]; break;
      default: out += '\\'; out += s[i];
    }
  }
  return out;
}

Node* Lowerer::stringNode(TSNode n) {
  Node* o = make(N::string, n);
  bool raw = false;
  for (const auto& c : children(n)) {
    const auto t = type(c.node);
    if (t == "string_start") {
      for (const char ch : src(c.node)) {
        if (ch == 'b' || ch == 'B') o->kind = N::bytes;
        if (ch == 'r' || ch == 'R') raw = true;
        if (ch == 'f' || ch == 'F' || ch == 't' || ch == 'T') o->text = "f";
      }
    } else if (t == "string_content") {
      Node* piece = make(N::string, c.node);
      piece->value = raw ? std::string(src(c.node)) : unescape(src(c.node));
      if (o->text == "f") o->list.push_back(piece); else o->value += piece->value;
    } else if (t == "interpolation") {
      const TSNode e = field(c.node, f().expression);
      if (!ts_node_is_null(e)) o->list.push_back(expr(e));
    }
  }
  if (o->text == "f") {  // an f-string without interpolations is a plain string
    bool plain = true;
    for (const Node* p : o->list) plain = plain && p->kind == N::string && p->text.empty() && p->begin > o->begin;
    if (plain) {
      for (const Node* p : o->list) o->value += p->value;
      o->list.clear();
      o->text = {};
    }
  }
  return o;
}

void Lowerer::arguments(TSNode n, std::vector<Node*>& out) {
  if (type(n) == "generator_expression") { out.push_back(expr(n)); return; }
  for (const auto& c : children(n)) {
    if (!ts_node_is_named(c.node)) continue;
    if (type(c.node) == "keyword_argument") {
      Node* k = make(N::keyword, c.node);
      k->text = src(field(c.node, f().name));
      k->a = exprField(c.node, f().value);
      out.push_back(k);
    } else {
      out.push_back(expr(c.node));
    }
  }
}

Node* Lowerer::exprInner(TSNode n) {
  const auto t = type(n);
  const auto with = [&](N kind, Node* a) { Node* o = make(kind, n); o->a = a; return o; };
  const auto firstNamed = [&]() -> Node* {
    for (const auto& c : children(n)) if (ts_node_is_named(c.node)) return expr(c.node);
    return nullptr;
  };
  const auto sequence = [&](N kind) { Node* o = make(kind, n); exprs(n, o->list); return o; };
  if (t == "identifier" || t == "dotted_name") { Node* o = make(N::name, n); o->text = src(n); return o; }
  if (t == "attribute") {
    Node* o = with(N::attribute, exprField(n, f().object));
    o->text = src(field(n, f().attribute));
    return o;
  }
  if (t == "call") {
    Node* o = with(N::call, exprField(n, f().function));
    const TSNode a = field(n, f().arguments);
    if (!ts_node_is_null(a)) arguments(a, o->list);
    return o;
  }
  if (t == "string") return stringNode(n);
  if (t == "concatenated_string") {
    Node* o = make(N::string, n);
    for (const auto& c : children(n)) {
      if (type(c.node) != "string") continue;
      Node* s = stringNode(c.node);
      if (s->kind == N::bytes) o->kind = N::bytes;
      if (s->text == "f") { o->text = "f"; o->list.insert(o->list.end(), s->list.begin(), s->list.end()); }
      else { o->list.push_back(s); }
      o->value += s->value;
    }
    if (o->text != "f") o->list.clear();
    return o;
  }
  if (t == "integer") { Node* o = make(N::integer, n); o->text = src(n); return o; }
  if (t == "float") { Node* o = make(N::real, n); o->text = src(n); return o; }
  if (t == "true") return make(N::true_, n);
  if (t == "false") return make(N::false_, n);
  if (t == "none") return make(N::none, n);
  if (t == "ellipsis") return make(N::ellipsis, n);
  if (t == "subscript") {
    Node* o = make(N::subscript, n);
    for (const auto& c : children(n)) {
      if (c.field == f().value) o->a = expr(c.node);
      else if (c.field == f().subscript) o->list.push_back(expr(c.node));
    }
    return o;
  }
  if (t == "slice") return sequence(N::slice);
  if (t == "binary_operator") return binaryLike(n, N::binary);
  if (t == "boolean_operator") return binaryLike(n, N::boolean);
  if (t == "unary_operator") {
    Node* o = with(N::unary, exprField(n, f().argument));
    o->text = src(field(n, f().operator_));
    return o;
  }
  if (t == "not_operator") return with(N::not_, exprField(n, f().argument));
  if (t == "comparison_operator") {
    Node* o = make(N::compare, n);
    for (const auto& c : children(n)) {
      if (c.field == f().operators) { if (o->text.empty()) o->text = src(c.node); }
      else if (ts_node_is_named(c.node)) o->list.push_back(expr(c.node));
    }
    return o;
  }
  if (t == "conditional_expression") {
    Node* o = make(N::conditional, n);
    std::vector<Node*> p;
    exprs(n, p);
    if (p.size() >= 3) { o->a = p[0]; o->b = p[1]; o->c = p[2]; } else { o->kind = N::error; o->list = p; }
    return o;
  }
  if (t == "parenthesized_expression") {
    Node* inner = firstNamed();
    return inner ? inner : make(N::tuple, n);
  }
  if (t == "tuple" || t == "expression_list" || t == "pattern_list" || t == "tuple_pattern") return sequence(N::tuple);
  if (t == "list" || t == "list_pattern") return sequence(N::list);
  if (t == "set") return sequence(N::set);
  if (t == "dictionary") {
    Node* o = make(N::dict, n);
    for (const auto& c : children(n)) {
      if (!ts_node_is_named(c.node)) continue;
      if (type(c.node) == "pair") {
        Node* p = make(N::pair, c.node);
        p->a = exprField(c.node, f().key);
        p->b = exprField(c.node, f().value);
        o->list.push_back(p);
      } else {
        o->list.push_back(expr(c.node));
      }
    }
    return o;
  }
  if (t.ends_with("_comprehension") || t == "generator_expression") {
    Node* o = make(N::comp, n);
    o->text = t == "list_comprehension" ? "list" : t == "set_comprehension" ? "set" : t == "dictionary_comprehension" ? "dict" : "generator";
    for (const auto& c : children(n)) {
      const auto ct = type(c.node);
      if (ct == "for_in_clause") {
        Node* k = make(N::for_in, c.node);
        k->a = exprField(c.node, f().left);
        k->b = exprField(c.node, f().right);
        o->list.push_back(k);
      } else if (ct == "if_clause") {
        Node* k = make(N::if_clause, c.node);
        std::vector<Node*> inner;
        exprs(c.node, inner);
        if (!inner.empty()) k->a = inner[0];
        o->list.push_back(k);
      } else if (c.field == f().body) {
        if (ct == "pair") {
          o->a = make(N::pair, c.node);
          o->a->a = exprField(c.node, f().key);
          o->a->b = exprField(c.node, f().value);
        } else {
          o->a = expr(c.node);
        }
      }
    }
    return o;
  }
  if (t == "lambda") {
    Node* o = with(N::lambda, exprField(n, f().body));
    const TSNode p = field(n, f().parameters);
    if (!ts_node_is_null(p)) parameters(p, o->list2);
    return o;
  }
  if (t == "list_splat" || t == "list_splat_pattern" || t == "parenthesized_list_splat") return with(N::starred, firstNamed());
  if (t == "dictionary_splat" || t == "dictionary_splat_pattern") return with(N::dstarred, firstNamed());
  if (t == "await") return with(N::await, firstNamed());
  if (t == "yield") return with(N::yield, firstNamed());
  if (t == "named_expression") {
    Node* o = with(N::named, exprField(n, f().name));
    o->b = exprField(n, f().value);
    return o;
  }
  if (t == "type" || t == "as_pattern_target" || t == "case_pattern") {
    Node* inner = firstNamed();
    return inner ? inner : make(N::error, n);
  }
  if (t == "keyword_argument") return with(N::keyword, exprField(n, f().value));
  if (t == "assignment") return assignment(n);
  Node* o = make(N::error, n);
  if (ts_node_is_error(n)) ast_.markError();
  exprs(n, o->list);
  return o;
}

Node* Lowerer::assignment(TSNode n) {
  Node* o = make(N::assign, n);
  o->a = exprField(n, f().left);
  o->b = exprField(n, f().right);
  o->c = exprField(n, f().type);
  return o;
}

void Lowerer::parameters(TSNode n, std::vector<Node*>& out) {
  for (const auto& c : children(n)) {
    if (!ts_node_is_named(c.node)) continue;
    const auto t = type(c.node);
    Node* p = make(N::param, c.node);
    const auto named = [&](TSNode id) {
      if (ts_node_is_null(id)) return;
      const auto it = type(id);
      if (it == "list_splat_pattern" || it == "dictionary_splat_pattern") {
        p->value = it[0] == 'l' ? "*" : "**";
        const auto inner = children(id);
        for (const auto& k : inner) if (ts_node_is_named(k.node)) p->text = src(k.node);
      } else {
        p->text = src(id);
      }
    };
    if (t == "identifier" || t == "list_splat_pattern" || t == "dictionary_splat_pattern") {
      named(c.node);
    } else if (t == "default_parameter" || t == "typed_default_parameter") {
      named(field(c.node, f().name));
      p->a = exprField(c.node, f().value);
      if (t[0] == 't') p->c = exprField(c.node, f().type);
    } else if (t == "typed_parameter") {
      for (const auto& k : children(c.node)) {
        if (!ts_node_is_named(k.node)) continue;
        if (k.field == f().type) p->c = expr(k.node); else named(k.node);
      }
    } else if (t == "keyword_separator") {
      p->value = "*";
    } else {
      continue;
    }
    out.push_back(p);
  }
}

Node* Lowerer::ifStatement(TSNode n) {
  Node* top = make(N::if_, n);
  top->a = exprField(n, f().condition);
  Node* current = top;
  for (const auto& c : children(n)) {
    const auto t = type(c.node);
    if (c.field == f().consequence) {
      block(c.node, top->list);
    } else if (t == "elif_clause") {
      Node* e = make(N::if_, c.node);
      e->a = exprField(c.node, f().condition);
      block(field(c.node, f().consequence), e->list);
      current->list2.push_back(e);
      current = e;
    } else if (t == "else_clause") {
      block(field(c.node, f().body), current->list2);
    } else if (ts_node_is_error(c.node)) {
      statement(c.node, current->list);
    }
  }
  return top;
}

Node* Lowerer::function(TSNode n) {
  Node* o = make(N::def, n);
  o->text = src(field(n, f().name));
  const TSNode p = field(n, f().parameters);
  if (!ts_node_is_null(p)) parameters(p, o->list2);
  block(field(n, f().body), o->list);
  return o;
}

Node* Lowerer::classDef(TSNode n) {
  Node* o = make(N::class_, n);
  o->text = src(field(n, f().name));
  const TSNode bases = field(n, f().superclasses);
  if (!ts_node_is_null(bases)) arguments(bases, o->list2);
  block(field(n, f().body), o->list);
  return o;
}

Node* Lowerer::tryStatement(TSNode n) {
  Node* o = make(N::try_, n);
  for (const auto& c : children(n)) {
    const auto t = type(c.node);
    if (c.field == f().body) { block(c.node, o->list); continue; }
    if (t != "except_clause" && t != "finally_clause" && t != "else_clause" && t != "except_group_clause") continue;
    Node* h = make(t[0] == 'f' ? N::finally_ : t[1] == 'l' ? N::else_ : N::except, c.node);
    for (const auto& k : children(c.node)) {
      if (type(k.node) == "block") { block(k.node, h->list); continue; }
      if (!ts_node_is_named(k.node)) continue;
      if (type(k.node) == "as_pattern") {
        const TSNode alias = field(k.node, f().alias);
        if (!ts_node_is_null(alias)) h->text = src(alias);
      } else if (k.field == f().alias) {
        h->text = src(k.node);
      }
    }
    o->list2.push_back(h);
  }
  return o;
}

Node* Lowerer::withStatement(TSNode n) {
  Node* o = make(N::with_, n);
  const auto item = [&](TSNode value) {
    Node* w = make(N::with_item, value);
    if (type(value) == "as_pattern") {
      for (const auto& c : children(value)) {
        if (!ts_node_is_named(c.node)) continue;
        if (c.field == f().alias) w->b = expr(c.node); else if (!w->a) w->a = expr(c.node);
      }
    } else {
      w->a = expr(value);
    }
    o->list2.push_back(w);
  };
  for (const auto& c : children(n)) {
    if (type(c.node) == "with_clause") {
      for (const auto& k : children(c.node)) {
        if (type(k.node) != "with_item") continue;
        const TSNode v = field(k.node, f().value);
        if (ts_node_is_null(v)) continue;
        if (type(v) == "tuple") {  // with (a as b, c as d):
          for (const auto& e : children(v)) if (ts_node_is_named(e.node)) item(e.node);
        } else {
          item(v);
        }
      }
    } else if (c.field == f().body) {
      block(c.node, o->list);
    }
  }
  return o;
}

Node* Lowerer::importStatement(TSNode n) {
  Node* o = make(N::import_, n);
  for (const auto& c : children(n)) {
    if (c.field != f().name) continue;
    Node* a = make(N::alias, c.node);
    if (type(c.node) == "aliased_import") {
      a->value = src(field(c.node, f().name));
      a->text = src(field(c.node, f().alias));
    } else {
      a->value = src(c.node);
    }
    o->list.push_back(a);
  }
  return o;
}

Node* Lowerer::fromImport(TSNode n) {
  Node* o = make(N::from_import, n);
  for (const auto& c : children(n)) {
    if (c.field == f().module_name) {
      for (const char ch : src(c.node)) if (ch != ' ') o->value += ch;
    } else if (type(c.node) == "wildcard_import") {
      o->text = "*";
    } else if (c.field == f().name) {
      Node* a = make(N::alias, c.node);
      if (type(c.node) == "aliased_import") {
        a->value = src(field(c.node, f().name));
        a->text = src(field(c.node, f().alias));
      } else {
        a->value = src(c.node);
        a->text = src(c.node);
      }
      o->list.push_back(a);
    }
  }
  return o;
}

void Lowerer::statement(TSNode n, std::vector<Node*>& out) {
  if (depth_ >= kMaxDepth) { ast_.markError(); return; }
  ++depth_;
  const auto t = type(n);
  const auto simple = [&](N kind) {
    Node* o = make(kind, n);
    std::vector<Node*> p;
    exprs(n, p);
    if (!p.empty()) o->a = p[0];
    o->list = std::move(p);
    out.push_back(o);
  };
  const auto loop = [&](N kind) {
    Node* o = make(kind, n);
    if (kind == N::for_) { o->a = exprField(n, f().left); o->b = exprField(n, f().right); }
    else { o->a = exprField(n, f().condition); }
    block(field(n, f().body), o->list);
    const TSNode e = field(n, f().alternative);
    if (!ts_node_is_null(e)) block(field(e, f().body), o->list2);
    out.push_back(o);
  };
  if (t == "expression_statement") {
    std::vector<Node*> parts;
    for (const auto& c : children(n)) {
      if (!ts_node_is_named(c.node)) continue;
      const auto ct = type(c.node);
      if (ct == "assignment") {
        out.push_back(assignment(c.node));
      } else if (ct == "augmented_assignment") {
        out.push_back(binaryLike(c.node, N::aug_assign));
      } else {
        Node* o = make(N::expr_stmt, c.node);
        o->a = expr(c.node);
        out.push_back(o);
      }
    }
  } else if (t == "if_statement") { out.push_back(ifStatement(n));
  } else if (t == "for_statement") { loop(N::for_);
  } else if (t == "while_statement") { loop(N::while_);
  } else if (t == "function_definition") { out.push_back(function(n));
  } else if (t == "class_definition") { out.push_back(classDef(n));
  } else if (t == "decorated_definition") {
    const TSNode d = field(n, f().definition);
    if (!ts_node_is_null(d)) {
      Node* o = type(d) == "class_definition" ? classDef(d) : function(d);
      for (const auto& c : children(n)) {
        if (type(c.node) != "decorator") continue;
        for (const auto& k : children(c.node)) if (ts_node_is_named(k.node)) o->decorators.push_back(expr(k.node));
      }
      out.push_back(o);
    }
  } else if (t == "try_statement") { out.push_back(tryStatement(n));
  } else if (t == "with_statement") { out.push_back(withStatement(n));
  } else if (t == "import_statement") { out.push_back(importStatement(n));
  } else if (t == "import_from_statement") { out.push_back(fromImport(n));
  } else if (t == "return_statement") { simple(N::return_);
  } else if (t == "raise_statement") { simple(N::raise);
  } else if (t == "assert_statement") { simple(N::assert_);
  } else if (t == "delete_statement") {
    simple(N::delete_);
    Node* d = out.back();
    if (d->a && d->a->kind == N::tuple) d->list = d->a->list;
  } else if (t == "global_statement" || t == "nonlocal_statement") { simple(N::global_);
  } else if (t == "pass_statement") { out.push_back(make(N::pass, n));
  } else if (t == "break_statement") { out.push_back(make(N::break_, n));
  } else if (t == "continue_statement") { out.push_back(make(N::continue_, n));
  } else if (t == "print_statement") {  // Python 2's form; `print (x)` can be read as one
    Node* o = make(N::expr_stmt, n);
    o->a = make(N::call, n);
    o->a->a = make(N::name, n);
    o->a->a->text = "print";
    exprs(n, o->a->list);
    out.push_back(o);
  } else if (t == "match_statement") {
    Node* o = make(N::match, n);
    for (const auto& c : children(n)) {
      if (c.field == f().subject) o->list.push_back(expr(c.node));
      if (c.field != f().body) continue;
      for (const auto& k : children(c.node)) {
        if (type(k.node) != "case_clause") continue;
        Node* cs = make(N::case_, k.node);
        block(field(k.node, f().consequence), cs->list);
        o->list2.push_back(cs);
      }
    }
    out.push_back(o);
  } else if (t == "type_alias_statement" || t == "future_import_statement" || t == "comment") {
    // nothing that places a tensor
  } else if (ts_node_is_error(n) || t == "block") {
    if (ts_node_is_error(n)) ast_.markError();
    statements(n, out);
  } else {
    Node* o = make(N::expr_stmt, n);
    o->a = expr(n);
    out.push_back(o);
  }
  --depth_;
}

void setParents(Node* n) {
  const auto own = [&](Node* c) {
    if (!c) return;
    c->parent = n;
    setParents(c);
  };
  own(n->a); own(n->b); own(n->c);
  for (Node* c : n->list) own(c);
  for (Node* c : n->list2) own(c);
  for (Node* c : n->decorators) own(c);
}

}  // namespace

Ast lower(std::string_view text, const SyntaxTree& tree) {
  Ast ast;
  Lowerer l(text, ast);
  Node* root = l.module(tree.root());
  if (ts_node_has_error(tree.root())) ast.markError();
  setParents(root);
  ast.setRoot(root);
  return ast;
}

std::string dottedName(const Node* n) {
  if (!n) return {};
  if (n->kind == N::name) return std::string(n->text);
  if (n->kind != N::attribute) return {};
  auto head = dottedName(n->a);
  return head.empty() ? head : head + "." + std::string(n->text);
}

const Node* enclosing(const Node* n, N kind) {
  while (n && n->kind != kind) n = n->parent;
  return n;
}

std::string shortText(std::string_view text, const Node* n, size_t max) {
  std::string out;
  for (const char c : text.substr(n->begin, n->end - n->begin)) {
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (space && (out.empty() || out.back() == ' ')) continue;
    out += space ? ' ' : c;
    if (out.size() > max) { out.resize(max); out += "…"; break; }
  }
  return out;
}

}  // namespace flagos::lsp

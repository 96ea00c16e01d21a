#include "lsp/python/lowerer.h"

namespace flagos::lsp::detail {
namespace {

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

}  // namespace

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

}  // namespace flagos::lsp::detail

#include "lsp/python/lowerer.h"

namespace flagos::lsp::detail {

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

}  // namespace flagos::lsp::detail

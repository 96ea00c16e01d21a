#include "lsp/python/lowerer.h"

#include <algorithm>

namespace flagos::lsp {
namespace {

bool bearsName(N kind) {
  return kind == N::name || kind == N::attribute || kind == N::keyword || kind == N::param || kind == N::alias || kind == N::def || kind == N::class_ || kind == N::except;
}

void finish(Node* n) {
  if (bearsName(n->kind)) n->name = internName(n->text);
  const auto own = [&](Node* c) {
    if (!c) return;
    c->parent = n;
    finish(c);
  };
  own(n->a); own(n->b); own(n->c);
  for (Node* c : n->list) own(c);
  for (Node* c : n->list2) own(c);
  for (Node* c : n->decorators) own(c);
}

// The first error or missing token. A part that was read as an error as a whole is told as a whole.
void markBroken(TSNode n, std::string_view text, Ast& ast) {
  for (bool deeper = true; deeper && !ts_node_is_error(n) && !ts_node_is_missing(n);) {
    deeper = false;
    for (uint32_t i = 0; !deeper && i < ts_node_child_count(n); ++i) {
      const TSNode c = ts_node_child(n, i);
      deeper = ts_node_is_error(c) || ts_node_is_missing(c) || ts_node_has_error(c);
      if (deeper) n = c;
    }
  }
  // Blank lines behind it are no part of it.
  uint32_t begin = ts_node_start_byte(n), end = std::max(begin, ts_node_end_byte(n));
  while (end > begin && (text[end - 1] == '\n' || text[end - 1] == '\r' || text[end - 1] == ' ')) --end;
  ast.markBroken(begin, std::max(end, begin + 1));
}

}  // namespace

Ast lower(std::string_view text, const SyntaxTree& tree) {
  Ast ast;
  detail::Lowerer l(text, ast);
  Node* root = l.module(tree.root());
  if (ts_node_has_error(tree.root())) {
    ast.markError();
    markBroken(tree.root(), text, ast);
  }
  finish(root);
  ast.setRoot(root);
  return ast;
}

const std::vector<Node*>& Ast::body(const Node* def) const {
  if (const auto it = unread_.find(def); it != unread_.end()) {
    auto* self = const_cast<Ast*>(this);
    const FunctionBody where = it->second;
    self->unread_.erase(def);
    self->readBody(const_cast<Node*>(def), where);
  }
  return def->list;
}

void Ast::readBody(Node* def, const FunctionBody& where) {
  const std::string_view text = text_.substr(where.begin, where.end - where.begin);
  const auto tree = SyntaxTree::parse(text);
  if (!tree) { markError(); return; }
  detail::Lowerer(text, *this, where.begin, where.line).block(tree->root(), def);
  if (ts_node_has_error(tree->root())) markError();
  for (Node* c : def->list) {
    c->parent = def;
    finish(c);
  }
  if (!def->list.empty()) def->end = def->list.back()->end;
}

void Ast::read() {
  const std::string_view text = text_;
  pending_ = false;
  if (const auto bodies = functionBodies(text); !bodies.empty()) {
    if (auto tree = SyntaxTree::parse(withoutBodies(text, bodies)); tree && !tree->hasErrors()) {
      *this = lower(text, *tree);
      text_ = text;
      std::map<uint32_t, const FunctionBody*> by_def;
      for (const auto& b : bodies) by_def[b.def] = &b;
      for (const Node& n : nodes_)
        if (n.kind == N::def && n.list.empty())
          if (const auto b = by_def.find(n.begin); b != by_def.end()) unread_.emplace(&n, *b->second);
      if (unread_.size() == bodies.size()) return;
      *this = Ast();                       // the scan saw functions that the grammar does not
    }
  }
  if (auto tree = SyntaxTree::parse(text)) {
    *this = lower(text, *tree);
    return;
  }
  setRoot(add(N::module));   // it took too long: a module of which nothing is known
  markError();
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

// A syntax tree as text, for comparing two ways of reading it.
#pragma once
#include <string>

#include "lsp/python/ast.h"

namespace flagos::lsp {

// The whole tree as text; ends only of leaves, since the end of a function that was not read is not known.
inline void dump(const Ast& ast, const Node* n, std::string& out) {
  if (!n) { out += '-'; return; }
  const auto& list = n->kind == N::def ? ast.body(n) : n->list;
  out += "(" + std::to_string(static_cast<int>(n->kind)) + " " + std::to_string(n->begin) + " " + std::to_string(n->line) + " ";
  if (list.empty() && n->list2.empty()) out += std::to_string(n->end);
  out.append(n->text).append(n->value).append(n->name ? *n->name : "");
  for (const Node* c : {n->a, n->b, n->c}) dump(ast, c, out);
  for (const auto* part : {&list, &n->list2, &n->decorators}) {
    out += '|';
    for (const Node* c : *part) {
      if (c->parent != n) out += "!parent!";
      dump(ast, c, out);
    }
  }
  out += ')';
}

inline std::string dump(const Ast& ast) {
  std::string out;
  dump(ast, ast.root(), out);
  return out;
}

}  // namespace flagos::lsp

#include <functional>

#include "lsp/features/phrases.h"
#include "lsp/features/snapshot.h"

namespace flagos::lsp {

std::vector<Symbol> symbols(const Snapshot& s) {
  std::vector<Symbol> top;
  size_t next = 0;
  const auto& sites = s.analysis->sites;
  // Sites that begin before `end`, as children of the definition being filled.
  const std::function<void(std::vector<Symbol>&, uint32_t)> take = [&](std::vector<Symbol>& into, uint32_t end) {
    while (next < sites.size() && sites[next].span.begin < end) {
      const auto& site = sites[next++];
      into.push_back({site.call, devicesText(site), 14, site.span, site.span, {}});
    }
  };
  const std::function<void(const std::vector<Node*>&, std::vector<Symbol>&)> walk = [&](const std::vector<Node*>& block, std::vector<Symbol>& into) {
    for (const Node* n : block) {
      if (n->kind != N::def && n->kind != N::class_) {
        if (!n->list.empty()) walk(n->list, into);
        if (!n->list2.empty()) walk(n->list2, into);
        continue;
      }
      take(into, n->begin);
      const auto at = s.analysis->unit->text.find(n->text, n->begin);
      const auto begin = static_cast<uint32_t>(at == std::string::npos ? n->begin : at);
      Symbol symbol{std::string(n->text), "", n->kind == N::class_ ? 5 : 12, n->span(), {begin, begin + static_cast<uint32_t>(n->text.size())}, {}};
      walk(n->list, symbol.children);
      take(symbol.children, n->end);
      into.push_back(std::move(symbol));
    }
  };
  walk(s.analysis->unit->ast.root()->list, top);
  take(top, UINT32_MAX);
  return top;
}

}  // namespace flagos::lsp

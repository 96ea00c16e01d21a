// Comprehensions: loops inside an expression, with variables of their own.
#include "lsp/python/interp.h"

namespace flagos::lsp {

Value Interp::evalComp(const Node* n) {
  const ObjectId scope = frame().scope;
  std::vector<std::pair<SlotName, Value>> saved;
  const std::function<void(const Node*)> save = [&](const Node* t) {
    if (!t) return;
    if (t->kind == N::name) saved.emplace_back(t->name, heap_.get(scope, t->name));
    for (const Node* c : t->list) save(c);
  };
  std::vector<Value> results;
  std::vector<Value> keys;
  bool exact = true;
  int64_t count = 0;                      // passes of the one clause that there is
  bool assumed = false;
  const size_t loops = loops_.size();
  const std::function<void(size_t)> clause = [&](size_t i) {
    if (i == n->list.size()) {
      if (n->a && n->a->kind == N::pair) { keys.push_back(eval(n->a->a)); results.push_back(eval(n->a->b)); }
      else { results.push_back(eval(n->a)); }
      return;
    }
    const Node* c = n->list[i];
    if (c->kind == N::if_clause) {
      const Truth t = truth(condition(c->a));
      if (t == Truth::unknown) exact = false;
      if (t != Truth::no) clause(i + 1);
      return;
    }
    save(c->a);
    const Value over = eval(c->b);
    emit(E::iterate, c->b, "", over, {});
    loops_.push_back({n, frame().unit, false, is(over, V::iterable) && n->list.size() == 1 ? over->number : 0, 0});
    if ((is(over, V::tuple) || is(over, V::list)) && over->items.size() <= 8) {
      const size_t at = loops_.size() - 1;
      loops_[at].exact = true;
      loops_[at].passes = 1;
      for (const auto& item : over->items) { assign(c->a, item, n); clause(i + 1); loops_.resize(at + 1); ++loops_[at].pass; }
    } else {
      exact = false;
      if (is(over, V::iterable) && n->list.size() == 1) { count = over->number; assumed = over->assumed; }
      assign(c->a, elementOf(over), n);
      clause(i + 1);
    }
  };
  clause(0);
  loops_.resize(loops);
  for (auto it = saved.rbegin(); it != saved.rend(); ++it) heap_.set(scope, it->first, it->second);
  if (n->text == "dict") {
    const ObjectId id = heap_.make();
    for (size_t i = 0; i < results.size(); ++i) {
      if (is(keys[i], V::string)) heap_.set(id, keys[i]->text, results[i]);
      else heap_.set(id, "$any", join(heap_.get(id, "$any"), results[i]));
    }
    auto v = makeVal();
    v->kind = V::dict;
    v->object = id;
    return v;
  }
  if (exact && n->text != "set") return list(std::move(results));   // a generator is walked once, in order
  const Value element = joinAll(results);
  auto many = makeVal(*iterableOf(element ? element : unknown("an empty comprehension")));
  if (n->text != "set") { many->number = count; many->assumed = assumed; }
  return many;
}

}  // namespace flagos::lsp

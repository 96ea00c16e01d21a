#include "runtime/kde/rules/tree.h"

#include <algorithm>

namespace flagos::kde {
namespace {
// Independent predicates double the leaves; past this size the rest is tested one by one.
constexpr size_t kMaxNodes = 1024;

bool same(const Predicate& a, const Predicate& b) { return a.field == b.field && a.text == b.text; }
}  // namespace

RuleTree RuleTree::build(const std::vector<Rule>& rules, const Facts& sample) {
  RuleTree t;
  std::vector<Pending> pending;
  for (const Rule& r : rules) {
    if (!r.covers(sample.op())) continue;
    Pending p{&r, {}};
    bool possible = true;
    for (const Predicate& q : r.when) {
      if (q.onDevice() || q.field == Field::op) possible = possible && q.holds(sample);
      else p.left.push_back(&q);
    }
    if (possible) pending.push_back(std::move(p));
  }
  t.grow(std::move(pending), {});
  return t;
}

int RuleTree::grow(std::vector<Pending> pending, std::vector<const Rule*> hold) {
  // Rules without open predicates hold; order is kept because only a leading run of them is taken.
  size_t first = 0;
  while (first < pending.size() && pending[first].left.empty()) hold.push_back(pending[first++].rule);
  pending.erase(pending.begin(), pending.begin() + static_cast<long>(first));

  const int index = static_cast<int>(nodes_.size());
  nodes_.emplace_back();
  if (pending.empty() || nodes_.size() >= kMaxNodes) {
    nodes_.back().hold = std::move(hold);
    for (const Pending& p : pending) nodes_.back().open.push_back(p.rule);
    return index;
  }
  const Predicate* test = pending.front().left.front();
  std::vector<Pending> yes, no;
  for (const Pending& p : pending) {
    const auto it = std::find_if(p.left.begin(), p.left.end(), [&](const Predicate* q) { return same(*q, *test); });
    if (it == p.left.end()) { yes.push_back(p); no.push_back(p); continue; }
    Pending rest = p;
    rest.left.erase(rest.left.begin() + (it - p.left.begin()));
    yes.push_back(std::move(rest));
  }
  const int y = grow(std::move(yes), hold);
  const int n = grow(std::move(no), std::move(hold));
  nodes_[static_cast<size_t>(index)].test = test;
  nodes_[static_cast<size_t>(index)].yes = y;
  nodes_[static_cast<size_t>(index)].no = n;
  return index;
}

std::vector<const Rule*> RuleTree::matches(const Facts& f) const {
  size_t i = 0;
  while (nodes_[i].test) i = static_cast<size_t>(nodes_[i].test->holds(f) ? nodes_[i].yes : nodes_[i].no);
  std::vector<const Rule*> out = nodes_[i].hold;
  for (const Rule* r : nodes_[i].open)
    if (std::all_of(r->when.begin(), r->when.end(), [&](const Predicate& p) { return p.holds(f); })) out.push_back(r);
  return out;
}

}  // namespace flagos::kde

// The rules of one operator as a decision tree: each predicate is tested at most once on the way to a leaf that lists, in
// order, the rules that hold. Predicates on the device are decided when the tree is built.
#pragma once
#include <vector>

#include "runtime/kde/rules/rule.h"

namespace flagos::kde {

class RuleTree {
 public:
  // `rules` in order of precedence; they must outlive the tree. `sample` is any call of the operator on the device.
  static RuleTree build(const std::vector<Rule>& rules, const Facts& sample);
  // Rules that hold for the call, in order.
  std::vector<const Rule*> matches(const Facts&) const;
  size_t nodes() const noexcept { return nodes_.size(); }

 private:
  struct Pending { const Rule* rule; std::vector<const Predicate*> left; };
  struct Node {
    const Predicate* test = nullptr;       // null: a leaf
    int yes = -1, no = -1;
    std::vector<const Rule*> hold;         // leaf: rules that hold ...
    std::vector<const Rule*> open;         // ... and those still to be tested one by one (the tree has a size cap)
  };
  int grow(std::vector<Pending> pending, std::vector<const Rule*> hold);
  std::vector<Node> nodes_;
};

}  // namespace flagos::kde

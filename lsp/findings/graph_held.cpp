// graph-held: `total += loss` in a loop. The sum keeps the autograd graph of every pass, and with it the memory.
//
// Certain in two cases: the very tensor is the one that .backward() was called on in this loop; or the loop goes over a
// DataLoader, the tensor has a graph, and nothing in the function ever calls backward on what is summed.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const Names kDetaching = {"item", "detach", "tolist", "numpy", "data", "cpu_item", "detach_"};
const Names kNumbers = {"float", "int", "bool", "len", "str"};

// Names of `expression` that keep their graph in it.
std::vector<std::string> heldNames(const Node* expression) {
  std::vector<std::string> out;
  walk(expression, [&](const Node* n) {
    if (n->kind == N::attribute && kDetaching.count(n->text)) return false;
    if (n->kind == N::call && n->a) {
      if (n->a->kind == N::name && kNumbers.count(n->a->text)) return false;
      if (n->a->kind == N::attribute && kDetaching.count(n->a->text)) return false;
    }
    if (n->kind == N::name || n->kind == N::attribute) {
      if (const auto name = dottedName(n); !name.empty()) { out.push_back(name); return false; }
    }
    return true;
  });
  return out;
}

bool isBackward(const Node* n) { return n->kind == N::call && n->a && n->a->kind == N::attribute && n->a->text == "backward"; }

// `name` itself, or scaler.scale(name), gets .backward() somewhere below `n`.
bool backwardOn(const Node* n, std::string_view name) {
  bool found = false;
  walk(n, [&](const Node* c) {
    if (isBackward(c)) for (const auto& held : heldNames(c->a->a)) found = found || held == name;
    return !found;
  });
  return found;
}

bool anyBackward(const Node* n) {
  bool found = false;
  walk(n, [&](const Node* c) {
    found = found || isBackward(c) || (c->kind == N::name && (c->text == "grad" || c->text == "backward"));
    found = found || (c->kind == N::attribute && c->text == "grad" && c->parent && c->parent->kind == N::call);
    return !found;
  });
  return found;
}

// Freezing parameters takes their graph away, and is not followed.
bool freezes(const SourceUnit& unit) { return unit.says("requires_grad"); }

const Node* bodyLoop(const CallEvent& e) {
  for (size_t i = e.loops->size(); i-- > 0;) {
    const Node* l = (*e.loops)[i].node;
    if (l->kind != N::comp && contains(l, e.node) && functionAround(l) == functionAround(e.node)) return l;
  }
  return nullptr;
}

void look(Interp& interp, const CallEvent& e) {
  if (e.no_grad || e.loops->empty()) return;
  const Node* loop = bodyLoop(e);
  if (!loop) return;
  std::string target;
  const Node* operand = nullptr;
  Value value;
  if (e.kind == E::augment) {
    if (e.node->text != "+=") return;
    target = dottedName(e.node->a);
    operand = e.node->b;
    value = e.args->at(0)->value;
  } else if (e.kind == E::assign) {  // total = total + loss
    const Node* sum = e.node->b;
    if (!sum || sum->kind != N::binary || sum->text != "+") return;
    target = dottedName(e.node->a);
    if (target.empty()) return;
    const bool left = dottedName(sum->a) == target;
    if (!left && dottedName(sum->b) != target) return;
    operand = left ? sum->b : sum->a;
    value = e.args->at(0)->value;
  } else {
    if (e.call != "list.append" || e.args->positional() != 1 || !e.node->a) return;
    target = dottedName(e.node->a->a);
    operand = e.args->at(0)->node;
    value = e.args->at(0)->value;
  }
  if (target.empty() || !operand) return;
  // Made anew in every pass, it holds one graph only.
  const std::string_view root(target.data(), std::min(target.find('.'), target.size()));
  bool fresh = false;
  walk(loop, [&](const Node* n) {
    if (n->kind == N::assign && n != e.node && n->a && dottedName(n->a) == target && !contains(n->b, operand)) fresh = true;
    return !fresh;
  });
  if (fresh || (loop->kind == N::for_ && assignedIn(loop->a, root))) return;
  const Node* function = functionAround(e.node);
  if (backwardOn(function, target)) return;

  std::string held;
  for (const auto& name : heldNames(operand)) if (backwardOn(loop, name)) held = name;
  const bool trained = !held.empty() && (isAny(value, V::tensor) || isAny(value, V::unknown));
  if (!trained) {
    const Value over = interp.state(0, "$loop:" + std::to_string(loop->begin));
    bool graph = false;
    forEach(value, [&](const Value& v) { graph = graph || (v->kind == V::tensor && v->graph); });
    if (!graph || !over || freezes(*e.unit) || anyBackward(function)) return;
    const auto names = heldNames(operand);
    if (names.empty()) return;
    held = names.front();
  }
  Finding f = findingAt("graph-held", e.node, "`" + target + "` keeps the autograd graph of `" + held + "` from every pass of the loop, and the memory with it");
  f.related.push_back({e.unit->path, loop->line, "the loop"});
  const Node* place = nullptr;
  walk(operand, [&](const Node* n) {
    if (!place && dottedName(n) == held) place = n;
    return !place;
  });
  if (place) f.fix = Fix{true, "Add " + held + ".detach() instead", {{{place->end, place->end}, ".detach()"}}};
  interp.report(std::move(f), e.unit);
}

// Remembers which loops go over a DataLoader.
void onIterate(Interp& interp, const CallEvent& e) {
  const Node* loop = e.node->parent;
  if (!loop || loop->kind != N::for_) return;
  const auto from_loader = [&](const Value& v) {
    if (is(v, V::instance)) {
      const Value cls = interp.classOf(v);
      return is(cls, V::external) && cls->text == "torch.utils.data.DataLoader";
    }
    return v && v->loader != nullptr;
  };
  Value element = e.receiver;
  if (is(element, V::iterable) && is(element->self, V::tuple) && element->self->items.size() == 2) element = element->self->items[1];  // enumerate()
  if (is(element, V::tuple) && !element->items.empty()) element = element->items[0];
  if (from_loader(element)) interp.setState(0, "$loop:" + std::to_string(loop->begin), boolean(true));
}

}  // namespace

void listenGraphHeld(Interp& interp) {
  interp.listen(E::augment | E::assign | E::call, look);
  interp.listen(static_cast<uint16_t>(E::iterate), onIterate);
}

}  // namespace flagos::lsp

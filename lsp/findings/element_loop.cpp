// element-loop: Python walks over the elements of a tensor on a device: one tiny kernel, or one wait, for each.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const Names kWalking = {"list", "tuple", "sum", "max", "min", "sorted", "any", "all", "enumerate", "set", "map", "filter"};
const Names kReducing = {"sum", "max", "min", "any", "all"};

std::optional<size_t> rank(const Value& v) {
  std::optional<size_t> out;
  bool certain = true;
  forEach(v, [&](const Value& t) {
    if (t->kind != V::tensor || !t->shape || (out && *out != t->shape->size())) { certain = false; return; }
    out = t->shape->size();
  });
  return certain ? out : std::nullopt;
}

// The loop reads its variable as a number: then the elements are scalars, whatever the rank was.
bool readsScalars(const Node* loop) {
  const Node* target = loop->kind == N::for_ ? loop->a : nullptr;
  if (!target || target->kind != N::name) return false;
  bool scalar = false;
  for (const Node* s : loop->list)
    walk(s, [&](const Node* n) {
      const auto is_target = [&](const Node* x) { return x && x->kind == N::name && x->text == target->text; };
      if (n->kind == N::call && n->a && n->a->kind == N::attribute && n->a->text == "item" && is_target(n->a->a)) scalar = true;
      if (n->kind == N::call && n->a && n->a->kind == N::name && (n->a->text == "float" || n->a->text == "int") && !n->list.empty() && is_target(n->list[0])) scalar = true;
      return !scalar;
    });
  return scalar;
}

Finding make(const Node* node, const std::string& device) {
  return findingAt("element-loop", node, "Python goes through the elements of a tensor on " + device + " one by one: one small kernel, or one wait, for each");
}

void onIterate(Interp& interp, const CallEvent& e) {
  const std::string device = acceleratorOf(e.receiver);
  if (device.empty()) return;
  const Node* loop = e.node->parent;
  const auto r = rank(e.receiver);
  if (r ? *r != 1 : !(loop && readsScalars(loop))) return;
  Finding f = make(e.node, device);
  if (loop) f.related.push_back({e.unit->path, loop->line, "the loop"});
  f.fix = Fix{false, "Read all elements at once with .tolist()", {{{e.node->end, e.node->end}, ".tolist()"}}};
  if (!isPlace(e.node) && e.node->kind != N::call) f.fix.reset();
  interp.report(std::move(f), e.unit);
}

void onCall(Interp& interp, const CallEvent& e) {
  if (!e.call.starts_with("builtins.") || e.node->kind != N::call) return;
  const std::string_view name = e.call.substr(9);
  if (!kWalking.count(name)) return;
  const Value walked = name == "map" || name == "filter" ? (e.args->at(1) ? e.args->at(1)->value : nullptr) : e.receiver;
  if (e.args->positional() != (name == "map" || name == "filter" ? 2 : 1)) return;
  const std::string device = acceleratorOf(walked);
  const auto r = rank(walked);
  // sum(), max() ... of an unknown rank: comparing needs scalars, so only those are certain.
  if (device.empty() || !r || *r != 1) return;
  Finding f = make(e.node, device);
  const Node* argument = e.args->at(0)->node;
  if (kReducing.count(name) && argument && (isPlace(argument) || argument->kind == N::call))
    f.fix = Fix{false, "Use the tensor's own " + std::string(name) + "()", {{e.node->span(), sourceOf(*e.unit, argument) + "." + std::string(name) + "()"}}};
  interp.report(std::move(f), e.unit);
}

// t[i] with the loop's own index, as many indices as dimensions.
void onSubscript(Interp& interp, const CallEvent& e) {
  const std::string device = e.call == "os.environ" ? "" : acceleratorOf(e.receiver);
  const auto r = rank(e.receiver);
  if (device.empty() || !r || *r == 0) return;
  const Node* loop = nullptr;
  size_t indices = 0;
  bool own = false;
  for (const auto& k : e.args->list) {
    if (!k.name.empty()) continue;
    ++indices;
    if (!k.node || isAny(k.value, V::tensor) || k.node->kind == N::slice) return;
    for (const auto& l : *e.loops) {
      if (l.node->kind != N::for_ || !contains(l.node, e.node) || !l.node->a) continue;
      for (const auto name : namesIn(k.node)) if (l.node->a->kind == N::name && name == l.node->a->text) { own = true; loop = l.node; }
    }
  }
  if (indices != *r || !own) return;
  // `t[i].item()` is one wait, and said as such.
  const Node* p = e.node->parent;
  if (p && p->kind == N::attribute && (p->text == "item" || p->text == "tolist")) return;
  if (p && p->kind == N::call && p->a && p->a->kind == N::name) return;
  Finding f = make(e.node, device);
  f.related.push_back({e.unit->path, loop->line, "the loop"});
  interp.report(std::move(f), e.unit);
}

}  // namespace

void listenElementLoop(Interp& interp) {
  interp.listen(E::call | E::iterate | E::subscript | E::store, [](Interp& i, const CallEvent& e) {
    if (e.kind == E::iterate) onIterate(i, e);
    else if (e.kind == E::call) onCall(i, e);
    else onSubscript(i, e);
  });
}

}  // namespace flagos::lsp

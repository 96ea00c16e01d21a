// ineffective-async: a copy to the device runs beside the program only if the host memory is pinned and the copy is
// non-blocking. One without the other costs, and gains nothing.
#include <algorithm>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

enum class Pinned : uint8_t { no, yes, unknown };

Pinned pinnedBy(const Node* loader) {
  const Node* flag = keywordOf(loader, "pin_memory");
  for (const Node* a : loader->list) if (a->kind == N::dstarred) return Pinned::unknown;
  if (!flag || flag->kind == N::false_) return Pinned::no;
  return flag->kind == N::true_ ? Pinned::yes : Pinned::unknown;
}

Pinned pinned(const Value& v, const SourceUnit& unit) {
  if (!v) return Pinned::unknown;
  if (v->loader) return pinnedBy(v->loader);
  if (!certainlyOn(v, "cpu")) return Pinned::unknown;
  if (v->pinned) return Pinned::yes;
  // Somewhere here memory is pinned; which tensors that reaches is not certain.
  return !unit.says("pin_memory") ? Pinned::no : Pinned::unknown;
}

const Node* rootOf(const Node* n) {
  while (n->parent) n = n->parent;
  return n;
}

void look(Interp& interp, const CallEvent& e) {
  const Arg* target = e.args->keyword("$target");
  if (!target || e.node->kind != N::call || is(e.receiver, V::instance) || e.args->unknown_rest) return;
  const auto to = placesOfDevice(target->value);
  if (to.empty() || std::none_of(to.begin(), to.end(), [](const auto& p) { return isAcceleratorName(p); })) return;
  const Arg* flag = e.args->keyword("non_blocking");
  const bool asynchronous = flag && is(flag->value, V::boolean) && flag->value->number == 1;
  if (flag && !asynchronous) return;  // someone said no, or it is not known
  const Pinned state = pinned(e.receiver, *e.unit);
  const Node* loader = e.receiver ? e.receiver->loader : nullptr;
  const bool here = loader && rootOf(loader) == e.unit->ast.root();
  std::optional<Finding> f;
  if (asynchronous && state == Pinned::no) {
    f = findingAt("ineffective-async", e.node, loader ? "non_blocking=True waits all the same: the DataLoader does not pin its batches (pin_memory=True)"
                                                      : "non_blocking=True waits all the same: the tensor is not in pinned memory");
    if (here) {
      const Node* given = keywordOf(loader, "pin_memory");
      if (given) f->fix = Fix{true, "Let the DataLoader pin its batches", {{given->span(), "True"}}};
      else if (const auto edit = addArgument(*e.unit, loader, "pin_memory=True")) f->fix = Fix{true, "Let the DataLoader pin its batches", {*edit}};
    }
  } else if (!asynchronous && state == Pinned::yes) {
    f = findingAt("ineffective-async", e.node, "the memory is pinned, but the copy waits: non_blocking=True lets it run beside the program");
    if (const auto edit = addArgument(*e.unit, e.node, "non_blocking=True")) f->fix = Fix{loader != nullptr, "Copy without waiting", {*edit}};
  }
  if (!f) return;
  if (here) f->related.push_back({e.unit->path, loader->line, "the DataLoader"});
  interp.report(std::move(*f), e.unit);
}

}  // namespace

void listenIneffectiveAsync(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp

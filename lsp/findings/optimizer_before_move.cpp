// optimizer-before-move: an optimizer was made from a module's parameters, and the module is moved afterwards. Where the
// move replaces the parameters, the optimizer trains tensors that nobody uses; its state stays behind in any case.
#include <algorithm>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

constexpr const char* kSlot = "$optimizer";

void remember(Interp& interp, const Value& parameters, const CallEvent& e, int depth = 0) {
  if (!parameters || depth > 3) return;
  if (is(parameters, V::iterable) && !parameters->items.empty() && is(parameters->items[0], V::instance)) {
    auto made = makeVal(*integer(e.node->line));
    made->node = e.node;
    made->unit = e.unit;
    interp.setState(parameters->items[0]->object, kSlot, made);
  } else if (is(parameters, V::list) || is(parameters, V::tuple)) {
    for (const auto& i : parameters->items) remember(interp, i, e, depth + 1);
  } else if (is(parameters, V::dict)) {
    remember(interp, interp.state(parameters->object, "params"), e, depth + 1);
  }
}

// The optimizer over this module or a part of it, if it was made for certain.
Value optimizerOf(Interp& interp, const Value& instance, int depth = 0) {
  if (const Value o = interp.state(instance->object, kSlot); is(o, V::integer)) return o;
  if (depth > 4) return nullptr;
  for (const auto& slot : interp.slotsOf(instance->object)) {
    const Value part = interp.state(instance->object, slot);
    if (is(part, V::instance) && part->object != instance->object && interp.isModule(part))
      if (const Value o = optimizerOf(interp, part, depth + 1)) return o;
    if (slot == "$items" && is(part, V::list))
      for (const auto& i : part->items)
        if (is(i, V::instance) && interp.isModule(i)) if (const Value o = optimizerOf(interp, i, depth + 1)) return o;
  }
  return nullptr;
}

// Two statements in a row can change places.
std::optional<Fix> swapped(const SourceUnit& unit, const Node* first, const Node* second) {
  if (!first || !second || !first->parent || first->parent != second->parent) return std::nullopt;
  const auto& block = first->parent->list;
  const auto at = std::find(block.begin(), block.end(), first);
  if (at == block.end() || at + 1 == block.end() || *(at + 1) != second) return std::nullopt;
  if ((first->kind != N::assign && first->kind != N::expr_stmt) || (second->kind != N::assign && second->kind != N::expr_stmt)) return std::nullopt;
  return Fix{true, "Move the module first", {{first->span(), sourceOf(unit, second)}, {second->span(), sourceOf(unit, first)}}};
}

void look(Interp& interp, const CallEvent& e) {
  if (e.call.starts_with("torch.optim.")) {
    if (e.call.find("lr_scheduler") == std::string_view::npos && e.args->at(0)) remember(interp, e.args->at(0)->value, e);
    if (const Arg* p = e.args->keyword("params")) remember(interp, p->value, e);
    return;
  }
  const Arg* target = e.args->keyword("$target");
  if (!target || !e.call.starts_with("Module.") || !is(e.receiver, V::instance)) return;
  const Value optimizer = optimizerOf(interp, e.receiver);
  if (!optimizer) return;
  const auto from = placesOfDevice(interp.moduleDevice(e.receiver)), to = placesOfDevice(target->value);
  if (from.empty() || to.empty()) return;
  for (const auto& x : to) if (std::find(from.begin(), from.end(), x) != from.end()) return;
  Finding f = findingAt("optimizer-before-move", e.node, "the module moves to " + to[0] + " after its optimizer was made in line " + std::to_string(optimizer->number) +
                                                             ": make the optimizer after the move");
  f.related.push_back({optimizer->unit->path, static_cast<int>(optimizer->number), "the optimizer"});
  if (optimizer->unit == e.unit) f.fix = swapped(*e.unit, statementOf(optimizer->node), statementOf(e.node));
  interp.report(std::move(f), e.unit);
}

}  // namespace

void listenOptimizerBeforeMove(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp

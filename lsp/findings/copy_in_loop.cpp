// copy-in-loop: a copy from the device to the host in every pass, or the same host tensor copied to the device again and
// again. The upload of each step's own batch is no finding.
#include <algorithm>

#include "lsp/findings/loop_reports.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

// The expression means the same tensor in every pass: names and attributes that the loop does not bind or change.
bool invariant(const Node* expression, const Node* loop) {
  if (!isPlace(expression)) return false;
  for (const auto name : namesIn(expression)) if (assignedIn(loop, name)) return false;
  const std::string place = dottedName(expression);
  bool changed = false;
  walk(loop, [&](const Node* n) {
    if ((n->kind == N::assign || n->kind == N::aug_assign) && n->a) {
      const Node* target = n->a->kind == N::subscript ? n->a->a : n->a;
      changed = changed || dottedName(target) == place;
    }
    // x.copy_(...), x.resize_(...): the tensor is filled anew.
    if (n->kind == N::call && n->a && n->a->kind == N::attribute && n->a->text.ends_with('_') && !n->a->text.ends_with("__"))
      changed = changed || dottedName(n->a->a) == place;
    return !changed;
  });
  return !changed;
}

// `while True:` that nothing ends: a server, whose answers have to leave one by one.
bool endless(const Repetition& r) {
  if (!r.loop || r.loop->kind != N::while_ || !r.loop->a || !r.unit) return false;
  const auto text = std::string_view(r.unit->text).substr(r.loop->a->begin, r.loop->a->end - r.loop->a->begin);
  if (text != "True" && text != "1") return false;
  bool ends = false;
  for (const Node* s : r.loop->list) walk(s, [&](const Node* n) { ends = ends || n->kind == N::break_ || n->kind == N::return_; return !ends; });
  return !ends;
}

void look(LoopReports& reports, const CallEvent& e) {
  if (e.loops->empty() || e.node->kind != N::call || !e.node->a) return;
  if (e.call == "torch.tensor" || e.call == "torch.as_tensor") {
    const Arg *data = e.args->at(0), *device = e.args->keyword("device");
    if (!data || !device || !isLiteral(data->node)) return;
    std::string on;
    for (const auto& p : placesOfDevice(device->value)) if (isAcceleratorName(p)) on = p;
    const Repetition r = repetition(e);
    if (on.empty() || r.often == Often::never || !r.same_function) return;
    for (const auto name : namesIn(e.node)) if (assignedIn(r.loop, name)) return;
    reports.add(e, r, findingAt("copy-in-loop", e.node, "the same constant is copied to " + on + " in every pass of the loop; make it once before"));
    return;
  }
  const Arg* target = e.args->keyword("$target");
  if (!target || e.node->a->kind != N::attribute) return;
  const auto to = placesOfDevice(target->value);
  if (to.empty()) return;
  const bool to_host = std::all_of(to.begin(), to.end(), [](const auto& p) { return p == "cpu"; });
  const bool module = is(e.receiver, V::instance);
  const Repetition r = repetition(e);
  if (r.often == Often::never) return;
  const std::string from = module ? "" : acceleratorOf(e.receiver);
  if (to_host && !from.empty()) {
    if (endless(r)) return;
    reports.add(e, r, findingAt("copy-in-loop", e.node, "`." + std::string(e.node->a->text) + "()` copies from " + from +
                                                            " to the host in every pass of the loop, and waits for it; collect on the device and copy once"));
    return;
  }
  if (to_host || module || !r.same_function || !certainlyOn(e.receiver, "cpu") || !invariant(e.node->a->a, r.loop)) return;
  for (const auto name : namesIn(e.node)) if (assignedIn(r.loop, name)) return;
  const auto on = std::find_if(to.begin(), to.end(), [](const auto& p) { return isAcceleratorName(p); });
  if (on == to.end()) return;
  reports.add(e, r, findingAt("copy-in-loop", e.node, "`" + dottedName(e.node->a->a) + "` does not change in this loop, but is copied to " + *on +
                                                          " in every pass; move it once before"));
}

}  // namespace

void listenCopyInLoop(Interp& interp, std::shared_ptr<LoopReports> reports) {
  interp.listen(static_cast<uint16_t>(E::call), [reports](Interp&, const CallEvent& e) { look(*reports, e); });
}

}  // namespace flagos::lsp

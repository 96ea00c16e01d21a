// stale-read: the target of a non-blocking copy to the host is read before anything has waited for the device. What is
// read may be what was there before.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

// These ask for the tensor's description, not for its data.
const Names kNoRead = {"size", "dim", "numel", "stride", "is_pinned", "is_contiguous", "element_size", "data_ptr", "copy_", "record_stream", "ndimension"};

std::string slotOf(const Node* copy) { return "$late:" + std::to_string(reinterpret_cast<uintptr_t>(copy)); }

void synchronized(Interp& interp) {
  for (const auto& slot : interp.slotsOf(0))
    if (slot.starts_with("$late:")) interp.setState(0, slot, boolean(false));
}

// The copy that has certainly not been waited for, or null.
const Node* pending(Interp& interp, const Value& v) {
  if (!is(v, V::tensor) || !v->late) return nullptr;
  const Value open = interp.state(0, slotOf(v->late));
  return is(open, V::boolean) && open->number == 1 ? v->late : nullptr;
}

void read(Interp& interp, const CallEvent& e, const Value& v, const Node* node) {
  const Node* copy = pending(interp, v);
  if (!copy) return;
  Finding f = findingAt("stale-read", node, "this reads the target of the non-blocking copy in line " + std::to_string(copy->line) +
                                                ", and nothing has waited for the device since: it may still hold the old values");
  f.related.push_back({e.unit->path, copy->line, "the copy"});
  if (const Node* flag = keywordOf(copy, "non_blocking"); flag && flag->kind == N::true_ && flag->parent)
    f.fix = Fix{true, "Let the copy wait", {{flag->span(), "False"}}};
  interp.report(std::move(f), e.unit);
}

void look(Interp& interp, const CallEvent& e) {
  if (e.kind == E::call || e.kind == E::foreign) {
    const std::string_view name = e.call.substr(e.call.rfind('.') == std::string_view::npos ? 0 : e.call.rfind('.') + 1);
    if (name == "synchronize" || name == "wait_stream" || name == "wait" || name == "query") { synchronized(interp); return; }
    const bool copies = name == "to" || name == "copy_";
    if (copies && e.node->kind == N::call && keywordOf(e.node, "non_blocking")) {
      interp.setState(0, slotOf(e.node), boolean(true));
      return;
    }
    // Reading a value of the device waits for all that was queued before, the copy included.
    if ((name == "item" || name == "tolist" || name == "cpu") && !acceleratorOf(e.receiver).empty()) synchronized(interp);
    if (kNoRead.count(name)) return;
    read(interp, e, e.receiver, e.node);
    for (const auto& a : e.args->list) read(interp, e, a.value, e.node);
    return;
  }
  if (e.kind == E::operation) {
    for (const auto& a : e.args->list) read(interp, e, a.value, e.node);
    return;
  }
  read(interp, e, e.receiver, e.node);
}

}  // namespace

void listenStaleRead(Interp& interp) {
  interp.listen(E::call | E::foreign | E::operation | E::format | E::truth | E::subscript | E::iterate, look);
}

}  // namespace flagos::lsp

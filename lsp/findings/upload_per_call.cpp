// upload-per-call: a constant that a module's forward, or a function called in a loop, copies from the host to the device
// at every call. A buffer is copied once, with the module.
#include <algorithm>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

// Called again and again: a method of a module (but not what sets it up), or a function that a loop elsewhere calls.
bool isRepeated(Interp& interp, const CallEvent& e) {
  const Frame* f = e.frames->back();
  if (!f->def || f->def->kind != N::def) return false;
  static const Names once = {"__init__", "reset_parameters", "__post_init__", "init_weights", "_init_weights", "setup", "build"};
  if (is(f->self, V::instance) && interp.isModule(f->self)) return !once.count(f->def->text);
  const Repetition r = repetition(e);
  return r.often == Often::every && !r.same_function;
}

// The place is an accelerator, or it is written as another tensor's `.device`.
std::string destination(const Value& device, const Node* node, const SourceUnit& unit) {
  for (const auto& p : placesOfDevice(device)) if (isAcceleratorName(p)) return p;
  if (is(device, V::unknown) && node && node->kind == N::attribute && node->text == "device") return "`" + shortText(unit.text, node, 30) + "`";
  return {};
}

void look(Interp& interp, const CallEvent& e) {
  if (e.node->kind != N::call || !e.node->a) return;
  const bool makes = e.call == "torch.tensor" || e.call == "torch.as_tensor";
  const Arg* target = e.args->keyword("$target");
  if ((!makes && !target) || !isRepeated(interp, e)) return;
  std::string what, to;
  if (makes) {
    const Arg *data = e.args->at(0), *device = e.args->keyword("device");
    if (!data || !device || !isLiteral(data->node)) return;
    if ((data->node->kind == N::list || data->node->kind == N::tuple) && data->node->list.empty()) return;   // nothing to copy
    to = destination(device->value, device->node, *e.unit);
    what = "this constant";
  } else {
    if (e.node->a->kind != N::attribute) return;
    const Node* source = e.node->a->a;
    const Node* argument = e.args->at(0) ? e.args->at(0)->node : keywordOf(e.node, "device");
    to = destination(target->value, argument, *e.unit);
    const std::string place = dottedName(source);
    const bool attribute = place.starts_with(std::string(selfName(e.frames->back()->def)) + ".") && certainlyOn(e.receiver, "cpu") && e.receiver->text.empty();
    const bool constant = is(e.receiver, V::tensor) && e.receiver->made_by && !e.receiver->made_by->list.empty() && isLiteral(e.receiver->made_by->list[0]) &&
                          e.receiver->made_by->a && shortText(e.unit->text, e.receiver->made_by->a).ends_with("tensor");
    if (!attribute && !constant) return;
    what = attribute ? "`" + place + "`" : "this constant";
    // Kept after the first time: self.x = self.x.to(...)
    const Node* p = e.node->parent;
    if (p && p->kind == N::assign && dottedName(p->a) == place && attribute) return;
  }
  if (to.empty()) return;
  const std::string how = is(e.frames->back()->self, V::instance) ? "register it as a buffer, which moves with the module" : "make it once, outside";
  interp.report(findingAt("upload-per-call", e.node, what + " is copied from the host to " + to + " at every call; " + how), e.unit);
}

}  // namespace

void listenUploadPerCall(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp

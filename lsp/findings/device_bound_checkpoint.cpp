// device-bound-checkpoint: torch.save writes the device of every tensor into the file, and torch.load without map_location
// wants that device back.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

// A device that something in the value is on, for certain.
std::string saved(Interp& interp, const Value& v, int depth = 0) {
  if (!v || depth > 3) return {};
  if (const auto device = acceleratorOf(v); !device.empty()) return device;
  if (is(v, V::instance) && interp.isModule(v)) {
    for (const auto& p : placesOfDevice(interp.moduleDevice(v))) if (isAcceleratorName(p)) return p;
  }
  if (is(v, V::list) || is(v, V::tuple))
    for (const auto& i : v->items) if (const auto device = saved(interp, i, depth + 1); !device.empty()) return device;
  if (is(v, V::dict))
    for (const auto& slot : interp.slotsOf(v->object))
      if (const auto device = saved(interp, interp.state(v->object, slot), depth + 1); !device.empty()) return device;
  return {};
}

void look(Interp& interp, const CallEvent& e) {
  if (e.call == "torch.load") {
    const Arg* map = e.args->get(1, "map_location");
    if ((map && !is(map->value, V::none)) || e.args->unknown_rest) return;
    Finding f = findingAt("device-bound-checkpoint", e.node, "without map_location every tensor goes back to the device it was saved from, and loading fails where that is missing");
    if (!map) {
      // What load_state_dict gets is copied into the module, wherever that is.
      const Node* p = e.node->parent;
      while (p && p->kind == N::subscript) p = p->parent;
      const bool into_module = p && p->kind == N::call && p->a && p->a->kind == N::attribute && p->a->text == "load_state_dict";
      if (const auto edit = addArgument(*e.unit, e.node, "map_location=\"cpu\"")) f.fix = Fix{into_module, "Load to the CPU", {*edit}};
    }
    interp.report(std::move(f), e.unit);
  } else if (e.call == "torch.save" && e.args->at(0)) {
    const std::string device = saved(interp, e.args->at(0)->value);
    if (device.empty()) return;
    interp.report(findingAt("device-bound-checkpoint", e.node, "the file will name " + device + ", and torch.load without map_location needs that device; save copies on the CPU (`.cpu()`), or load with map_location=\"cpu\""), e.unit);
  }
}

}  // namespace

void listenDeviceBoundCheckpoint(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp

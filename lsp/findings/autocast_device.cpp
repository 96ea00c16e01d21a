// autocast-device: an autocast region, or a GradScaler, that is set up for one device type while the work in it is on
// another: nothing is cast, or the call is refused.
#include <map>
#include <memory>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

struct Region { const SourceUnit* unit; std::string type; const Node* argument; bool cuda_only; };

struct State {
  std::map<const Node*, Region> regions;   // by the call that makes the autocast
  std::map<const Node*, Region> scalers;
};

bool isAutocast(std::string_view call) { return call == "torch.autocast" || call == "torch.amp.autocast" || call == "torch.amp.autocast_mode.autocast"; }

// "cuda" of torch.cuda.amp.autocast.
std::string_view ownType(std::string_view call, std::string_view what) {
  if (!call.starts_with("torch.") || !call.ends_with(what)) return {};
  const auto type = call.substr(6, call.find('.', 6) - 6);
  return isDeviceString(type) ? type : std::string_view();
}

void remember(Interp& interp, State& state, const CallEvent& e) {
  const bool plain_scaler = e.call == "torch.amp.GradScaler";
  if (isAutocast(e.call) || plain_scaler) {
    const Arg* d = e.args->get(0, plain_scaler ? "device" : "device_type");
    if (!d && plain_scaler) { state.scalers[e.node] = {e.unit, "cuda", nullptr, false}; return; }
    if (!d) return;
    const bool text = is(d->value, V::string) && isDeviceString(d->value->text), device = is(d->value, V::device);
    if (!text && !device) return;
    const std::string type(deviceType(d->value->text));
    (plain_scaler ? state.scalers : state.regions)[e.node] = {e.unit, type, d->node, false};
    if (plain_scaler || (text && type == d->value->text)) return;
    Finding f = findingAt("autocast-device", e.node, device ? "autocast takes the name of a device type, and this is a torch.device: PyTorch refuses it"
                                                            : "autocast takes a device type such as \"" + type + "\", and \"" + d->value->text + "\" is one device: PyTorch refuses it");
    if (device && isPlace(d->node)) f.fix = Fix{true, "Give its type", {{{d->node->end, d->node->end}, ".type"}}};
    else if (text && d->node && d->node->kind == N::string && d->node->text.empty()) f.fix = Fix{true, "Give its type", {{d->node->span(), "\"" + type + "\""}}};
    interp.report(std::move(f), e.unit);
  } else if (const auto type = ownType(e.call, ".amp.autocast"); !type.empty()) {
    state.regions[e.node] = {e.unit, std::string(type), nullptr, true};
  } else if (const auto scaler = ownType(e.call, ".amp.GradScaler"); !scaler.empty()) {
    state.scalers[e.node] = {e.unit, std::string(scaler), nullptr, true};
  }
}

std::optional<Fix> fixFor(const Node* call, const Region& r, const std::string& type, const char* maker) {
  if (r.argument) {
    if (r.argument->kind != N::string || !r.argument->text.empty()) return std::nullopt;
    return Fix{true, "Set it up for " + type, {{r.argument->span(), "\"" + type + "\""}}};
  }
  const std::string torch = nameFor(*r.unit, "torch");
  if (torch.empty() || !call->a) return std::nullopt;
  for (const Node* a : call->list) if (a->kind != N::keyword) return std::nullopt;
  const auto open = static_cast<uint32_t>(r.unit->text.find('(', call->a->end));
  return Fix{true, "Set it up for " + type, {{{call->begin, open + 1}, torch + maker + "\"" + type + "\"" + (call->list.empty() ? "" : ", ")}}};
}

void mismatch(Interp& interp, const Node* call, const Region& r, const std::string& type, const CallEvent& work, const char* maker) {
  Finding f = findingAt("autocast-device", call, "this is set up for " + r.type + ", but the work is on " + type + ": it has no effect there");
  f.related.push_back({work.unit->path, work.node->line, "on " + type});
  f.fix = fixFor(call, r, type, maker);
  interp.report(std::move(f), r.unit);
}

void work(Interp& interp, State& state, const CallEvent& e) {
  if (state.regions.empty()) return;
  std::string device;
  if (e.call == "Module.__call__") for (const auto& p : placesOfDevice(interp.moduleDevice(e.receiver))) device = p;
  for (const auto& a : e.args->list) if (device.empty()) device = acceleratorOf(a.value);
  if (device.empty() || !isAcceleratorName(device)) return;
  const std::string type(deviceType(device));
  for (const Node* n = e.node; n; n = n->parent) {
    const auto check = [&](const Node* around) {
      const auto it = state.regions.find(around);
      if (it == state.regions.end()) return false;
      if (it->second.type != type) mismatch(interp, around, it->second, type, e, ".autocast(");
      return true;
    };
    if (n->kind == N::with_)
      for (const Node* item : n->list2) if (check(item->a)) return;  // the innermost region is what counts
    if (n->kind == N::def) {
      for (const Node* d : n->decorators) if (check(d)) return;
      return;
    }
  }
}

void scale(Interp& interp, State& state, const CallEvent& e) {
  if (state.scalers.size() != 1 || !e.args->at(0)) return;
  const std::string device = acceleratorOf(e.args->at(0)->value);
  const auto& [call, scaler] = *state.scalers.begin();
  if (device.empty() || deviceType(device) == scaler.type) return;
  mismatch(interp, call, scaler, std::string(deviceType(device)), e, ".amp.GradScaler(");
}

}  // namespace

void listenAutocastDevice(Interp& interp) {
  auto state = std::make_shared<State>();
  interp.listen(E::call | E::operation | E::foreign, [state](Interp& i, const CallEvent& e) {
    if (e.kind != E::operation && e.call.ends_with("scale")) return scale(i, *state, e);
    if (e.kind == E::foreign) return;
    if (e.kind == E::call) remember(i, *state, e);
    const bool works = e.kind == E::operation || e.call == "Module.__call__" || e.call.starts_with("torch.nn.functional.") || e.call == "torch.matmul" || e.call == "torch.mm";
    if (works) work(i, *state, e);
  });
}

}  // namespace flagos::lsp

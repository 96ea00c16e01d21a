// inductor-bypasses-routing: torch.compile's default backend generates code for the devices it knows. On any other it fails
// or passes the routing by; backend="aot_eager" runs every operator by its own route.
#include <map>
#include <memory>
#include <set>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const Names kInductors = {"cpu", "cuda", "xpu", "mps", "mtia", "meta"};

struct Compiled { const Node* call; const SourceUnit* unit; Value module; };
struct State { std::vector<Compiled> modules; std::map<const Node*, Compiled> functions; std::set<const Node*> reported; };

bool usesInductor(const Node* call) {
  const Node* backend = keywordOf(call, "backend");
  return !backend || (backend->kind == N::string && backend->text.empty() && backend->value == "inductor");
}

void report(Interp& interp, const Compiled& c, const std::string& device) {
  Finding f = findingAt("inductor-bypasses-routing", c.call, "torch.compile's default backend, Inductor, has no kernels for " + device +
                                                                 "; backend=\"aot_eager\" runs there, every operator by its own route");
  // A mode and options are Inductor's own words.
  if (c.call->kind == N::call && !keywordOf(c.call, "mode") && !keywordOf(c.call, "options")) {
    if (const Node* backend = keywordOf(c.call, "backend")) f.fix = Fix{true, "Use aot_eager", {{backend->span(), "\"aot_eager\""}}};
    else if (const auto edit = addArgument(*c.unit, c.call, "backend=\"aot_eager\"")) f.fix = Fix{true, "Use aot_eager", {*edit}};
  } else if (c.call->kind != N::call) {
    f.fix = Fix{true, "Use aot_eager", {{{c.call->end, c.call->end}, "(backend=\"aot_eager\")"}}};
  }
  interp.report(std::move(f), c.unit);
}

void look(Interp& interp, State& state, const CallEvent& e) {
  if (e.kind == E::call && (e.call == "torch.compile" || e.call == "Module.compile")) {
    if (!usesInductor(e.node)) return;
    const Value what = e.call == "Module.compile" ? e.receiver : e.args->at(0) ? e.args->at(0)->value : nullptr;
    if (is(what, V::instance)) state.modules.push_back({e.node, e.unit, what});
    if (is(what, V::function)) state.functions[what->node] = {e.node, e.unit, nullptr};
    return;
  }
  // Work inside a compiled function.
  std::string device = acceleratorOf(e.receiver);
  for (const auto& a : e.args->list) if (device.empty()) device = acceleratorOf(a.value);
  if (device.empty() || kInductors.count(deviceType(device))) return;
  for (const Frame* f : *e.frames) {
    if (!f->def || f->def->kind != N::def || state.reported.count(f->def)) continue;
    if (const auto it = state.functions.find(f->def); it != state.functions.end()) {
      state.reported.insert(f->def);
      report(interp, it->second, device);
    }
    for (const Node* d : f->def->decorators) {
      const std::string name = nameFor(*f->unit, "torch.compile");
      const bool call = d->kind == N::call;
      if (name.empty() || dottedName(call ? d->a : d) != name || (call && !usesInductor(d))) continue;
      state.reported.insert(f->def);
      report(interp, {d, f->unit, nullptr}, device);
    }
  }
}

}  // namespace

void listenInductorBypassesRouting(Interp& interp) {
  auto state = std::make_shared<State>();
  interp.listen(E::call | E::operation, [state](Interp& i, const CallEvent& e) { look(i, *state, e); });
  interp.finishers.emplace_back([state](Interp& i) {
    for (const auto& c : state->modules)
      for (const auto& p : placesOfDevice(i.moduleDevice(c.module)))
        if (!kInductors.count(deviceType(p))) { report(i, c, p); break; }
  });
}

}  // namespace flagos::lsp

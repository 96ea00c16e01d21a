// device-mismatch: operands of one operation that are on different devices for certain. PyTorch refuses such a call, with
// one exception: a tensor without dimensions on the CPU may meet any device.
#include <algorithm>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const Names kFunctions = {"add", "sub", "mul", "div", "matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "cat", "concat", "stack", "hstack", "vstack",
    "where", "einsum", "maximum", "minimum", "pow", "atan2", "cross", "outer", "lerp", "allclose", "equal", "isclose", "eq", "ne", "lt", "gt", "le", "ge",
    "index_select", "gather", "scatter", "take_along_dim", "logical_and", "logical_or", "cdist", "kron", "inner", "tensordot", "dist"};
const Names kMethods = {"add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "matmul", "mm", "bmm", "mv", "dot", "addmm", "addmm_", "where",
    "maximum", "minimum", "pow", "eq", "ne", "lt", "gt", "le", "ge", "equal", "allclose", "index_select", "gather", "scatter", "scatter_", "scatter_add_",
    "masked_fill", "masked_fill_", "masked_select", "logical_and", "logical_or", "lerp", "lerp_", "addcmul", "addcmul_", "addcdiv", "addcdiv_", "index_add_"};
// torch.nn.functional: these take lengths or other data that stay on the CPU.
const Names kMixed = {"ctc_loss", "pack_padded_sequence"};

struct Operand { std::vector<std::string> places; bool dims = false; const Node* node = nullptr; std::string name; Value value; };

bool hasDims(const Value& v) {
  bool all = true;
  forEach(v, [&](const Value& t) { all = all && t->kind == V::tensor && (t->dims || (t->shape && !t->shape->empty())); });
  return all;
}

void addOperand(std::vector<Operand>& out, const Value& v, const Node* node, const SourceUnit& unit) {
  if (!v) return;
  if ((v->kind == V::list || v->kind == V::tuple) && v->items.size() <= 16) {
    for (size_t i = 0; i < v->items.size(); ++i) {
      const bool written = node && (node->kind == N::list || node->kind == N::tuple) && i < node->list.size();
      addOperand(out, v->items[i], written ? node->list[i] : node, unit);
    }
    return;
  }
  auto places = placesOf(v);
  if (places.empty() || std::find(places.begin(), places.end(), "meta") != places.end()) return;
  out.push_back({std::move(places), hasDims(v), node, node ? shortText(unit.text, node, 40) : "", v});
}

// No place of one is a place of the other.
bool disjoint(const Operand& a, const Operand& b) {
  for (const auto& x : a.places)
    for (const auto& y : b.places) {
      if (x == y) return false;
      // "npu:<RANK>" may be any device of its type.
      const bool open = x.find('<') != std::string::npos || y.find('<') != std::string::npos;
      if (open && deviceType(x) == deviceType(y)) return false;
    }
  return true;
}

bool onHost(const Operand& o) { return std::all_of(o.places.begin(), o.places.end(), [](const auto& p) { return p == "cpu"; }); }

std::string places(const Operand& o) {
  std::string out;
  for (const auto& p : o.places) if (out.find(p) == std::string::npos) out += (out.empty() ? "" : " or ") + p;
  return out;
}

void related(Finding& f, const Operand& o, const CallEvent& e) {
  forEach(o.value, [&](const Value& t) {
    forEach(t->device, [&](const Value& d) {
      const bool known = d->origin.unit && d->origin.line > 0;
      f.related.push_back({known ? d->origin.unit->path : e.unit->path, known ? d->origin.line : e.node->line, "on " + d->text + ": " + (d->origin.because.empty() ? "written here" : d->origin.because)});
    });
  });
}

// Hooks and a forward() that was put there may bring the operands to the module's device, as accelerate's do.
bool hooked(Interp& interp, const Value& module) {
  return is(module, V::instance) && (interp.state(module->object, "$hooks") || interp.state(module->object, "forward"));
}

bool underHooks(Interp& interp, const CallEvent& e) {
  if (e.call == "Module.__call__" && hooked(interp, e.receiver)) return true;
  return std::any_of(e.frames->begin(), e.frames->end(), [&](const Frame* f) { return hooked(interp, f->self); });
}

void compare(Interp& interp, const CallEvent& e, const std::vector<Operand>& operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    for (size_t k = i + 1; k < operands.size(); ++k) {
      const Operand &a = operands[i], &b = operands[k];
      if (!disjoint(a, b) || (onHost(a) && !a.dims) || (onHost(b) && !b.dims)) continue;
      // A call that was left out may have moved either of them.
      if (interp.leftOut() || underHooks(interp, e)) return;
      const auto named = [](const Operand& o) { return o.name.empty() ? places(o) : "`" + o.name + "` is on " + places(o); };
      Finding f = findingAt("device-mismatch", e.node, named(a) + ", " + named(b) + ": PyTorch refuses operands on different devices");
      related(f, a, e);
      related(f, b, e);
      const Operand &host = onHost(a) ? a : b, &other = onHost(a) ? b : a;
      if (onHost(host) && isPlace(host.node) && isPlace(other.node))
        f.fix = Fix{false, "Move " + host.name + " to the device of " + other.name, {{{host.node->end, host.node->end}, ".to(" + other.name + ".device)"}}};
      interp.report(std::move(f), e.unit);
      return;
    }
  }
}

void onCall(Interp& interp, const CallEvent& e) {
  std::vector<Operand> operands;
  const auto arguments = [&] { for (const auto& a : e.args->list) if (a.name != "device" && a.name != "out_device") addOperand(operands, a.value, a.node, *e.unit); };
  if (e.call == "Module.__call__") {
    const Value cls = interp.classOf(e.receiver);
    if (!is(cls, V::external) || !cls->text.starts_with("torch.nn.")) return;
    const Value bytes = interp.state(e.receiver->object, "$bytes");
    if (bytes && bytes->number > 0) {
      const auto at = placesOfDevice(interp.moduleDevice(e.receiver));
      const Node* module = e.node->kind == N::call ? e.node->a : nullptr;
      if (!at.empty()) operands.push_back({at, true, nullptr, module ? shortText(e.unit->text, module, 40) : "the module", tensorOn(interp.moduleDevice(e.receiver))});
    }
    arguments();
    // The input of a layer has dimensions, or the layer refuses it anyway.
    if (bytes && bytes->number > 0 && operands.size() > 1) operands[1].dims = true;
    compare(interp, e, operands);
    return;
  }
  if (e.call.starts_with("Tensor.")) {
    if (!kMethods.count(e.call.substr(7)) || e.node->kind != N::call) return;
    addOperand(operands, e.receiver, e.node->a ? e.node->a->a : nullptr, *e.unit);
    arguments();
    compare(interp, e, operands);
  } else if (e.call.starts_with("torch.")) {
    const std::string_view rest = e.call.substr(6);
    const bool functional = rest.starts_with("nn.functional.") && !kMixed.count(rest.substr(14));
    if (!functional && !kFunctions.count(rest)) return;
    arguments();
    compare(interp, e, operands);
  }
}

// An index may be on the CPU or with the tensor it indexes.
void onSubscript(Interp& interp, const CallEvent& e) {
  if (!certainlyOn(e.receiver, "cpu")) return;
  std::vector<Operand> operands;
  addOperand(operands, e.receiver, e.node->a, *e.unit);
  for (const auto& k : e.args->list) if (k.name.empty() && hasDims(k.value) && isAny(k.value, V::tensor)) addOperand(operands, k.value, k.node, *e.unit);
  if (operands.empty()) return;
  operands[0].dims = true;
  compare(interp, e, operands);
}

}  // namespace

void listenDeviceMismatch(Interp& interp) {
  interp.listen(E::call | E::operation | E::subscript, [](Interp& i, const CallEvent& e) {
    if (e.kind == E::subscript) return onSubscript(i, e);
    if (e.kind == E::call) return onCall(i, e);
    std::vector<Operand> operands;
    for (const auto& a : e.args->list) addOperand(operands, a.value, a.node, *e.unit);
    if (operands.size() == e.args->list.size()) compare(i, e, operands);
  });
}

}  // namespace flagos::lsp

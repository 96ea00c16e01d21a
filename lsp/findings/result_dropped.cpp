// result-dropped: `x.to("npu")` as a statement. A tensor's methods without a trailing underscore return a new tensor;
// thrown away, nothing has happened. Modules move in place, so for them this is right.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const Names kPure = {"to", "cpu", "cuda", "npu", "xpu", "mlu", "musa", "hpu", "float", "half", "double", "long", "int", "bool", "bfloat16", "type",
    "detach", "clone", "contiguous", "pin_memory", "add", "sub", "mul", "div", "clamp", "relu", "sigmoid", "tanh", "softmax", "exp", "log",
    "sqrt", "abs", "neg", "transpose", "permute", "reshape", "view", "unsqueeze", "squeeze", "flatten", "masked_fill", "t"};

void look(Interp& interp, const CallEvent& e) {
  if (!e.call.starts_with("Tensor.") || !kPure.count(e.call.substr(7)) || e.node->kind != N::call) return;
  const Node* statement = e.node->parent;
  if (!statement || statement->kind != N::expr_stmt || statement->a != e.node) return;
  if (!is(e.receiver, V::tensor) || e.receiver->text == "?" || e.node->a->kind != N::attribute) return;
  const Node* owner = e.node->a->a;
  if (!isPlace(owner)) return;  // torch.zeros(1).npu(): made only to wake the device up
  const std::string name(e.call.substr(7)), place = dottedName(owner);
  Finding f = findingAt("result-dropped", e.node, "`." + name + "()` returns a new tensor and leaves `" + place + "` as it is; the result is thrown away");
  f.fix = Fix{true, "Assign the result to " + place, {{{statement->begin, statement->begin}, place + " = "}}};
  interp.report(std::move(f), e.unit);
}

}  // namespace

void listenResultDropped(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp

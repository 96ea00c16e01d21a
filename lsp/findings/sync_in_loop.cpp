// sync-in-loop: something in a loop that makes the host wait for the device: reading a value, deciding by it, writing it
// as text, or asking for a size that only the data tells.
#include "lsp/findings/loop_reports.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

// Methods and functions that return to Python only when the device is done.
const Names kReads = {"item", "tolist", "is_nonzero", "equal", "allclose"};
// The size of the result depends on the data.
const Names kSizes = {"nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "bincount"};
const Names kConversions = {"float", "int", "bool", "complex", "str", "repr", "format", "range"};
const Names kComparing = {"max", "min", "sorted", "any", "all"};
const Names kLogging = {"info", "warning", "error", "critical"};

std::string_view last(std::string_view call) { return call.substr(call.rfind('.') == std::string_view::npos ? 0 : call.rfind('.') + 1); }

std::string anyAccelerator(const Value& v, int depth = 0) {
  if (auto device = acceleratorOf(v); !device.empty() || depth > 2 || !v) return device;
  if (v->kind == V::list || v->kind == V::tuple)
    for (const auto& i : v->items) if (auto device = anyAccelerator(i, depth + 1); !device.empty()) return device;
  if (v->kind == V::iterable) return anyAccelerator(v->self, depth + 1);
  return {};
}

std::string anyArgument(const Args& args, size_t from = 0) {
  for (size_t i = from; i < args.list.size(); ++i)
    if (auto device = anyAccelerator(args.list[i].value); !device.empty()) return device;
  return {};
}

// What waits, in words; "" if nothing does. `device` is what it waits for.
std::string ofCall(Interp& interp, const CallEvent& e, std::string& device) {
  const std::string_view name = last(e.call);
  const auto quoted = [&] { return "`" + std::string(name) + "()` "; };
  if (e.call.starts_with("builtins.")) {
    if (kConversions.count(name) && !(device = acceleratorOf(e.receiver)).empty()) return quoted() + "reads a value from ";
    if (name == "print" && !(device = anyArgument(*e.args)).empty()) return "printing a tensor reads it from ";
    if (!kComparing.count(name)) return {};
    // max(a, b) compares tensors one by one, and so does max() over a list of them or over a tensor's elements.
    if (e.args->positional() > 1) device = anyArgument(*e.args);
    else device = anyAccelerator(e.receiver);
    return device.empty() ? "" : "Python's " + quoted() + "decides by values on ";
  }
  if (name == "synchronize" && e.call.starts_with("torch.")) {
    const std::string type(e.call.substr(6, e.call.find('.', 6) - 6));
    device = type == "accelerator" ? interp.options().machine.accelerator() : interp.options().machine.has(type) ? type : "";
    return device.empty() ? "" : quoted() + "waits for all work on ";
  }
  const bool method = e.call.starts_with("Tensor.") || e.call.starts_with(".");
  const bool function = e.call.starts_with("torch.") && e.call.find('.', 6) == std::string_view::npos;
  if (!method && !function) return {};
  const Value first = method ? e.receiver : e.args->at(0) ? e.args->at(0)->value : nullptr;
  device = acceleratorOf(first, method && kReads.count(name));
  if (device.empty()) return {};
  if (kReads.count(name)) return quoted() + "reads a value from ";
  if (kSizes.count(name)) return "the size of the result of " + quoted() + "is only known on ";
  if (function && name == "where" && e.args->positional() == 1) return "the size of the result of `where(condition)` is only known on ";
  const Arg* repeats = e.args->get(method ? 0 : 1, "repeats");
  if (name == "repeat_interleave" && repeats && isAny(repeats->value, V::tensor) && !e.args->keyword("output_size"))
    return "the size of the result of " + quoted() + "is only known on ";
  return {};
}

std::string what(Interp& interp, const CallEvent& e, std::string& device) {
  switch (e.kind) {
    case E::call: return ofCall(interp, e, device);
    case E::format: device = acceleratorOf(e.receiver); return "writing a tensor as text reads it from ";
    case E::truth:
      device = acceleratorOf(e.receiver);
      return e.call == "in" ? "`in` reads its answer from " : e.call == "index" ? "a slice needs its bounds from " : "the condition reads its value from ";
    case E::subscript:
      device = acceleratorOf(e.receiver);
      for (const auto& k : e.args->list)
        if (is(k.value, V::tensor) && k.value->dtype == DType::bool_) return "how many elements a boolean mask selects is only known on ";
      return {};
    case E::store: {
      if (e.call == "os.environ") return {};
      device = acceleratorOf(e.receiver);
      const Arg* value = e.args->keyword("$value");
      // A single number is filled in without counting the mask.
      if (!value || !is(value->value, V::tensor) || !(value->value->dims || (value->value->shape && !value->value->shape->empty()))) return {};
      for (const auto& k : e.args->list)
        if (k.name.empty() && is(k.value, V::tensor) && k.value->dtype == DType::bool_) return "how many elements a boolean mask selects is only known on ";
      return {};
    }
    case E::foreign: {
      const std::string_view name = last(e.call);
      const Arg* text = e.args->at(0);
      if (!kLogging.count(name) || !text || !is(text->value, V::string) || text->value->text.find('%') == std::string::npos) return {};
      device = anyArgument(*e.args, 1);
      return "logging writes the tensor as text, which reads it from ";
    }
    default: return {};
  }
}

}  // namespace

void listenSyncInLoop(Interp& interp, std::shared_ptr<LoopReports> reports) {
  interp.listen(E::call | E::format | E::truth | E::subscript | E::store | E::foreign, [reports](Interp& i, const CallEvent& e) {
    if (e.loops->empty()) return;
    const Repetition r = repetition(e);
    if (r.often == Often::never) return;
    std::string device;
    const std::string text = what(i, e, device);
    if (text.empty() || device.empty()) return;
    // `a or b` in a condition: what is asked is its right side.
    const Node* node = e.node;
    while (e.kind == E::truth && node->kind == N::boolean && node->b) node = node->b;
    reports->add(e, r, findingAt("sync-in-loop", node, text + device + ": the host waits for the device in every pass of the loop"));
  });
}

}  // namespace flagos::lsp

// generator-device: PyTorch refuses a random generator that is on another device than the tensor it fills. A DataLoader
// draws its order with one, on the default device.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

bool isGenerator(const Value& v) { return is(v, V::external) && v->text == "torch.Generator()" && v->device; }

std::string typeOf(const Value& device) {
  std::string type;
  for (const auto& p : placesOfDevice(device)) {
    if (!type.empty() && type != deviceType(p)) return {};
    type = deviceType(p);
  }
  return type;
}

void look(Interp& interp, const CallEvent& e) {
  if (!e.call.starts_with("torch.")) return;
  const Arg* generator = e.args->keyword("generator");
  const bool given = generator && isGenerator(generator->value);
  const std::string on = typeOf(given ? generator->value->device : nullptr);
  const bool loader = e.call == "torch.utils.data.DataLoader", split = e.call == "torch.utils.data.random_split";
  const std::string by_default = typeOf(interp.defaultPlace());
  std::optional<Finding> f;
  if (loader || split) {
    const Arg* shuffle = e.args->get(2, "shuffle");
    const bool draws = split || (shuffle && truth(shuffle->value) == Truth::yes && isAny(shuffle->value, V::boolean));
    if (given && !on.empty() && !by_default.empty() && on != by_default) {
      f = findingAt("generator-device", e.node, "the generator is on " + on + ", but the order is drawn on " + by_default + ", the default device: PyTorch refuses that");
    } else if (!generator && draws && isAcceleratorName(by_default)) {
      f = findingAt("generator-device", e.node, "the default device is " + by_default + ", but the order is drawn by a generator on the CPU: PyTorch refuses that; give a generator on " + by_default);
      const std::string torch = nameFor(*e.unit, "torch.Generator");
      if (!torch.empty())
        if (const auto edit = addArgument(*e.unit, e.node, "generator=" + torch + "(device=\"" + by_default + "\")"))
          f->fix = Fix{true, "Draw with a generator on " + by_default, {*edit}};
    }
    if (f && given && generator->node && generator->node->kind == N::call) {
      if (const Node* device = keywordOf(generator->node, "device")) f->fix = Fix{true, "Make the generator on " + by_default, {{device->span(), "\"" + by_default + "\""}}};
    }
  } else if (given && !on.empty()) {
    const Arg* device = e.args->keyword("device");
    const bool factory = e.call == "torch.rand" || e.call == "torch.randn" || e.call == "torch.randint" || e.call == "torch.randperm";
    if (!factory) return;
    const std::string type = device ? typeOf(device->value) : by_default;
    if (type.empty() || type == on) return;
    f = findingAt("generator-device", e.node, "the generator is on " + on + ", the tensor on " + type + ": PyTorch refuses that");
  }
  if (!f) return;
  interp.report(std::move(*f), e.unit);
}

}  // namespace

void listenGeneratorDevice(Interp& interp) { interp.listen(E::call | E::foreign, look); }

}  // namespace flagos::lsp

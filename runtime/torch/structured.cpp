#include "runtime/torch/structured.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <string_view>

namespace flagos::glue {
namespace {

// PyTorch's own form has no place of its own in a dispatch table: it fills the place of every backend without a kernel.
// This one is nobody's.
constexpr c10::DispatchKeySet kDerived(c10::DispatchKey::PrivateUse3);

struct Boxed final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const HideOut hide;
    op.redispatchBoxed(kDerived, stack);
  }
};

// One class for all operators of a signature: no boxing for the common ones.
template <class R, class... A>
torch::CppFunction typed(const c10::OperatorHandle& op) {
  return torch::CppFunction([form = op.typed<R(A...)>()](A... args) -> R {
    const HideOut hide;
    return form.redispatch(kDerived, std::forward<A>(args)...);
  });
}

// "TS": tensors and numbers, "&" in place; empty for anything else.
std::string shapeOf(const c10::FunctionSchema& schema) {
  using Kind = c10::TypeKind;
  if (schema.returns().size() != 1 || schema.returns()[0].type()->kind() != Kind::TensorType) return {};
  std::string shape;
  for (const auto& a : schema.arguments()) {
    const auto kind = a.real_type()->kind();
    if (kind != Kind::TensorType && kind != Kind::NumberType) return {};
    shape += kind == Kind::NumberType ? "S" : a.alias_info() && a.alias_info()->isWrite() ? "&" : "T";
  }
  return shape;
}

torch::CppFunction kernelFor(const c10::OperatorHandle& op) {
  using T = const at::Tensor&;
  using S = const at::Scalar&;
  const std::string shape = shapeOf(op.schema());
  if (shape == "T") return typed<at::Tensor, T>(op);
  if (shape == "TT") return typed<at::Tensor, T, T>(op);
  if (shape == "TS") return typed<at::Tensor, T, S>(op);
  if (shape == "&") return typed<at::Tensor&, at::Tensor&>(op);
  if (shape == "&T") return typed<at::Tensor&, at::Tensor&, T>(op);
  if (shape == "&S") return typed<at::Tensor&, at::Tensor&, S>(op);
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Boxed>());
}

}  // namespace

bool& hiddenForm() noexcept {
  thread_local bool hidden = false;
  return hidden;
}

void HideOut::set(bool on) {
  at::enableRecordFunction(!on);
  hiddenForm() = set_ = on;
}

void RecordAgain::set(bool on) {
  at::enableRecordFunction(on);
  hiddenForm() = !on;
  set_ = on;
}

void installStructuredForms() {
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (!std::string_view(name.name).starts_with("aten::")) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CPU))  // not structured: view copies and the like
      continue;
    const std::string plain = name.name.substr(6);
    lib.impl((name.overload_name.empty() ? plain : plain + "." + name.overload_name).c_str(), kernelFor(*op));
  }
}

}  // namespace flagos::glue

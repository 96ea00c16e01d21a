#include "runtime/torch/refusals.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include "runtime/torch/host_route.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

using torch::jit::Stack;

template <class F>
void eachTensor(const Stack& stack, size_t n, F&& f) {
  for (size_t i = stack.size() - n; i < stack.size(); ++i) {
    const c10::IValue& v = stack[i];
    if (v.isTensor()) {
      if (v.toTensor().defined()) f(v.toTensor());
    } else if (v.isList()) {
      for (const auto& e : v.toListRef()) {
        if (e.isTensor() && e.toTensor().defined()) f(e.toTensor());
        if (!e.isTensorList()) continue;
        for (const auto& inner : e.toListRef())
          if (inner.isTensor() && inner.toTensor().defined()) f(inner.toTensor());
      }
    }
  }
}

// ---- layouts ----

const char* kindOf(const at::Tensor& t) {
  if (t.is_quantized()) return "quantized";
  if (t.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::NestedTensorPrivateUse1) || t.is_nested()) return "nested";
  if (t.layout() == at::kSparse) return "sparse";
  if (t.layout() == at::kMkldnn) return "mkldnn";
  return t.layout() == at::kStrided ? nullptr : "compressed sparse";
}

std::string wayOut(std::string_view kind) {
  if (kind == "quantized") return "dequantize() first, or keep the tensor on the CPU";
  if (kind == "nested") return "use layout=torch.jagged, which works on the npu, or pad the tensors";
  return "to_dense() first, make layers with sparse=False, or keep the tensor on the CPU";
}

// Whatever the sparse, quantized or nested dispatch keys of our device are asked for and PyTorch has no kernel of its own.
template <c10::DispatchKey key>
void refuseLayout(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const char* kind = nullptr;
  std::string devices;
  eachTensor(*stack, op.schema().arguments().size(), [&](const at::Tensor& t) {
    const std::string device = t.device().str();
    if (const char* k = kindOf(t)) kind = k;
    if (isCpuScalar(t)) return;  // a number
    if (devices.find(device) == std::string::npos) devices += (devices.empty() ? "" : " and ") + device;
  });
  const std::string npu = c10::Device(kNpu).str();
  if (devices.find(npu) == std::string::npos) devices = npu;  // a factory, or a copy of a CPU tensor to the npu
  if (!kind) {  // nothing is made yet
    kind = key == c10::DispatchKey::QuantizedPrivateUse1       ? "quantized"
           : key == c10::DispatchKey::NestedTensorPrivateUse1  ? "nested"
           : key == c10::DispatchKey::SparseCsrPrivateUse1     ? "compressed sparse"
                                                               : "sparse";
  }
  TORCH_CHECK(devices.find(" and ") == std::string::npos, "Expected all tensors to be on the same device, but found at least "
              "two devices, ", devices, "! (when calling ", nameText(opName(op.schema())), ")");
  TORCH_CHECK_NOT_IMPLEMENTED(false, nameText(opName(op.schema())), " on ", devices, ": ", kind, " tensors are not supported "
                              "by the npu, whose tensors are dense; ", wayOut(kind), ".");
}

template <c10::DispatchKey key>
void refuseKey() {
  static torch::Library lib(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  lib.fallback(torch::CppFunction::makeFromBoxedFunction<&refuseLayout<key>>());
}

// Autograd reads the sizes of what it records where nothing may throw: a refusal there would end the process.
void keepNestedSizes() {
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::NestedTensorPrivateUse1, __FILE__, __LINE__);
  lib.impl("_nested_tensor_size", TORCH_FN(at::native::_nested_tensor_size));
  lib.impl("_nested_tensor_strides", TORCH_FN(at::native::_nested_tensor_strides));
  lib.impl("_nested_tensor_storage_offsets", TORCH_FN(at::native::_nested_tensor_storage_offsets));
}

// ---- collectives ----

// Runs before the process group looks for a backend. A backend that somebody registered for the npu is left to work.
struct Collective final : c10::OperatorKernel {
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const size_t n = op.schema().arguments().size();
    bool npu = false, served = false;
    eachTensor(*stack, n, [&](const at::Tensor& t) { npu |= isNpu(t); });
    for (size_t i = 0; npu && i < n; ++i) {
      c10::intrusive_ptr<c10d::ProcessGroup> group;
      const c10::IValue& v = (*stack)[stack->size() - n + i];
      if (v.isString() && op.schema().arguments()[i].name() == "group_name") group = c10d::resolve_process_group(v.toStringRef());
      else if (v.isCustomClass() && v.type()->str().find("ProcessGroup") != std::string::npos) group = v.toCustomClass<c10d::ProcessGroup>();
      if (!group) continue;
      const auto types = group->getDeviceTypes();
      served = std::any_of(types.begin(), types.end(), [](const c10::Device& d) { return d.type() == kNpu; });
    }
    TORCH_CHECK_NOT_IMPLEMENTED(!npu || served, op.schema().name(), ": collectives (and DistributedDataParallel) do not take ",
                                c10::Device(kNpu).str(), " tensors yet: the backend for them, npudist, is not part of this "
                                "version; use CPU tensors with gloo, or train in one process.");
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
};

void refuseCollectives() {
  static torch::Library plain(torch::Library::IMPL, "c10d", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  static torch::Library functional(torch::Library::IMPL, "_c10d_functional", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const size_t colon = name.name.find("::");
    const std::string space = name.name.substr(0, colon), op = name.name.substr(colon + 2);
    if ((space != "c10d" && space != "_c10d_functional") || op == "check_for_nan" || op == "wait_tensor") continue;
    if (!c10::Dispatcher::singleton().findSchema(name)) continue;
    (space == "c10d" ? plain : functional).impl(op.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Collective>()));
  }
}

// ---- dtypes ----

// Why no OpenCL kernel computes in this type here; empty where one does.
std::string missingFeature(at::ScalarType t, const ocl::Device& device) {
  const auto& d = device.description();
  if (t == at::kDouble && !d.fp64) return "the device lacks the OpenCL feature cl_khr_fp64";
  if (t == at::kHalf && !d.fp16) return "the device lacks the OpenCL feature cl_khr_fp16, so kernels store half and compute in float32";
  if (at::isComplexType(t)) return "OpenCL C has no complex type";
  if (at::isFloat8Type(t)) return "OpenCL C has no 8-bit float type";
  if (t == at::kUInt16 || t == at::kUInt32 || t == at::kUInt64) return "PyTorch computes little in unsigned types wider than 8 bits";
  if (toDType(t) == DType::other) return std::string("FlagOS has no kernel type for it");
  return {};
}

}  // namespace

void refuseDtype(const c10::Error& error, std::string_view op, std::span<const at::Tensor> npu, const ocl::Device& device) {
  const std::string text = error.what_without_backtrace();
  const bool dtype = text.find("not implemented for '") != std::string::npos;
  const bool raw = text.find("Could not run '") != std::string::npos;
  if (!dtype && !raw) return;
  std::string types, why;
  for (const auto& t : npu) {
    const std::string name = c10::toString(t.scalar_type());
    if (types.find(name) == std::string::npos) types += (types.empty() ? "" : ", ") + name;
    if (why.empty()) why = missingFeature(t.scalar_type(), device);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, " on npu:", device.index(), " does not take ", types.empty() ? "these arguments" : types,
                              ": there is no OpenCL kernel", why.empty() ? "" : " (" + why + ")", " and PyTorch's CPU kernel, "
                              "which could stand in, ", dtype ? "refuses: " + text.substr(0, text.find('\n'))
                                                              : std::string("does not exist"),
                              ". Convert first to a dtype that it takes; most operators take float32.");
}

void nameIndex(const c10::Error& error, std::string_view op, std::span<const c10::IValue> args, int device) {
  if (std::string_view(error.what_without_backtrace()).find("index out of range in self") == std::string_view::npos) return;
  const at::Tensor* self = nullptr;
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].isTensor() || !args[i].toTensor().defined()) continue;
    const at::Tensor& t = args[i].toTensor();
    if (!self) { self = &t; continue; }
    if (t.scalar_type() != at::kLong && t.scalar_type() != at::kInt) continue;
    // (weight, indices, ...) looks rows up; the others are (self, dim, index, ...).
    const int64_t dim = i == 2 && args[1].isInt() && self->dim() > 0 ? c10::maybe_wrap_dim(args[1].toInt(), self->dim()) : 0;
    const int64_t size = self->dim() > 0 ? self->size(dim) : 1;
    const at::Tensor all = t.reshape({-1}).to(at::kLong), bad = all.masked_select(all.lt(0).logical_or_(all.ge(size)));
    if (bad.numel() == 0) continue;
    TORCH_CHECK_INDEX(false, op, " on npu:", device, ": index ", bad[0].item<int64_t>(), " is out of bounds for dimension ", dim, " with size ", size);
  }
}

void refuseResult(const at::Tensor& result, std::string_view op, int device) {
  const char* kind = kindOf(result);
  const char* way = op.find("backward") == op.npos ? "call .cpu() before it." : "make the layer with sparse=False.";
  TORCH_CHECK_NOT_IMPLEMENTED(!kind, op, " on npu:", device, " would give a ", kind, " tensor, and npu tensors are dense; ", way);
}

void installRefusals() {
  refuseKey<c10::DispatchKey::SparsePrivateUse1>();
  refuseKey<c10::DispatchKey::SparseCsrPrivateUse1>();
  refuseKey<c10::DispatchKey::QuantizedPrivateUse1>();
  refuseKey<c10::DispatchKey::NestedTensorPrivateUse1>();
  keepNestedSizes();
  refuseCollectives();
}

}  // namespace flagos::glue

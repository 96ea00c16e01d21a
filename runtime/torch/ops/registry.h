// Native operators as rows of tables. A family's file (ops/<family>.cpp) holds an array of NativeOp and one OpTable; the
// registry turns each row into a boxed kernel for PrivateUse1 that does, for every call:
//   source site -> kde::Signature -> Router::choose -> count the call -> launch, or the host route when the chosen
//   candidate is host.aten / cpu.fallback, no candidate is legal, or `fits` says no.
// So a row cannot forget to be counted or routed. Register only the `.out` of structured operators: PyTorch derives the
// functional and the in-place form from it.
//
// Threads: any; the GIL is not held and must not be taken. Launchers do not throw for what a user can cause: they return
// an Error, which becomes a RuntimeError that names the operator.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <span>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/kde/router.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/tensor_ref.h"

namespace flagos::glue {

struct NativeOp;

// One call of a native operator: arguments by position in the schema, where to run, and where results go.
// Asking for an argument as the wrong type is our own mistake (c10 asserts).
class OpCall {
 public:
  OpCall(const NativeOp& row, const c10::FunctionSchema& schema, c10::IValue* args)
      : row_(row), schema_(schema), args_(args) {}

  const NativeOp& row() const { return row_; }
  const c10::FunctionSchema& schema() const { return schema_; }
  size_t count() const { return schema_.arguments().size(); }
  // False: None was passed, or what autograd passes for an optional tensor that is not there.
  bool given(size_t i) const { return !args_[i].isNone() && (!args_[i].isTensor() || args_[i].toTensor().defined()); }
  const c10::IValue& value(size_t i) const { return args_[i]; }
  const at::Tensor& tensor(size_t i) const { return args_[i].toTensor(); }
  at::Tensor tensorOr(size_t i) const { return given(i) ? args_[i].toTensor() : at::Tensor(); }
  std::vector<at::Tensor> tensors(size_t i) const { return args_[i].toTensorVector(); }
  at::Scalar scalar(size_t i) const { return args_[i].toScalar(); }
  int64_t integer(size_t i) const { return args_[i].toInt(); }
  double number(size_t i) const { return args_[i].toScalar().toDouble(); }
  bool flag(size_t i) const { return args_[i].toBool(); }
  std::string string(size_t i) const { return args_[i].toStringRef(); }
  // An int list; a list of one is repeated to n (C++ callers pass int[2] parameters so). n = 0: as given.
  c10::SmallVector<int64_t, 6> ints(size_t i, size_t n = 0) const;
  std::optional<at::ScalarType> dtype(size_t i) const;
  std::optional<at::Generator> generator(size_t i) const;

  // The k-th argument the operator writes to: `out=` of an out variant, self of an in-place one.
  at::Tensor out(size_t k = 0) const;
  bool isOut(size_t i) const;                                      // argument i is written to
  // out(k) with these sizes, resized as PyTorch does (with its warning where the old size was not 0).
  at::Tensor resizeOut(size_t k, at::IntArrayRef sizes) const;
  // A fresh contiguous tensor on this call's device.
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType dtype) const;
  // The next return value of a functional operator. Operators that return what they write need not call it.
  void result(at::Tensor t) { results_.emplace_back(std::move(t)); }
  void result(c10::IValue v) { results_.push_back(std::move(v)); }

  // Set before launch (not in `fits` and `describe`, but the device is).
  ocl::Device& device() const { return *device_; }
  ocl::Queue& queue() const { return *queue_; }                    // of the current stream
  ocl::Variant variant() const { return variant_; }                // from the candidate's suffix
  const kde::Route& route() const { return *route_; }

 private:
  friend struct Invoker;
  const NativeOp& row_;
  const c10::FunctionSchema& schema_;
  c10::IValue* args_;
  ocl::Device* device_ = nullptr;
  ocl::Queue* queue_ = nullptr;
  ocl::Variant variant_ = ocl::Variant::wide;
  const kde::Route* route_ = nullptr;
  c10::SmallVector<c10::IValue, 2> results_;
};

struct NativeOp {
  const char* schema;                                  // "aten::add.out"
  const char* family;                                  // "pointwise": candidates opencl.<family>.{wide,tiled}
  Result<void> (*launch)(OpCall&);
  // False: this call goes to the host route (or meets the fallback policy). Cheap, per call. Null: every call that the
  // candidate's own predicate accepts. Use it for what a signature cannot see.
  bool (*fits)(const OpCall&) = nullptr;
  // Fills Signature::scalars for the family's rules and cost model (kde/families.h). Null: none.
  void (*describe)(const OpCall&, kde::Signature&) = nullptr;
  // Runs in place of the CPU's kernel where a call that `fits` is routed to the host: operators whose numbers must not
  // depend on the route (random ones). Null: the CPU's own kernel.
  Result<void> (*host)(OpCall&) = nullptr;
};

// One static object per family file; the rows are registered when the backend starts, not when the library loads.
struct OpTable {
  template <size_t N>
  explicit OpTable(const NativeOp (&rows)[N]) : OpTable(std::span<const NativeOp>(rows)) {}
  explicit OpTable(std::span<const NativeOp> rows);
};

// Registers every table's rows for PrivateUse1 under "aten". Called once by the module's start.
void registerNativeOps();
// Launches an elementwise row for the functional form of its operator: `args` by `schema`, which has no `out`. For calls
// known to fit, with this route and variant; the caller has counted the call.
at::Tensor launchFunctional(const NativeOp& row, const c10::FunctionSchema& schema, c10::IValue* args, ocl::Device& device,
                            const kde::Route& route, ocl::Variant variant);
// All registered rows, for coverage reports.
std::vector<const NativeOp*> nativeOps();

// ---- helpers for launchers ----

DType toDType(at::ScalarType) noexcept;                // DType::other where FlagOS has no name for it
at::ScalarType toScalarType(DType) noexcept;

// A tensor on an npu device as kernels see it. Conj/neg bits are the caller's business (they never reach native rows:
// the dispatcher resolves them first).
ocl::TensorRef ref(const at::Tensor& t);
// ref(t) seen with these sizes: broadcast dimensions get stride 0. t must broadcast to sizes.
ocl::TensorRef ref(const at::Tensor& t, at::IntArrayRef sizes);

inline bool isNpu(const at::Tensor& t) { return t.defined() && t.device().type() == c10::DeviceType::PrivateUse1; }
// A 0-dim CPU tensor where a number would do (`x + torch.tensor(2.)`).
inline bool isCpuScalar(const at::Tensor& t) { return t.defined() && t.device().is_cpu() && t.dim() == 0; }

// Broadcast shape and result dtype (PyTorch's promotion: wrapped numbers and 0-dim tensors count as such) of the tensors.
c10::SmallVector<int64_t, 6> broadcastSizes(std::initializer_list<at::Tensor> tensors);
at::ScalarType promote(std::initializer_list<at::Tensor> tensors);

}  // namespace flagos::glue

#include "runtime/torch/ops/registry.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <torch/library.h>

#include <unordered_set>

#include "runtime/kde/catalog/native_ops.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/core_ops.h"
#include "runtime/torch/decision.h"
#include "runtime/torch/host_route.h"
#include "runtime/torch/measure.h"
#include "runtime/torch/state.h"
#include "runtime/torch/structured.h"

namespace flagos::glue {
namespace {

std::vector<std::span<const NativeOp>>& tables() {
  static std::vector<std::span<const NativeOp>> all;  // filled while the library loads
  return all;
}

// The device of a native call, or -1: then the host route finds out what is wrong (or mixed) and says so.
int nativeDevice(const c10::IValue* args, size_t n) {
  int index = -1;
  bool plain = true;
  const auto look = [&](const at::Tensor& t) {
    if (!t.defined() || isCpuScalar(t)) return;
    if (!isNpu(t) || t.layout() != at::kStrided || t.is_conj() || t.is_neg() || (index >= 0 && t.device().index() != index))
      plain = false;
    else
      index = t.device().index();
  };
  for (size_t i = 0; i < n && plain; ++i) {
    const c10::IValue& v = args[i];
    if (v.isTensor()) {
      look(v.toTensor());
    } else if (v.isTensorList()) {
      for (const auto& t : v.toListRef())
        if (t.isTensor()) look(t.toTensor());
    } else if (v.isOptionalTensorList()) {  // indices: PyTorch takes them from the CPU too
      for (const auto& t : v.toListRef())
        if (t.isTensor() && !t.toTensor().is_cpu()) look(t.toTensor());
    } else if (v.isDevice() && index < 0 && v.toDevice().type() == kNpu) {
      index = checkedIndex(v.toDevice().index());
    }
  }
  return plain ? index : -1;
}

// Calls f(written, other, position of other) for each tensor that is written to: with itself (position -1), then with every
// other tensor on the same storage.
template <class F>
void eachWrite(const c10::FunctionSchema& schema, const c10::IValue* args, size_t n, F&& f) {
  const auto& formal = schema.arguments();
  for (size_t i = 0; i < n; ++i) {
    const auto* alias = formal[i].alias_info();
    if (!alias || !alias->isWrite() || !args[i].isTensor() || !args[i].toTensor().defined()) continue;
    const at::Tensor& out = args[i].toTensor();
    f(out, out, -1);
    for (size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const auto other = [&](const at::Tensor& t) {
        if (t.defined() && t.has_storage() && t.is_alias_of(out)) f(out, t, static_cast<int>(k));
      };
      if (args[k].isTensor()) {
        other(args[k].toTensor());
      } else if (args[k].isTensorList() || args[k].isOptionalTensorList()) {
        for (const auto& t : args[k].toListRef())
          if (t.isTensor()) other(t.toTensor());
      }
    }
  }
}

// How a row's writes may meet what it reads.
struct Meeting {
  bool fills = false;        // every write is of the same value
  bool elementwise = false;  // a write depends on the same place alone
  bool in_place = false;     // the operator has an in-place form, so argument 0 may be the result
};
Meeting meetingOf(std::string_view op, std::string_view family) {
  static const std::unordered_set<std::string> names = [] {
    std::unordered_set<std::string> all;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) all.insert(name.name);
    return all;
  }();
  const std::string base(op.substr(0, op.find('.')));
  Meeting m;
  m.fills = base == "aten::fill_" || base == "aten::zero_";
  m.elementwise = family == "pointwise" || family == "fill" || family == "random" || family == "copy" || family == "foreach";
  m.in_place = names.count(base + "_") != 0;
  return m;
}

// Kernels write in no order: a result that overlaps itself, or an argument other than it may, is PyTorch's to refuse, or to
// write in its own order.
bool writesOverlap(const Meeting& m, const c10::FunctionSchema& schema, const c10::IValue* args, size_t n) {
  bool found = false;
  eachWrite(schema, args, n, [&](const at::Tensor& out, const at::Tensor& t, int at) {
    if (at < 0) {
      found |= at::has_internal_overlap(out) == at::MemOverlap::Yes;
      return;
    }
    const auto status = at::get_overlap_status(out, t);
    if (status == at::MemOverlapStatus::Full) found |= !m.elementwise && !(at == 0 && m.in_place);
    else found |= status == at::MemOverlapStatus::Partial;
  });
  return found;
}
void refuseOverlap(const Meeting& m, const c10::FunctionSchema& schema, const c10::IValue* args, size_t n) {
  eachWrite(schema, args, n, [&](const at::Tensor& out, const at::Tensor& t, int at) {
    if (at < 0) at::assert_no_internal_overlap(out);
    else if (m.elementwise || (at == 0 && m.in_place)) at::assert_no_partial_overlap(out, t);
    else at::assert_no_overlap(out, t);
  });
}

}  // namespace

OpTable::OpTable(std::span<const NativeOp> rows) { tables().push_back(rows); }

std::vector<const NativeOp*> nativeOps() {
  std::vector<const NativeOp*> out;
  for (const auto& table : tables())
    for (const auto& row : table) out.push_back(&row);
  return out;
}

// ---- one call ----

c10::SmallVector<int64_t, 6> OpCall::ints(size_t i, size_t n) const {
  c10::SmallVector<int64_t, 6> out;
  if (args_[i].isNone()) return out;
  if (args_[i].isInt()) {
    out.push_back(args_[i].toInt());
  } else if (args_[i].isIntList()) {
    for (const int64_t v : args_[i].toIntVector()) out.push_back(v);
  } else {
    for (const auto& v : args_[i].toListRef()) out.push_back(v.toInt());
  }
  if (n && out.size() == 1) out.resize(n, out[0]);
  return out;
}

std::optional<at::ScalarType> OpCall::dtype(size_t i) const {
  if (args_[i].isNone()) return std::nullopt;
  return args_[i].toScalarType();
}

std::optional<at::Generator> OpCall::generator(size_t i) const {
  if (args_[i].isNone()) return std::nullopt;
  return args_[i].toGenerator();
}

bool OpCall::isOut(size_t i) const {
  const auto* alias = schema_.arguments()[i].alias_info();
  return alias && alias->isWrite();
}

at::Tensor OpCall::out(size_t k) const {
  for (size_t i = 0; i < count(); ++i)
    if (isOut(i) && k-- == 0) return tensor(i);
  TORCH_INTERNAL_ASSERT(false, schema_.name(), " does not write to that many arguments");
}

at::Tensor OpCall::resizeOut(size_t k, at::IntArrayRef sizes) const {
  at::Tensor t = out(k);
  at::native::resize_output(t, sizes);
  return t;
}

at::Tensor OpCall::empty(at::IntArrayRef sizes, at::ScalarType dtype) const {
  return emptyOn(static_cast<int>(device_->index()), sizes, dtype);
}

// Runs one row; the friend that may set a call's place and take its results.
struct Invoker {
  const NativeOp* row;
  NameId name;
  HostKernel host;  // null: the CPU's kernel of the same name
  Meeting meeting;
  bool pure = false;  // its candidates may be timed

  // One run into results that nobody sees.
  bool attempt(const c10::OperatorHandle& op, const c10::IValue* args, ocl::Device& device, const Decision& d) const {
    const auto& schema = op.schema();
    const auto& formal = schema.arguments();
    torch::jit::Stack copy(args, args + formal.size());
    for (size_t i = 0; i < copy.size(); ++i)
      if (formal[i].is_out() && copy[i].isTensor() && copy[i].toTensor().defined()) {
        const at::Tensor& out = copy[i].toTensor();
        copy[i] = emptyStrided(static_cast<int>(device.index()), out.sizes(), out.strides(), out.scalar_type());
      }
    try {
      if (d.place != Place::opencl) {
        runOnHost(op, &copy, device, host);
        return true;
      }
      OpCall call(*row, schema, copy.data());
      call.device_ = &device;
      call.queue_ = &currentQueue(device);
      call.variant_ = d.variant;
      call.route_ = d.route;
      return row->launch(call).ok();
    } catch (const std::exception&) {
      return false;
    }
  }

  static at::Tensor launched(OpCall& call, ocl::Device& device, const kde::Route& route, ocl::Variant variant) {
    call.device_ = &device;
    call.queue_ = &currentQueue(device);
    call.variant_ = variant;
    call.route_ = &route;
    const Result<void> done = call.row_.launch(call);
    TORCH_CHECK(done.ok(), nameText(route.op), " on npu:", device.index(), " by ", nameText(route.kernel), ": ", done.error().text());
    if (call.results_.empty()) return call.out(0);  // in place
    return std::move(call.results_[0]).toTensor();
  }

  void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) const {
    const auto& schema = op.schema();
    const size_t n = schema.arguments().size();
    const RecordAgain record;
    c10::IValue* args = stack->data() + (stack->size() - n);
    const int index = nativeDevice(args, n);
    if (index < 0) {
      hostRoute(op, stack, host);
      return;
    }
    SiteScope site;
    ocl::Device& device = openDevice(index);
    kde::Signature s = signatureOf(name, schema, args, device);
    OpCall call(*row, schema, args);
    call.device_ = &device;
    if (row->describe) row->describe(call, s);
    s.native = !row->fits || row->fits(call);
    const bool overlap = s.native && !meeting.fills && writesOverlap(meeting, schema, args, n);
    s.native &= !overlap;
    const auto run_once = [&](const Decision& candidate) { return attempt(op, args, device, candidate); };
    const Trial trial(run_once);
    const Decision d = decide(s, device, pure ? &trial : nullptr);
    if (overlap && d.place != Place::host && router(index).fallback() == kde::Fallback::forbid) refuseOverlap(meeting, schema, args, n);
    if (d.place != Place::opencl) {
      applyPolicy(d, s, device);
      if (d.place == Place::fallback && device.sharedMemory())
        telemetry::countFallback(site.site(), name, 0);
      if (!row->host || !s.native) {
        runOnHost(op, stack, device, host);
        return;
      }
    }
    call.queue_ = &currentQueue(device);
    call.variant_ = d.variant;
    call.route_ = d.route;
    const Result<void> done = d.place == Place::opencl ? row->launch(call) : row->host(call);
    TORCH_CHECK(done.ok(), nameText(name), " on npu:", index, " by ", nameText(d.route->kernel), ": ", done.error().text());
    const auto& returns = schema.returns();
    if (call.results_.empty()) {  // it returns what it writes to
      for (size_t k = 0; k < returns.size(); ++k) call.results_.emplace_back(call.out(k));
    }
    TORCH_INTERNAL_ASSERT(call.results_.size() == returns.size(), nameText(name), " made ", call.results_.size(), " results");
    stack->resize(stack->size() - n);
    for (auto& r : call.results_) stack->push_back(std::move(r));
  }
};

at::Tensor launchFunctional(const NativeOp& row, const c10::FunctionSchema& schema, c10::IValue* args, ocl::Device& device,
                            const kde::Route& route, ocl::Variant variant) {
  OpCall call(row, schema, args);
  return Invoker::launched(call, device, route, variant);
}

namespace {
// The functor a row is registered as: it holds the row, so one class serves all of them.
struct RowKernel final : c10::OperatorKernel {
  explicit RowKernel(Invoker i) : invoker(i) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) { invoker.run(op, stack); }
  Invoker invoker;
};
}  // namespace

static std::string base(const std::string& name) { return name.substr(0, name.find('.')); }
static std::string overload(const std::string& name) {
  const auto dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(dot + 1);
}

void registerNativeOps() {
  kde::declareImplemented("aten::_copy_from", "copy");  // copy.cpp asks the router itself
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  for (const NativeOp* row : nativeOps()) {
    const std::string name = row->schema;
    kde::declareImplemented(row->schema, row->family);
    const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(base(name).c_str(), overload(name).c_str()).schema();
    const Invoker invoker{row, internName(name), hostKernelOf(name), meetingOf(name, row->family), isPure(schema)};
    lib.impl(name.substr(name.find("::") + 2).c_str(),
             torch::CppFunction::makeFromBoxedFunctor(std::make_unique<RowKernel>(invoker)));
  }
}

// ---- helpers ----

DType toDType(at::ScalarType t) noexcept {
  switch (t) {
    case at::kFloat: return DType::float32;
    case at::kDouble: return DType::float64;
    case at::kHalf: return DType::float16;
    case at::kBFloat16: return DType::bfloat16;
    case at::kChar: return DType::int8;
    case at::kShort: return DType::int16;
    case at::kInt: return DType::int32;
    case at::kLong: return DType::int64;
    case at::kByte: return DType::uint8;
    case at::kUInt16: return DType::uint16;
    case at::kUInt32: return DType::uint32;
    case at::kUInt64: return DType::uint64;
    case at::kBool: return DType::bool_;
    case at::kComplexHalf: return DType::complex32;
    case at::kComplexFloat: return DType::complex64;
    case at::kComplexDouble: return DType::complex128;
    default: return DType::other;
  }
}

at::ScalarType toScalarType(DType t) noexcept {
  switch (t) {
    case DType::float32: return at::kFloat;
    case DType::float64: return at::kDouble;
    case DType::float16: return at::kHalf;
    case DType::bfloat16: return at::kBFloat16;
    case DType::int8: return at::kChar;
    case DType::int16: return at::kShort;
    case DType::int32: return at::kInt;
    case DType::int64: return at::kLong;
    case DType::uint8: return at::kByte;
    case DType::uint16: return at::kUInt16;
    case DType::uint32: return at::kUInt32;
    case DType::uint64: return at::kUInt64;
    case DType::bool_: return at::kBool;
    case DType::complex32: return at::kComplexHalf;
    case DType::complex64: return at::kComplexFloat;
    case DType::complex128: return at::kComplexDouble;
    default: return at::ScalarType::Undefined;
  }
}

ocl::TensorRef ref(const at::Tensor& t) {
  const auto* impl = t.unsafeGetTensorImpl();
  const mou::Block* block = blockOf(*impl->unsafe_storage().unsafeGetStorageImpl());
  TORCH_CHECK(block, "this npu tensor's memory was not allocated by the npu allocator");
  TORCH_CHECK(t.dim() <= ocl::kMaxDims, "OpenCL kernels take at most ", ocl::kMaxDims, " dimensions; got ", t.dim());
  const auto item = static_cast<int64_t>(t.element_size());
  ocl::TensorRef r;
  r.buffer = static_cast<cl_mem>(mou::slabHandle(*block));
  r.offset = static_cast<int64_t>(block->offset) / item + t.storage_offset();
  r.base = static_cast<char*>(block->address) - block->offset;
  r.dtype = toDType(t.scalar_type());
  r.ndim = static_cast<int>(t.dim());
  for (int64_t d = 0; d < t.dim(); ++d) {
    r.sizes[static_cast<size_t>(d)] = impl->sizes()[static_cast<size_t>(d)];
    r.strides[static_cast<size_t>(d)] = impl->strides()[static_cast<size_t>(d)];
  }
  return r;
}

ocl::TensorRef ref(const at::Tensor& t, at::IntArrayRef sizes) {
  if (t.sizes() == sizes) return ref(t);
  return ref(t.expand(sizes));
}

c10::SmallVector<int64_t, 6> broadcastSizes(std::initializer_list<at::Tensor> tensors) {
  std::vector<int64_t> sizes;
  for (const auto& t : tensors)
    if (t.defined()) sizes = at::infer_size(sizes, t.sizes());
  return {sizes.begin(), sizes.end()};
}

at::ScalarType promote(std::initializer_list<at::Tensor> tensors) {
  at::native::ResultTypeState state = {};
  for (const auto& t : tensors)
    if (t.defined()) state = at::native::update_result_type_state(t, state);
  return at::native::result_type(state);
}

}  // namespace flagos::glue

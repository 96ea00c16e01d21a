#include "runtime/torch/host_route.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <mutex>
#include <unordered_set>

#include "runtime/base/metric.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/core_ops.h"
#include "runtime/torch/generator.h"
#include "runtime/torch/install.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/refusals.h"
#include "runtime/torch/state.h"
#include "runtime/torch/structured.h"

namespace flagos::glue {
namespace {

using torch::jit::Stack;

// Facts of an operator that do not change from call to call.
struct OpFacts {
  NameId name = 0;
  bool writes = false;           // some argument is written to
  bool view = false;             // results alias arguments and nothing is written: only metadata is made
  bool mixed_devices = false;    // takes CPU tensors beside npu ones, as PyTorch allows for indices and lengths
  bool cpu_results = false;      // result 1 stays on the CPU (batch sizes of a packed sequence)
  bool has_cpu_kernel = false;
  uint64_t generators = 0;       // bit i: argument i is a `Generator?`
};

OpFacts makeFacts(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> mixed = {"aten::index", "aten::index_put", "aten::index_put_",
                                                        "aten::_index_put_impl_", "aten::_unsafe_index",
                                                        "aten::_unsafe_index_put", "aten::_pack_padded_sequence"};
  const auto& schema = op.schema();
  OpFacts f;
  f.name = opName(schema);
  const auto& formal = schema.arguments();
  for (size_t i = 0; i < formal.size(); ++i) {
    f.writes |= formal[i].alias_info() && formal[i].alias_info()->isWrite();
    if (i < 64 && formal[i].type()->str() == "Generator?") f.generators |= uint64_t{1} << i;
  }
  f.view = !f.writes && !schema.returns().empty();
  for (const auto& r : schema.returns()) f.view &= r.alias_info() != nullptr;
  f.mixed_devices = mixed.count(schema.name()) != 0;
  f.cpu_results = schema.name() == "aten::_pack_padded_sequence";
  f.has_cpu_kernel = op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  return f;
}

const OpFacts& factsOf(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, OpFacts> cache;
  auto [it, fresh] = cache.try_emplace(&op.schema());
  if (fresh) it->second = makeFacts(op);
  return it->second;
}

// The device an operator's call belongs to, after checking that its tensors agree on it.
struct CallDevice {
  int index = -1;
  std::optional<c10::Device> asked;  // an explicit device argument
};

template <class F>
void eachTensor(const c10::IValue& v, F&& f) {
  if (v.isTensor()) {
    if (v.toTensor().defined()) f(v.toTensor());
  } else if (v.isTensorList() || v.isOptionalTensorList()) {
    for (const auto& t : v.toListRef())
      if (t.isTensor() && t.toTensor().defined()) f(t.toTensor());
  }
}

CallDevice deviceOfCall(const c10::OperatorHandle& op, const c10::IValue* args, size_t n) {
  CallDevice out;
  for (size_t i = 0; i < n; ++i) {
    if (args[i].isDevice()) out.asked = args[i].toDevice();
    eachTensor(args[i], [&](const at::Tensor& t) {
      if (t.device().type() != kNpu) return;
      if (out.index < 0) out.index = t.device().index();
      TORCH_CHECK(out.index == t.device().index(), "Expected all tensors to be on the same device, but found at least two "
                  "devices, npu:", out.index, " and ", t.device(), "! (when calling ", op.schema().name(), ")");
    });
  }
  if (out.index < 0 && out.asked && out.asked->type() == kNpu) out.index = checkedIndex(out.asked->index());
  TORCH_CHECK(out.index >= 0, op.schema().name(), " was sent to the npu but none of its tensors is there; a generator made "
              "for npu works on npu tensors only.");
  const bool mixed = factsOf(op).mixed_devices;
  for (size_t i = 0; i < n; ++i)
    eachTensor(args[i], [&](const at::Tensor& t) {
      if (t.device().type() == kNpu) {
        return;
      }
      const bool fine = t.device().is_cpu() && (t.dim() == 0 || mixed);
      TORCH_CHECK(fine, "Expected all tensors to be on the same device, but found at least two devices, npu:", out.index,
                  " and ", t.device(), "! (when calling ", op.schema().name(), ")");
    });
  return out;
}

at::Tensor ordinaryCpu(const at::Tensor& t) {
  at::Tensor out = at::detail::empty_cpu(t.sizes(), t.scalar_type());
  return out.copy_(t);
}

}  // namespace

at::Tensor npuResult(at::Tensor&& cpu, ocl::Device& device, bool staged) {
  const int index = static_cast<int>(device.index());
  auto* impl = cpu.unsafeGetTensorImpl();
  if (!staged && cpu.use_count() == 1 && impl->storage().use_count() == 1) {
    auto& storage = *impl->unsafe_storage().unsafeGetStorageImpl();
    if (c10::DataPtr moved = retarget(storage._mutable_data_ptr_no_checks())) {
      storage.set_data_ptr_noswap(std::move(moved));
      storage.set_allocator(deviceAllocator());
      impl->set_storage_keep_dtype(c10::Storage(impl->storage()));  // refreshes the device the tensor remembers
      impl->_change_backend_component_keys(c10::Device(kNpu, static_cast<c10::DeviceIndex>(index)));
      return std::move(cpu);
    }
  }
  at::Tensor npu = emptyStrided(index, cpu.sizes(), cpu.strides(), cpu.scalar_type());
  const size_t bytes = cpu.numel() == 0 ? 0
                       : at::detail::computeStorageNbytes(cpu.sizes(), cpu.strides(), cpu.element_size());
  if (bytes) writeBytes(device, npu, cpu.const_data_ptr(), bytes);
  npu._set_conj(cpu.is_conj());
  npu._set_neg(cpu.is_neg());
  if (cpu.unsafeGetTensorImpl()->is_wrapped_number()) npu.unsafeGetTensorImpl()->set_wrapped_number(true);
  return npu;
}

Faces::Shadow& Faces::shadow(const c10::Storage& npu, bool needs_bytes) {
  for (auto& s : shadows_)
    if (s.npu.unsafeGetStorageImpl() == npu.unsafeGetStorageImpl()) return s;
  const size_t bytes = npu.nbytes();
  const auto& ptr = npu.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  c10::DataPtr data(ptr.get(), c10::Device(c10::DeviceType::CPU));
  if (staged_ && needs_bytes) {
    data = c10::GetCPUAllocator()->allocate(bytes);
    if (bytes) readBytes(device_, *npu.unsafeGetStorageImpl(), data.get(), bytes);
    staged_bytes_ += bytes;
  }
  void* address = data.get();
  auto impl = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                    c10::GetCPUAllocator(), /*resizable=*/true);
  shadows_.push_back({npu, c10::Storage(std::move(impl)), address, bytes});
  return shadows_.back();
}

at::Tensor Faces::face(const at::Tensor& npu, bool needs_bytes) {
  for (const auto& p : pairs_)
    if (p.npu.is_same(npu)) return p.cpu;
  auto* from = npu.unsafeGetTensorImpl();
  Shadow& s = shadow(from->storage(), needs_bytes);
  at::Tensor cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(s.cpu), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                            from->dtype());
  auto* to = cpu.unsafeGetTensorImpl();
  to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
  if (npu.is_conj()) cpu._set_conj(true);
  if (npu.is_neg()) cpu._set_neg(true);
  if (from->is_wrapped_number()) to->set_wrapped_number(true);
  pairs_.push_back({npu, cpu});
  return cpu;
}

at::Tensor Faces::original(const at::Tensor& cpu) const {
  for (const auto& p : pairs_)
    if (p.cpu.is_same(cpu)) return p.npu;
  if (!cpu.has_storage()) return {};
  for (const auto& s : shadows_) {
    if (s.cpu.unsafeGetStorageImpl() != cpu.storage().unsafeGetStorageImpl()) continue;
    for (const auto& p : pairs_) {
      auto* base = p.npu.unsafeGetTensorImpl();
      if (base->storage().unsafeGetStorageImpl() != s.npu.unsafeGetStorageImpl()) continue;
      auto keys = base->key_set() - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
      at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(s.npu), keys, cpu.dtype());
      auto* impl = view.unsafeGetTensorImpl();
      impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
      if (!p.npu.is_inference()) impl->set_version_counter(base->version_counter());
      view._set_conj(cpu.is_conj());
      view._set_neg(cpu.is_neg());
      return view;
    }
  }
  return {};
}

std::vector<at::Tensor> Faces::originals() const {
  std::vector<at::Tensor> out;
  for (const auto& p : pairs_) out.push_back(p.npu);
  return out;
}

void Faces::writeBack(bool bytes) {
  for (auto& s : shadows_) {
    auto& cpu = *s.cpu.unsafeGetStorageImpl();
    auto& npu = *s.npu.unsafeGetStorageImpl();
    auto& ptr = cpu._mutable_data_ptr_no_checks();
    if (!staged_) {
      if (ptr.get() == s.data && cpu.nbytes() == s.bytes) continue;
      if (ptr.get() != s.data) {
        if (c10::DataPtr moved = retarget(ptr)) {
          npu.set_data_ptr_noswap(std::move(moved));
        } else {  // memory from elsewhere (never adopted): copy it into the range
          resizeStorage(npu, cpu.nbytes());
          std::memcpy(npu._mutable_data_ptr_no_checks().get(), ptr.get(), cpu.nbytes());
        }
      }
      npu.set_nbytes(cpu.nbytes());
    } else if (bytes && cpu.nbytes() > 0) {
      if (cpu.nbytes() != s.bytes) resizeStorage(npu, cpu.nbytes());
      writeBytes(device_, npu, ptr.get(), cpu.nbytes());
      staged_bytes_ += cpu.nbytes();
    }
  }
  for (auto& p : pairs_) {
    auto* from = p.cpu.unsafeGetTensorImpl();
    auto* to = p.npu.unsafeGetTensorImpl();
    if (to->sizes() != from->sizes() || to->strides() != from->strides() || to->storage_offset() != from->storage_offset())
      to->set_sizes_and_strides(from->sizes(), from->strides(), from->storage_offset());
    if (p.npu.is_conj() != p.cpu.is_conj()) p.npu._set_conj(p.cpu.is_conj());
    if (p.npu.is_neg() != p.cpu.is_neg()) p.npu._set_neg(p.cpu.is_neg());
  }
}

void runOnHost(const c10::OperatorHandle& op, Stack* stack, ocl::Device& device, HostKernel kernel) {
  const OpFacts& facts = factsOf(op);
  const auto& schema = op.schema();
  TORCH_CHECK_NOT_IMPLEMENTED(kernel || facts.has_cpu_kernel, nameText(facts.name), " on npu:", device.index(), " is not "
                              "supported: there is neither an OpenCL kernel nor a CPU kernel that could stand in.");
  const size_t n = schema.arguments().size(), base = stack->size() - n;
  const bool staged = !device.sharedMemory();
  const int index = static_cast<int>(device.index());
  if (!facts.view) waitForHost(device);
  Faces faces(device, staged);
  std::optional<c10::Device> asked;
  for (size_t i = 0; i < n; ++i) {
    c10::IValue& v = (*stack)[base + i];
    if (v.isTensor()) {
      if (isNpu(v.toTensor())) v = faces.face(v.toTensor(), !facts.view);
    } else if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& t : v.toTensorVector()) list.push_back(isNpu(t) ? faces.face(t, !facts.view) : t);
      v = std::move(list);
    } else if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const auto& t : v.toListRef()) {
        if (!t.isTensor()) list.push_back(std::nullopt);
        else list.push_back(isNpu(t.toTensor()) ? faces.face(t.toTensor(), !facts.view) : t.toTensor());
      }
      v = std::move(list);
    } else if (v.isDevice()) {
      asked = v.toDevice();
      v = c10::Device(c10::DeviceType::CPU);
    } else if (v.isGenerator() || (v.isNone() && i < 64 && (facts.generators >> i & 1))) {
      v = hostGenerator(v.isNone() ? std::nullopt : std::optional<at::Generator>(v.toGenerator()), index);
    }
  }
  {
    HostAllocationScope scope(staged ? -1 : index);
    at::AutoDispatchBelowADInplaceOrView below;
    c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    try {
      if (kernel) kernel(op, stack);
      else op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    } catch (const c10::Error& error) {
      refuseDtype(error, nameText(facts.name), faces.originals(), device);
      if (stack->size() == base + n) nameIndex(error, nameText(facts.name), {stack->data() + base, n}, index);
      throw;
    }
  }
  if (facts.writes) faces.writeBack(true);

  const bool to_npu = !asked || asked->type() == kNpu;
  const size_t results = schema.returns().size(), first = stack->size() - results;
  const auto convert = [&](at::Tensor&& cpu, size_t k) -> at::Tensor {
    if (!cpu.defined()) return std::move(cpu);
    if (!cpu.device().is_cpu()) return std::move(cpu);
    if (at::Tensor t = faces.original(cpu); t.defined()) return t;
    if (!to_npu || (facts.cpu_results && k == 1)) return ordinaryCpu(cpu);
    refuseResult(cpu, nameText(facts.name), index);
    return npuResult(std::move(cpu), device, staged);
  };
  for (size_t k = 0; k < results; ++k) {
    c10::IValue& v = (*stack)[first + k];
    if (v.isTensor()) {
      at::Tensor cpu = std::move(v).toTensor();
      v = convert(std::move(cpu), k);
    } else if (v.isTensorList()) {
      std::vector<at::Tensor> list = v.toTensorVector();
      v = c10::IValue();
      c10::List<at::Tensor> out;
      for (auto& t : list) out.push_back(convert(std::move(t), k));
      v = std::move(out);
    }
  }
  if (staged && !facts.view) telemetry::countFallback(ocl::currentTag().site, facts.name, faces.stagedBytes());
}

void applyPolicy(const Decision& d, const kde::Signature& s, ocl::Device& device) {
  if (d.place == Place::host || d.place == Place::opencl) return;
  const auto policy = router(static_cast<int>(device.index())).fallback();
  TORCH_CHECK_NOT_IMPLEMENTED(d.place != Place::refused || policy == kde::Fallback::forbid, "npu:", device.index(),
                              ": no OpenCL kernel for ", kde::text(s), ", and nothing on the host can stand in: ",
                              d.route ? nameText(d.route->reason) : std::string_view("unknown"), ". Use another dtype or operator; "
                              "`flagos explain ", nameText(s.op), "` lists what would change the answer.");
  if (policy == kde::Fallback::forbid) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "npu:", device.index(), ": no OpenCL kernel for ", kde::text(s),
                                " and falling back to the CPU is forbidden (FLAGOS_FALLBACK=forbid). Reason: ",
                                d.route ? nameText(d.route->reason) : std::string_view("unknown"),
                                ". Use FLAGOS_FALLBACK=warn to let it run on the host, or another dtype or operator; "
                                "`flagos explain ", nameText(s.op), "` lists what would change the answer.");
  }
  if (policy != kde::Fallback::warn) return;
  static std::mutex mutex;
  static std::unordered_set<NameId> warned;
  {
    std::lock_guard lock(mutex);
    if (!warned.insert(s.op).second) return;
  }
  TORCH_WARN("npu:", device.index(), ": ", nameText(s.op), " has no OpenCL kernel for this call and runs on the CPU",
             device.sharedMemory() ? "" : ", with copies to the host and back", ": ", kde::text(s),
             ". This is said once per operator; FLAGOS_FALLBACK=allow silences it, =forbid makes it an error.");
}

void hostRoute(const c10::OperatorHandle& op, Stack* stack, HostKernel kernel) {
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size();
  const c10::IValue* args = stack->data() + (stack->size() - n);
  const CallDevice where = deviceOfCall(op, args, n);
  SiteScope site;
  ocl::Device& device = openDevice(where.index);
  kde::Signature s = signatureOf(factsOf(op).name, schema, args, device);
  s.native = false;
  const Decision d = decide(s, device);
  if (!factsOf(op).view) {  // views make metadata only: there is nothing to fall back from
    applyPolicy(d, s, device);
    if (d.place == Place::fallback && device.sharedMemory()) telemetry::countFallback(site.site(), s.op, 0);
  }
  runOnHost(op, stack, device, kernel);
}

at::Tensor hostView(const at::Tensor& npu) {
  TORCH_CHECK(isNpu(npu), "host_view takes an npu tensor; got one on ", npu.device());
  ocl::Device& device = openDevice(npu.device().index());
  TORCH_CHECK(device.sharedMemory(), "npu:", device.index(), " does not share memory with the host, so its tensors have no "
              "host view. Use .cpu() for a copy.");
  waitForHost(device);
  const c10::Storage& storage = npu.storage();
  auto* keep = new c10::Storage(storage);
  c10::DataPtr data(storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get(), keep,
                    [](void* p) { delete static_cast<c10::Storage*>(p); }, c10::Device(c10::DeviceType::CPU));
  auto impl = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), storage.nbytes(), std::move(data),
                                                    nullptr, /*resizable=*/false);
  at::Tensor cpu = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(impl)),
                                                            c10::DispatchKeySet(c10::DispatchKey::CPU), npu.dtype());
  cpu.unsafeGetTensorImpl()->set_sizes_and_strides(npu.sizes(), npu.strides(), npu.storage_offset());
  cpu._set_conj(npu.is_conj());
  cpu._set_neg(npu.is_neg());
  return cpu;
}

namespace {
void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const RecordAgain record;
  hostRoute(op, stack);
}
}  // namespace

void installHostRoute() {
  static torch::Library lib(torch::Library::IMPL, "_", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  lib.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace flagos::glue

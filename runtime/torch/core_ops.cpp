// Operators that must be native: factories, views, storage surgery. None of them computes, so none is routed.
#include "runtime/torch/core_ops.h"

#include <ATen/EmptyTensor.h>
#include <ATen/InferSize.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_unsafe_view_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "runtime/telemetry/recorder.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/install.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/refusals.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// The allocator takes the current device; factories name theirs.
class DeviceScope {
 public:
  explicit DeviceScope(int index) : previous_(currentDevice()) { setCurrentDevice(index); }
  ~DeviceScope() { setCurrentDeviceUnchecked(previous_); }

 private:
  int previous_;
};

int factoryDevice(std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == c10::Layout::Strided, "npu tensors are dense; layout ", *layout,
                              " is not supported, keep such tensors on the CPU");
  TORCH_CHECK(!pinned || !*pinned, "Only dense CPU tensors can be pinned");
  return checkedIndex(device ? device->index() : static_cast<c10::DeviceIndex>(-1));
}

// torch.use_deterministic_algorithms fills fresh memory, so that reading it by mistake gives the same answer each time.
at::Tensor filled(at::Tensor t) {
  if (at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory()) [[unlikely]]
    at::native::fill_empty_deterministic_(t);
  return t;
}

at::Tensor emptyMemoryFormat(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                             std::optional<c10::Device> device, std::optional<bool> pinned,
                             std::optional<at::MemoryFormat> format) {
  SiteScope site;
  return filled(emptyOn(factoryDevice(layout, device, pinned), size, c10::dtype_or_default(dtype), format));
}

at::Tensor emptyStridedOp(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                          std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pinned) {
  SiteScope site;
  return filled(emptyStrided(factoryDevice(layout, device, pinned), size, stride, c10::dtype_or_default(dtype)));
}

// A tensor of zeros without memory, as autograd makes them; whatever computes on one makes real zeros first.
struct NoMemory final : c10::Allocator {
  explicit NoMemory(c10::Device d) : device(d) {}
  c10::DataPtr allocate(size_t) override { return {nullptr, device}; }
  c10::DeleterFnPtr raw_deleter() const override { return [](void*) {}; }
  void copy_data(void*, const void*, size_t) const override {}
  c10::Device device;
};

at::Tensor efficientZeroTensor(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
                               std::optional<c10::Device> device, std::optional<bool> pinned) {
  NoMemory none(c10::Device(kNpu, static_cast<c10::DeviceIndex>(factoryDevice(layout, device, pinned))));
  return at::detail::empty_generic(size, &none, kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

void growFor(c10::TensorImpl& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (self.numel() == 0) return;
  const size_t bytes = at::detail::computeStorageNbytes(sizes, strides, self.dtype().itemsize(), self.storage_offset());
  auto& storage = *self.unsafe_storage().unsafeGetStorageImpl();
  if (bytes > storage.nbytes()) resizeStorage(storage, bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  SiteScope site;
  auto* impl = self.unsafeGetTensorImpl();
  const size_t old_bytes = impl->unsafe_storage().nbytes();
  if (impl->sizes() != size) {
    impl->set_sizes_contiguous(size);
    growFor(*impl, impl->sizes(), impl->strides());
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    impl->empty_tensor_restride(*format);
    growFor(*impl, impl->sizes(), impl->strides());
  }
  if (at::globalContext().deterministicAlgorithms() && at::globalContext().deterministicFillUninitializedMemory())
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(old_bytes));
  return self;
}

at::Tensor& setStorageOffset(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data()) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  growFor(*impl, impl->sizes(), impl->strides());
  return self;
}

at::Tensor& setEmpty(at::Tensor& self) {
  at::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                            allocateOn(self.device().index(), 0), deviceAllocator(), true));
  return setStorageOffset(self, std::move(storage), 0, {0}, {});
}

void recordStream(at::Tensor& self, c10::Stream stream) {
  deviceAllocator()->recordStream(self.storage().data_ptr(), stream);
}

// Keeps the identity of parameters when a module moves: `p.data = p.data.to("npu")` replaces contents, not the object.
bool hasCompatibleShallowCopyType(const at::Tensor& self, const at::Tensor& from) {
  const auto fine = [](const at::Tensor& t) {
    return t.layout() == at::kStrided && (t.device().is_cpu() || t.device().type() == kNpu);
  };
  return fine(self) && fine(from);
}

at::Scalar localScalarDense(const at::Tensor& self) {
  alignas(16) unsigned char raw[16] = {};
  ocl::Device& device = openDevice(self.device().index());
  SiteScope site;
  readBytes(device, self, raw, self.element_size());
  if (!device.sharedMemory())
    telemetry::countCopy(site.site(), telemetry::CopyKind::device_to_host, self.element_size());
  switch (self.scalar_type()) {
#define CASE(type, name) \
  case at::ScalarType::name: return at::Scalar(*reinterpret_cast<const type*>(raw));
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(CASE)
#undef CASE
    default: break;
  }
  at::Tensor host = at::detail::empty_cpu({}, self.scalar_type());
  std::memcpy(host.data_ptr(), raw, self.element_size());
  try {
    return host.item();
  } catch (const c10::Error& error) {
    refuseDtype(error, "aten::item", {&self, 1}, device);
    throw;
  }
}

at::Tensor copyFrom(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  copyTensor(self, dst, non_blocking);
  return dst;
}

at::Tensor copyFromAndResize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  copyTensor(self, dst, false);
  return dst;
}

}  // namespace

at::Tensor emptyOn(int device, at::IntArrayRef sizes, at::ScalarType dtype, std::optional<at::MemoryFormat> format) {
  DeviceScope scope(device);
  return at::detail::empty_generic(sizes, deviceAllocator(), kKeys, dtype, format);
}

at::Tensor emptyStrided(int device, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  DeviceScope scope(device);
  return at::detail::empty_strided_generic(sizes, strides, deviceAllocator(), kKeys, dtype);
}

void resizeStorage(c10::StorageImpl& storage, size_t bytes) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  mou::Block* block = blockOf(storage);
  TORCH_CHECK(block, "this storage's memory does not belong to an npu pool and cannot be resized");
  const size_t old_bytes = storage.nbytes();
  if (bytes != 0 && (bytes <= block->bytes || block->pool->grow(block, bytes))) {
    storage.set_nbytes(bytes);
    return;
  }
  const int index = storage.device().index();
  c10::DataPtr fresh = allocateOn(index, bytes);
  const size_t keep = std::min(bytes, old_bytes);
  if (keep) {
    ocl::Device& device = openDevice(index);
    auto* to = static_cast<mou::Block*>(fresh.get_context());
    check(currentQueue(device).copy(static_cast<cl_mem>(mou::slabHandle(*to)), to->offset,
                                    static_cast<cl_mem>(mou::slabHandle(*block)), block->offset, keep));
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

void installCoreOps() {
  namespace native = at::native;
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  // TransformerEncoder asks this before it makes a nested tensor of padded rows; told no, it works on the padded ones.
  lib.impl("_nested_tensor_from_mask_left_aligned", +[](const at::Tensor&, const at::Tensor&) { return false; });
  lib.impl("empty.memory_format", &emptyMemoryFormat);
  lib.impl("empty_strided", &emptyStridedOp);
  lib.impl("_efficientzerotensor", &efficientZeroTensor);
  lib.impl("as_strided", &native::as_strided_tensorimpl);
  lib.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&native::view));
  lib.impl("_reshape_alias", &native::_reshape_alias);
  lib.impl("_unsafe_view", &native::_unsafe_view);
  lib.impl("alias", &native::alias);
  lib.impl("unfold", &native::unfold);
  lib.impl("view_as_real", &native::view_as_real);
  lib.impl("view_as_complex", &native::view_as_complex);
  lib.impl("resize_", &resize_);
  lib.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&native::set_));
  lib.impl("set_.source_Storage_storage_offset", &setStorageOffset);
  lib.impl("set_.source_Tensor", &native::set_tensor_);
  lib.impl("set_", &setEmpty);
  lib.impl("is_set_to", &native::is_set_to);
  lib.impl("record_stream", &recordStream);
  lib.impl("_has_compatible_shallow_copy_type", &hasCompatibleShallowCopyType);
  lib.impl("_local_scalar_dense", &localScalarDense);
  lib.impl("_copy_from", &copyFrom);
  lib.impl("_copy_from_and_resize", &copyFromAndResize);

  // Copies see the bits themselves; resolving them first would copy, which would resolve, without end.
  static torch::Library conj(torch::Library::IMPL, "aten", c10::DispatchKey::Conjugate, __FILE__, __LINE__);
  static torch::Library neg(torch::Library::IMPL, "aten", c10::DispatchKey::Negative, __FILE__, __LINE__);
  conj.impl("_copy_from", torch::CppFunction::makeFallthrough());
  neg.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace flagos::glue

// Copies in every direction. Where the host may touch npu memory, PyTorch's own CPU copy runs on faces; kernels copy
// inside a device; otherwise bytes are staged through a contiguous tensor on the side that has to convert.
#include "runtime/opencl/ops/copy.h"

#include <ATen/MemoryOverlap.h>

#include "runtime/telemetry/recorder.h"
#include "runtime/torch/allocator.h"
#include "runtime/torch/core_ops.h"
#include "runtime/torch/decision.h"
#include "runtime/torch/host_route.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

struct Bytes {
  cl_mem buffer;
  size_t offset;
};

// PyTorch's legacy file format wraps the bytes of a storage in a tensor of its own: then the address tells the block.
Bytes bytesOf(const c10::StorageImpl& storage, int64_t byte_offset) {
  const auto* address = static_cast<const char*>(storage.data());
  mou::Block* block = blockOf(storage);
  if (const int index = block ? -1 : deviceOf(address); index >= 0) block = openedDevice(index)->pool().find(address);
  TORCH_CHECK(block, "this npu tensor's memory was not allocated by the npu allocator");
  const auto into = address - static_cast<const char*>(block->address);
  return {static_cast<cl_mem>(mou::slabHandle(*block)), block->offset + static_cast<size_t>(into + byte_offset)};
}

Bytes bytesOf(const at::Tensor& t) {
  return bytesOf(*t.storage().unsafeGetStorageImpl(), t.storage_offset() * static_cast<int64_t>(t.element_size()));
}

bool sameBits(const at::Tensor& a, const at::Tensor& b) { return a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg(); }

// A CPU tensor with the same elements as the npu tensor, bits included.
at::Tensor download(ocl::Device& device, const at::Tensor& npu) {
  at::Tensor plain = npu;
  if (!npu.is_contiguous() || npu.is_conj() || npu.is_neg()) {
    at::Tensor physical = npu.is_conj() || npu.is_neg() ? npu.detach() : npu;
    if (physical.is_conj()) physical._set_conj(false);
    if (physical.is_neg()) physical._set_neg(false);
    plain = physical.is_contiguous() ? physical : emptyOn(npu.device().index(), npu.sizes(), npu.scalar_type());
    if (!plain.is_same(physical)) copyTensor(physical, plain, false);
  }
  at::Tensor cpu = at::detail::empty_cpu(npu.sizes(), npu.scalar_type());
  if (cpu.nbytes()) readBytes(device, plain, cpu.mutable_data_ptr(), cpu.nbytes());
  cpu._set_conj(npu.is_conj());
  cpu._set_neg(npu.is_neg());
  return cpu;
}

// dst's elements become those of the CPU tensor, which broadcasts to it.
void upload(ocl::Device& device, const at::Tensor& cpu, const at::Tensor& dst) {
  at::Tensor host = at::detail::empty_cpu(dst.sizes(), dst.scalar_type());
  host._set_conj(dst.is_conj());
  host._set_neg(dst.is_neg());
  host.copy_(cpu);  // converts, and stores what dst's bits make of it
  if (dst.is_contiguous()) {
    if (host.nbytes()) writeBytes(device, dst, host.const_data_ptr(), host.nbytes());
    return;
  }
  at::Tensor flat = emptyOn(dst.device().index(), dst.sizes(), dst.scalar_type());
  if (host.nbytes()) writeBytes(device, flat, host.const_data_ptr(), host.nbytes());
  flat._set_conj(dst.is_conj());
  flat._set_neg(dst.is_neg());
  copyTensor(flat, dst, false);
}

// Bytes move as they are: same dtype, same layout, no holes.
bool plainBytes(const at::Tensor& src, const at::Tensor& dst) {
  return src.scalar_type() == dst.scalar_type() && src.sizes() == dst.sizes() && sameBits(src, dst) &&
         ((src.is_contiguous() && dst.is_contiguous()) ||
          (src.strides() == dst.strides() && src.is_non_overlapping_and_dense()));
}

void copyOnHost(ocl::Device& device, const at::Tensor& src, const at::Tensor& dst) {
  waitForHost(device);
  Faces faces(device, /*staged=*/false);
  at::Tensor to = isNpu(dst) ? faces.face(dst) : dst;
  at::Tensor from = isNpu(src) ? faces.face(src) : src;
  at::AutoDispatchBelowADInplaceOrView below;
  to.copy_(from);
}

// A discrete device whose kernels cannot do it (a dtype without a name in OpenCL): through host memory, whole storages.
void copyStaged(ocl::Device& device, const at::Tensor& src, const at::Tensor& dst, NameId op) {
  Faces faces(device, /*staged=*/true);
  at::Tensor to = faces.face(dst);
  at::Tensor from = faces.face(src);
  {
    at::AutoDispatchBelowADInplaceOrView below;
    to.copy_(from);
  }
  faces.writeBack(true);
  telemetry::countFallback(ocl::currentTag().site, op, faces.stagedBytes());
}

void copyInside(ocl::Device& device, const at::Tensor& src, const at::Tensor& dst) {
  static const NameId op = internName("aten::_copy_from");
  kde::Signature s;
  s.op = op;
  s.device = static_cast<uint8_t>(device.index());
  ocl::Queue& queue = currentQueue(device);
  s.queue_idle = queue.idle();
  addTensor(s, src);
  addTensor(s, dst);
  s.native = sameBits(src, dst) && dst.dim() <= ocl::kMaxDims &&
             (plainBytes(src, dst) || ocl::copySupports(toDType(src.scalar_type()), toDType(dst.scalar_type())));
  const Decision d = decide(s, device);
  telemetry::countCopy(ocl::currentTag().site, telemetry::CopyKind::device_to_device, dst.nbytes());
  applyPolicy(d, s, device);
  if (d.place == Place::opencl) {
    at::assert_no_internal_overlap(dst);
    at::assert_no_partial_overlap(dst, src);
    if (plainBytes(src, dst)) {
      const Bytes from = bytesOf(src), to = bytesOf(dst);
      if (from.buffer != to.buffer || from.offset != to.offset)
        check(queue.copy(to.buffer, to.offset, from.buffer, from.offset, dst.nbytes()));
    } else {
      check(ocl::copy(queue, ref(src, dst.sizes()), ref(dst), d.variant));
    }
    return;
  }
  if (!device.sharedMemory()) {
    copyStaged(device, src, dst, op);
    return;
  }
  if (d.place == Place::fallback) telemetry::countFallback(ocl::currentTag().site, op, 0);
  copyOnHost(device, src, dst);
}

}  // namespace

void readBytes(ocl::Device& device, const c10::StorageImpl& from, void* to, size_t bytes) {
  const Bytes b = bytesOf(from, 0);
  check(currentQueue(device).read(to, b.buffer, b.offset, bytes, /*blocking=*/true));
}

void writeBytes(ocl::Device& device, const c10::StorageImpl& to, const void* from, size_t bytes) {
  const Bytes b = bytesOf(to, 0);
  check(currentQueue(device).write(b.buffer, b.offset, from, bytes, /*blocking=*/true));
}

void writeBytes(ocl::Device& device, const at::Tensor& to, const void* from, size_t bytes) {
  const Bytes b = bytesOf(to);
  check(currentQueue(device).write(b.buffer, b.offset, from, bytes, /*blocking=*/true));
}

void readBytes(ocl::Device& device, const at::Tensor& from, void* to, size_t bytes) {
  if (device.sharedMemory()) {  // no driver call where nothing is pending
    waitForHost(device);
    std::memcpy(to, from.const_data_ptr(), bytes);
    return;
  }
  const Bytes b = bytesOf(from);
  check(currentQueue(device).read(to, b.buffer, b.offset, bytes, /*blocking=*/true));
}

void copyTensor(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  SiteScope site;
  if (dst.numel() == 0) return;
  const bool from_npu = isNpu(src), to_npu = isNpu(dst);
  TORCH_CHECK((from_npu || src.device().is_cpu()) && (to_npu || dst.device().is_cpu()), "cannot copy from ", src.device(),
              " to ", dst.device());
  ocl::Device& device = openDevice((to_npu ? dst : src).device().index());
  if (from_npu && to_npu) {
    if (src.device() == dst.device()) {
      copyInside(device, src, dst);
    } else if (ocl::Device& from = openDevice(src.device().index()); device.sharedMemory() && from.sharedMemory()) {
      waitForHost(from);
      telemetry::countCopy(site.site(), telemetry::CopyKind::device_to_device, dst.nbytes());
      copyOnHost(device, src, dst);
    } else {  // another card: through the host
      copyTensor(download(openDevice(src.device().index()), src), dst, false);
    }
    return;
  }
  telemetry::countCopy(site.site(),
                       to_npu ? telemetry::CopyKind::host_to_device : telemetry::CopyKind::device_to_host, dst.nbytes());
  if (device.sharedMemory()) {
    copyOnHost(device, src, dst);
    return;
  }
  if (plainBytes(src, dst)) {
    const void* host = (to_npu ? src : dst).const_data_ptr();
    if (non_blocking && isPinned(host)) {
      ocl::Queue& queue = currentQueue(device);
      const Bytes b = bytesOf(to_npu ? dst : src);
      check(to_npu ? queue.write(b.buffer, b.offset, host, dst.nbytes(), /*blocking=*/false)
                   : queue.read(const_cast<void*>(host), b.buffer, b.offset, dst.nbytes(), /*blocking=*/false));
      pinnedInUse(host, queue);
      return;
    }
    // Pageable memory: done on return, also for non_blocking, since the caller may free or change it at once.
    if (to_npu) writeBytes(device, dst, src.const_data_ptr(), dst.nbytes());
    else readBytes(device, src, dst.mutable_data_ptr(), dst.nbytes());
    return;
  }
  if (to_npu) upload(device, src, dst);
  else dst.copy_(download(device, src));
}

}  // namespace flagos::glue

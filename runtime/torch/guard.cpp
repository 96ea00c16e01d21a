// The device guard (current device, streams, events) and the hooks that PyTorch's generic code calls.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "runtime/torch/allocator.h"
#include "runtime/torch/generator.h"
#include "runtime/torch/install.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

// A point in a queue's work. The stamp of a timed one gets the time at which the device came to it.
struct Event {
  int device = 0;
  uint32_t queue = 0;
  uint64_t ticket = 0;
  ocl::Stamp stamp;
};

ocl::Queue& queueOf(const Event& e) { return openDevice(e.device).queue(e.queue); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kNpu; }

  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = getDevice();
    setDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return {kNpu, static_cast<c10::DeviceIndex>(currentDevice())}; }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.type() == kNpu, "the npu guard was given ", d);
    if (d.has_index()) setCurrentDevice(d.index());
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.has_index()) setCurrentDeviceUnchecked(d.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(glue::deviceCount()); }

  c10::Stream getStream(c10::Device d) const override {
    const int index = d.has_index() ? d.index() : currentDevice();
    return streamOf(index, currentQueueId(index));
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return streamOf(d.has_index() ? d.index() : currentDevice(), 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    const int index = checkedIndex(d.index());
    return streamOf(index, nextPoolQueueId(index));
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const int index = checkedIndex(s.device_index());
    return streamOf(index, exchangeQueueId(index, static_cast<uint32_t>(s.id())));
  }
  void* getStreamNativeHandle(const c10::Stream s) const override {
    // The queue object is what other code of ours can use; a cl_command_queue would bypass its counters.
    return &glue::queueOf(s);
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    if (!*event) *event = new Event();
    auto& e = *static_cast<Event*>(*event);
    e.device = checkedIndex(stream.device_index());
    e.queue = static_cast<uint32_t>(stream.id());
    ocl::Queue& queue = glue::queueOf(stream);
    e.ticket = queue.submitted();
    e.stamp.reset();
    if (flag != c10::EventFlag::BACKEND_DEFAULT) return;
    e.stamp = std::make_shared<std::atomic<uint64_t>>(0);  // a new one: the old may still be written to
    const auto ticket = queue.mark(e.stamp);
    TORCH_CHECK(ticket.ok(), ticket.error().text());
    e.ticket = *ticket;
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    auto& e = *static_cast<Event*>(event);
    ocl::Queue& source = queueOf(e);
    ocl::Queue& waiting = glue::queueOf(stream);
    if (&source != &waiting) check(waiting.waitFor(source, e.ticket));
  }

  bool queryEvent(void* event) const override {
    if (!event) return true;
    auto& e = *static_cast<Event*>(event);
    return queueOf(e).isDone(e.ticket);
  }
  void synchronizeEvent(void* event) const override {
    if (!event) return;
    auto& e = *static_cast<Event*>(event);
    check(queueOf(e).wait(e.ticket));
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    uint64_t at[2] = {};
    for (int i = 0; i < 2; ++i) {
      auto& e = *static_cast<Event*>(i ? second : first);
      TORCH_CHECK(e.stamp, "Both events must be created with argument 'enable_timing=True'.");
      check(queueOf(e).wait(e.ticket));
      at[i] = e.stamp->load(std::memory_order_acquire);
    }
    return (static_cast<double>(at[1]) - static_cast<double>(at[0])) / 1e6;
  }

  bool queryStream(const c10::Stream& stream) const override {
    ocl::Queue& queue = glue::queueOf(stream);
    return queue.idle() || queue.isDone(queue.submitted());
  }
  void synchronizeStream(const c10::Stream& stream) const override { check(glue::queueOf(stream).finish()); }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    if (auto* device = openedDevice(checkedIndex(index))) check(device->synchronize());
  }
  void recordDataPtrOnStream(const c10::DataPtr& ptr, const c10::Stream& stream) const override {
    deviceAllocator()->recordStream(ptr, stream);
  }

  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability out;
    auto& types = out.capability_data.supported_scalar_types;
    out.capability_data.capability_bits = 0;
    // Every dtype that some route computes; which of them have kernels of their own is `flagos explain`'s business.
    types.has_Byte = types.has_Char = types.has_Short = types.has_Int = types.has_Long = 1;
    types.has_Float = types.has_Double = types.has_Half = types.has_BFloat16 = types.has_Bool = 1;
    types.has_ComplexFloat = types.has_ComplexDouble = 1;
    return out;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return glue::deviceCount() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return isOpen(index < 0 ? currentDevice() : index); }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(glue::deviceCount()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { glue::setCurrentDevice(index); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(currentDevice()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    const int old = currentDevice();
    glue::setCurrentDevice(index);
    return static_cast<c10::DeviceIndex>(old);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    const int old = currentDevice();
    if (index >= 0 && index < glue::deviceCount()) setCurrentDeviceUnchecked(index);
    return static_cast<c10::DeviceIndex>(old);
  }
  bool isPinnedPtr(const void* data) const override { return isPinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return hostAllocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    const int index = deviceOf(data);
    TORCH_CHECK(index >= 0, "the address ", data, " is not in the memory of any npu device");
    return {kNpu, static_cast<c10::DeviceIndex>(index)};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return defaultGenerator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return newGenerator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resizeStorage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void installGuardAndHooks() {
  // Never destroyed: tensors may be freed after static objects are gone.
  c10::impl::registerDeviceGuard(kNpu, new Guard());
  at::RegisterPrivateUse1HooksInterface(new Hooks());
}

}  // namespace flagos::glue

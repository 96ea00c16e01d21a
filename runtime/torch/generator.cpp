#include "runtime/torch/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>

#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

uint64_t mix(uint64_t x) {  // splitmix64's finaliser: one bit in changes half of the bits out
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

NpuGenerator& asNpu(const at::Generator& g) {
  TORCH_CHECK(g.device().type() == kNpu, "Expected a '", c10::Device(kNpu).str(), "' device type for generator but found '",
              g.device().str(), "'");
  return *static_cast<NpuGenerator*>(g.unsafeGetGeneratorImpl());
}

}  // namespace

NpuGenerator::NpuGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kNpu, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::default_rng_seed_val) {}

void NpuGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t NpuGenerator::current_seed() const { return seed_; }

uint64_t NpuGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void NpuGenerator::set_offset(uint64_t offset) { offset_ = offset; }
uint64_t NpuGenerator::get_offset() const { return offset_; }

void NpuGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == static_cast<int64_t>(kStateBytes), "the state of an npu generator has ", kStateBytes,
              " bytes (seed, offset), not ", state.numel());
  uint64_t words[2];
  std::memcpy(words, state.data(), kStateBytes);
  seed_ = words[0];
  offset_ = words[1];
}

c10::intrusive_ptr<c10::TensorImpl> NpuGenerator::get_state() const {
  at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  const uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.data_ptr(), words, kStateBytes);
  return state.getIntrusivePtr();
}

NpuGenerator* NpuGenerator::clone_impl() const {
  auto* copy = new NpuGenerator(device_.index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

NpuGenerator::Draw NpuGenerator::draw(uint64_t count) {
  const Draw d{seed_, offset_};
  offset_ += count;
  return d;
}

const at::Generator& defaultGenerator(c10::DeviceIndex device) {
  // Made per device on demand and kept for ever: PyTorch holds references to them.
  static std::array<std::atomic<at::Generator*>, kMaxDevices> generators{};
  static std::mutex mutex;
  const int index = device < 0 ? currentDevice() : checkedIndex(device);
  auto& slot = generators[static_cast<size_t>(index)];
  if (auto* g = slot.load(std::memory_order_acquire)) return *g;
  std::lock_guard lock(mutex);
  if (auto* g = slot.load(std::memory_order_acquire)) return *g;
  auto* g = new at::Generator(at::make_generator<NpuGenerator>(static_cast<c10::DeviceIndex>(index)));
  slot.store(g, std::memory_order_release);
  return *g;
}

at::Generator newGenerator(c10::DeviceIndex device) {
  return at::make_generator<NpuGenerator>(static_cast<c10::DeviceIndex>(checkedIndex(device)));
}

NpuGenerator::Draw drawFrom(const std::optional<at::Generator>& generator, int device, uint64_t count) {
  NpuGenerator& g = asNpu(generator && generator->defined() ? *generator
                                                            : defaultGenerator(static_cast<c10::DeviceIndex>(device)));
  std::lock_guard lock(g.mutex_);
  return g.draw(count);
}

at::Generator hostGenerator(const std::optional<at::Generator>& generator, int device) {
  const auto d = drawFrom(generator, device, 1);
  return at::make_generator<at::CPUGeneratorImpl>(mix(d.seed ^ mix(d.offset)));
}

}  // namespace flagos::glue

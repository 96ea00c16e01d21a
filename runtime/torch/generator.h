// Random numbers of a device: a Philox counter generator. Kernels take (seed, offset) and the offset moves on by what
// they draw, so the state is two numbers and the same seed gives the same stream on every device.
//
// The host route draws from a CPU generator seeded from (seed, offset): its state is part of ours without being stored.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>

namespace flagos::glue {

class NpuGenerator final : public c10::GeneratorImpl {
 public:
  explicit NpuGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  struct Draw {
    uint64_t seed, offset;
  };
  // Takes `count` 128-bit counters (four 32-bit numbers each). The caller holds mutex_.
  Draw draw(uint64_t count);

 private:
  NpuGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

// The default generator of a device (-1: the current one). Never opens the device.
const at::Generator& defaultGenerator(c10::DeviceIndex device);
at::Generator newGenerator(c10::DeviceIndex device);

// Takes counters from `generator`, or from the device's default one. Thread-safe.
NpuGenerator::Draw drawFrom(const std::optional<at::Generator>& generator, int device, uint64_t count);
// A CPU generator for one host-route call.
at::Generator hostGenerator(const std::optional<at::Generator>& generator, int device);

}  // namespace flagos::glue

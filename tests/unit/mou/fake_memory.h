// A device made of counters: slabs are host pages, queues are two numbers, and the n-th slab can be made to fail.
#pragma once
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <string>

#include "runtime/mou/pool.h"

namespace flagos::mou {

class FakeMemory final : public DeviceMemory {
 public:
  explicit FakeMemory(size_t max_buffer = size_t{1} << 30, size_t global = size_t{4} << 30, bool shared = true)
      : limits_{max_buffer, global, 128, shared} {}

  MemoryLimits limits() const override { return limits_; }
  Result<SlabHandle> createSlab(void* host, size_t bytes) override {
    const int n = ++created;
    if (n == fail_at || (fail_from && n >= fail_from)) return fail("slab " + std::to_string(n) + " refused");
    if (bytes > limits_.max_buffer_bytes) return fail("a slab above the device's limit");
    if (limits_.shared && ::mprotect(host, bytes, PROT_READ | PROT_WRITE) != 0) return fail("mprotect");
    ++live;
    if (bytes > largest) largest = bytes;
    return host;
  }
  void destroySlab(SlabHandle) noexcept override { --live; }
  void finish(uint32_t queue) noexcept override {
    ++finishes;
    done[queue].store(sent[queue].load());
  }
  bool idle(uint32_t queue) const noexcept override { return done[queue].load() == sent[queue].load(); }
  uint64_t submitted(uint32_t queue) const noexcept override { return sent[queue].load(); }
  bool isDone(uint32_t queue, uint64_t ticket) const noexcept override { return done[queue].load() >= ticket; }

  int fail_at = 0, fail_from = 0;
  std::atomic<int> created{0}, live{0}, finishes{0};
  size_t largest = 0;
  std::array<std::atomic<uint64_t>, 64> sent{}, done{};

 private:
  MemoryLimits limits_;
};

// Small ranges, so that tests run under sanitizers and address-space limits.
inline PoolOptions smallPool() {
  PoolOptions o;
  o.range_bytes = size_t{8} << 30;
  o.slab_bytes = size_t{1} << 20;
  return o;
}

}  // namespace flagos::mou

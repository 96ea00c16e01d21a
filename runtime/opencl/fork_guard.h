// An OpenCL context does not survive fork: a launch in the child would wait for ever on threads it does not have.
// This remembers, without a system call per launch, that this process is such a child.
#pragma once
#include <atomic>

namespace flagos::ocl {

namespace detail {
extern std::atomic<bool> forked_after_open;
}

// What must happen around a fork once a device is open; set by the device registry. Each runs in the forking thread.
struct ForkHooks {
  void (*before)() noexcept = nullptr;         // in the parent: drain queues, take locks
  void (*after)(bool in_child) noexcept = nullptr;  // in both: release locks
};

// Called when the first device is opened. Later calls do nothing.
void watchForks(ForkHooks hooks) noexcept;

inline bool forkedAfterOpen() noexcept { return detail::forked_after_open.load(std::memory_order_relaxed); }

}  // namespace flagos::ocl

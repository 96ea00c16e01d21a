#include "runtime/opencl/fork_guard.h"

#include <pthread.h>

#include <mutex>

namespace flagos::ocl {

namespace detail {
std::atomic<bool> forked_after_open{false};
}

namespace {

ForkHooks hooks_now;

void before() {
  if (hooks_now.before && !forkedAfterOpen()) hooks_now.before();
}
void inParent() {
  if (hooks_now.after && !forkedAfterOpen()) hooks_now.after(false);
}
void inChild() {
  const bool locked = !forkedAfterOpen();
  detail::forked_after_open.store(true, std::memory_order_relaxed);
  if (hooks_now.after && locked) hooks_now.after(true);
}

}  // namespace

void watchForks(ForkHooks hooks) noexcept {
  static std::once_flag once;
  std::call_once(once, [&] {
    hooks_now = hooks;
    pthread_atfork(before, inParent, inChild);
  });
}

}  // namespace flagos::ocl

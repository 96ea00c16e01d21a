#include "runtime/opencl/background.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

#include "runtime/opencl/fork_guard.h"

namespace flagos::ocl {
namespace {

using namespace std::chrono_literals;
// Saving compiles again, and would take the compiler away from a first step still under way. A first step builds one
// program after the other: it is over when none has come for several times the longest wait so far, which is long where
// other work keeps the machine busy.
constexpr std::chrono::steady_clock::duration kQuiet = 3s, kMostQuiet = 20s;
constexpr int kWaits = 3;
constexpr int kExitHandlers = 16;

class Worker {
 public:
  void add(std::function<void()> job, bool soon) {
    std::unique_lock lock(mutex_);
    (soon ? soon_ : later_).push_back(std::move(job));
    const auto now = std::chrono::steady_clock::now();
    if (last_ != std::chrono::steady_clock::time_point{}) longest_ = std::max(longest_, now - last_);
    last_ = now;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    wake_.notify_all();
  }

  void drain() {
    std::unique_lock lock(mutex_);
    if (!thread_.joinable()) return;
    ++hurry_;
    wake_.notify_all();
    empty_.wait(lock, [&] { return soon_.empty() && later_.empty() && !busy_; });
    --hurry_;
  }

  void stop() {
    if (forkedAfterOpen()) return;
    std::thread ended;
    {
      std::unique_lock lock(mutex_);
      soon_.clear();
      later_.clear();
      stopping_ = true;
      wake_.notify_all();
      ended = std::move(thread_);
    }
    if (ended.joinable()) ended.join();
  }

  // Never destroyed: exit handlers and other threads may still come.
  static Worker& worker() {
    static Worker* w = new Worker;
    return *w;
  }

 private:
  void run() {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      std::deque<std::function<void()>>* list = !soon_.empty() ? &soon_ : nullptr;
      if (!list && !later_.empty()) {
        const auto due = last_ + std::clamp(kWaits * longest_, kQuiet, kMostQuiet);
        if (hurry_ || std::chrono::steady_clock::now() >= due) {
          list = &later_;
        } else {
          wake_.wait_until(lock, due);
          continue;
        }
      }
      if (!list) {
        empty_.notify_all();
        wake_.wait(lock);
        continue;
      }
      auto job = std::move(list->front());
      list->pop_front();
      busy_ = true;
      lock.unlock();
      job();
      // Exit handlers run last in, first out: this one must come before the end of what the job's compiler set up.
      if (++jobs_ <= kExitHandlers) std::atexit([] { worker().stop(); });
      lock.lock();
      busy_ = false;
      if (soon_.empty() && later_.empty()) empty_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, empty_;
  std::deque<std::function<void()>> soon_, later_;
  std::chrono::steady_clock::time_point last_{};
  std::chrono::steady_clock::duration longest_{};
  bool busy_ = false, stopping_ = false;
  int hurry_ = 0, jobs_ = 0;
  std::thread thread_;
};

}  // namespace

void runSoon(std::function<void()> job) { Worker::worker().add(std::move(job), true); }
void runWhenQuiet(std::function<void()> job) { Worker::worker().add(std::move(job), false); }
void drainBackground() noexcept {
  if (!forkedAfterOpen()) Worker::worker().drain();
}

}  // namespace flagos::ocl

// Where launch timings go, and the thread that fetches them while a viewer looks and the program itself is silent.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/opencl/fork_guard.h"
#include "runtime/opencl/queue_impl.h"

namespace flagos::ocl {
namespace {

std::atomic<TimingSink> sink{nullptr};
std::atomic<uint32_t> wanted{0};  // a bit for every TimingUser

struct Harvester {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<QueueImpl*> queues;
  bool running = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    while (running) {
      for (QueueImpl* q : queues) q->harvest();
      wake.wait_for(lock, std::chrono::milliseconds(20));
    }
    for (QueueImpl* q : queues) q->harvest();
  }
  void start() {
    std::unique_lock lock(mutex);
    if (running) return;
    running = true;
    thread = std::thread([this] { run(); });
  }
  void stop() {
    std::thread ended;
    {
      std::unique_lock lock(mutex);
      if (!running) return;
      running = false;
      wake.notify_all();
      ended = std::move(thread);
    }
    ended.join();
  }
};

// Never destroyed: drivers and exit handlers may still use it.
Harvester& harvester() {
  static Harvester* h = new Harvester;
  return *h;
}

}  // namespace

void setTimingSink(TimingSink s) noexcept { sink.store(s, std::memory_order_release); }
bool timingEnabled() noexcept { return wanted.load(std::memory_order_acquire) != 0; }
TimingSink timingSink() noexcept { return sink.load(std::memory_order_acquire); }

void setTimingEnabled(bool on, TimingUser who) noexcept {
  static std::mutex order;  // on and off from several threads end as the last one said
  if (forkedAfterOpen()) {
    wanted.store(0, std::memory_order_release);
    return;
  }
  std::unique_lock lock(order);
  const uint32_t before = wanted.load(std::memory_order_acquire);
  const uint32_t after = on ? before | static_cast<uint32_t>(who) : before & ~static_cast<uint32_t>(who);
  wanted.store(after, std::memory_order_release);
  if ((before != 0) == (after != 0)) return;
  static std::once_flag at_exit;
  std::call_once(at_exit, [] { std::atexit([] {
      setTimingEnabled(false, TimingUser::viewer);
      setTimingEnabled(false, TimingUser::profiler);
    }); });
  if (after) harvester().start();
  else harvester().stop();
}

void rememberQueue(QueueImpl* queue) {
  std::unique_lock lock(harvester().mutex);
  harvester().queues.push_back(queue);
}

void forgetQueue(QueueImpl* queue) noexcept {
  std::unique_lock lock(harvester().mutex);
  auto& all = harvester().queues;
  all.erase(std::remove(all.begin(), all.end(), queue), all.end());
}

}  // namespace flagos::ocl

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
std::atomic<bool> enabled{false};

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
bool timingEnabled() noexcept { return enabled.load(std::memory_order_acquire); }
TimingSink timingSink() noexcept { return sink.load(std::memory_order_acquire); }

void setTimingEnabled(bool on) noexcept {
  static std::mutex order;  // on and off from several threads end as the last one said
  if (forkedAfterOpen()) {
    enabled.store(false, std::memory_order_release);
    return;
  }
  std::unique_lock lock(order);
  if (enabled.exchange(on, std::memory_order_acq_rel) == on) return;
  static std::once_flag at_exit;
  std::call_once(at_exit, [] { std::atexit([] { setTimingEnabled(false); }); });
  if (on) harvester().start();
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

#include "lsp/server/loop.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "lsp/protocol/frame.h"
#include "lsp/protocol/repair.h"
#include "lsp/server/machine.h"
#include "runtime/base/clock.h"

namespace flagos::lsp {
namespace {

// ---- the crash handler: names the message in flight, or the last one, on stderr, and ends without a signal ----
char in_flight[160] = "no message yet";
std::atomic<bool> handling{false};

void setInFlight(const std::string& what) {
  const size_t n = std::min(what.size(), sizeof in_flight - 1);
  std::memcpy(in_flight, what.data(), n);
  in_flight[n] = 0;
  handling = true;
}

void crashed(int) {
  constexpr char during[] = "flagos-lsp: crashed while handling ", after[] = "flagos-lsp: crashed while idle, after ";
  ssize_t ignored = handling ? ::write(2, during, sizeof during - 1) : ::write(2, after, sizeof after - 1);
  ignored = ::write(2, in_flight, std::strlen(in_flight));
  ignored = ::write(2, "; please report it\n", 19);
  (void)ignored;
  ::_exit(1);
}

void installCrashHandler() {
  static char stack[64 << 10];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action{};
  action.sa_handler = crashed;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND;
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(s, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

struct Event {
  enum class Kind : uint8_t { message, broken, end, machine, live, call } kind;
  Json message;
  std::string problem;
  Machine machine;
  std::function<void()> call;
};

Event of(Event::Kind kind) {
  Event e;
  e.kind = kind;
  return e;
}

Event broken(const std::string& problem) {
  Event e = of(Event::Kind::broken);
  e.problem = problem;
  return e;
}

struct Queue {
  std::mutex lock;
  std::condition_variable wake;
  std::deque<Event> events;
  std::set<std::string> cancelled;      // ids, as text
  std::map<std::string, int> edits;     // URI -> edits in `events`
  bool live_pending = false;

  // The document that a message edits, or "".
  static std::string edited(const Event& e) {
    if (e.kind != Event::Kind::message || textMember(e.message, "method") != "textDocument/didChange") return {};
    return textMember(path(e.message, "params.textDocument"), "uri");
  }
  void push(Event e) {
    const std::string uri = edited(e);
    {
      const std::lock_guard guard(lock);
      if (!uri.empty()) ++edits[uri];
      events.push_back(std::move(e));
    }
    wake.notify_one();
  }
  void pushLive() {
    {
      const std::lock_guard guard(lock);
      if (live_pending) return;
      live_pending = true;
      events.push_back(of(Event::Kind::live));
    }
    wake.notify_one();
  }
};

void readAll(Queue& queue) {
  FrameReader frames;
  char buffer[65536];
  while (true) {
    const ssize_t n = ::read(0, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    frames.feed({buffer, static_cast<size_t>(n)});
    while (auto f = frames.next()) {
      if (!f->problem.empty()) { queue.push(broken(f->problem)); continue; }
      JsonLimits limits;
      limits.max_bytes = kMaxBodyBytes;
      auto message = parseJson(f->body, "message", limits);
      if (!message) {   // text with bytes that are no UTF-8, or half a surrogate pair
        auto again = parseJson(repaired(f->body), "message", limits);
        if (!again) { queue.push(broken(message.error().text())); continue; }
        message = std::move(again);
      }
      if (textMember(*message, "method") == "$/cancelRequest") {
        const std::lock_guard guard(queue.lock);
        if (queue.cancelled.size() > 1000) queue.cancelled.clear();
        queue.cancelled.insert(dump(path(*message, "params.id")));
      }
      Event e = of(Event::Kind::message);
      e.message = std::move(*message);
      queue.push(std::move(e));
    }
  }
  queue.push(of(Event::Kind::end));
}

bool writeAll(const std::string& bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t n = ::write(1, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

int serve(ServerOptions options) {
  installCrashHandler();
  // The reader may be blocked in read() when we leave, so the queue outlives this function.
  auto* queue = new Queue;
  std::thread([queue] { readAll(*queue); }).detach();

  std::unique_ptr<LiveHub> hub;
  std::thread machine_thread;
  bool broken_pipe = false;
  Server::World world;
  world.send = [&](const Json& m) { if (!broken_pipe && !writeAll(frame(dump(m)))) broken_pipe = true; };
  world.cancelled = [&](const Json& id) {
    const std::lock_guard guard(queue->lock);
    return queue->cancelled.erase(dump(id)) > 0;
  };
  world.live = [&]() -> std::shared_ptr<const LiveView> { return hub ? hub->view() : nullptr; };
  const bool devices_given = options.devices.has_value();
  world.start_background = [&] {
    hub = LiveHub::start([queue] { queue->pushLive(); });
    if (!devices_given)
      machine_thread = std::thread([queue] {
        Event e = of(Event::Kind::machine);
        e.machine = detectedMachine();
        queue->push(std::move(e));
      });
  };
  world.background = [queue](Server::Job job) {
    std::thread([queue, job = std::move(job)] {
      Event e = of(Event::Kind::call);
      e.call = job();
      queue->push(std::move(e));
    }).detach();
  };
  world.edit_waits = [queue](const std::string& uri) {
    const std::lock_guard guard(queue->lock);
    return queue->edits.count(uri) > 0;
  };
  Server server(std::move(options), world);

  bool ended = false;
  uint64_t due = 0;
  while (!server.exiting() && !ended && !broken_pipe) {
    std::optional<Event> event;
    bool empty = true;
    {
      std::unique_lock guard(queue->lock);
      if (queue->events.empty()) {
        if (due == 0) queue->wake.wait(guard, [&] { return !queue->events.empty(); });
        else {
          const uint64_t now = nowNs();
          if (due > now) queue->wake.wait_for(guard, std::chrono::nanoseconds(due - now), [&] { return !queue->events.empty(); });
        }
      }
      if (!queue->events.empty()) {
        event = std::move(queue->events.front());
        queue->events.pop_front();
        if (const std::string uri = Queue::edited(*event); !uri.empty() && --queue->edits[uri] <= 0) queue->edits.erase(uri);
        if (event->kind == Event::Kind::live) queue->live_pending = false;
      }
      empty = queue->events.empty();
    }
    if (event) {
      switch (event->kind) {
        case Event::Kind::message:
          setInFlight(textMember(event->message, "method", "an answer") + " " + dump(member(event->message, "id")));
          server.handle(event->message);
          break;
        case Event::Kind::broken: server.parseError(event->problem); break;
        case Event::Kind::end: ended = true; break;
        case Event::Kind::machine: server.machineFound(std::move(event->machine)); break;
        case Event::Kind::live: setInFlight("live values"); server.liveChanged(); break;
        case Event::Kind::call: setInFlight("an answer from the background"); if (event->call) event->call(); break;
      }
    }
    if (server.exiting() || ended) break;
    due = server.tick(nowNs(), empty);
    handling = false;
  }
  (void)hub.release();   // its thread may be waiting for a peer; the process ends right here
  if (machine_thread.joinable()) machine_thread.detach();
  const int code = server.exiting() ? server.exitCode() : server.shutdownSeen() ? 0 : 1;
  ::fflush(nullptr);
  ::_exit(code);   // the reader and the device probes may still be waiting for the system
}

}  // namespace flagos::lsp

#include "runtime/telemetry/server.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/paths.h"
#include "runtime/base/settings.h"
#include "runtime/telemetry/announce.h"
#include "runtime/telemetry/server/transport.h"

namespace flagos::telemetry {
namespace {

constexpr auto kStopPatience = std::chrono::seconds(2);

struct Running {
  std::unique_ptr<Hub> hub;
  std::unique_ptr<Transport> transport;
  std::thread thread;
  std::string dir;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

std::mutex& mutex() {
  static std::mutex* const m = new std::mutex;
  return *m;
}
Running* g_running = nullptr;                  // guarded by mutex()
bool g_started = false;                        // one attempt a process
std::atomic<bool> g_forked{false};

// A forked child has neither the thread nor a right to the sockets; it keeps its counters and nothing else.
const bool g_fork_handlers = [] {
  (void)mutex();
  ::pthread_atfork([] { mutex().lock(); lockDescriptors(); },
                   [] { unlockDescriptors(); mutex().unlock(); },
                   [] {
                     g_forked = true;
                     g_running = nullptr;      // leaked in the child: its thread does not exist here
                     closeInherited();
                     setTimingWanted(false);
                     unlockDescriptors();
                     mutex().unlock();
                   });
  return true;
}();

void warn(const Error& e) {
  std::fprintf(stderr, "flagos: no telemetry for viewers: %s. Training goes on.\n", e.text().c_str());
}

void removeFiles(const std::string& dir) {
  const int pid = ::getpid();
  // Discovery first: nobody shall find a process whose socket is gone.
  for (const auto& path : {discoveryPath(dir, pid), socketPath(dir, pid), tokenPath(dir, pid), lastPath(dir, pid)})
    ::unlink(path.c_str());
}

Result<void> start(ServerHooks hooks) {
  auto dir = makeRuntimeDir();
  if (!dir) return dir.error();
  const int pid = ::getpid();
  Announcement a;
  a.pid = pid;
  a.start_time = processStartTime(pid).value_or(0);
  a.script = hooks.script;
  a.argv = hooks.argv;
  a.socket = socketPath(*dir, pid);

  TransportOptions o;
  auto unix_fd = listenUnix(a.socket);
  if (!unix_fd) return unix_fd.error();
  o.unix_fd = *unix_fd;
  o.wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  o.last_path = lastPath(*dir, pid);
  if (const auto port = setting("FLAGOS_TELEMETRY_TCP")) {
    char* end = nullptr;
    const long n = std::strtol(port->c_str(), &end, 10);
    Result<TcpListeners> tcp = fail("FLAGOS_TELEMETRY_TCP=" + *port + " is no port", "Use 1 to 65535, or 0 for any free port");
    if (end && *end == '\0' && n >= 0 && n <= 65535) tcp = listenTcp(static_cast<int>(n));
    o.tcp.token = makeToken();
    Result<void> token;
    if (tcp) token = writeFileAtomic(tokenPath(*dir, pid), o.tcp.token + "\n", 0600);
    if (!tcp) warn(tcp.error());               // the Unix socket still serves
    else if (!token) warn(token.error());
    else {
      o.tcp_fds = tcp->fds;
      o.tcp.port = a.tcp_port = tcp->port;
      o.tcp.origins = splitList(setting("FLAGOS_TELEMETRY_ORIGINS").value_or(""));
      a.token_file = tokenPath(*dir, pid);
    }
  }
  auto running = std::make_unique<Running>();
  running->dir = *dir;
  running->hub = std::make_unique<Hub>(std::move(hooks), Identity{pid, a.start_time, a.script, a.argv});
  running->transport = Transport::create(*running->hub, std::move(o));
  if (auto written = writeAnnouncement(*dir, a); !written) {
    removeFiles(*dir);
    return written;
  }

  // The program's signals are not for this thread.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  Running* r = running.get();
  try {
    r->thread = std::thread([r] {
      ::pthread_setname_np(::pthread_self(), "flagos-watch");
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 5);
      Result<void> ended;
      try {
        ended = r->transport->run();
      } catch (const std::exception& e) {      // out of memory: the viewers lose, not the program
        ended = fail(e.what());
      }
      if (!ended) {
        removeFiles(r->dir);
        warn(ended.error());
      }
      std::lock_guard lock(r->mutex);
      r->done = true;
      r->changed.notify_all();
    });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    removeFiles(*dir);
    return fail("no thread could be started");
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  g_running = running.release();
  return {};
}

}  // namespace

void startServer(ServerHooks hooks) noexcept {
  try {
    std::lock_guard lock(mutex());
    if (g_started || g_forked || !g_fork_handlers) return;
    g_started = true;
    if (!settingIsOn("FLAGOS_TELEMETRY", true)) return;
    std::atexit([] { stopServer(); });
    if (auto started = start(std::move(hooks)); !started) warn(started.error());
  } catch (...) {
    std::fprintf(stderr, "flagos: no telemetry for viewers: out of memory. Training goes on.\n");
  }
}

void publishEvent(const std::string& kind, const Json& fields) noexcept {
  try {
    std::lock_guard lock(mutex());
    if (!g_running) return;
    std::string members = fields.is_object() && !fields.empty() ? dump(fields) : std::string();
    if (!members.empty()) members = members.substr(1, members.size() - 2);
    g_running->hub->publish({nowNs(), kind, std::move(members)});
    g_running->transport->wake();
  } catch (...) {
    // An event is worth less than the training run.
  }
}

void stopServer() noexcept {
  try {
    std::unique_lock lock(mutex());
    Running* r = std::exchange(g_running, nullptr);
    lock.unlock();
    if (!r) return;
    r->transport->stop();
    bool done;
    {
      std::unique_lock wait(r->mutex);
      done = r->changed.wait_for(wait, kStopPatience, [&] { return r->done; });
    }
    removeFiles(r->dir);
    if (!done) {                               // a hook hangs: the exit of the program does not wait for it
      r->thread.detach();
      return;
    }
    r->thread.join();
    delete r;
  } catch (...) {
    // Nothing useful is left to do at exit.
  }
}

}  // namespace flagos::telemetry

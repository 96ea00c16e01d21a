// Stands in for a training process: every line on standard input is one call into the recorder or the server, answered by
// one line. Tests know therefore when a thing has happened and need no waiting.
#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <iostream>
#include <sstream>
#include <thread>
#include <vector>

#include "runtime/base/paths.h"
#include "runtime/telemetry/announce.h"
#include "runtime/telemetry/model.h"
#include "runtime/telemetry/recorder.h"
#include "runtime/telemetry/server.h"

using namespace flagos;
using namespace flagos::telemetry;

namespace {

std::atomic<int> g_timing_calls{0};

ServerHooks hooks(const std::string& script) {
  ServerHooks h;
  h.script = script;
  h.argv = {"python", script};
  h.devices = [] {
    DeviceRow d;
    d.device = "npu:0";
    d.name = "Puppet";
    d.total = Metric::of(1 << 30, "B", "driver");
    uint64_t live = 0;
    for (const auto& s : readCounters().sites) live += s.live_bytes;
    d.allocated = Metric::of(static_cast<double>(live), "B", "measured");
    d.utilisation = Metric::missing("%", "");
    return Json::array({toJson(d)});
  };
  h.methods["explain"] = [](const Json& params) -> Result<Json> {
    if (!params.contains("at")) return fail("\"at\" is missing", "Name FILE:LINE");
    return Json{{"at", params["at"]}, {"chosen", "opencl.gemm.wide"}};
  };
  h.methods["route.set"] = [](const Json&) -> Result<Json> { return Json(true); };
  h.methods["big"] = [](const Json& params) -> Result<Json> { return Json(std::string(params.value("bytes", 0u), 'x')); };
  h.timing = [](bool on) { g_timing_calls += on ? 1 : -1; };
  return h;
}

int openDescriptors() {
  int n = 0;
  if (DIR* d = ::opendir("/proc/self/fd")) {
    while (::readdir(d)) ++n;
    ::closedir(d);
  }
  return n - 3;  // ".", ".." and the folder itself
}

std::string run(std::istringstream& in) {
  std::string verb;
  in >> verb;
  if (verb == "start") {
    std::string script;
    in >> script;
    startServer(hooks(script));
    return "ok";
  }
  if (verb == "stop") return stopServer(), "ok";
  if (verb == "site") {
    Site s;
    in >> s.file >> s.line >> s.qualname;
    s.end_line = s.line;
    s.column = 4, s.end_column = 20;
    s.call_hash = callHash("torch.zeros(3)");
    return std::to_string(internSite(s));
  }
  if (verb == "file") {
    File f;
    in >> f.path >> f.hash;
    recordFile(f);
    return "ok";
  }
  uint64_t a = 0, b = 0, c = 0, d = 0;
  std::string text, more, reason;
  if (verb == "alloc") return in >> a >> b >> c, countAlloc(static_cast<uint32_t>(a), static_cast<SiteId>(b), c), "ok";
  if (verb == "free") return in >> a >> b >> c, countFree(static_cast<uint32_t>(a), static_cast<SiteId>(b), c), "ok";
  if (verb == "route") {
    in >> a >> text >> more >> reason;
    defineRoute(static_cast<RouteId>(a), internName(text), internName(more), internName(reason), 2e-5, internName("compute"));
    return "ok";
  }
  if (verb == "call") return in >> a >> b, countCall(static_cast<SiteId>(a), static_cast<RouteId>(b)), "ok";
  if (verb == "time") return in >> a >> b >> c >> d, addDeviceTime(static_cast<SiteId>(a), static_cast<RouteId>(b), c, d), "ok";
  if (verb == "fallback") return in >> a >> text >> b, countFallback(static_cast<SiteId>(a), internName(text), b), "ok";
  if (verb == "copy") return in >> a >> b, countCopy(static_cast<SiteId>(a), CopyKind::host_to_device, b), "ok";
  if (verb == "event") return in >> text >> a, publishEvent(text, Json{{"n", a}}), "ok";
  if (verb == "burst") {  // n calls of one site from each of four threads
    in >> a;
    std::thread threads[4];
    for (auto& t : threads)
      t = std::thread([a] { for (uint64_t i = 0; i < a; ++i) countCall(1, 1), countAlloc(0, 1, 64), countFree(0, 1, 64); });
    for (auto& t : threads) t.join();
    return "ok";
  }
  if (verb == "timing") return std::to_string(g_timing_calls) + (timingWanted() ? " on" : " off");
  if (verb == "fds") return std::to_string(openDescriptors());
  static std::vector<int> filled;
  if (verb == "fill") {  // use up every descriptor
    for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) filled.push_back(fd);
    return std::to_string(errno == EMFILE);
  }
  if (verb == "drain") {
    for (const int fd : filled) ::close(fd);
    return filled.clear(), "ok";
  }
  if (verb == "sigpipe") {
    struct sigaction s{};
    ::sigaction(SIGPIPE, nullptr, &s);
    return s.sa_handler == SIG_DFL ? "default" : s.sa_handler == SIG_IGN ? "ignored" : "handler";
  }
  if (verb == "fork") {  // the child uses "a device", answers and then stays until it is killed
    int answer[2];
    if (::pipe(answer) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      startServer(hooks("child.py"));
      countAlloc(0, 1, 4096);
      countCall(1, 1);
      const bool found = ::access(discoveryPath(runtimeDir(), ::getpid()).c_str(), F_OK) == 0 ||
                         ::access(lastPath(runtimeDir(), ::getpid()).c_str(), F_OK) == 0;
      const std::string text_out = found ? "announced" : "silent";
      (void)!::write(answer[1], text_out.data(), text_out.size());
      ::close(answer[1]);
      for (;;) ::pause();
    }
    ::close(answer[1]);
    char buf[32];
    const ssize_t n = ::read(answer[0], buf, sizeof buf);
    ::close(answer[0]);
    return std::to_string(child) + " " + std::string(buf, n > 0 ? static_cast<size_t>(n) : 0);
  }
  if (verb == "exitchild") {  // a child that ends normally must leave the parent's files alone
    const pid_t child = ::fork();
    if (child == 0) std::exit(0);
    int status = 0;
    ::waitpid(child, &status, 0);
    return std::to_string(status);
  }
  return "unknown word " + verb;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::cout << run(in) << std::endl;
  }
  return 0;
}

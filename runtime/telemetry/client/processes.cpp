// Finds announced processes and tidies up after the dead.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "runtime/base/clock.h"
#include "runtime/base/paths.h"
#include "runtime/telemetry/announce.h"
#include "runtime/telemetry/client.h"

namespace flagos::telemetry {
namespace {

constexpr size_t kKeepEnded = 16;            // crashed runs that stay readable
constexpr double kKeepSeconds = 7 * 86400;

Error unreachable(const std::string& dir, std::string why) {
  Error e = fail("the runtime directory cannot be reached: " + std::move(why),
                 "Set FLAGOS_RUNTIME_DIR to the folder the training process uses (a container or another user has its own)",
                 Exit::no_device);
  e.where = dir;
  return e;
}

// "123.json" -> 123; 0 for any other name.
int pidOf(const std::string& name, const char* suffix) {
  const size_t n = std::strlen(suffix);
  if (name.size() <= n || name.compare(name.size() - n, n, suffix) != 0) return 0;
  const std::string digits = name.substr(0, name.size() - n);
  if (digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::stoi(digits);
}

bool alive(int pid, uint64_t start_time) {
  const auto now = processStartTime(pid);
  return now && *now == start_time;
}

std::optional<ProcessEntry> readLast(const std::string& dir, int pid) {
  auto j = readJsonFile(lastPath(dir, pid), {64u << 20, 32});
  if (!j || !j->is_object()) return std::nullopt;
  ProcessEntry e;
  e.pid = pid;
  e.state = "ended";
  const auto start = j->find("start_time");
  if (start == j->end() || !start->is_number()) return std::nullopt;
  e.start_time = start->get<uint64_t>();
  if (const auto s = j->find("script"); s != j->end() && s->is_string()) e.script = s->get<std::string>();
  if (const auto v = j->find("argv"); v != j->end() && v->is_array())
    for (const Json& x : *v)
      if (x.is_string()) e.argv.push_back(x.get<std::string>());
  if (const auto w = j->find("written_at"); w != j->end() && w->is_number())
    (*j)["age_s"] = std::max(0.0, wallSeconds() - w->get<double>());
  (*j)["state"] = "ended";
  e.last_snapshot = std::move(*j);
  return e;
}

}  // namespace

Result<std::vector<ProcessEntry>> listProcesses() {
  const std::string dir = runtimeDir();
  struct stat s;
  if (::lstat(dir.c_str(), &s) != 0) {
    if (errno != ENOENT) return unreachable(dir, std::strerror(errno));
    const std::string parent = dir.substr(0, std::max<size_t>(dir.rfind('/'), 1));
    if (::stat(parent.c_str(), &s) != 0) return unreachable(dir, parent + ": " + std::strerror(errno));
    return std::vector<ProcessEntry>{};      // nothing was ever announced here
  }
  if (!S_ISDIR(s.st_mode)) return unreachable(dir, "it is not a folder");
  if (s.st_uid != ::getuid()) return unreachable(dir, "it belongs to another user");
  DIR* d = ::opendir(dir.c_str());
  if (!d) return unreachable(dir, std::strerror(errno));
  std::vector<int> announced, ended;
  while (const dirent* e = ::readdir(d)) {
    if (const int pid = pidOf(e->d_name, ".json")) announced.push_back(pid);
    if (const int pid = pidOf(e->d_name, ".last")) ended.push_back(pid);
  }
  ::closedir(d);

  std::vector<ProcessEntry> out;
  std::map<int, uint64_t> live;
  for (const int pid : announced) {
    const std::string path = discoveryPath(dir, pid);
    auto a = readAnnouncement(path);
    if (!a) {
      if (!processStartTime(pid)) ::unlink(path.c_str());   // broken and nobody's
      continue;
    }
    if (alive(a->pid, a->start_time) || answers(a->socket)) {
      live[pid] = a->start_time;
      out.push_back({a->pid, a->start_time, a->script, a->argv, a->socket, "live", nullptr});
      continue;
    }
    ::unlink(path.c_str());
    ::unlink(socketPath(dir, pid).c_str());
    ::unlink(tokenPath(dir, pid).c_str());
  }
  std::vector<ProcessEntry> dead;
  for (const int pid : ended) {
    if (live.count(pid)) continue;
    auto e = readLast(dir, pid);
    if (e && alive(pid, e->start_time)) continue;           // just starting, or just leaving
    if (!e || e->last_snapshot.value("age_s", 0.0) > kKeepSeconds) { ::unlink(lastPath(dir, pid).c_str()); continue; }
    dead.push_back(std::move(*e));
  }
  const auto newest = [](const ProcessEntry& a, const ProcessEntry& b) {
    return a.start_time != b.start_time ? a.start_time > b.start_time : a.pid > b.pid;
  };
  std::sort(dead.begin(), dead.end(), newest);
  while (dead.size() > kKeepEnded) {
    ::unlink(lastPath(dir, dead.back().pid).c_str());
    dead.pop_back();
  }
  for (auto& e : dead) out.push_back(std::move(e));
  std::sort(out.begin(), out.end(), newest);
  return out;
}

}  // namespace flagos::telemetry

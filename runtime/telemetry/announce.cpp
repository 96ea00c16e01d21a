#include "runtime/telemetry/announce.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "runtime/base/json.h"

namespace flagos::telemetry {
namespace {
std::string pathOf(const std::string& dir, int pid, const char* suffix) { return dir + "/" + std::to_string(pid) + suffix; }
}  // namespace

std::string discoveryPath(const std::string& dir, int pid) { return pathOf(dir, pid, ".json"); }
std::string socketPath(const std::string& dir, int pid) { return pathOf(dir, pid, ".sock"); }
std::string lastPath(const std::string& dir, int pid) { return pathOf(dir, pid, ".last"); }
std::string tokenPath(const std::string& dir, int pid) { return pathOf(dir, pid, ".token"); }

Result<void> writeAnnouncement(const std::string& dir, const Announcement& a) {
  Json j = {{"version", 1}, {"pid", a.pid}, {"start_time", a.start_time}, {"script", a.script}, {"argv", a.argv},
            {"socket", a.socket}, {"tcp", nullptr}};
  if (a.tcp_port) j["tcp"] = {{"port", a.tcp_port}, {"token_file", a.token_file}};
  return writeFileAtomic(discoveryPath(dir, a.pid), dump(j) + "\n", 0600);
}

Result<Announcement> readAnnouncement(const std::string& path) {
  auto j = readJsonFile(path, {1u << 20, 16});
  if (!j) return j.error();
  const auto broken = [&](const char* what) {
    Error e = fail(what);
    e.where = path;
    e.exit = Exit::broken_input;
    return e;
  };
  if (!j->is_object()) return broken("not a JSON object");
  const auto pid = j->find("pid"), start = j->find("start_time"), socket = j->find("socket");
  if (pid == j->end() || !pid->is_number_integer()) return broken("\"pid\" is missing");
  if (start == j->end() || !start->is_number_unsigned()) return broken("\"start_time\" is missing");
  if (socket == j->end() || !socket->is_string()) return broken("\"socket\" is missing");
  Announcement a;
  a.pid = pid->get<int>();
  a.start_time = start->get<uint64_t>();
  a.socket = socket->get<std::string>();
  if (const auto s = j->find("script"); s != j->end() && s->is_string()) a.script = s->get<std::string>();
  if (const auto v = j->find("argv"); v != j->end() && v->is_array())
    for (const Json& x : *v)
      if (x.is_string()) a.argv.push_back(x.get<std::string>());
  if (const auto t = j->find("tcp"); t != j->end() && t->is_object()) {
    if (const auto p = t->find("port"); p != t->end() && p->is_number_integer()) a.tcp_port = p->get<int>();
    if (const auto f = t->find("token_file"); f != t->end() && f->is_string()) a.token_file = f->get<std::string>();
  }
  return a;
}

bool answers(const std::string& socket) {
  sockaddr_un address{};
  if (socket.empty() || socket.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  const bool yes = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(fd);
  return yes;
}

}  // namespace flagos::telemetry

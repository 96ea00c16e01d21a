// The files by which a process is found: <runtime dir>/<pid>.json (discovery), <pid>.sock, and <pid>.last, the last
// snapshot, which stays behind if the process dies.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace flagos::telemetry {

struct Announcement {
  int pid = 0;
  uint64_t start_time = 0;
  std::string script;
  std::vector<std::string> argv;
  std::string socket;
  int tcp_port = 0;                 // 0 = no TCP
  std::string token_file;
};

std::string discoveryPath(const std::string& dir, int pid);
std::string socketPath(const std::string& dir, int pid);
std::string lastPath(const std::string& dir, int pid);
std::string tokenPath(const std::string& dir, int pid);

Result<void> writeAnnouncement(const std::string& dir, const Announcement&);
Result<Announcement> readAnnouncement(const std::string& path);

// True if somebody accepts on the socket: a process of another pid namespace that shares the folder is alive although
// its pid is not ours to see.
bool answers(const std::string& socket);

}  // namespace flagos::telemetry

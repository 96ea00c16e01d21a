#include "runtime/dal/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace flagos::dal {
namespace {

std::string octal(uint32_t mode) {
  char buf[16];
  std::snprintf(buf, sizeof buf, "%04o", mode & 07777);
  return buf;
}

// "gid 109 (render)" live, where the group has a name; the bare number for a recorded machine.
std::string groupText(int64_t gid, bool live) {
  std::string s = "gid " + std::to_string(gid);
  if (!live) return s;
  if (const group* g = ::getgrgid(static_cast<gid_t>(gid))) s += std::string(" (") + g->gr_name + ")";
  return s;
}

std::string deniedText(const std::string& path, uint32_t mode, int64_t uid, int64_t gid, bool live) {
  std::string s = "no permission for " + path + " (mode " + octal(mode) + ", uid " + std::to_string(uid) + ", gid " +
                  std::to_string(gid) + ")";
  if ((mode & 060) == 060)
    s += ": this user is not in " + groupText(gid, live) + "; add the user to that group and log in again";
  return s;
}

std::string_view trim(std::string_view s) {
  const auto end = s.find_last_not_of(" \t\r\n\0");
  return end == std::string_view::npos ? std::string_view() : s.substr(0, end + 1);
}

}  // namespace

Root::Root(std::string dir) : dir_(std::move(dir)) {
  while (!dir_.empty() && dir_.back() == '/') dir_.pop_back();
  live_ = dir_.empty();
}

std::optional<std::string> Root::bytes(const std::string& path, size_t max_bytes) const {
  if (on_read) on_read(path);
  const int fd = ::open(at(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return std::nullopt;
  struct stat s;
  std::optional<std::string> out;
  if (::fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) {
    out.emplace();
    char buf[4096];
    while (out->size() < max_bytes) {
      const ssize_t n = ::read(fd, buf, std::min(sizeof buf, max_bytes - out->size()));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) { out.reset(); break; }
      if (n == 0) break;
      out->append(buf, static_cast<size_t>(n));
    }
  }
  ::close(fd);
  return out;
}

std::optional<std::string> Root::text(const std::string& path, size_t max_bytes) const {
  auto raw = bytes(path, max_bytes);
  if (!raw) return std::nullopt;
  raw->resize(trim(*raw).size());
  return raw;
}

std::optional<uint64_t> Root::number(const std::string& path) const {
  const auto t = text(path, 64);
  if (!t || t->empty()) return std::nullopt;
  const bool is_hex = t->size() > 2 && (*t)[0] == '0' && ((*t)[1] == 'x' || (*t)[1] == 'X');
  const char* begin = t->c_str() + (is_hex ? 2 : 0);
  if (!std::isxdigit(static_cast<unsigned char>(*begin))) return std::nullopt;
  char* end = nullptr;
  errno = 0;
  const unsigned long long v = std::strtoull(begin, &end, is_hex ? 16 : 10);
  if (errno || *end) return std::nullopt;
  return v;
}

std::vector<std::string> Root::list(const std::string& path) const {
  std::vector<std::string> names;
  if (on_read) on_read(path);
  DIR* d = ::opendir(at(path).c_str());
  if (!d) return names;
  while (const dirent* e = ::readdir(d)) {
    const std::string_view n = e->d_name;
    if (n != "." && n != "..") names.emplace_back(n);
  }
  ::closedir(d);
  std::sort(names.begin(), names.end());
  return names;
}

bool Root::exists(const std::string& path) const {
  if (on_read) on_read(path);
  struct stat s;
  return ::lstat(at(path).c_str(), &s) == 0;
}

std::optional<std::string> Root::linkName(const std::string& path) const {
  if (on_read) on_read(path);
  char buf[PATH_MAX];
  const ssize_t n = ::readlink(at(path).c_str(), buf, sizeof buf);
  std::string target;
  if (n > 0) target.assign(buf, static_cast<size_t>(n));
  else if (auto t = text(path)) target = *t;
  else return std::nullopt;
  while (!target.empty() && target.back() == '/') target.pop_back();
  const auto slash = target.rfind('/');
  return slash == std::string::npos ? target : target.substr(slash + 1);
}

std::optional<std::string> Root::resolve(const std::string& path) const {
  if (on_read) on_read(path);
  char real[PATH_MAX], base[PATH_MAX];
  if (!::realpath(at(path).c_str(), real)) return std::nullopt;
  if (live_) return std::string(real);
  if (!::realpath(dir_.c_str(), base)) return std::nullopt;
  const std::string r = real, b = base;
  if (r.compare(0, b.size(), b) != 0) return std::nullopt;  // a link that leads out of the recorded folder
  return r.substr(b.size());
}

void Root::loadNodes() const {
  if (loaded_) return;
  loaded_ = true;
  if (const auto t = bytes("/nodes.tsv", 1u << 20)) {
    std::istringstream lines(*t);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream row(line);
      std::string path, mode;
      Recorded r;
      if (!(row >> path >> mode >> r.uid >> r.gid)) continue;
      r.mode = static_cast<uint32_t>(std::strtoul(mode.c_str(), nullptr, 8));
      nodes_[path] = r;
    }
  }
  // The fourth number is the one that file access is judged by; the second is the effective id, which is the same
  // there.
  if (const auto t = bytes("/proc/self/status", 65536)) {
    std::istringstream lines(*t);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream row(line);
      std::string key;
      int64_t real_id = 0, effective_id = 0;
      row >> key;
      if (key == "Uid:" && row >> real_id) uid_ = row >> effective_id ? effective_id : real_id;
      if (key == "Gid:" && row >> real_id) gid_ = row >> effective_id ? effective_id : real_id;
      if (key == "Groups:")
        for (int64_t g; row >> g;) groups_.push_back(g);
    }
  }
}

NodeAccess Root::node(const std::string& path) const {
  if (on_read) on_read(path);
  NodeAccess a;
  if (live_) {
    struct stat s;
    if (::stat(path.c_str(), &s) != 0) return a;
    a.exists = a.judged = true;
    // faccessat honours access lists and capabilities, which the mode bits do not show.
    a.allowed = ::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
    if (!a.allowed) a.why = deniedText(path, s.st_mode, s.st_uid, s.st_gid, true);
    return a;
  }
  loadNodes();
  const auto it = nodes_.find(path);
  a.exists = it != nodes_.end() || exists(path);
  if (it == nodes_.end()) return a;
  a.judged = true;
  const Recorded& r = it->second;
  const bool in_group = r.gid == gid_ || std::find(groups_.begin(), groups_.end(), r.gid) != groups_.end();
  // The kernel looks at exactly one class: owner, else group, else others.
  const uint32_t bits = uid_ == r.uid ? r.mode >> 6 : in_group ? r.mode >> 3 : r.mode;
  a.allowed = uid_ == 0 || (bits & 06) == 06;
  if (!a.allowed) a.why = deniedText(path, r.mode, r.uid, r.gid, false);
  return a;
}

}  // namespace flagos::dal

#include "runtime/dal/root.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

constexpr size_t kMaxNames = 65536;   // of one folder: more is no machine

}  // namespace

Root::Root(std::string dir) : dir_(std::move(dir)) {
  while (!dir_.empty() && dir_.back() == '/') dir_.pop_back();
  live_ = dir_.empty();
  if (live_) return;
  base_ =
      std::shared_ptr<const int>(new int(::open(dir_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)), [](const int* fd) {
        if (*fd >= 0) ::close(*fd);
        delete fd;
      });
}

// Opens what `path` names inside the folder: links, absolute ones too, are followed as if the folder were the root, so
// that a recorded machine can never be answered by this one. Where the kernel cannot do that (before 5.6, some
// containers) a path whose links lead out of the folder is not opened. Live: plain open.
int Root::open(const std::string& path, int flags) const {
  flags |= flags & O_PATH ? O_CLOEXEC : O_CLOEXEC | O_NONBLOCK | O_NOCTTY;   // openat2 refuses what O_PATH ignores
  if (live_) return ::open(path.c_str(), flags);
  if (*base_ < 0) return -1;
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const int fd = static_cast<int>(::syscall(SYS_openat2, *base_, path.c_str(), &how, sizeof how));
  if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  char real[PATH_MAX], real_base[PATH_MAX];
  const std::string whole = dir_ + path;
  if (::realpath(whole.c_str(), real) && ::realpath(dir_.c_str(), real_base) &&
      (std::string(real) + "/").rfind(std::string(real_base) + "/", 0) == 0)
    return ::open(real, flags);
  errno = ENOENT;
  return -1;
}

std::optional<std::string> Root::bytes(const std::string& path, size_t max_bytes) const {
  if (on_read) on_read(path);
  return read(path, max_bytes);
}

std::optional<std::string> Root::read(const std::string& path, size_t max_bytes) const {
  const int fd = open(path, O_RDONLY);
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
  const int fd = open(path, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return names;
  DIR* d = ::fdopendir(fd);
  if (!d) { ::close(fd); return names; }
  while (const dirent* e = ::readdir(d)) {
    if (names.size() >= kMaxNames) break;
    const std::string_view n = e->d_name;
    if (n != "." && n != "..") names.emplace_back(n);
  }
  ::closedir(d);
  std::sort(names.begin(), names.end());
  return names;
}

bool Root::exists(const std::string& path) const {
  if (on_read) on_read(path);
  const int fd = open(path, O_PATH | O_NOFOLLOW);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

std::optional<std::string> Root::linkName(const std::string& path) const {
  if (on_read) on_read(path);
  char buf[PATH_MAX];
  const int fd = open(path, O_PATH | O_NOFOLLOW);
  const ssize_t n = fd >= 0 ? ::readlinkat(fd, "", buf, sizeof buf) : -1;
  if (fd >= 0) ::close(fd);
  std::string target;
  if (n > 0) target.assign(buf, static_cast<size_t>(n));
  else if (auto t = read(path, 4096)) target = t->substr(0, trim(*t).size());
  else return std::nullopt;
  while (!target.empty() && target.back() == '/') target.pop_back();
  const auto last = [](const std::string& s) { return s.substr(s.rfind('/') + 1); };
  if (last(target) != ".." && last(target) != ".") return last(target);
  // A link that only climbs has its name where it leads.
  const auto real = resolve(path);
  return real ? std::optional<std::string>(last(*real)) : std::nullopt;
}

std::optional<std::string> Root::resolve(const std::string& path) const {
  if (on_read) on_read(path);
  char real[PATH_MAX], base[PATH_MAX];
  if (live_) return ::realpath(path.c_str(), real) ? std::optional<std::string>(real) : std::nullopt;
  const int fd = open(path, O_PATH);
  if (fd < 0) return std::nullopt;
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t n = ::readlink(self.c_str(), real, sizeof real);
  ::close(fd);
  if (n <= 0 || n == sizeof real || !::realpath(dir_.c_str(), base)) return std::nullopt;
  const std::string r(real, static_cast<size_t>(n)), b = base;
  if ((r + "/").rfind(b + "/", 0) != 0) return std::nullopt;
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
  const int fd = it == nodes_.end() ? open(path, O_PATH | O_NOFOLLOW) : -1;
  if (fd >= 0) ::close(fd);
  a.exists = it != nodes_.end() || fd >= 0;
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

#include "runtime/base/paths.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/settings.h"
#include "runtime/base/temporary.h"

namespace flagos {
namespace {
// A folder that is no path from the root would be made anew wherever a program happens to start; the XDG rules ignore it too.
std::string folderOr(const char* name, const std::string& fallback) {
  const char* v = std::getenv(name);
  return v && v[0] == '/' ? v : fallback;
}
// Without HOME: what the user database says, as shells do. A folder in /tmp would be anybody's to prepare, and what is
// cached is run.
std::string home() {
  const std::string given = folderOr("HOME", "");
  if (!given.empty()) return given;
  std::vector<char> buffer(16384);
  passwd entry{}, *found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found && found->pw_dir && found->pw_dir[0] == '/') return found->pw_dir;
  const std::string own = "/tmp/flagos-" + std::to_string(::getuid()) + "-home";
  if (!makeDirs(own)) return "/nonexistent";
  const auto open = openToOthers(own);
  return open && !*open ? own : "/nonexistent";
}
}  // namespace

std::string runtimeDir() {
  if (auto d = setting("FLAGOS_RUNTIME_DIR")) return *d;
  const std::string xdg = folderOr("XDG_RUNTIME_DIR", "");
  return xdg.empty() ? "/tmp/flagos-" + std::to_string(::getuid()) : xdg + "/flagos";
}

Result<void> makeDirs(const std::string& path) {
  for (size_t i = 1; i <= path.size(); ++i) {
    if (i != path.size() && path[i] != '/') continue;
    const std::string part = path.substr(0, i);
    struct stat s;
    if (::stat(part.c_str(), &s) == 0) {
      if (S_ISDIR(s.st_mode)) continue;
      Error e = fail("is not a folder");
      e.where = part;
      return e;
    }
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      Error e = fail(std::string("cannot create: ") + std::strerror(errno));
      e.where = part;
      return e;
    }
  }
  return {};
}

Result<bool> openToOthers(const std::string& dir) {
  struct stat s;
  if (::lstat(dir.c_str(), &s) != 0) return fail(std::strerror(errno));
  if (!S_ISDIR(s.st_mode)) return fail("is a link, not a folder");
  if (s.st_uid != ::getuid()) return fail("belongs to another user");
  return (s.st_mode & 077) != 0;
}

Result<std::string> makeRuntimeDir() {
  const std::string dir = runtimeDir();
  if (dir[0] != '/') {
    Error e = fail("is not a path from the root");
    e.where = dir;
    e.todo = "Set FLAGOS_RUNTIME_DIR to the whole path of a folder of your own";
    return e;
  }
  if (auto made = makeDirs(dir); !made) return made.error();
  Error e;
  e.where = dir;
  e.todo = "Set FLAGOS_RUNTIME_DIR to a folder of your own";
  const Result<bool> open = openToOthers(dir);
  if (!open) { e.what = open.error().what; return e; }
  if (!*open) return dir;
  // A folder that somebody named may have other uses: it is theirs to close. The default one has our name.
  if (setting("FLAGOS_RUNTIME_DIR")) {
    e.what = "is open to other users, and would show them your processes";
    e.todo = "Close it (chmod 700), or set FLAGOS_RUNTIME_DIR to a folder of your own";
    return e;
  }
  if (::chmod(dir.c_str(), 0700) != 0) { e.what = "is open to other users"; return e; }
  return dir;
}

std::string cacheDir() {
  if (auto d = setting("FLAGOS_CACHE_DIR")) return *d;
  return folderOr("XDG_CACHE_HOME", home() + "/.cache") + "/flagos";
}
std::string configDir() { return folderOr("XDG_CONFIG_HOME", home() + "/.config") + "/flagos"; }

std::string temporaryDriverDir() {
  const std::string dir = folderOr("TMPDIR", "/tmp") + "/flagos-" + std::to_string(::getuid()) + "-pocl";
  if (!makeDirs(dir)) return "";
  const auto open = openToOthers(dir);
  return open && !*open ? dir : "";
}

std::string programDir() {
  char buf[4096];
  const ssize_t n = ::readlink("/proc/self/exe", buf, sizeof buf);
  if (n <= 0) return "";
  const std::string path(buf, static_cast<size_t>(n));
  return path.substr(0, path.rfind('/'));
}

std::optional<uint64_t> processStartTime(int pid) {
  auto stat = readFile("/proc/" + std::to_string(pid) + "/stat", 4096);
  if (!stat) return std::nullopt;
  // The command name may hold spaces and brackets: fields are counted after the last ')'.
  size_t p = stat->rfind(')');
  if (p == std::string::npos) return std::nullopt;
  for (int field = 2; field < 22; ++field) {
    p = stat->find(' ', p + 1);
    if (p == std::string::npos) return std::nullopt;
  }
  return std::strtoull(stat->c_str() + p + 1, nullptr, 10);
}

}  // namespace flagos

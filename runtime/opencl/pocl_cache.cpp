#include "runtime/opencl/pocl_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "runtime/base/paths.h"

namespace flagos::ocl {
namespace {

constexpr int kFolders = 32;
constexpr const char* kMark = "FLAGOS_POCL_CACHE_OF";   // pid whose choice POCL_CACHE_DIR is: a child makes its own

void choose() {
  const char* given = std::getenv("POCL_CACHE_DIR");
  const char* mark = std::getenv(kMark);
  if (given && *given && !mark) return;
  if (mark && std::string(mark) == std::to_string(::getpid())) return;
  const std::string base = cacheDir() + "/pocl";
  for (int i = 0; i < kFolders; ++i) {
    const std::string dir = base + "/" + std::to_string(i);
    if (!makeDirs(dir)) return;
    const int fd = ::open((dir + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return;
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      ::close(fd);
      continue;
    }
    // The descriptor stays open for the life of the process: it is the lock.
    ::setenv("POCL_CACHE_DIR", dir.c_str(), 1);
    ::setenv(kMark, std::to_string(::getpid()).c_str(), 1);
    return;
  }
}

}  // namespace

void privatePoclCache() noexcept {
  // Once a process, and again in a forked child: the parent's folder is not the child's.
  static std::atomic<pid_t> done{0};
  const pid_t self = ::getpid();
  if (done.exchange(self) == self) return;
  try {
    choose();
  } catch (...) {
    // Without a folder of its own the driver uses its default one.
  }
}

}  // namespace flagos::ocl

#include "runtime/opencl/pocl_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/base/paths.h"

namespace flagos::ocl {
namespace {

constexpr int kFolders = 32;
constexpr const char* kMark = "FLAGOS_POCL_CACHE_OF";   // pid whose choice POCL_CACHE_DIR is: a child makes its own

// A shared object whose section table, the last thing in the file, lies within it.
bool whole(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  Elf64_Ehdr h{};
  struct stat st{};
  const bool read = ::fstat(fd, &st) == 0 && ::pread(fd, &h, sizeof h, 0) == static_cast<ssize_t>(sizeof h);
  ::close(fd);
  if (!read || std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0) return false;
  if (h.e_ident[EI_CLASS] != ELFCLASS64) return true;   // another layout: not judged
  const auto size = static_cast<uint64_t>(st.st_size), table = uint64_t{h.e_shnum} * h.e_shentsize;
  return h.e_shoff <= size && table <= size - h.e_shoff;
}

// PoCL aborts the process over a kernel file that was cut short (a full disk, a power cut); without the file it
// compiles again. About a millisecond for a hundred kernels.
void removeBroken(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(dir, fs::directory_options::skip_permission_denied, ec), end;
       !ec && it != end; it.increment(ec)) {
    if (it->path().extension() != ".so" || whole(it->path().string())) continue;
    std::error_code ignored;
    fs::remove(it->path(), ignored);
  }
}

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
    removeBroken(dir);
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

#include "runtime/opencl/pocl_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/base/paths.h"
#include "runtime/base/temporary.h"

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

// Bitcode (LLVM's "Bitcode File Format"): a magic number, then blocks. Each begins with a word whose low two bits are 1,
// and the block's length in words; the last ends with the file.
bool wholeBitcode(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat st{};
  uint32_t magic = 0, head[2];
  bool good = ::fstat(fd, &st) == 0 && ::pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic == 0xdec04342u;
  int64_t at = 4;
  while (good && at < st.st_size) {
    good = ::pread(fd, head, sizeof head, at) == sizeof head && (head[0] & 3) == 1;
    at += 8 + int64_t{4} * head[1];
  }
  ::close(fd);
  return good && at == st.st_size && at > 4;
}

// PoCL aborts the process over a file of its cache that was cut short (a full disk, a power cut); without the file it
// compiles again. About a millisecond for a hundred kernels.
void removeBroken(const std::string& dir) {
  namespace fs = std::filesystem;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(dir, fs::directory_options::skip_permission_denied, ec), end;
       !ec && it != end; it.increment(ec)) {
    const auto kind = it->path().extension();
    if (kind == ".so" ? whole(it->path().string()) : kind == ".bc" ? wholeBitcode(it->path().string()) : true) continue;
    std::error_code ignored;
    fs::remove(it->path(), ignored);
  }
}

// Compilers of drivers end the process where a file of theirs cannot be written. A program's compiled files take less than
// this; a first training step about 20 MiB.
constexpr uint64_t kRoom = uint64_t{48} << 20;
std::optional<uint64_t> roomAt(const std::string& dir) {
  struct statvfs v{};
  if (::statvfs(dir.c_str(), &v) != 0) return std::nullopt;
  return uint64_t{v.f_bavail} * v.f_frsize;
}

// Where the driver's files go: the cache folder, or, where that is full or cannot be written, a folder of this user's for
// temporary files. PoCL has no device at all where it can write nowhere.
std::string baseFolder() {
  const std::string usual = cacheDir() + "/pocl";
  std::string problem;
  if (!makeDirs(usual) || ::access(usual.c_str(), W_OK | X_OK) != 0) {
    problem = "compiled kernels cannot be kept in " + cacheDir() + ", which cannot be written";
  } else {
    const auto room = roomAt(cacheDir());
    if (!room || *room >= kRoom) return usual;
    problem = "only " + std::to_string(*room >> 20) + " MiB are left in " + cacheDir();
  }
  const std::string temporary = temporaryDriverDir();
  const bool there = !temporary.empty() && roomAt(temporary).value_or(0) >= kRoom;
  std::fprintf(stderr, "flagos: %s; %s.\n", problem.c_str(),
               there ? ("kernels are compiled in " + temporary + ", and compiled again by the next process").c_str()
                     : "compiling kernels may fail. Make room, or set FLAGOS_CACHE_DIR to a folder that has some");
  return there ? temporary : usual;
}

void choose() {
  const char* given = std::getenv("POCL_CACHE_DIR");
  const char* mark = std::getenv(kMark);
  if (given && *given && !mark) return;
  if (mark && std::string(mark) == std::to_string(::getpid())) return;
  const std::string base = baseFolder();
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

// An exclusive lock between processes for as long as the object lives, on a file of its own beside the protected one
// (which is replaced by rename). Where the lock file cannot be made the work goes on without: the last writer wins.
#pragma once
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <string>

namespace flagos {

class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0) { ::close(fd_); fd_ = -1; }
  }
  ~FileLock() { if (fd_ >= 0) ::close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace flagos

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <mutex>

#include "runtime/telemetry/server/transport.h"

namespace flagos::telemetry {
namespace {
struct Slot { int fd = -1; ino_t inode = 0; };
std::array<Slot, 512> g_slots;
std::mutex& mutex() {
  static std::mutex* const m = new std::mutex;
  return *m;
}
[[maybe_unused]] const bool g_made = (mutex(), true);
}  // namespace

void lockDescriptors() noexcept { mutex().lock(); }
void unlockDescriptors() noexcept { mutex().unlock(); }

void trackDescriptor(int fd) noexcept {
  struct stat s;
  if (fd < 0 || ::fstat(fd, &s) != 0) return;
  std::lock_guard lock(mutex());
  for (Slot& slot : g_slots)
    if (slot.fd < 0) { slot = {fd, s.st_ino}; return; }
}
void untrackDescriptor(int fd) noexcept {
  std::lock_guard lock(mutex());
  for (Slot& slot : g_slots)
    if (slot.fd == fd) slot.fd = -1;
}
void closeInherited() noexcept {
  for (Slot& slot : g_slots) {
    struct stat s;
    // The number may have been closed and given to another file since.
    if (slot.fd >= 0 && ::fstat(slot.fd, &s) == 0 && s.st_ino == slot.inode) ::close(slot.fd);
    slot.fd = -1;
  }
}

}  // namespace flagos::telemetry

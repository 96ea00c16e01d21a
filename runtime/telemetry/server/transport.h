// libwebsockets in one thread: accepts, upgrades, moves frames between sockets and Sessions. All of the library's traps
// are dealt with here and nowhere else.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/telemetry/server/endpoints.h"
#include "runtime/telemetry/server/hub.h"

namespace flagos::telemetry {

inline constexpr int kMaxViewers = 32;

struct TransportOptions {
  int unix_fd = -1;
  std::vector<int> tcp_fds;
  TcpPolicy tcp;
  int wake_fd = -1;                       // eventfd: written by any thread to wake the loop
  std::string last_path;                  // where the last snapshot is kept ("" = nowhere)
};

// Runs until stop() has been asked for; call it on the server's own thread. Owns all descriptors of the options.
class Transport {
 public:
  static std::unique_ptr<Transport> create(Hub&, TransportOptions);
  virtual ~Transport() = default;
  virtual Result<void> run() = 0;
  virtual void stop() noexcept = 0;       // any thread
  virtual void wake() noexcept = 0;       // hand out events now; any thread
};

// Descriptors that a forked child must not keep open: a viewer would not see the parent's end. The child calls
// closeInherited(); it is async-signal-safe.
void trackDescriptor(int fd) noexcept;
void untrackDescriptor(int fd) noexcept;
void closeInherited() noexcept;
void lockDescriptors() noexcept;          // around fork, so that the table is whole in the child
void unlockDescriptors() noexcept;

}  // namespace flagos::telemetry

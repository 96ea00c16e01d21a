// Sockets the server listens on, made by ourselves so that mode, close-on-exec and every error are ours.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace flagos::telemetry {

// Bound, listening, non-blocking, close-on-exec, mode 0600. An old socket at the path is replaced.
Result<int> listenUnix(const std::string& path);

// On 127.0.0.1 and, where the machine has it, ::1 with the same port. port 0 = any free one.
struct TcpListeners { int port = 0; std::vector<int> fds; };
Result<TcpListeners> listenTcp(int port);

// True if the process at the other end of a Unix socket has our user id.
bool peerIsUs(int fd) noexcept;

// What a browser or another user's program must pass on TCP. Empty = allowed, else the reason for 403.
struct TcpPolicy { int port = 0; std::string token; std::vector<std::string> origins; };
std::string refuseTcp(const TcpPolicy&, std::string_view host, bool has_origin, std::string_view origin,
                      std::string_view authorization);

// 32 random bytes as hex.
std::string makeToken();
// "a, b" -> {"a", "b"}.
std::vector<std::string> splitList(std::string_view list);

}  // namespace flagos::telemetry

#include "runtime/telemetry/server/endpoints.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace flagos::telemetry {
namespace {
constexpr int kBacklog = 64;

Error errnoError(const std::string& where, const char* what) {
  Error e = fail(std::string(what) + ": " + std::strerror(errno));
  e.where = where;
  return e;
}

int boundTcp(int family, const sockaddr* address, socklen_t size) {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  if (::bind(fd, address, size) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int why = errno;
  ::close(fd);
  errno = why;
  return -1;
}

bool sameText(std::string_view a, std::string_view b) noexcept {   // time does not depend on where they differ
  unsigned char diff = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    diff = static_cast<unsigned char>(diff | (a[i] ^ (b.empty() ? '\0' : b[i % b.size()])));
  return diff == 0;
}
}  // namespace

Result<int> listenUnix(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) {
    Error e = fail("the path of the telemetry socket has " + std::to_string(path.size()) + " characters, the system allows " +
                   std::to_string(sizeof address.sun_path - 1), "Set FLAGOS_RUNTIME_DIR to a shorter folder");
    e.where = path;
    return e;
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errnoError(path, "cannot make the telemetry socket");
  ::unlink(path.c_str());
  // The folder is 0700, so nobody else can connect in the moment before the mode is set.
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::chmod(path.c_str(), 0600) != 0 ||
      ::listen(fd, kBacklog) != 0) {
    Error e = errnoError(path, "cannot listen on the telemetry socket");
    ::close(fd);
    return e;
  }
  return fd;
}

Result<TcpListeners> listenTcp(int port) {
  // With port 0 the system picks one for IPv4; if IPv6 has it taken, another is tried.
  for (int attempt = 0; attempt < 8; ++attempt) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v4.sin_port = htons(static_cast<uint16_t>(port));
    const int fd4 = boundTcp(AF_INET, reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
    if (fd4 < 0) return errnoError("127.0.0.1:" + std::to_string(port), "cannot listen");
    socklen_t size = sizeof v4;
    ::getsockname(fd4, reinterpret_cast<sockaddr*>(&v4), &size);
    TcpListeners out{ntohs(v4.sin_port), {fd4}};
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    v6.sin6_port = v4.sin_port;
    const int fd6 = boundTcp(AF_INET6, reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
    if (fd6 >= 0) out.fds.push_back(fd6);
    if (fd6 >= 0 || errno != EADDRINUSE || port != 0) return out;   // no IPv6 here is no error
    ::close(fd4);
  }
  return fail("no port is free on both 127.0.0.1 and ::1");
}

bool peerIsUs(int fd) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::getuid();
}

std::string refuseTcp(const TcpPolicy& p, std::string_view host, bool has_origin, std::string_view origin,
                      std::string_view authorization) {
  const std::string port = ":" + std::to_string(p.port);
  if (host != "localhost" + port && host != "127.0.0.1" + port && host != "[::1]" + port) return "this Host is not served";
  if (has_origin) {
    bool listed = false;
    for (const auto& o : p.origins) listed = listed || o == origin;
    if (!listed) return "this Origin is not in FLAGOS_TELEMETRY_ORIGINS";
  }
  constexpr std::string_view bearer = "Bearer ";
  if (authorization.substr(0, bearer.size()) != bearer || p.token.empty() ||
      !sameText(authorization.substr(bearer.size()), p.token))
    return "the bearer token of the token file is needed";
  return {};
}

std::string makeToken() {
  unsigned char bytes[32];
  size_t have = 0;
  while (have < sizeof bytes) {
    const ssize_t n = ::getrandom(bytes + have, sizeof bytes - have, 0);
    if (n > 0) have += static_cast<size_t>(n);
  }
  std::string out;
  for (const unsigned char b : bytes) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

std::vector<std::string> splitList(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty()) out.emplace_back(item);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return out;
}

}  // namespace flagos::telemetry

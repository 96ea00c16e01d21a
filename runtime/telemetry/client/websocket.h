// The client half of RFC 6455 on a connected stream socket: handshake, masked sends, frames put together to messages.
// Blocking, one reader; sends may come from any thread.
#pragma once
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos::telemetry {

class WebSocket {
 public:
  ~WebSocket();
  WebSocket() = default;
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;

  // Connects to a Unix socket and upgrades `path` with `subprotocol`; all within timeout_ms.
  Result<void> open(const std::string& socket, const std::string& path, const std::string& subprotocol, int timeout_ms);
  Result<void> sendText(std::string_view message);
  // The next text message; waits up to timeout_ms (-1 = for ever). Pings are answered here. An empty string = timeout.
  // The error names the close code and reason the server gave.
  Result<std::string> receive(int timeout_ms);
  void shutdown() noexcept;                // wakes receive(); any thread

 private:
  Result<void> send(unsigned opcode, std::string_view payload);
  Result<bool> fill(int timeout_ms);       // false = timeout
  int fd_ = -1;
  std::mutex send_mutex_;
  std::string in_;                         // bytes not parsed yet
  std::string message_;                    // fragments so far
};

}  // namespace flagos::telemetry

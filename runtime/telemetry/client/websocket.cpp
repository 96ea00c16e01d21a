#include "runtime/telemetry/client/websocket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"

namespace flagos::telemetry {
namespace {

constexpr size_t kMaxMessage = 64u << 20;
enum Opcode : unsigned { kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

Error broken(std::string what) { return fail(std::move(what), {}, Exit::no_device); }
Error errnoText(const char* what) { return broken(std::string(what) + ": " + std::strerror(errno)); }

// SHA-1 (FIPS 180-4) and base64, only for the handshake's answer. Own code, so that viewers do not load a TLS library.
std::string sha1(std::string text) {
  const uint64_t bits = text.size() * 8;
  text += '\x80';
  while (text.size() % 64 != 56) text += '\0';
  for (int i = 7; i >= 0; --i) text += static_cast<char>(bits >> (8 * i) & 0xff);
  uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  for (size_t block = 0; block < text.size(); block += 64) {
    uint32_t w[80];
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | static_cast<unsigned char>(text[block + i * 4 + k]);
    }
    for (int i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; ++i) {
      const uint32_t f = i < 20 ? ((b & c) | (~b & d)) + 0x5a827999u : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1u
                       : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdcu : (b ^ c ^ d) + 0xca62c1d6u;
      const uint32_t t = std::rotl(a, 5) + f + e + w[i];
      e = d, d = c, c = std::rotl(b, 30), b = a, a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
  }
  std::string out;
  for (const uint32_t v : h)
    for (int i = 3; i >= 0; --i) out += static_cast<char>(v >> (8 * i) & 0xff);
  return out;
}
std::string base64(std::string_view bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t v = 0;
    for (size_t k = 0; k < 3; ++k) v = v << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += i + k > bytes.size() ? '=' : digits[v >> (18 - 6 * k) & 63];
  }
  return out;
}
void randomBytes(unsigned char* out, size_t n) {
  size_t have = 0;
  while (have < n) {
    const ssize_t got = ::getrandom(out + have, n - have, 0);
    if (got > 0) have += static_cast<size_t>(got);
  }
}
int remaining(uint64_t deadline_ns) {
  const uint64_t now = nowNs();
  return now >= deadline_ns ? 0 : static_cast<int>((deadline_ns - now) / 1000000 + 1);
}

}  // namespace

WebSocket::~WebSocket() {
  if (fd_ >= 0) ::close(fd_);
}

void WebSocket::shutdown() noexcept {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

Result<void> WebSocket::open(const std::string& socket, const std::string& path, const std::string& subprotocol, int timeout_ms) {
  const uint64_t deadline = nowNs() + static_cast<uint64_t>(std::max(timeout_ms, 0)) * 1000000u;
  sockaddr_un address{};
  if (socket.size() >= sizeof address.sun_path) return broken("the socket path is too long: " + socket);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return errnoText("cannot make a socket");
  // A full accept queue makes a blocking connect wait; ask again instead, until the time is up.
  ::fcntl(fd_, F_SETFL, O_NONBLOCK);
  while (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno != EAGAIN && errno != EINTR) return errnoText("cannot connect");
    const int ms = remaining(deadline);
    if (ms <= 0) return broken("the process does not accept connections");
    ::poll(nullptr, 0, std::min(ms, 10));
  }
  ::fcntl(fd_, F_SETFL, 0);

  unsigned char nonce[16];
  randomBytes(nonce, sizeof nonce);
  const std::string key = base64({reinterpret_cast<const char*>(nonce), sizeof nonce});
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
                              "Sec-WebSocket-Key: " + key + "\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: " +
                              subprotocol + "\r\n\r\n";
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t n = ::send(fd_, request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) return errnoText("cannot send");
    if (n > 0) sent += static_cast<size_t>(n);
  }
  size_t end;
  while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
    if (in_.size() > 65536) return broken("the server's answer is no websocket handshake");
    auto more = fill(remaining(deadline));
    if (!more) return more.error();
    if (!*more) return broken("no answer within " + std::to_string(timeout_ms) + " ms");
  }
  const std::string head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  const std::string status = head.substr(0, head.find("\r\n"));
  if (status.compare(0, 12, "HTTP/1.1 101") != 0) return broken("the server refused: " + status);
  if (head.find(base64(sha1(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))) == std::string::npos) return broken("the server's handshake answer is wrong");
  return {};
}

Result<void> WebSocket::sendText(std::string_view message) { return send(kText, message); }

Result<void> WebSocket::send(unsigned opcode, std::string_view payload) {
  std::string frame;
  frame += static_cast<char>(0x80u | opcode);
  const size_t n = payload.size();
  if (n < 126) {
    frame += static_cast<char>(0x80u | n);
  } else {
    const int bytes = n < 65536 ? 2 : 8;
    frame += static_cast<char>(0x80u | (bytes == 2 ? 126u : 127u));
    for (int i = bytes - 1; i >= 0; --i) frame += static_cast<char>(n >> (8 * i) & 0xffu);
  }
  unsigned char mask[4];
  randomBytes(mask, sizeof mask);
  frame.append(reinterpret_cast<const char*>(mask), 4);
  const size_t at = frame.size();
  frame.append(payload);
  for (size_t i = 0; i < n; ++i) frame[at + i] = static_cast<char>(frame[at + i] ^ mask[i & 3]);

  std::lock_guard lock(send_mutex_);
  for (size_t sent = 0; sent < frame.size();) {
    const ssize_t k = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return errnoText("cannot send");
    sent += static_cast<size_t>(k);
  }
  return {};
}

Result<bool> WebSocket::fill(int timeout_ms) {
  pollfd p{fd_, POLLIN, 0};
  const int ready = ::poll(&p, 1, timeout_ms);
  if (ready == 0 || (ready < 0 && errno == EINTR)) return false;
  if (ready < 0) return errnoText("cannot wait");
  char buf[65536];
  const ssize_t n = ::recv(fd_, buf, sizeof buf, 0);
  if (n < 0 && errno == EINTR) return false;
  if (n < 0) return errnoText("the connection broke");
  if (n == 0) return broken("the process closed the connection");
  in_.append(buf, static_cast<size_t>(n));
  return true;
}

Result<std::string> WebSocket::receive(int timeout_ms) {
  const bool forever = timeout_ms < 0;
  const uint64_t deadline = nowNs() + static_cast<uint64_t>(forever ? 0 : timeout_ms) * 1000000u;
  for (;;) {
    // Parse as many whole frames as are there.
    while (in_.size() >= 2) {
      const auto at = [&](size_t i) { return static_cast<unsigned char>(in_[i]); };
      const bool fin = at(0) & 0x80u;
      const unsigned opcode = at(0) & 0x0fu;
      if ((at(0) & 0x70u) || (at(1) & 0x80u)) return broken("the server sent a frame against the protocol");
      uint64_t n = at(1) & 0x7fu;
      size_t head = 2;
      if (n >= 126) {
        const size_t bytes = n == 126 ? 2 : 8;
        if (in_.size() < 2 + bytes) break;
        n = 0;
        for (size_t i = 0; i < bytes; ++i) n = n << 8 | at(2 + i);
        head += bytes;
      }
      if (n > kMaxMessage || message_.size() + n > kMaxMessage) return broken("the server sent a message over 64 MiB");
      if (in_.size() < head + n) break;
      std::string payload = in_.substr(head, n);
      in_.erase(0, head + n);
      switch (opcode) {
        case kPing:
          if (auto sent = send(kPong, payload); !sent) return sent.error();
          break;
        case kPong: break;
        case kClose: {
          std::string why = "the process closed the connection";
          if (payload.size() >= 2)
            why += " (" + std::to_string(static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1])) +
                   (payload.size() > 2 ? " " + payload.substr(2) : "") + ")";
          (void)send(kClose, payload);
          return broken(why);
        }
        case kText: case kBinary: case kContinuation:
          message_ += payload;
          if (fin) return std::exchange(message_, std::string());
          break;
        default: return broken("the server sent a frame against the protocol");
      }
    }
    const int wait = forever ? -1 : remaining(deadline);
    auto more = fill(wait);
    if (!more) return more.error();
    if (!*more && !forever && remaining(deadline) <= 0) return std::string();
  }
}

}  // namespace flagos::telemetry

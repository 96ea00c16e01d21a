#include "runtime/telemetry/server/transport.h"

#include <fcntl.h>
#include <libwebsockets.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include "runtime/base/clock.h"
#include "runtime/telemetry/server/session.h"

namespace flagos::telemetry {
namespace {

constexpr size_t kChunk = 64u << 10;        // of one message per write, so that a slow reader costs the library this much
constexpr int kMaxConnections = 200;        // viewers, and connections that have not upgraded yet
constexpr unsigned kDescriptors = 256;      // the library's table; its default is RLIMIT_NOFILE
constexpr uint64_t kKeepLastNs = 500'000'000;
constexpr int kCloseTooBig = 1009, kCloseTryLater = 1013, kCloseNotText = 1003;

const char kFull[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 22\r\nConnection: close\r\n\r\n"
    "32 viewers are served\n";

class LwsTransport;
enum class Kind : uintptr_t { none, unix_listener, tcp_listener, wake, unix_peer, tcp_peer };

// Lives in the library's per-connection memory; made at ESTABLISHED, ended at CLOSED.
struct Connection {
  LwsTransport* owner;
  Session* session;
  lws* wsi;
  std::string* in;            // fragments of the message being received
  size_t sent;                // bytes of the front message already written
  int close_code;             // set: close with this code at the next writable moment
};

class LwsTransport final : public Transport {
 public:
  LwsTransport(Hub& hub, TransportOptions o) : hub_(hub), o_(std::move(o)) {}
  ~LwsTransport() override {
    for (const int fd : {o_.unix_fd, o_.wake_fd, reserve_}) if (fd >= 0) ::close(fd);
    for (const int fd : o_.tcp_fds) ::close(fd);
  }
  Result<void> run() override;
  void stop() noexcept override {
    stop_ = true;
    wake();
  }
  void wake() noexcept override {
    const uint64_t one = 1;
    const int fd = wake_;
    if (fd >= 0) (void)!::write(fd, &one, sizeof one);
  }

  int onCallback(lws* wsi, lws_callback_reasons reason, Connection* c, void* in, size_t len);

 private:
  bool adopt(int& fd, Kind kind, const char* protocol);
  void accept(int listener, Kind kind);
  int confirm(lws* wsi);
  int plainHttp(lws* wsi);
  static int refuse(lws* wsi, unsigned status, const std::string& why);
  std::string refusal(lws* wsi, unsigned& status);
  int receive(Connection* c, lws* wsi, const char* in, size_t len);
  int writable(Connection* c, lws* wsi);
  void afterInput(Connection* c);
  void tick();
  static void onTimer(lws_sorted_usec_list_t* sul);
  void keepLast(uint64_t now);

  Hub& hub_;
  TransportOptions o_;
  lws_context* context_ = nullptr;
  lws_vhost* vhost_ = nullptr;
  struct Timer { lws_sorted_usec_list_t sul; LwsTransport* owner; } timer_{};
  std::set<Connection*> connections_;
  int open_ = 0;                              // accepted and not closed yet
  int reserve_ = -1;                          // a spare descriptor, to refuse politely when none is left
  std::atomic<int> wake_{-1};
  std::atomic<bool> stop_{false};
  DeltaWriter last_;
  uint64_t last_due_ = 0;
};

int callback(lws* wsi, lws_callback_reasons reason, void* user, void* in, size_t len) {
  lws_context* context = lws_get_context(wsi);
  auto* owner = context ? static_cast<LwsTransport*>(lws_context_user(context)) : nullptr;
  return owner ? owner->onCallback(wsi, reason, static_cast<Connection*>(user), in, len) : 0;
}

std::string header(lws* wsi, lws_token_indexes which, bool* present = nullptr) {
  const int n = lws_hdr_total_length(wsi, which);
  if (present) *present = n > 0;
  if (n <= 0) return {};
  std::string out(static_cast<size_t>(n) + 1, '\0');
  const int got = lws_hdr_copy(wsi, out.data(), static_cast<int>(out.size()), which);
  out.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return out;
}
Kind kindOf(lws* wsi) { return static_cast<Kind>(reinterpret_cast<uintptr_t>(lws_get_opaque_user_data(wsi))); }

Result<void> LwsTransport::run() {
  static const lws_protocols protocols[] = {
      {"flagos.v1", callback, sizeof(Connection), 65536, 0, nullptr, 0},
      {"flagos-internal", callback, 0, 0, 1, nullptr, 0},       // our own listeners and wake descriptor
      {nullptr, nullptr, 0, 0, 0, nullptr, 0}};
  static const lws_retry_bo_t idle = {nullptr, 0, 0, 30, 60, 0};  // ping after 30 s of silence, hang up after 60 s

  lws_set_log_level(0, nullptr);
  lws_context_creation_info info{};
  info.port = CONTEXT_PORT_NO_LISTEN;
  info.protocols = protocols;
  info.gid = info.uid = static_cast<decltype(info.uid)>(-1);
  info.user = this;
  info.options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_VALIDATE_UTF8;
  info.fd_limit_per_thread = kDescriptors;
  info.retry_and_idle_policy = &idle;
  info.timeout_secs = 10;
  // Creation sets SIGPIPE to "ignore" for the whole process; that is the program's own business.
  struct sigaction pipe_action{};
  ::sigaction(SIGPIPE, nullptr, &pipe_action);
  context_ = lws_create_context(&info);
  ::sigaction(SIGPIPE, &pipe_action, nullptr);
  if (!context_) return fail("libwebsockets could not be started");
  info.vhost_name = "flagos";
  vhost_ = lws_create_vhost(context_, &info);
  reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  bool ok = vhost_ != nullptr;
  if (ok) {
    wake_ = o_.wake_fd;
    ok = adopt(o_.wake_fd, Kind::wake, "flagos-internal") && adopt(o_.unix_fd, Kind::unix_listener, "flagos-internal");
    for (int& fd : o_.tcp_fds) ok = ok && adopt(fd, Kind::tcp_listener, "flagos-internal");
  }
  if (ok) {
    timer_.owner = this;
    tick();
    while (!stop_ && lws_service(context_, 0) >= 0) {}
    lws_sul_schedule(context_, 0, &timer_.sul, onTimer, LWS_SET_TIMER_USEC_CANCEL);
  }
  wake_ = -1;
  lws_context_destroy(context_);
  context_ = nullptr;
  if (!ok) return fail("the telemetry sockets could not be served");
  return {};
}

bool LwsTransport::adopt(int& fd, Kind kind, const char* protocol) {
  if (fd < 0) return true;
  lws_adopt_desc_t a{};
  a.vh = vhost_;
  a.type = LWS_ADOPT_RAW_FILE_DESC;
  a.fd.filefd = fd;
  a.vh_prot_name = protocol;
  a.opaque = reinterpret_cast<void*>(static_cast<uintptr_t>(kind));
  trackDescriptor(fd);
  fd = -1;                                    // the library's from here on, also when it fails
  return lws_adopt_descriptor_vhost_via_info(&a) != nullptr;
}

void LwsTransport::accept(int listener, Kind kind) {
  for (int i = 0; i < 16; ++i) {              // a crowd at the door does not starve the viewers inside
    lockDescriptors();
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const int why = errno;
    unlockDescriptors();
    if (fd < 0 && (why == EMFILE || why == ENFILE) && reserve_ >= 0) {
      // Without this the loop would spin on a connection that it cannot take.
      ::close(reserve_);
      const int late = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (late >= 0) {
        (void)!::send(late, kFull, sizeof kFull - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        ::close(late);
      }
      reserve_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      return;
    }
    if (fd < 0) return;
    const bool is_unix = kind == Kind::unix_listener;
    if (open_ >= kMaxConnections) {
      (void)!::send(fd, kFull, sizeof kFull - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      ::close(fd);
      continue;
    }
    if (is_unix && !peerIsUs(fd)) {
      static const char no[] = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      (void)!::send(fd, no, sizeof no - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      ::close(fd);
      continue;
    }
    trackDescriptor(fd);
    lws_adopt_desc_t a{};
    a.vh = vhost_;
    a.type = static_cast<lws_adoption_type>(LWS_ADOPT_HTTP | LWS_ADOPT_SOCKET);
    a.fd.sockfd = fd;
    a.opaque = reinterpret_cast<void*>(static_cast<uintptr_t>(is_unix ? Kind::unix_peer : Kind::tcp_peer));
    if (lws_adopt_descriptor_vhost_via_info(&a)) ++open_;
    else untrackDescriptor(fd);
  }
}

std::string LwsTransport::refusal(lws* wsi, unsigned& status) {
  if (kindOf(wsi) == Kind::tcp_peer) {
    bool has_origin = false;
    const std::string origin = header(wsi, WSI_TOKEN_ORIGIN, &has_origin);
    std::string why = refuseTcp(o_.tcp, header(wsi, WSI_TOKEN_HOST), has_origin, origin, header(wsi, WSI_TOKEN_HTTP_AUTHORIZATION));
    if (!why.empty()) { status = 403; return why; }
  }
  return {};
}

// Before the upgrade. 0 = go on, < 0 = answered here. (`in` is not touched: 4.1 may hand a freed one.)
int LwsTransport::confirm(lws* wsi) {
  unsigned status = 0;
  std::string why = refusal(wsi, status);
  if (why.empty()) {
    const std::string wanted = header(wsi, WSI_TOKEN_PROTOCOL);
    const auto names = splitList(wanted);
    if (header(wsi, WSI_TOKEN_GET_URI) != "/telemetry") status = 404, why = "the path is /telemetry";
    else if (!names.empty() && std::find(names.begin(), names.end(), "flagos.v1") == names.end())
      status = 400, why = "the subprotocol is flagos.v1";
    else if (connections_.size() >= kMaxViewers) status = 503, why = "32 viewers are served";
  }
  return why.empty() ? 0 : refuse(wsi, status, why);
}

// The library would answer in HTTP/1.0, which websocket clients take for a broken server. A new connection's buffer is
// empty, so these few bytes fit. Returns what makes the library hang up.
int LwsTransport::refuse(lws* wsi, unsigned status, const std::string& why) {
  const char* phrase = status == 403 ? "Forbidden" : status == 404 ? "Not Found" : status == 426 ? "Upgrade Required"
                       : status == 503 ? "Service Unavailable" : "Bad Request";
  const std::string answer = "HTTP/1.1 " + std::to_string(status) + " " + phrase + "\r\nContent-Type: text/plain; charset=utf-8\r\n" +
                             (status == 426 ? "Upgrade: websocket\r\n" : "") + "Content-Length: " + std::to_string(why.size() + 1) +
                             "\r\nConnection: close\r\n\r\n" + why + "\n";
  (void)!::send(lws_get_socket_fd(wsi), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return -1;
}

int LwsTransport::plainHttp(lws* wsi) {
  unsigned status = 0;
  std::string why = refusal(wsi, status);
  if (why.empty()) status = 426, why = "this is a websocket: upgrade at /telemetry with subprotocol flagos.v1";
  return refuse(wsi, status, why);
}

int LwsTransport::receive(Connection* c, lws* wsi, const char* in, size_t len) {
  const auto close = [&](int code, const char* why) {
    std::string text(why);
    lws_close_reason(wsi, static_cast<lws_close_status>(code), reinterpret_cast<unsigned char*>(text.data()), text.size());
    return -1;
  };
  if (lws_frame_is_binary(wsi)) return close(kCloseNotText, "text frames only");
  if (c->in->size() + len > kMaxMessageBytes) return close(kCloseTooBig, "a message may have 1 MiB");
  c->in->append(in, len);
  if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi)) return 0;
  const std::string message = std::exchange(*c->in, std::string());
  c->session->onMessage(message);
  afterInput(c);
  tick();                                     // a new subscription changes when we are due
  return 0;
}

void LwsTransport::afterInput(Connection* c) {
  if (c->session->overCap() && !c->close_code) {
    c->session->dropQueue();
    c->sent = 0;
    c->close_code = kCloseTryLater;
    // It may never read again: then there is nobody to tell, and its memory is freed in time.
    lws_set_timeout(c->wsi, PENDING_TIMEOUT_USER_REASON_BASE, 10);
  }
  if (c->close_code || !c->session->empty()) lws_callback_on_writable(c->wsi);
}

int LwsTransport::writable(Connection* c, lws* wsi) {
  if (c->close_code) {
    char why[] = "unread data over 8 MiB: read faster or subscribe to less";
    lws_close_reason(wsi, static_cast<lws_close_status>(c->close_code), reinterpret_cast<unsigned char*>(why), sizeof why - 1);
    return -1;
  }
  // The library buffers without bound what the socket does not take: never write into a full one.
  unsigned char buffer[LWS_PRE + kChunk];
  while (!c->session->empty() && !lws_send_pipe_choked(wsi)) {
    const std::string& m = c->session->front();
    const size_t n = std::min(kChunk, m.size() - c->sent);
    const bool first = c->sent == 0, final = c->sent + n == m.size();
    std::memcpy(buffer + LWS_PRE, m.data() + c->sent, n);
    int flags = first ? LWS_WRITE_TEXT : LWS_WRITE_CONTINUATION;
    if (!final) flags |= LWS_WRITE_NO_FIN;
    if (lws_write(wsi, buffer + LWS_PRE, n, static_cast<lws_write_protocol>(flags)) < 0) return -1;
    c->sent += n;
    if (final) {
      c->session->pop();
      c->sent = 0;
    }
  }
  if (!c->session->empty()) lws_callback_on_writable(wsi);
  return 0;
}

int LwsTransport::onCallback(lws* wsi, lws_callback_reasons reason, Connection* c, void* in, size_t len) {
  switch (reason) {
    case LWS_CALLBACK_RAW_RX_FILE: {
      const int fd = lws_get_socket_fd(wsi);
      if (kindOf(wsi) != Kind::wake) { accept(fd, kindOf(wsi)); return 0; }
      uint64_t count;
      (void)!::read(fd, &count, sizeof count);
      tick();
      return 0;
    }
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE: return confirm(wsi);
    case LWS_CALLBACK_HTTP: return plainHttp(wsi);
    case LWS_CALLBACK_FILTER_PROTOCOL_CONNECTION: {
      const lws_protocols* p = lws_get_protocol(wsi);
      return p && p->id == 0 ? 0 : -1;
    }
    case LWS_CALLBACK_ESTABLISHED:
      *c = {this, new Session(hub_), wsi, new std::string, 0, 0};
      connections_.insert(c);
      lws_callback_on_writable(wsi);
      return 0;
    case LWS_CALLBACK_RECEIVE: return c && c->session && !c->close_code ? receive(c, wsi, static_cast<const char*>(in), len) : 0;
    case LWS_CALLBACK_SERVER_WRITEABLE: return c && c->session ? writable(c, wsi) : 0;
    case LWS_CALLBACK_CLOSED:
      if (c && connections_.erase(c)) {
        delete c->session;
        delete c->in;
        c->session = nullptr;
      }
      return 0;
    case LWS_CALLBACK_WSI_DESTROY:
      if (const Kind k = kindOf(wsi); k == Kind::unix_peer || k == Kind::tcp_peer) --open_;
      untrackDescriptor(lws_get_socket_fd(wsi));
      return 0;
    default: return 0;
  }
}

void LwsTransport::onTimer(lws_sorted_usec_list_t* sul) {
  reinterpret_cast<Timer*>(sul)->owner->tick();
}

// Hands out events, sends what is due and sleeps until the next moment something is.
void LwsTransport::tick() {
  uint64_t now = nowNs();
  for (Connection* c : connections_)
    if (!c->close_code) c->session->tick(now);
  keepLast(now);
  uint64_t dropped = 0;
  for (const Hub::Event& e : hub_.takeEvents(dropped)) {
    for (Connection* c : connections_)
      if (!c->close_code) c->session->onEvent(e, dropped);
    dropped = 0;
  }
  uint64_t next = last_due_;
  for (Connection* c : connections_) {
    afterInput(c);
    next = std::min(next, c->session->nextDue());
  }
  now = nowNs();
  const uint64_t wait_us = next > now ? (next - now) / 1000 : 0;
  lws_sul_schedule(context_, 0, &timer_.sul, onTimer, static_cast<lws_usec_t>(std::clamp<uint64_t>(wait_us, 500, 1'000'000)));
}

void LwsTransport::keepLast(uint64_t now) {
  if (now < last_due_) return;
  last_due_ = now + kKeepLastNs;
  if (o_.last_path.empty()) return;
  std::string changes;
  if (!last_.append(changes, hub_.sample(), Selection{})) return;
  (void)writeFileAtomic(o_.last_path, "{\"type\":\"snapshot\"," + hub_.snapshotMembers(Selection{}) + "}\n", 0600);
}

}  // namespace

std::unique_ptr<Transport> Transport::create(Hub& hub, TransportOptions o) {
  return std::make_unique<LwsTransport>(hub, std::move(o));
}

}  // namespace flagos::telemetry

// One viewer: its requests, its subscription and the bounded queue of what it has still to read. No sockets here, so that
// the protocol is tested without them. Server thread only.
#pragma once
#include <deque>
#include <string>
#include <string_view>

#include "runtime/telemetry/server/hub.h"

namespace flagos::telemetry {

inline constexpr size_t kLagBytes = 64u << 10;         // more than this unread: deltas are left out, then "lost" is told
inline constexpr size_t kMaxQueueBytes = 8u << 20;     // more than this unread: the viewer is closed with 1013
inline constexpr size_t kMaxMessageBytes = 1u << 20;   // of one client message; beyond: closed with 1009

class Session {
 public:
  explicit Session(Hub& hub);                          // queues "hello"
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void onMessage(std::string_view text);               // one whole text message
  void onEvent(const Hub::Event& event, uint64_t dropped_before);
  // Sends what is due at `now`; nothing without a subscription.
  void tick(uint64_t now_ns);
  uint64_t nextDue() const noexcept { return subscribed_ ? due_ns_ : UINT64_MAX; }

  // What waits to be sent, oldest first. pop() after the front has been handed to the socket in full.
  bool empty() const noexcept { return queue_.empty(); }
  const std::string& front() const { return queue_.front(); }
  void pop();
  size_t queuedBytes() const noexcept { return queued_; }
  bool overCap() const noexcept { return queued_ > kMaxQueueBytes; }
  void dropQueue();

 private:
  void push(std::string message);
  void reply(const Json& id, const Json& result);
  void replyText(const Json& id, std::string_view result);
  void replyError(const Json& id, int code, std::string_view message);
  void subscribe(const Json& id, const Json& params);
  void pushSnapshot();
  void askTiming(bool on);

  Hub& hub_;
  std::deque<std::string> queue_;
  size_t queued_ = 0;
  bool subscribed_ = false, events_ = false, timing_ = false;
  Selection want_;
  uint64_t interval_ns_ = 0, due_ns_ = 0, seq_ = 0;
  uint64_t missed_ = 0, missed_since_ = 0;             // deltas left out, and the seq after which
  DeltaWriter delta_;
};

}  // namespace flagos::telemetry

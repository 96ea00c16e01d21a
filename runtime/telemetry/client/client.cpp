#include "runtime/telemetry/client.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <thread>

#include "runtime/telemetry/client/websocket.h"

namespace flagos::telemetry {
namespace {

Error rpcError(const Json& e) {
  const auto message = e.find("message");
  Error out = fail(message != e.end() && message->is_string() ? message->get<std::string>() : "the process refused the request");
  if (const auto code = e.find("code"); code != e.end() && code->is_number_integer())
    out.what += " (" + std::to_string(code->get<int>()) + ")";
  return out;
}

class SocketClient final : public Client {
 public:
  explicit SocketClient(const ProcessEntry& p) : pid_(p.pid) {}
  ~SocketClient() override {
    closing_ = true;
    socket_.shutdown();
    if (reader_.joinable()) reader_.join();
  }

  Result<void> start(const std::string& path, int timeout_ms) {
    auto opened = socket_.open(path, "/telemetry", "flagos.v1", timeout_ms);
    if (!opened) return opened;
    auto hello = socket_.receive(timeout_ms);
    if (!hello) return hello.error();
    auto j = parseJson(*hello, path);
    if (!j || !j->is_object() || j->value("type", std::string()) != "hello")
      return fail("the process did not say hello within " + std::to_string(timeout_ms) + " ms", {}, Exit::no_device);
    alive_ = true;
    reader_ = std::thread([this] { read(); });
    return {};
  }

  Result<Json> request(const std::string& method, const Json& params, int timeout_ms) override {
    if (std::this_thread::get_id() == reader_.get_id())
      return fail("a request from inside a message handler would wait for itself");
    std::unique_lock lock(mutex_);
    if (!alive_) return gone();
    const uint64_t id = ++last_id_;
    replies_.emplace(id, Json());
    lock.unlock();
    Json message = {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}};
    if (!params.is_null()) message["params"] = params;
    auto sent = socket_.sendText(dump(message));
    lock.lock();
    if (!sent) {
      replies_.erase(id);
      return fail("process " + std::to_string(pid_) + ": " + sent.error().what, {}, Exit::no_device);
    }
    const bool done = changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                                        [&] { return !replies_[id].is_null() || !alive_; });
    Json reply = std::move(replies_[id]);
    replies_.erase(id);
    if (!reply.is_null()) {
      if (const auto e = reply.find("error"); e != reply.end() && e->is_object()) return rpcError(*e);
      const auto result = reply.find("result");
      return result == reply.end() ? Json() : std::move(*result);
    }
    if (done) return gone();
    return fail("process " + std::to_string(pid_) + " did not answer " + method + " within " + std::to_string(timeout_ms) + " ms",
                {}, Exit::no_device);
  }

  Result<void> subscribe(const Json& params, std::function<void(const Json&)> handler) override {
    {
      std::lock_guard lock(mutex_);
      handler_ = std::make_shared<std::function<void(const Json&)>>(std::move(handler));
    }
    auto reply = request("subscribe", params, 5000);
    if (!reply) return reply.error();
    return {};
  }

  bool connected() const noexcept override { return alive_; }

 private:
  Error gone() const {
    return fail("process " + std::to_string(pid_) + ": " + (why_.empty() ? "the connection is closed" : why_), {}, Exit::no_device);
  }
  void read() {
    for (;;) {
      auto message = socket_.receive(-1);
      if (!message) {
        std::lock_guard lock(mutex_);
        why_ = message.error().what;
        alive_ = false;
        changed_.notify_all();
        return;
      }
      auto j = parseJson(*message, "telemetry", {64u << 20, 64});
      if (!j || !j->is_object()) continue;
      std::shared_ptr<std::function<void(const Json&)>> handler;
      {
        std::lock_guard lock(mutex_);
        if (const auto id = j->find("id"); id != j->end() && id->is_number_unsigned()) {
          if (const auto it = replies_.find(id->get<uint64_t>()); it != replies_.end()) it->second = std::move(*j);
          changed_.notify_all();
          continue;
        }
        handler = handler_;
      }
      if (handler && *handler && !closing_) (*handler)(*j);
    }
  }

  const int pid_;
  WebSocket socket_;
  std::thread reader_;
  std::atomic<bool> alive_{false}, closing_{false};
  std::mutex mutex_;                    // guards what follows
  std::condition_variable changed_;
  std::map<uint64_t, Json> replies_;    // null until the reply is there
  uint64_t last_id_ = 0;
  std::string why_;
  std::shared_ptr<std::function<void(const Json&)>> handler_;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(const ProcessEntry& p, int timeout_ms) {
  if (p.state == "ended") return fail("process " + std::to_string(p.pid) + " has ended", {}, Exit::no_device);
  auto c = std::make_unique<SocketClient>(p);
  if (auto started = c->start(p.socket, timeout_ms); !started) {
    Error e = started.error();
    e.where = "process " + std::to_string(p.pid);
    return e;
  }
  return std::unique_ptr<Client>(std::move(c));
}

}  // namespace flagos::telemetry

// JSON-RPC messages, and the type that makes sure each request gets exactly one reply.
#pragma once
#include <functional>
#include <string>

#include "runtime/base/json.h"

namespace flagos::lsp {

inline constexpr int kParseError = -32700, kInvalidRequest = -32600, kMethodNotFound = -32601, kInvalidParams = -32602,
                     kInternalError = -32603, kServerNotInitialized = -32002, kRequestCancelled = -32800, kContentModified = -32801;

using Send = std::function<void(const Json&)>;

// Owns the duty to answer. Answering twice is ignored; going away unanswered answers InternalError.
class Reply {
 public:
  Reply(Json id, Send send) : id_(std::move(id)), send_(std::move(send)) {}
  Reply(Reply&& other) noexcept : id_(std::move(other.id_)), send_(std::move(other.send_)), done_(other.done_) { other.done_ = true; }
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  ~Reply() { error(kInternalError, "this request was not answered: please report it"); }
  void result(Json value) {
    if (done_) return;
    done_ = true;
    send_({{"jsonrpc", "2.0"}, {"id", id_}, {"result", std::move(value)}});
  }
  void error(int code, const std::string& message) {
    if (done_) return;
    done_ = true;
    send_({{"jsonrpc", "2.0"}, {"id", id_}, {"error", {{"code", code}, {"message", message}}}});
  }
  bool done() const { return done_; }
  const Json& id() const { return id_; }

 private:
  Json id_;
  Send send_;
  bool done_ = false;
};

// Reading params: a missing or wrong part gives the fallback, never an exception.
const Json& member(const Json& j, const char* key);                 // null if missing
std::string textMember(const Json& j, const char* key, std::string fallback = {});
int intMember(const Json& j, const char* key, int fallback = 0);
bool boolMember(const Json& j, const char* key, bool fallback = false);
// member(member(j, a), b) ... for "a.b.c".
const Json& path(const Json& j, std::string_view dotted);

}  // namespace flagos::lsp

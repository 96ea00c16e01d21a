#include "runtime/telemetry/server/session.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/clock.h"
#include "runtime/telemetry/json_writer.h"

namespace flagos::telemetry {
namespace {
constexpr double kSlowestHz = 0.2, kFastestHz = 60;
constexpr int kParseError = -32700, kInvalidRequest = -32600, kNoMethod = -32601, kInvalidParams = -32602, kFailed = -32000;
}  // namespace

Session::Session(Hub& hub) : hub_(hub) {
  std::string hello;
  JsonWriter w(hello);
  w.open('{').key("type").text("hello").key("version").number(1).key("pid").number(hub.identity().pid);
  w.key("clock").text("monotonic_ns").key("now").number(nowNs()).key("rates_hz").open('[').number(kSlowestHz).number(kFastestHz).close(']');
  w.key("features").open('[');
  for (const auto& f : hub.features()) w.text(f);
  w.close(']').close('}');
  push(std::move(hello));
}

Session::~Session() { askTiming(false); }

void Session::askTiming(bool on) {
  if (on == timing_) return;
  timing_ = on;
  hub_.wantTiming(on);
}

void Session::push(std::string message) {
  queued_ += message.size();
  queue_.push_back(std::move(message));
}
void Session::pop() {
  queued_ -= queue_.front().size();
  queue_.pop_front();
}
void Session::dropQueue() {
  queue_.clear();
  queued_ = 0;
  subscribed_ = events_ = false;
}

void Session::replyText(const Json& id, std::string_view result) {
  if (id.is_discarded()) return;                       // a notification gets no answer
  push("{\"jsonrpc\":\"2.0\",\"id\":" + dump(id) + ",\"result\":" + std::string(result) + "}");
}
void Session::reply(const Json& id, const Json& result) { replyText(id, dump(result)); }
void Session::replyError(const Json& id, int code, std::string_view message) {
  if (id.is_discarded()) return;
  std::string out;
  JsonWriter w(out);
  w.open('{').key("jsonrpc").text("2.0").key("id").raw(dump(id)).key("error").open('{');
  w.key("code").number(code).key("message").text(message).close('}').close('}');
  push(std::move(out));
}

void Session::onMessage(std::string_view text) {
  auto parsed = parseJson(text, "message", {kMaxMessageBytes, 64});
  if (!parsed) return replyError(nullptr, kParseError, "not JSON: " + parsed.error().text());
  const Json& j = *parsed;
  if (!j.is_object()) return replyError(nullptr, kInvalidRequest, "a request is one JSON object");
  Json id = Json(Json::value_t::discarded);
  if (const auto it = j.find("id"); it != j.end()) {
    if (!it->is_string() && !it->is_number() && !it->is_null())
      return replyError(nullptr, kInvalidRequest, "\"id\" is a string, a number or null");
    id = *it;
  }
  const auto version = j.find("jsonrpc"), method = j.find("method");
  const bool named = method != j.end() && method->is_string();
  if (!named || version == j.end() || *version != "2.0") {
    const Json to = id.is_discarded() ? Json(nullptr) : id;
    return replyError(to, kInvalidRequest, named ? "\"jsonrpc\" must be \"2.0\"" : "\"method\" is missing or no string");
  }
  Json params = Json::object();
  if (const auto it = j.find("params"); it != j.end()) params = *it;
  if (!params.is_object()) return replyError(id, kInvalidParams, "\"params\" is an object here");

  const std::string name = method->get<std::string>();
  if (name == "subscribe") return subscribe(id, params);
  if (name == "unsubscribe") {
    subscribed_ = events_ = false;
    missed_ = 0;
    askTiming(false);
    return reply(id, true);
  }
  if (name == "snapshot") {
    Selection want;
    if (const auto it = params.find("top"); it != params.end()) {
      if (!it->is_number_unsigned()) return replyError(id, kInvalidParams, "\"top\" is a number of rows");
      want.top = static_cast<uint32_t>(std::min<uint64_t>(it->get<uint64_t>(), UINT32_MAX));
    }
    if (const auto it = params.find("timings"); it != params.end()) {
      if (!it->is_boolean()) return replyError(id, kInvalidParams, "\"timings\" is true or false");
      askTiming(it->get<bool>() || subscribed_);
    }
    return replyText(id, "{" + hub_.snapshotMembers(want) + "}");
  }
  const auto* call = hub_.method(name);
  if (!call) return replyError(id, kNoMethod, "no method \"" + name + "\"");
  // The runtime's own method: whatever it does with odd parameters, the program it runs in goes on.
  Result<Json> result = fail("the method failed");
  try {
    result = (*call)(params);
  } catch (const Json::exception& e) {
    return replyError(id, kInvalidParams, e.what());
  } catch (const std::exception& e) {
    result = fail(e.what());
  }
  if (!result) return replyError(id, kFailed, result.error().text());
  if (name.rfind("route.", 0) == 0 && name != "route.list")
    hub_.publish({nowNs(), "route", "\"method\":" + dump(Json(name)) + ",\"params\":" + dump(params)});
  reply(id, *result);
}

void Session::subscribe(const Json& id, const Json& params) {
  double rate = 10;
  Selection want;
  bool events = true;
  if (const auto it = params.find("rate_hz"); it != params.end()) {
    if (!it->is_number() || !std::isfinite(it->get<double>())) return replyError(id, kInvalidParams, "\"rate_hz\" is a number");
    rate = std::clamp(it->get<double>(), kSlowestHz, kFastestHz);
  }
  if (const auto it = params.find("top"); it != params.end()) {
    if (!it->is_number_unsigned()) return replyError(id, kInvalidParams, "\"top\" is a number of rows");
    want.top = static_cast<uint32_t>(std::min<uint64_t>(it->get<uint64_t>(), UINT32_MAX));
  }
  std::vector<std::string> parts = {"devices", "sites", "routes", "fallbacks", "events"};
  if (const auto it = params.find("parts"); it != params.end()) {
    if (!it->is_array()) return replyError(id, kInvalidParams, "\"parts\" is a list of names");
    std::vector<std::string> asked;
    for (const Json& p : *it) {
      const std::string name = p.is_string() ? p.get<std::string>() : dump(p);
      if (std::find(parts.begin(), parts.end(), name) == parts.end())
        return replyError(id, kInvalidParams, "no part \"" + name + "\": there are devices, sites, routes, fallbacks, events");
      asked.push_back(name);
    }
    parts = asked;
  }
  const auto has = [&](const char* p) { return std::find(parts.begin(), parts.end(), p) != parts.end(); };
  want.devices = has("devices"), want.sites = has("sites"), want.routes = has("routes"), want.fallbacks = has("fallbacks");
  events = has("events");

  want_ = want;
  events_ = events;
  interval_ns_ = static_cast<uint64_t>(1e9 / rate);
  due_ns_ = nowNs() + interval_ns_;
  subscribed_ = true;
  missed_ = 0;
  askTiming(true);
  Json result = {{"rate_hz", rate}, {"parts", parts}, {"top", want.top}};
  if (!want.top) result["top"] = nullptr;
  reply(id, result);
  pushSnapshot();
}

void Session::pushSnapshot() {
  // Both from one sample: the first delta starts from exactly these values.
  std::string message = "{\"type\":\"snapshot\",\"seq\":" + std::to_string(++seq_) + ",";
  message += hub_.snapshotMembers(want_);
  message += '}';
  delta_.reset(hub_.lastSample(), want_);
  push(std::move(message));
}

void Session::tick(uint64_t now) {
  if (!subscribed_ || now < due_ns_) return;
  // A late tick does not make the next ones hurry.
  due_ns_ = std::max(due_ns_ + interval_ns_, now);
  if (queued_ > kLagBytes) {
    if (missed_++ == 0) missed_since_ = seq_;
    return;
  }
  if (missed_) {
    push("{\"type\":\"lost\",\"deltas\":" + std::to_string(missed_) + ",\"since_seq\":" + std::to_string(missed_since_) + "}");
    missed_ = 0;
    pushSnapshot();
    return;
  }
  const Sample& s = hub_.sample();
  std::string message = "{\"type\":\"delta\",\"seq\":" + std::to_string(seq_ + 1) + ",\"t_ns\":" + std::to_string(s.counters.t_ns) + ",";
  if (!delta_.append(message, s, want_)) return;
  ++seq_;
  message += '}';
  push(std::move(message));
}

void Session::onEvent(const Hub::Event& e, uint64_t dropped_before) {
  if (!subscribed_ || !events_) return;
  if (dropped_before)
    push("{\"type\":\"lost\",\"deltas\":0,\"events\":" + std::to_string(dropped_before) + ",\"since_seq\":" + std::to_string(seq_) + "}");
  std::string message;
  JsonWriter w(message);
  w.open('{').key("type").text("event").key("seq").number(++seq_).key("t_ns").number(e.t_ns).key("kind").text(e.kind);
  if (!e.members.empty()) message += "," + e.members;
  message += '}';
  push(std::move(message));
}

}  // namespace flagos::telemetry

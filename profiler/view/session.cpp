#include "profiler/view/session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/base/paths.h"
#include "runtime/base/version.h"

namespace flagos::view {

using telemetry::ProcessEntry;
using telemetry::ProcessRow;

Result<Session> Session::open(SessionOptions options) {
  Session s;
  s.options_ = std::move(options);
  if (!s.options_.file.empty()) {
    auto doc = readJsonFile(s.options_.file);
    if (!doc) return doc.error();
    const auto list = doc->find("processes");
    if (!doc->is_object() || list == doc->end() || !list->is_array()) {
      Error e = fail("is not a document of `flagos top --once --json`", {}, Exit::broken_input);
      e.where = s.options_.file + ":1:1";
      return e;
    }
    for (const Json& p : *list) s.saved_.push_back(telemetry::processFromJson(p));
    return s;
  }
  if (s.options_.pid) {
    auto found = telemetry::listProcesses();
    if (!found) return found.error();
    const bool known = std::any_of(found->begin(), found->end(), [&](const ProcessEntry& e) { return e.pid == *s.options_.pid; });
    if (!known) {
      std::string pids;
      for (const ProcessEntry& e : *found) pids += (pids.empty() ? "" : ", ") + std::to_string(e.pid);
      return fail("no process " + std::to_string(*s.options_.pid) + " uses a FlagOS device",
                  pids.empty() ? "None does; start one first" : "There are: " + pids, Exit::no_device);
    }
  }
  return s;
}

Result<std::vector<ProcessRow>> Session::refresh() {
  if (!options_.file.empty()) return saved_;
  auto found = telemetry::listProcesses();
  if (!found) return found.error();
  for (ProcessEntry& e : *found) {
    if (options_.pid && e.pid != *options_.pid) continue;
    const auto known = std::find_if(connections_.begin(), connections_.end(), [&](const Connection& c) {
      return c.entry.pid == e.pid && c.entry.start_time == e.start_time;
    });
    if (known != connections_.end()) continue;
    Connection c;
    if (e.state == "ended") {
      c.last = telemetry::processFromJson(e.last_snapshot);
      c.last.pid = e.pid;
      c.last.script = e.script;
      c.last.state = "ended";
    } else if (auto client = telemetry::Client::connect(e)) {
      c.client = std::move(*client);
      // A subscriber is what makes the process take timings.
      (void)c.client->subscribe({{"rate_hz", 1}, {"parts", {"devices"}}, {"top", 1}}, [](const Json&) {});
    } else {
      continue;   // between announcing and listening, or just gone: the next refresh sees it
    }
    c.entry = std::move(e);
    connections_.push_back(std::move(c));
  }
  if (!warmed_ && options_.timing_s > 0 &&
      std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.client != nullptr; })) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options_.timing_s));
  }
  warmed_ = true;
  std::vector<ProcessRow> rows;
  for (Connection& c : connections_) {
    if (c.client) {
      auto snapshot = c.client->request("snapshot", {{"timings", true}}, 2000);
      if (snapshot) {
        c.last = telemetry::processFromJson(*snapshot);
        c.last.pid = c.entry.pid;
        c.last.script = c.entry.script;
        c.last.state = "live";
        c.last.age_s = 0;
        c.last_ns = nowNs();
        markDrift(c.last);
      } else if (processStartTime(c.entry.pid) != c.entry.start_time) {
        c.client.reset();
        c.last.pid = c.entry.pid;
        c.last.script = c.entry.script;
        c.last.state = "ended";
      }
    }
    if (c.last_ns) c.last.age_s = static_cast<double>(nowNs() - c.last_ns) * 1e-9;
    if (c.last.pid) rows.push_back(c.last);
  }
  return rows;
}

Json topDocument(const std::vector<ProcessRow>& rows) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  Json doc = {{"version", 1}, {"host", {{"name", host}, {"flagos", kVersion}}}, {"processes", Json::array()}};
  for (const ProcessRow& p : rows) doc["processes"].push_back(telemetry::toJson(p));
  return doc;
}

}  // namespace flagos::view

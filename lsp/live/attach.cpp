#include "lsp/live/attach.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "runtime/base/paths.h"

namespace flagos::lsp {

Result<telemetry::ProcessRow> watchOnce(const telemetry::ProcessEntry& entry, int ms) {
  if (entry.state == "ended") {
    auto row = telemetry::processFromJson(entry.last_snapshot);
    row.pid = entry.pid;
    row.state = "ended";
    return row;
  }
  auto client = telemetry::Client::connect(entry);
  if (!client) return client.error();
  std::mutex lock;
  std::condition_variable changed;
  Json snapshot;
  bool broken = false;
  const Json params = {{"rate_hz", 10}, {"parts", {"devices", "sites", "routes", "fallbacks", "events"}}, {"top", 1000}};
  auto ok = (*client)->subscribe(params, [&](const Json& message) {
    const std::lock_guard guard(lock);
    const std::string type = message.value("type", "");
    if (type == "snapshot") { snapshot = message; broken = false; }
    else if (type == "delta" || type == "event") { if (!snapshot.is_null() && !telemetry::applyDelta(snapshot, message)) broken = true; }
    changed.notify_all();
  });
  if (!ok) return ok.error();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  {
    std::unique_lock guard(lock);
    while (std::chrono::steady_clock::now() < deadline) changed.wait_until(guard, deadline);
  }
  const bool alive = (*client)->connected();
  if (alive) {
    auto last = (*client)->request("snapshot", Json::object());
    const std::lock_guard guard(lock);
    if (last && last->is_object() && last->contains("sites")) snapshot = *last;
  }
  client->reset();  // no handler runs after this
  if (snapshot.is_null())
    return Error{"process " + std::to_string(entry.pid) + " sent nothing within " + std::to_string(ms) + " ms", entry.socket, "try again", Exit::no_device};
  (void)broken;
  auto row = telemetry::processFromJson(snapshot);
  row.pid = entry.pid;
  row.state = alive ? "live" : "ended";
  return row;
}

Result<telemetry::ProcessEntry> chooseProcess(const std::vector<RanAs>& files, std::optional<int> pid) {
  auto all = telemetry::listProcesses();
  if (!all) { Error e = all.error(); e.exit = Exit::no_device; return e; }
  if (pid) {
    for (auto& p : *all) if (p.pid == *pid) return p;
    std::string running;
    for (const auto& p : *all) running += (running.empty() ? "" : ", ") + std::to_string(p.pid);
    return Error{"no FlagOS process " + std::to_string(*pid), runtimeDir(), running.empty() ? "none is announced" : "announced: " + running, Exit::no_device};
  }
  const auto ran = [&](const telemetry::ProcessRow& row) {
    return std::any_of(files.begin(), files.end(), [&](const RanAs& f) { return executed(row, f); });
  };
  const auto executedBy = [&](const telemetry::ProcessEntry& p) {
    telemetry::ProcessRow told;
    told.script = p.script;
    if (ran(told)) return true;
    if (p.state == "ended") return ran(telemetry::processFromJson(p.last_snapshot));
    auto client = telemetry::Client::connect(p, 500);
    if (!client) return false;
    auto snapshot = (*client)->request("snapshot", Json::object(), 1000);
    return snapshot && ran(telemetry::processFromJson(*snapshot));
  };
  for (const char* state : {"live", "ended"})
    for (auto& p : *all) if (p.state == state && executedBy(p)) return p;
  return Error{"no process attached: no process of this user has executed " + (files.size() == 1 ? files[0].path : std::string("these files")),
               runtimeDir(), "start the program, then ask again", Exit::no_device};
}

}  // namespace flagos::lsp

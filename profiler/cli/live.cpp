#include "profiler/cli/live.h"

#include <chrono>
#include <thread>

#include "runtime/telemetry/client.h"

namespace flagos::cli {

Result<std::vector<Answer>> askProcesses(int pid, const std::string& method, const Json& params, double timing_s) {
  auto list = telemetry::listProcesses();
  if (!list) {
    Error e = list.error();
    e.exit = Exit::no_device;
    return e;
  }
  std::vector<Answer> out;
  bool ended = false;
  for (const telemetry::ProcessEntry& p : *list) {
    if (pid && p.pid != pid) continue;
    if (p.state != "live") { ended = true; continue; }
    auto client = telemetry::Client::connect(p);
    if (client && timing_s > 0) {
      // Without times the answer is still right, so a refused subscription is no error.
      (void)(*client)->subscribe({{"rate_hz", 2}, {"parts", {"routes"}}, {"top", 1}}, [](const Json&) {}).ok();
      std::this_thread::sleep_for(std::chrono::duration<double>(timing_s));
    }
    if (client) out.push_back({p.pid, (*client)->request(method, params)});
    else out.push_back({p.pid, client.error()});
  }
  if (!out.empty()) return out;
  if (pid && ended) return fail("process " + std::to_string(pid) + " has ended", {}, Exit::no_device);
  if (pid) return fail("process " + std::to_string(pid) + " uses no FlagOS device", "flagos top lists those that do", Exit::no_device);
  return fail("no running process of this user uses a FlagOS device", "Start one, or ask offline: flagos explain OP --shapes ...", Exit::no_device);
}

}  // namespace flagos::cli

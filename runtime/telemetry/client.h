// Viewers' side: find processes, connect, read snapshots. Used by the CLI, flagos-top and flagos-lsp.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace flagos::telemetry {

struct ProcessEntry {
  int pid = 0;
  uint64_t start_time = 0;
  std::string script;
  std::vector<std::string> argv;
  std::string socket;
  std::string state;           // "live", or "ended": it crashed and its last snapshot is still readable
  Json last_snapshot;          // only for "ended"
};

// Processes announced in the runtime directory, newest first. Stale files are removed (the last snapshot of a crashed
// process is kept and listed as ended). An unreachable directory is an error that says so, not an empty list.
Result<std::vector<ProcessEntry>> listProcesses();

class Client {
 public:
  // Connects over the Unix socket; fails after timeout_ms.
  static Result<std::unique_ptr<Client>> connect(const ProcessEntry&, int timeout_ms = 2000);
  virtual ~Client() = default;
  // One JSON-RPC call; blocks until the reply or timeout. Thread-safe.
  virtual Result<Json> request(const std::string& method, const Json& params, int timeout_ms = 5000) = 0;
  // The handler gets snapshot / delta / event / lost messages on the client's thread.
  virtual Result<void> subscribe(const Json& params, std::function<void(const Json&)> handler) = 0;
  virtual bool connected() const noexcept = 0;
};

}  // namespace flagos::telemetry

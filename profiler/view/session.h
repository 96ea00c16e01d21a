// What a viewer looks at: the processes of this user, live or ended, or a saved snapshot file.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/telemetry/client.h"
#include "runtime/telemetry/model.h"

namespace flagos::view {

struct SessionOptions {
  std::optional<int> pid;          // only this process; it must exist
  std::string file;                // a document of `flagos top --once --json` instead of live processes
  double timing_s = 1.0;           // how long timings are collected before the first snapshot (0 = take counters only)
};

// Keeps connections between refreshes; used by one thread.
class Session {
 public:
  static Result<Session> open(SessionOptions options);
  // Snapshots of all chosen processes. A process that ends stays listed as "ended" with its last values. Blocks for at
  // most about two seconds a process that does not answer.
  Result<std::vector<telemetry::ProcessRow>> refresh();

 private:
  struct Connection {
    telemetry::ProcessEntry entry;
    std::shared_ptr<telemetry::Client> client;   // null: ended
    telemetry::ProcessRow last;
    uint64_t last_ns = 0;
  };
  SessionOptions options_;
  std::vector<Connection> connections_;
  std::vector<telemetry::ProcessRow> saved_;
  bool warmed_ = false;
};

// The `flagos top --once --json` document.
Json topDocument(const std::vector<telemetry::ProcessRow>&);
// Compares each site with its file as it is on disk now and sets SiteRow::state, and its text where that is "exact".
void markDrift(telemetry::ProcessRow&);

}  // namespace flagos::view

// Watches this user's FlagOS processes in the background and keeps the last state of each.
//
// One own thread looks for processes every half second, connects to live ones and notices within a second when one ends;
// its last values stay as "ended". `changed` is called on that thread, at most some times a second. Reading is by
// immutable snapshots.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lsp/live/ranks.h"
#include "runtime/telemetry/model.h"

namespace flagos::lsp {

struct LiveView {
  std::vector<std::shared_ptr<const telemetry::ProcessRow>> processes;   // newest first
  std::map<int, Rank> ranks;                                             // by pid
  std::string problem;                                                   // the runtime directory cannot be read, and why
  uint64_t version = 0;
};

class LiveHub {
 public:
  static std::unique_ptr<LiveHub> start(std::function<void()> changed);
  virtual ~LiveHub() = default;
  virtual std::shared_ptr<const LiveView> view() const = 0;
};

// Whether the process ran a file of this path.
bool executed(const telemetry::ProcessRow& process, const std::string& path);

}  // namespace flagos::lsp

// Processes that can be watched, and one-shot reading of one of them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "lsp/live/ran_as.h"
#include "runtime/base/result.h"
#include "runtime/telemetry/client.h"
#include "runtime/telemetry/model.h"

namespace flagos::lsp {

// Connects, lets the process time its kernels for `ms`, and returns the last state. An ended process gives its last snapshot.
Result<telemetry::ProcessRow> watchOnce(const telemetry::ProcessEntry& entry, int ms);

// The process to show for these files: `pid` if given, else the newest live one that executed one of them, else the newest
// ended one that did. The error says what was looked for. Exit::no_device where nothing answers.
Result<telemetry::ProcessEntry> chooseProcess(const std::vector<RanAs>& files, std::optional<int> pid);

}  // namespace flagos::lsp

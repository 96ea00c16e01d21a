// Asking running processes over their telemetry sockets.
#pragma once
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace flagos::cli {

struct Answer { int pid; Result<Json> reply; };

// One JSON-RPC request to process `pid`, or (0) to every live process of this user, newest first. Nobody to ask is an error
// with exit code 3; a process that does not answer is an Answer with its error. `timing_s` > 0: be a viewer for so long
// before asking, since a process takes times only while somebody watches.
Result<std::vector<Answer>> askProcesses(int pid, const std::string& method, const Json& params, double timing_s = 0);

}  // namespace flagos::cli

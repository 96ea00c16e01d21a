// Asking running processes over their telemetry sockets.
#pragma once
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace flagos::cli {

struct Answer { int pid; Result<Json> reply; };

// One JSON-RPC request to process `pid`, or (0) to every live process of this user, newest first. Nobody to ask is an error
// with exit code 3; a process that does not answer is an Answer with its error.
Result<std::vector<Answer>> askProcesses(int pid, const std::string& method, const Json& params);

}  // namespace flagos::cli

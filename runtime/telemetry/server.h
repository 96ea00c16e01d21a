// The process's telemetry server: a websocket on a Unix socket in the runtime directory, in its own thread.
// It can fail in any way and training goes on; the first trouble is one warning on stderr.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace flagos::telemetry {

// Facts the sampler asks the runtime for. Called on the server thread, never with the GIL, must not block for long.
struct ServerHooks {
  std::string script;                                   // absolute path of the running script, or ""
  std::vector<std::string> argv;
  std::function<Json()> devices;                        // the "devices" array of `flagos top --json` with memory and utilisation
  // JSON-RPC methods beyond subscribe/unsubscribe/snapshot: "explain", "route.set", "route.list" ... Result becomes
  // the reply, an Error the JSON-RPC error. Called on the server thread.
  std::map<std::string, std::function<Result<Json>(const Json& params)>> methods;
  std::function<void(bool)> timing;                     // a viewer wants timings (true) / the last one left (false)
};

// Starts on first call (first use of a device), never at import and never in a forked child. Honors FLAGOS_TELEMETRY.
void startServer(ServerHooks hooks) noexcept;
// Tells every subscribed viewer that something happened: {"type":"event","kind":kind, ...members of fields}. Any thread.
void publishEvent(const std::string& kind, const Json& fields) noexcept;
// Normal exit: writes nothing more, removes the discovery file and socket. Idempotent; called at interpreter exit.
void stopServer() noexcept;

}  // namespace flagos::telemetry

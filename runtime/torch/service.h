// The watching side of a training process: telemetry server, explain and route requests, timings, pool observer.
// It can fail in any way and training goes on.
#pragma once
#include <string>
#include <vector>

namespace flagos::glue {

// Who we are, for viewers; told by Python when the backend is installed.
void setScript(std::string script, std::vector<std::string> argv);

// At first use of a device; later calls do nothing. Never starts in a forked child.
void startService() noexcept;
void stopService() noexcept;

}  // namespace flagos::glue

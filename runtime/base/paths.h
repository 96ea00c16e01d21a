// Where FlagOS keeps files, and what it knows of processes on this machine.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/result.h"

namespace flagos {

// $FLAGOS_RUNTIME_DIR, else $XDG_RUNTIME_DIR/flagos, else /tmp/flagos-<uid>. Not created.
std::string runtimeDir();
// runtimeDir(), created with mode 0700; refused if it is a link, another user's, or open to others.
Result<std::string> makeRuntimeDir();
// $FLAGOS_CACHE_DIR, else $XDG_CACHE_HOME/flagos, else ~/.cache/flagos. Not created.
std::string cacheDir();
// $XDG_CONFIG_HOME/flagos, else ~/.config/flagos. Not created.
std::string configDir();
// Whether other users may enter or change a folder of ours; an error if it is a link or another user's.
Result<bool> openToOthers(const std::string& dir);
// mkdir -p with mode 0700 for the folders that are missing.
Result<void> makeDirs(const std::string& path);
// The folder of the running program's own binary ("" if unknown); used to find installed data beside it.
std::string programDir();

// Clock ticks since boot at which the process started (field 22 of /proc/PID/stat); nullopt if it is gone.
// pid and start time together name a process for ever.
std::optional<uint64_t> processStartTime(int pid);

}  // namespace flagos

// One command = one file + one line in commands.cpp.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

#include "runtime/base/result.h"

namespace flagos::cli {

// Declares the command's options on `app` and returns what runs it. The returned function prints to stdout (with --json:
// one JSON document and nothing else) and gives the exit code of the command contract. It reports errors with report().
using Run = std::function<Exit()>;
struct Command { const char* name; const char* summary; Run (*setup)(CLI::App& app); };

// `flagos fingerprints new` (fingerprint_draft.cpp).
Run setupFingerprintDraft(CLI::App& app);

// All commands, in the order of `flagos --help`.
const std::vector<Command>& commands();

// Prints "flagos NAME: error text" on stderr and returns the error's exit code.
Exit report(const char* command, const Error& error);

}  // namespace flagos::cli

// Shared libraries that a machine has, by their files: nothing is loaded.
#pragma once
#include <cstdint>
#include <string>

#include "runtime/dal/root.h"

namespace flagos::dal {

// unknown: a recorded machine that has none of the folders where libraries lie.
enum class Presence : uint8_t { unknown, no, yes };

// Where the loader would look for `soname` ("libclblast.so.1"): LD_LIBRARY_PATH on the live machine, then the standard
// folders.
Presence libraryPresence(const Root& root, const std::string& soname);

}  // namespace flagos::dal

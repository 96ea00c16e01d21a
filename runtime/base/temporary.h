// Where drivers may keep files when the home and the cache folder cannot take them: read-only, full, or not there.
#pragma once

#include <string>

namespace flagos {

// <TMPDIR, else /tmp>/flagos-<uid>-pocl, made if need be, closed to others. Empty if it cannot be made or is not this
// user's alone: anybody may have made it before us, and what a driver finds in it is run.
std::string temporaryDriverDir();

}  // namespace flagos

// From a code object and an instruction to the user's source. With the GIL; cold.
#pragma once
#include <string>

#include "runtime/python/sites/frames.h"
#include "runtime/telemetry/recorder.h"

namespace flagos::telemetry::resolve {

// Files under these folders are the library's: torch, flagos, Python's own standard library.
void setLibraryDirs(const std::string& torch_dir, const std::string& flagos_dir);
bool isLibrary(PyCodeObject* code);
// The frame of torch that waits while autograd's threads work.
bool isBackwardCall(PyCodeObject* code);

SiteId siteOf(PyCodeObject* code, int offset);

}  // namespace flagos::telemetry::resolve

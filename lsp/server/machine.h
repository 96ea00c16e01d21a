// The devices that the analysis assumes: those of --devices, or those that the device layer finds.
#pragma once
#include <string>
#include <vector>

#include "lsp/python/analysis.h"

namespace flagos::lsp {

// "npu:0,npu:1" -> list; "none" -> empty. Spaces are ignored.
std::vector<std::string> splitDevices(const std::string& list);
Machine machineOf(std::vector<std::string> devices);
// Asks the device layer (may take some hundred milliseconds; once per process).
Machine detectedMachine();

}  // namespace flagos::lsp

// The devices that the analysis assumes: those of --devices, or those that the device layer finds.
#pragma once
#include <string>
#include <vector>

#include "lsp/python/analysis.h"
#include "runtime/base/result.h"

namespace flagos::lsp {

// "npu:0,npu:1" -> list; "none" -> empty. Spaces are ignored.
std::vector<std::string> splitDevices(const std::string& list);
Machine machineOf(std::vector<std::string> devices);
// Entries "npu:0" or "npu:0=MODEL": with a model of the fingerprint table, predictions are made for that card.
Result<Machine> machineFrom(const std::vector<std::string>& entries);
// Asks the device layer (may take some hundred milliseconds; once per process).
Machine detectedMachine();

}  // namespace flagos::lsp

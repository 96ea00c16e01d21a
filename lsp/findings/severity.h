// The codes of findings with their default severities, and the settings that change them.
//
// One list for every face: the editor's setting `flagos.severity`, `--severity` of --check and the file .flagos.json all
// name these codes, and a misspelled one is answered with the nearest.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos::lsp {

inline constexpr const char* kOff = "off";

struct FindingCode {
  const char* code;
  const char* severity;   // error | warning | information | hint
  const char* summary;    // one line, for lists of rules
};

// By code.
std::span<const FindingCode> findingCodes();
// Null for a code that does not exist.
const FindingCode* findingCode(std::string_view code);

using Severities = std::map<std::string, std::string>;   // code -> "off" or a severity

// "sync-in-loop=off,data-parallel=warning"
Result<Severities> parseSeverity(std::string_view list);
// Checks one pair and adds it.
Result<void> addSeverity(Severities& into, std::string_view code, std::string_view severity);

inline constexpr const char* kSettingsFile = ".flagos.json";
// {"severity": {"sync-in-loop": "off"}}; other keys are ignored. Errors name file, line and column (Exit::broken_input).
Result<Severities> readSeverityFile(const std::string& path);
// The nearest .flagos.json in `folder` or above it, or "".
std::string findSettingsFile(const std::string& folder);

}  // namespace flagos::lsp

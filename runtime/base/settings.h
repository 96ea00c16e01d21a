// Every FLAGOS_* environment variable in one table: what it does, its default, its allowed values.
// `flagos doctor` prints the table; an unknown FLAGOS_* name is a warning that names the nearest one.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flagos {

struct Setting {
  std::string_view name;      // "FLAGOS_FALLBACK"
  std::string_view values;    // "allow|warn|forbid", "0|1", "path" ...
  std::string_view fallback;  // the default, in words a user understands
  std::string_view effect;    // one sentence
};

const std::vector<Setting>& settings();

// The variable's text, or nullopt if unset or empty. Asking for a name that is not in the table is our own mistake
// (asserted in debug builds). Reads the environment each time; callers on hot paths keep the answer.
std::optional<std::string> setting(std::string_view name);
bool settingIsOn(std::string_view name, bool fallback);

// One sentence per FLAGOS_* variable of this process that no table row explains, or whose value is not allowed.
std::vector<std::string> settingWarnings();

// The nearest of `choices` to `word` by edit distance, or "" if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& choices);

}  // namespace flagos

#include "runtime/base/settings.h"

#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cctype>
#include <numeric>

#include "runtime/base/bytes.h"

extern char** environ;

namespace flagos {

const std::vector<Setting>& settings() {
  static const std::vector<Setting> rows = {
      {"FLAGOS_DEVICE_NAME", "name", "npu", "the torch device name; read once, before the backend registers"},
      {"FLAGOS_FALLBACK", "allow|warn|forbid", "warn", "what happens when no npu kernel exists for an operator"},
      {"FLAGOS_ROUTE", "auto|opencl|host", "auto", "opencl: only OpenCL kernels; host: host kernels on shared memory first"},
      {"FLAGOS_MEASURE", "off|use|on", "use", "kept times of kernels: not used; used where predictions cannot tell; and taken where there are none"},
      {"FLAGOS_RULES", "path", "~/.config/flagos/rules.json", "the user's routing rules"},
      {"FLAGOS_SHARED_MEMORY", "0|1", "1", "0: treat a device that shares memory with the host as a discrete card"},
      {"FLAGOS_VISIBLE_DEVICES", "list", "all", "comma list of indices, PCI addresses or stable ids; read once"},
      {"FLAGOS_INCLUDE_CPU", "0|1", "0", "1: give CPU-type OpenCL devices an index beside real accelerators"},
      {"FLAGOS_ROOT", "path", "/", "read the machine from this folder (a recorded machine)"},
      {"FLAGOS_RUNTIME_DIR", "path", "$XDG_RUNTIME_DIR/flagos", "where running processes are announced"},
      {"FLAGOS_CACHE_DIR", "path", "~/.cache/flagos", "where compiled kernels and measured choices are kept"},
      {"FLAGOS_TELEMETRY", "0|1", "1", "0: no telemetry server; counters stay on"},
      {"FLAGOS_TELEMETRY_TCP", "port", "off", "also serve on loopback TCP at this port (0: any free port)"},
      {"FLAGOS_TELEMETRY_ORIGINS", "list", "none", "web origins allowed on the loopback TCP port"},
      {"FLAGOS_MEMORY_LIMIT", "bytes", "the device's own", "cap of the memory pool of each device"},
      {"FLAGOS_FINGERPRINTS", "path", "the installed database", "folder of fingerprint files"},
  };
  return rows;
}

std::optional<std::string> setting(std::string_view name) {
  assert(std::any_of(settings().begin(), settings().end(), [&](const Setting& s) { return s.name == name; }));
  const char* v = std::getenv(std::string(name).c_str());
  if (!v || !*v) return std::nullopt;
  return std::string(v);
}

bool settingIsOn(std::string_view name, bool fallback) {
  const auto v = setting(name);
  if (!v) return fallback;
  return *v != "0" && *v != "false" && *v != "off" && *v != "no";
}

std::string nearest(std::string_view word, const std::vector<std::string>& choices) {
  std::string best;
  size_t best_cost = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& c : choices) {
    std::vector<size_t> row(c.size() + 1);
    std::iota(row.begin(), row.end(), 0u);
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= c.size(); ++j) {
        const size_t above = row[j];
        row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (word[i - 1] == c[j - 1] ? 0u : 1u)});
        diagonal = above;
      }
    }
    if (row[c.size()] < best_cost) { best_cost = row[c.size()]; best = c; }
  }
  return best;
}

namespace {

// What a value that is no choice must be; "" if it is that. A process would refuse it, or silently do without it.
std::string valueProblem(const std::string& name, const std::string& value) {
  if (value.empty()) return {};
  const auto isFolder = [&] {
    struct stat s;
    return ::stat(value.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
  };
  if (name == "FLAGOS_MEMORY_LIMIT")
    if (const auto bytes = parseBytes(value); !bytes) return bytes.error().text();
  if (name == "FLAGOS_TELEMETRY_TCP") {
    const bool digits = value.size() <= 5 && value.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || std::atoi(value.c_str()) > 65535) return name + "=" + value + " is no port (0 to 65535); it is off";
  }
  const auto isWord = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  if (name == "FLAGOS_DEVICE_NAME" && (std::isdigit(static_cast<unsigned char>(value[0])) || !std::all_of(value.begin(), value.end(), isWord)))
    return name + "=" + value + " is no device name: letters, digits and _ only, and no digit first";
  for (const char* own : {"cpu", "cuda", "mps", "mtia", "xpu"})
    if (name == "FLAGOS_DEVICE_NAME" && value == own) return name + "=" + value + " is a device of PyTorch's own; FlagOS is not loaded";
  if ((name == "FLAGOS_ROOT" || name == "FLAGOS_FINGERPRINTS") && !isFolder()) return name + "=" + value + " is no folder";
  return {};
}

}  // namespace

std::vector<std::string> settingWarnings() {
  std::vector<std::string> names, out;
  constexpr size_t kPrefix = 7;   // what all have in common says nothing about which was meant
  for (const Setting& s : settings()) names.emplace_back(s.name.substr(kPrefix));
  for (char** e = environ; e && *e; ++e) {
    const std::string_view entry(*e);
    if (entry.substr(0, kPrefix) != "FLAGOS_" || entry.starts_with("FLAGOS_POCL_CACHE_OF=")) continue;   // ours, see opencl/pocl_cache
    const auto eq = entry.find('=');
    const std::string name(entry.substr(0, eq));
    const std::string_view value = eq == std::string_view::npos ? std::string_view() : entry.substr(eq + 1);
    const auto row = std::find_if(settings().begin(), settings().end(), [&](const Setting& s) { return s.name == name; });
    if (row == settings().end()) {
      const std::string near = nearest(std::string_view(name).substr(kPrefix), names);
      out.push_back(name + " is not a FlagOS setting" +
                    (near.empty() ? "; `flagos doctor` lists them" : "; did you mean FLAGOS_" + near + "?"));
      continue;
    }
    if (std::string why = valueProblem(name, std::string(value)); !why.empty()) {
      out.push_back(std::move(why));
      continue;
    }
    if (row->values.find('|') == std::string_view::npos || value.empty()) continue;
    std::string_view rest = row->values;
    bool known = false;
    while (!rest.empty()) {
      const auto bar = rest.find('|');
      known = known || rest.substr(0, bar) == value;
      rest = bar == std::string_view::npos ? std::string_view() : rest.substr(bar + 1);
    }
    if (!known)
      out.push_back(name + "=" + std::string(value) + " is not one of " + std::string(row->values) + "; using " +
                    std::string(row->fallback));
  }
  return out;
}

}  // namespace flagos

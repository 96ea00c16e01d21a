// Counters -> what viewers see. Used by the server's thread only; no lock, no Python, no torch.
#pragma once
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/telemetry/model.h"
#include "runtime/telemetry/recorder.h"

namespace flagos::telemetry {

// What one viewer asked for.
struct Selection {
  uint32_t top = 0;            // sites with the most live bytes, then device time; 0 = all
  bool devices = true, sites = true, routes = true, fallbacks = true;   // parts; copies and files come with fallbacks, sites
};

// Counters with the devices of that moment. Sites are sorted by live bytes, then device time.
struct Sample {
  Counters counters;
  std::vector<DeviceRow> devices;
  double written_at = 0;
  uint64_t total_live_bytes = 0, total_sites = 0;
};
Sample takeSample(std::vector<DeviceRow> devices);

// Facts that do not change while the process runs.
struct Identity { int pid = 0; uint64_t start_time = 0; std::string script; std::vector<std::string> argv; };

ProcessRow processRow(const Sample&, const Identity&, const Selection&);
// True if row `site` is among the first `top` sites (always without a limit, and for site 0).
std::vector<bool> keptSites(const Sample&, const Selection&);

std::string deviceName(uint32_t index);   // "npu:0", with the process's own device name (FLAGOS_DEVICE_NAME)
SiteRow siteRow(const SiteCounters&);
RouteRow routeRow(const RouteCounters&);
FallbackRow fallbackRow(const FallbackCounters&);
CopyRow copyRow(const CopyCounters&);
std::string hex16(uint64_t);

// Remembers what one viewer was last told and writes what changed since, as the members of a "delta" message (rows with
// their key and the changed fields). Returns false, and writes nothing, if nothing changed.
class DeltaWriter {
 public:
  void reset(const Sample&, const Selection&);
  bool append(std::string& out, const Sample&, const Selection&);

 private:
  struct Values {
    std::array<uint64_t, 7> v{};
    uint32_t seen = 0;                 // round in which the row was last there
  };
  std::unordered_map<uint64_t, Values> sites_, routes_, fallbacks_, copies_;
  std::vector<std::string> devices_;
  size_t files_ = 0;
  uint32_t round_ = 0;
};

}  // namespace flagos::telemetry

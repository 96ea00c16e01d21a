// What viewers see, as structs and as JSON: the shape of `flagos top --once --json`. One library for the CLI,
// flagos-top, the language server and tests. Rules: every number is a Metric; unknown JSON fields are ignored.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/metric.h"

namespace flagos::telemetry {

struct RouteRow {
  std::string op, kernel, reason, bound;   // bound: compute | memory | copy | launch | host | "" (unknown)
  uint64_t calls = 0;
  Metric device_time;                      // measured, over timed_calls calls
  uint64_t timed_calls = 0;
  Metric predicted;                        // cost model's seconds for one call
  uint32_t route = 0, site = 0;
};
struct FallbackRow { std::string op; uint64_t calls = 0, bytes = 0; uint32_t site = 0; };
struct CopyRow { std::string kind; uint64_t calls = 0, bytes = 0; uint32_t site = 0; };
struct SiteRow {
  uint32_t id = 0;
  std::string file, qualname;
  int line = 0, end_line = 0, column = -1, end_column = -1;
  std::string call_hash;               // hex
  uint32_t backward_of = 0;            // site id, or 0
  std::string device;                  // "npu:0"
  Metric live_bytes, peak_bytes, device_time;
  uint64_t calls = 0, allocations = 0;
  std::string state = "exact";         // exact | moved | edited | gone; the viewer compares with the file on disk
};
struct FileRow { std::string path; std::string hash; double mtime = 0; };   // content hash when the process first ran it
struct DeviceRow {
  std::string device, name;
  Metric total, allocated, allocated_peak, reserved, free, utilisation;
};
struct ProcessRow {
  int pid = 0;
  std::string state;                   // live | ended
  std::string script;
  double age_s = 0;                    // of this snapshot
  std::vector<DeviceRow> devices;
  std::vector<SiteRow> sites;
  std::vector<RouteRow> routes;
  std::vector<FallbackRow> fallbacks;
  std::vector<CopyRow> copies;
  std::vector<FileRow> files;
};

Json toJson(const ProcessRow&);
ProcessRow processFromJson(const Json&);
// Applies a "delta" message to a snapshot; false if its seq does not follow (ask for a new snapshot).
bool applyDelta(Json& snapshot, const Json& delta);

// FNV-1a 64 over bytes, as hex; used for file contents. `callHash` skips white space so that re-indenting keeps it.
uint64_t fnv1a(std::string_view bytes) noexcept;
uint64_t callHash(std::string_view call_text) noexcept;

}  // namespace flagos::telemetry

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
  std::string device;                      // "npu:0"
};
struct FallbackRow { std::string op; uint64_t calls = 0, bytes = 0; uint32_t site = 0; };
struct CopyRow { std::string kind; uint64_t calls = 0, bytes = 0; uint32_t site = 0; };
struct SiteRow {
  uint32_t id = 0;
  std::string file, qualname;
  int line = 0, end_line = 0, column = -1, end_column = -1;
  std::string call_hash;               // hex
  std::string text;                    // of the call, in one line; only viewers fill it, where the file has it
  uint32_t backward_of = 0;            // site id, or 0
  std::string device;                  // "npu:0"
  Metric live_bytes, peak_bytes, device_time;
  uint64_t calls = 0, allocations = 0, timed_calls = 0;
  std::string state = "exact";         // exact | moved | edited | gone; the viewer compares with the file on disk
};
// Content hash (16 hex digits, "" = unreadable) when the process first ran it. The text itself is kept as
// cacheDir()/sources/<hash>.py.
struct FileRow { std::string path; std::string hash; double mtime = 0; };
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
  uint64_t start_time = 0;             // clock ticks since boot; pid and start time name a process for ever
  std::vector<std::string> argv;
  double written_at = 0;               // seconds since the epoch when these values were read
  // Over all sites, also those left out by "top": what the sites' live bytes sum to.
  uint64_t total_sites = 0, total_live_bytes = 0;
};

Json toJson(const ProcessRow&);
Json toJson(const DeviceRow&);          // {"device","name","memory":{total,allocated,allocated_peak,reserved,free},"utilisation"}
DeviceRow deviceFromJson(const Json&);
// One object's members without braces, for messages that add their own fields. No JSON tree is built: the server's
// thread writes this twice a second in every training process.
void appendMembers(std::string& out, const ProcessRow&);
std::string toText(const DeviceRow&);   // each row as one JSON object
std::string toText(const SiteRow&);
std::string toText(const RouteRow&);
std::string toText(const FallbackRow&);
std::string toText(const CopyRow&);
std::string toText(const FileRow&);
ProcessRow processFromJson(const Json&);   // unknown fields ignored; a wrong type reads as missing
// Applies a "delta" message to a snapshot; false if its seq does not follow (ask for a new snapshot). Rows are matched
// by key (devices: device; sites: id and device; routes: site and route; fallbacks: site and op; copies: site and kind;
// files: path); a row of the delta holds its key and the fields that changed, "removed" lists keys that left.
// Messages that are no delta but advance seq ("event") are applied too: they only advance it.
bool applyDelta(Json& snapshot, const Json& delta);

// FNV-1a 64 over bytes, as hex; used for file contents. `callHash` skips white space so that re-indenting keeps it.
uint64_t fnv1a(std::string_view bytes) noexcept;
uint64_t callHash(std::string_view call_text) noexcept;

}  // namespace flagos::telemetry

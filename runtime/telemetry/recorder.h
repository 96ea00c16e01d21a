// Always-on counters of this process, written by the runtime's hot paths (DESIGN section 8).
// Producers never lock, allocate or format: they add to counters found by a per-thread cache. Timings arrive only while a
// viewer or recording asks for them (timingWanted).
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/names.h"

namespace flagos::telemetry {

using SiteId = uint32_t;   // 0 = not attributed to a Python line
using RouteId = uint32_t;  // kde::RouteId; telemetry does not depend on kde

// A place in the user's source: the call that asked for the work. Lines 1-based, columns 0-based UTF-8 bytes as CPython
// reports them (co_positions); -1 = unknown.
struct Site {
  std::string file;          // absolute path; "<string>" and the like as Python gives them
  std::string qualname;      // "train.<locals>.step"
  int line = 0, end_line = 0, column = -1, end_column = -1;
  uint64_t call_hash = 0;    // FNV-1a of the call's text without white space; 0 if the source could not be read
  SiteId backward_of = 0;    // work of autograd credited to this forward site
};

// Cold (lock, may allocate); the caller resolved the Python frame. Same place, same id.
SiteId internSite(const Site&);
SiteId backwardSite(SiteId forward);            // the "backward of" twin; made on first use, then lock-free
const Site* site(SiteId) noexcept;              // lock-free, valid for ever; null for 0 or unknown
SiteId siteCount() noexcept;                    // ids 1 .. siteCount() exist

// Names of a route, given once when the router publishes it (cold). predicted_s < 0 = unknown; `bound` is what the cost
// model says limits it: "compute" | "memory" | "copy" | "launch" | "host" (0 = unknown). `device` is N of npu:N: calls and
// device time of the route are credited to that device.
void defineRoute(RouteId, NameId op, NameId kernel, NameId reason, double predicted_s, NameId bound, uint32_t device = 0);

// A source file at its first sight: content as it was then, so that viewers can tell whether it was edited since.
struct File {
  std::string path;          // absolute
  std::string hash;          // fnv1a of the bytes, 16 lower-case hex digits; "" = could not be read (reason in `why`)
  double mtime = 0;          // seconds since the epoch
  std::string why;
};
void recordFile(const File&);                   // cold; the first record of a path stays
std::vector<File> recordedFiles();

// Hot paths; any thread, with or without the GIL; noexcept and lock-free.
void countAlloc(uint32_t device, SiteId, uint64_t bytes) noexcept;
void countFree(uint32_t device, SiteId, uint64_t bytes) noexcept;
void countCall(SiteId, RouteId) noexcept;
void countFallback(SiteId, NameId op, uint64_t bytes) noexcept;       // staged copies through the host
enum class CopyKind : uint8_t { host_to_device, device_to_host, device_to_device };
void countCopy(SiteId, CopyKind, uint64_t bytes) noexcept;
// Device clock, nanoseconds; comes only while timingWanted(). Takes a short per-device lock to merge intervals. `first`: a
// first launch, in which the driver may have compiled; the device was busy, but its time is counted as first_launch.h says.
void addDeviceTime(SiteId, RouteId, uint64_t start_ns, uint64_t end_ns, NameId kernel = 0, bool first = false) noexcept;
bool timingWanted() noexcept;
void setTimingWanted(bool) noexcept;            // by the server, or a recording

// Counters as a viewer reads them. timed_calls are the calls made while timings ran: device_ns / timed_calls is the time of
// one call, whatever number of kernels it launches. launches counts the kernels
// seen then; device_ns = 0: none of them had a time that says something. Values are exact at some moment during the call; it never blocks producers.
struct SiteCounters { SiteId site; uint32_t device; uint64_t live_bytes, peak_bytes, allocations; uint64_t calls, device_ns, timed_calls, launches; };
struct RouteCounters { SiteId site; RouteId route; NameId op, kernel, reason, bound; double predicted_s; uint64_t calls, device_ns, timed_calls, launches; uint32_t device; };
struct FallbackCounters { SiteId site; NameId op; uint64_t calls, bytes; };
struct CopyCounters { SiteId site; CopyKind kind; uint64_t calls, bytes; };
struct Counters {
  uint64_t t_ns;
  std::vector<SiteCounters> sites;          // one row per (site, device)
  std::vector<RouteCounters> routes;        // one row per (site, route)
  std::vector<FallbackCounters> fallbacks;
  std::vector<CopyCounters> copies;
  std::vector<uint64_t> device_busy_ns;     // by device: union of kernel intervals since timing began
};
Counters readCounters();
uint64_t deviceBusyNs(uint32_t device) noexcept;
inline constexpr uint32_t kMaxDevices = 64;     // devices beyond are counted with the last one

// Every counter to zero. Ids of sites, routes and names stay valid.
void resetForTest();

}  // namespace flagos::telemetry

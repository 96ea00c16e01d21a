// Chooses the kernel for each operator call, and can say why (DESIGN section 5).
//
// Hot path: route() is one hash, one probe of a per-operator table and one compare; no lock, no allocation, no string,
// <= 100 ns. A miss evaluates rules and candidates once and publishes an immutable Route. Changing rules bumps the epoch;
// stale entries are re-evaluated on their next use.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/dal/description.h"
#include "runtime/kde/signature.h"

namespace flagos::kde {

// Candidates are rows of kde/catalog: one file per family. The implementing part switches on this id.
using CandidateId = uint16_t;
inline constexpr CandidateId kNoCandidate = 0;
CandidateId candidateId(std::string_view name) noexcept;      // "opencl.gemm.wide"; 0 if unknown
std::string_view candidateName(CandidateId) noexcept;

using RouteId = uint32_t;                                     // 0 = none

// One published decision. Never freed, never changed: telemetry and timings refer to it by id.
struct Route {
  RouteId id = 0;
  CandidateId chosen = kNoCandidate;    // kNoCandidate: nothing legal (the fallback policy forbids the rest)
  NameId op = 0, kernel = 0, reason = 0;  // texts for viewers: "aten::mm", "opencl.gemm.wide", "rule wide-mm (rules.json:4)"
  double predicted_s = -1;              // < 0 = unknown
  bool open = false;                    // not decided yet: the caller that can time candidates does so first (Router::contenders)
  NameId bound = 0;                     // what limits it: "compute" | "memory" | "copy" | "launch" | "host"; 0 = unknown
  Signature signature;                  // the first call that led here
};
// Lock-free; null for an unknown id.
const Route* route(RouteId) noexcept;
RouteId routeCount() noexcept;          // ids 1 .. routeCount() exist

enum class Fallback : uint8_t { allow, warn, forbid };
enum class Mode : uint8_t { automatic, opencl, host };        // FLAGOS_ROUTE
enum class Measure : uint8_t { off, use, on };                // FLAGOS_MEASURE: kept times choose not; choose; and are taken

struct RouterOptions {
  dal::DeviceDescription device;
  Fallback fallback = Fallback::warn;
  Mode mode = Mode::automatic;
  bool deterministic = false;           // nothing is timed, and no kept time chooses
  Measure measure = Measure::use;
  std::string rules_file;               // the user's rules; "" = FLAGOS_RULES, else <config>/rules.json
  bool read_files = true;               // false: built-in rules only
  std::string identity;                 // fingerprint identity + build part; "" = no stored measurements
  std::string cache_dir;                // where measured.json lies; "" = cacheDir()
  uint32_t max_routes = 65536;          // signatures with a route of their own; later ones share one per operator and choice
};

// Called for every route when it is published, and once for each that exists already. Cold. It must not call the router.
void onRoute(void (*published)(const Route&)) noexcept;

class MeasuredStore;                    // kde/measured.h

class Router {
 public:
  // Reads rule files in order user > device (<config>/rules/device/<identity>.json) > vendor (<config>/rules/vendor/
  // <vendor in lower case>.json) > built-in. A broken file is reported in `problems()` (file:line:
  // column: reason) and left out; the rest stays in force.
  static std::unique_ptr<Router> create(RouterOptions options);
  virtual ~Router() = default;

  // Hot; any thread. The reference is valid for ever.
  virtual const Route& choose(const Signature&) noexcept = 0;

  // Cold. Replaces the user's rules while running; on error nothing changes. `from` is shown in reasons.
  virtual Result<void> setRules(std::string_view json_text, std::string_view from) = 0;
  virtual Result<void> setRule(std::string_view op_glob, std::string_view candidate) = 0;   // flagos route set --op --use
  virtual void resetRules() = 0;
  virtual Json rulesJson() const = 0;
  virtual void setMode(Mode) = 0;
  virtual void setFallback(Fallback) = 0;
  virtual std::vector<std::string> problems() const = 0;
  // Mean device seconds of one call of a route (all its launches), from telemetry; explain shows it beside the prediction
  // and choices never depend on it. The last value wins. Any thread.
  virtual void recordMeasured(RouteId, double seconds) noexcept = 0;
  virtual const RouterOptions& options() const noexcept = 0;   // as given to create
  virtual Mode mode() const noexcept = 0;                       // as switched since; any thread
  virtual Fallback fallback() const noexcept = 0;
  // Times that choose where the cost model cannot; the part that times kernels fills it before a shape's first use.
  virtual MeasuredStore& measured() noexcept = 0;
  // Of a route that is open: what is to be timed. Empty once that is done, given up, or not allowed any more.
  virtual std::vector<CandidateId> contenders(const Signature&) const = 0;
  // Decides this signature again, and again by what `measured()` holds now. The reference is valid for ever.
  virtual const Route& reconsider(const Signature&) noexcept = 0;
  virtual Result<size_t> forgetMeasured(std::string_view op_glob) = 0;
  virtual void setDeterministic(bool) = 0;

  // The same evaluation with a trace: the "flagos explain" JSON of the command contract (query and counts are the caller's).
  virtual Json explain(const Signature&, std::string_view why_not = {}) const = 0;
};

// FLAGOS_ROUTE and FLAGOS_FALLBACK as options; anything else leaves the defaults (settingWarnings names it).
void switchesFromEnvironment(RouterOptions&);

// Text form of an explain document, for terminals and hovers.
std::string explainText(const Json& explanation);

}  // namespace flagos::kde

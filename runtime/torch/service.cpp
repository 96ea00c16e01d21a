#include "runtime/torch/service.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>

#include "runtime/telemetry/model.h"
#include "runtime/telemetry/recorder.h"
#include "runtime/telemetry/server.h"
#include "runtime/torch/profiler.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

std::string script_path;
std::vector<std::string> script_argv;
std::atomic<bool> started{false};
pid_t owner = 0;

// ---- what viewers read ----

Json devicesJson() {
  Json out = Json::array();
  for (int i = 0; i < openedLimit(); ++i) {
    auto* device = openedDevice(i);
    if (!device) continue;
    const auto& d = device->description();
    const mou::PoolStats s = device->pool().stats();
    telemetry::DeviceRow row;
    row.device = "npu:" + std::to_string(i);
    row.name = d.name;
    row.total = d.memory_bytes ? Metric::of(static_cast<double>(d.memory_bytes), "B", "opencl")
                               : Metric::missing("B", "the driver does not say");
    row.allocated = Metric::of(static_cast<double>(s.allocated), "B", "measured");
    row.allocated_peak = Metric::of(static_cast<double>(s.allocated_peak), "B", "measured");
    row.reserved = Metric::of(static_cast<double>(s.reserved), "B", "measured");
    row.free = d.memory_bytes >= s.allocated && d.memory_bytes
                   ? Metric::of(static_cast<double>(d.memory_bytes - s.allocated), "B", "measured")
                   : Metric::missing("B", "the total is unknown");
    out.push_back(telemetry::toJson(row));
  }
  return out;
}

// ---- explain ----

bool sameFile(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::error_code ec;
  return std::filesystem::equivalent(a, b, ec) && !ec;
}

struct SiteRoute {
  const telemetry::Site* site;
  telemetry::SiteId id;
  const kde::Route* route;
  uint64_t calls, device_ns;
};

// Routes that ran at a place, the one with most device time (then calls) first.
std::vector<SiteRoute> routesAt(const telemetry::Counters& counters, const std::string& file, int line) {
  std::vector<SiteRoute> out;
  for (const auto& r : counters.routes) {
    const auto* site = telemetry::site(r.site);
    const auto* route = kde::route(r.route);
    if (!site || !route || line < site->line || line > std::max(site->line, site->end_line)) continue;
    if (!sameFile(site->file, file)) continue;
    out.push_back({site, r.site, route, r.calls, r.device_ns});
  }
  std::stable_sort(out.begin(), out.end(), [](const SiteRoute& a, const SiteRoute& b) {
    return a.device_ns != b.device_ns ? a.device_ns > b.device_ns : a.calls > b.calls;
  });
  return out;
}

// The mean device time of one call of each route, as far as calls were timed, so that explain shows it beside the
// prediction.
void tellMeasured(const telemetry::Counters& counters) {
  std::map<kde::RouteId, std::pair<uint64_t, uint64_t>> sums;  // route -> (nanoseconds, timed calls), over all lines
  for (const auto& r : counters.routes) {
    if (r.device_ns == 0) continue;  // nothing, or first launches only
    auto& s = sums[r.route];
    s.first += r.device_ns;
    s.second += r.timed_calls;
  }
  for (const auto& [id, s] : sums) {
    const auto* route = kde::route(id);
    if (route && s.second && isOpen(route->signature.device))
      router(route->signature.device).recordMeasured(id, static_cast<double>(s.first) * 1e-9 / static_cast<double>(s.second));
  }
}

// Asked on the server's thread, so the router must exist: routes are only made by open devices.
Json explainOne(const kde::Route& route, const std::string& why_not, uint64_t calls, Json by_route) {
  Json doc = router(route.signature.device).explain(route.signature, why_not);
  doc["counts"] = {{"calls", calls}, {"by_route", std::move(by_route)}};
  return doc;
}

Result<Json> explain(const Json& params) {
  const std::string file = params.value("file", "");
  const int line = params.value("line", 0);
  const std::string why_not = params.value("why_not", "");
  if (file.empty() || line < 1) return fail("explain needs \"file\" and \"line\"");
  const auto counters = telemetry::readCounters();
  tellMeasured(counters);
  const auto found = routesAt(counters, file, line);
  Json documents = Json::array();
  for (const auto& f : found) {
    // Counts are of this operator on this line, over all routes that its calls took.
    uint64_t calls = 0;
    Json by_route = Json::object();
    for (const auto& other : found) {
      if (other.id != f.id || other.route->op != f.route->op) continue;
      calls += other.calls;
      const std::string kernel(nameText(other.route->kernel));
      by_route[kernel] = by_route.value(kernel, uint64_t{0}) + other.calls;
    }
    Json doc = explainOne(*f.route, why_not, calls, std::move(by_route));
    doc["query"] = {{"file", f.site->file}, {"line", f.site->line}, {"qualname", f.site->qualname}, {"pid", getpid()},
                    {"backward", f.site->backward_of != 0}};
    doc["route"] = {{"id", f.route->id}, {"calls", f.calls}, {"device_ns", f.device_ns}};
    documents.push_back(std::move(doc));
  }
  return Json{{"version", 1}, {"pid", getpid()}, {"explanations", std::move(documents)}};
}

// ---- routes ----

template <class F>
Result<void> eachRouter(F&& f) {
  for (int i = 0; i < openedLimit(); ++i)
    if (isOpen(i))
      if (Result<void> r = f(router(i)); !r) return r;
  return {};
}

Json routeList() {
  Json routes = Json::array();
  for (const auto& r : telemetry::readCounters().routes)
    routes.push_back({{"op", nameText(r.op)}, {"kernel", nameText(r.kernel)}, {"reason", nameText(r.reason)},
                      {"calls", r.calls}, {"site", r.site}, {"route", r.route}});
  Json out{{"version", 1}, {"pid", getpid()}, {"routes", std::move(routes)}, {"rules", nullptr}, {"problems", Json::array()}};
  for (int i = 0; i < openedLimit(); ++i) {
    if (!isOpen(i)) continue;
    out["rules"] = router(i).rulesJson();
    for (const auto& p : router(i).problems()) out["problems"].push_back(p);
    break;
  }
  return out;
}

Result<Json> routeSet(const Json& params) {
  Result<void> done;
  if (params.contains("rules")) {
    const Json& rules = params["rules"];
    const std::string text = rules.is_string() ? rules.get<std::string>() : dump(rules);
    const std::string from = params.value("from", "route.set");
    done = eachRouter([&](kde::Router& r) { return r.setRules(text, from); });
  } else if (params.contains("op") && params.contains("use")) {
    const std::string op = params.value("op", ""), use = params.value("use", "");
    done = eachRouter([&](kde::Router& r) { return r.setRule(op, use); });
  } else {
    return fail("route.set needs \"rules\", or \"op\" and \"use\"");
  }
  if (!done) return done.error();
  return routeList();
}

Result<Json> routeReset(const Json&) {
  if (auto done = eachRouter([](kde::Router& r) -> Result<void> {
        r.resetRules();
        return {};
      });
      !done)
    return done.error();
  return routeList();
}

// Kept times of all devices' files; what ran by them is decided again.
Result<Json> routeForget(const Json& params) {
  const std::string op = params.value("op", "");
  size_t gone = 0;
  auto done = eachRouter([&](kde::Router& r) -> Result<void> {
    auto n = r.forgetMeasured(op);
    if (!n) return n.error();
    gone = std::max(gone, *n);
    return {};
  });
  if (!done) return done.error();
  Json out = routeList();
  out["forgot"] = gone;
  return out;
}

// ---- timings ----

void onTiming(const ocl::Timing& t) noexcept {
  telemetry::addDeviceTime(t.tag.site, t.tag.route, t.start_ns, t.end_ns, t.name, t.first);
  profilerTiming(t);
}

}  // namespace

void setScript(std::string script, std::vector<std::string> argv) {
  script_path = std::move(script);
  script_argv = std::move(argv);
}

void startService() noexcept {
  if (started.exchange(true) || ocl::inBadFork()) return;
  owner = getpid();
  mou::setPoolObserver({&telemetry::countAlloc, &telemetry::countFree});
  ocl::setTimingSink(&onTiming);
  ocl::setSiteText([](uint32_t id) -> std::string {
    const telemetry::Site* s = telemetry::site(id);
    if (s && s->backward_of) s = telemetry::site(s->backward_of);
    return s ? s->file + ":" + std::to_string(s->line) : std::string();
  });
  try {
    telemetry::ServerHooks hooks;
    hooks.script = script_path;
    hooks.argv = script_argv;
    hooks.devices = &devicesJson;
    hooks.methods["explain"] = &explain;
    hooks.methods["route.list"] = [](const Json&) -> Result<Json> { return routeList(); };
    hooks.methods["route.set"] = &routeSet;
    hooks.methods["route.reset"] = &routeReset;
    hooks.methods["route.forget"] = &routeForget;
    hooks.timing = [](bool on) { ocl::setTimingEnabled(on); };
    telemetry::startServer(std::move(hooks));
  } catch (...) {  // no memory for the hooks: training goes on unwatched
  }
}

void stopService() noexcept {
  if (!started.load() || owner != getpid()) return;
  ocl::setTimingEnabled(false);
  telemetry::stopServer();
}

}  // namespace flagos::glue

#include "lsp/live/join.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

namespace flagos::lsp {
namespace {

// Sums what is known; a missing part keeps its reason only if nothing is known.
void add(Metric& into, const Metric& more) {
  if (!more.value) {
    if (!into.value && into.unit.empty()) into = more;
    return;
  }
  if (!into.value) { into = more; return; }
  into.value = *into.value + *more.value;
}

bool sameFile(const std::string& a, const std::string& b) { return a == b; }

}  // namespace

LiveFile joinLive(const Analysis& analysis, std::string_view raw, const telemetry::ProcessRow& process,
                  const std::vector<LineOrigins>* origins) {
  LiveFile out;
  out.pid = process.pid;
  out.process_state = process.state;
  const std::string& path = analysis.unit->path;
  std::string hash;
  for (const auto& f : process.files) if (sameFile(f.path, path)) { out.ran = true; hash = f.hash; }
  std::vector<const telemetry::SiteRow*> rows;
  double total_time = 0;
  bool timed = false;
  for (const auto& r : process.sites) {
    if (r.device_time.value) { total_time += *r.device_time.value; timed = timed || *r.device_time.value > 0; }
    if (sameFile(r.file, path)) rows.push_back(&r);
  }
  out.ran = out.ran || !rows.empty() || process.script == path;
  out.sites.resize(analysis.sites.size());
  for (auto& s : out.sites) {
    s.pid = process.pid;
    s.process_state = process.state;
    s.age_s = process.age_s;
    s.read_at = process.written_at;
  }
  if (!out.ran) return out;
  const Drift drift(*analysis.unit, raw, hash, hash.empty() ? std::nullopt : baselineText(hash), rows, origins);
  out.same_text = drift.sameText();
  out.have_baseline = drift.haveBaseline();

  std::map<const Node*, size_t> site_of;
  for (size_t i = 0; i < analysis.sites.size(); ++i) site_of[analysis.sites[i].node] = i;
  std::map<uint32_t, LiveSite*> by_row_id;
  std::set<uint32_t> backward;          // rows of the backward pass
  std::map<std::pair<const Node*, int>, LiveMeasured> also;
  std::set<const Node*> claimed;
  std::map<const Node*, std::pair<int, int>> owner;   // node -> (line, column) of the row that has it
  std::vector<std::pair<uint32_t, std::pair<const Node*, int>>> also_ids;
  const auto fill = [&](LiveSite& s, const telemetry::SiteRow& r, const Placement& p) {
    s.pid = process.pid;
    s.process_state = process.state;
    s.age_s = process.age_s;
    s.read_at = process.written_at;
    s.state = driftName(p.state);
    s.measured_line = r.line;
    s.line = p.line;
    s.qualname = r.qualname;
    s.why = p.why;
    if (s.device.empty()) s.device = r.device;
    else if (!r.device.empty() && s.device.find(r.device) == std::string::npos) s.device += ", " + r.device;
    if (r.backward_of) {
      add(s.backward_time, r.device_time);
      if (!s.device_time.unit.size()) s.device_time = Metric::missing("s", "only its backward ran");
    } else {
      if (s.device_time.why_missing == "only its backward ran") s.device_time = {};
      add(s.device_time, r.device_time);
      s.calls += r.calls;
    }
    add(s.live_bytes, r.live_bytes);
    add(s.peak_bytes, r.peak_bytes);
    if (timed && total_time > 0 && r.device_time.value) s.share = std::max(0.0, s.share) + *r.device_time.value / total_time;
  };
  std::deque<LiveSite> gone;
  for (const auto* r : rows) {
    if (r->backward_of) backward.insert(r->id);
    Placement p = drift.place(*r);
    if (p.node) {
      // One place, one origin: a second row that lands on a taken node is not painted there.
      const auto [it, fresh] = owner.try_emplace(p.node, std::pair<int, int>{r->line, r->column});
      if (!fresh && it->second != std::pair<int, int>{r->line, r->column}) p = {DriftState::gone, nullptr, 0, "another measured call is there now"};
    }
    if (p.state == DriftState::gone) {
      gone.emplace_back();
      fill(gone.back(), *r, p);
      by_row_id[r->id] = &gone.back();
      continue;
    }
    const auto found = p.node ? site_of.find(p.node) : site_of.end();
    if (found != site_of.end()) {
      fill(out.sites[found->second], *r, p);
      by_row_id[r->id] = &out.sites[found->second];
      continue;
    }
    auto& m = also[{p.node, p.node ? 0 : p.line}];
    if (p.node) {
      m.span = p.node->span();
      m.text = shortText(analysis.unit->text, p.node);
    } else if (p.line >= 1 && p.line <= analysis.unit->lines.lineCount()) {
      const auto start = analysis.unit->lines.lineStart(p.line - 1);
      const auto text = analysis.unit->lines.lineText(analysis.unit->text, p.line - 1);
      const auto indent = std::min(text.find_first_not_of(" \t"), text.size());
      m.span = {start + static_cast<uint32_t>(indent), start + static_cast<uint32_t>(text.size())};
      m.text = std::string(text.substr(indent));
    }
    fill(m.live, *r, p);
    by_row_id[r->id] = &m.live;
  }
  for (const auto& route : process.routes) {
    const auto it = by_row_id.find(route.site);
    if (it == by_row_id.end()) continue;
    // One line for an operator and its kernel: shapes differ, the prediction is then the mean over the calls.
    auto& list = backward.count(route.site) ? it->second->backward_routes : it->second->routes;
    const auto same = std::find_if(list.begin(), list.end(), [&](const auto& r) { return r.op == route.op && r.kernel == route.kernel; });
    if (same == list.end()) { list.push_back(route); continue; }
    const auto calls = static_cast<double>(same->calls), more = static_cast<double>(route.calls);
    if (same->predicted.value && route.predicted.value && calls + more > 0)
      same->predicted.value = (*same->predicted.value * calls + *route.predicted.value * more) / (calls + more);
    else if (!route.predicted.value) same->predicted = route.predicted;
    if (same->bound != route.bound) same->bound.clear();
    add(same->device_time, route.device_time);
    same->calls += route.calls;
    same->timed_calls += route.timed_calls;
  }
  for (const auto& f : process.fallbacks) {
    const auto it = by_row_id.find(f.site);
    if (it != by_row_id.end()) it->second->fallbacks.push_back(f);
  }
  for (const auto& c : process.copies) {
    const auto it = by_row_id.find(c.site);
    if (it == by_row_id.end()) continue;
    auto& list = it->second->copies;
    const auto same = std::find_if(list.begin(), list.end(), [&](const auto& x) { return x.kind == c.kind; });
    if (same == list.end()) { list.push_back(c); continue; }
    same->calls += c.calls;
    same->bytes += c.bytes;
  }
  const auto order = [](LiveSite& s) {
    for (auto* routes : {&s.routes, &s.backward_routes})
      std::stable_sort(routes->begin(), routes->end(), [](const auto& a, const auto& b) {
        const double ta = a.device_time.value.value_or(0), tb = b.device_time.value.value_or(0);
        return ta != tb ? ta > tb : a.calls > b.calls;
      });
  };
  for (auto& s : out.sites) order(s);
  for (auto& [key, m] : also) { order(m.live); out.also.push_back(std::move(m)); }
  std::stable_sort(out.also.begin(), out.also.end(), [](const auto& a, const auto& b) { return a.span.begin < b.span.begin; });
  for (auto& g : gone) { order(g); out.gone.push_back(std::move(g)); }
  return out;
}

std::optional<double> measuredRun(const LinePrediction& line, const LiveFile& live) {
  if (line.calls == 0 || line.least || !line.why_missing.empty()) return std::nullopt;
  std::vector<const telemetry::RouteRow*> routes;
  bool comparable = true;
  const auto take = [&](const LiveSite& s) {
    if (s.line != line.line || s.state == "not-executed" || s.state == "gone") return;
    comparable = comparable && s.state != "edited";
    for (const auto& r : s.routes) routes.push_back(&r);
  };
  for (const auto& s : live.sites) take(s);
  for (const auto& m : live.also) take(m.live);
  double calls = 0;
  for (const auto* r : routes) {
    comparable = comparable && r->timed_calls > 0 && r->device_time.value;
    calls += static_cast<double>(r->calls);
  }
  const double runs = calls / static_cast<double>(line.calls);
  if (!comparable || runs < 1) return std::nullopt;
  double seconds = 0;
  for (const auto* r : routes) {
    // A whole number of calls a run, or other operators ran than were predicted. A snapshot may fall into a run.
    const double each = static_cast<double>(r->calls) / runs;
    if (std::round(each) < 1 || std::fabs(each - std::round(each)) > 0.1) return std::nullopt;
    seconds += *r->device_time.value / static_cast<double>(r->timed_calls) * std::round(each);
  }
  return seconds > 0 ? std::optional<double>(seconds) : std::nullopt;
}

}  // namespace flagos::lsp

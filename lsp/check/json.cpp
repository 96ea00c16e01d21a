// `--check --json` and `--sarif`.
#include <map>

#include "lsp/check/report.h"
#include "lsp/text/document.h"
#include "runtime/base/version.h"

namespace flagos::lsp {
namespace {

Json orNull(const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); }
Json positionJson(Position p) { return {{"line", p.line}, {"character", p.character}}; }

Json routeJson(const telemetry::RouteRow& r) {
  Json j = {{"op", r.op}, {"kernel", r.kernel}, {"calls", r.calls}, {"device_time", toJson(r.device_time)}, {"timed_calls", r.timed_calls},
            {"reason", r.reason}, {"bound", orNull(r.bound)}, {"predicted", toJson(r.predicted)}};
  j["measured"] = r.timed_calls > 0 && r.device_time.value
                      ? toJson(Metric::of(*r.device_time.value / static_cast<double>(r.timed_calls), "s", "measured", r.device_time.age_s))
                      : toJson(Metric::missing("s", r.calls ? "none of its calls was timed" : "not executed yet"));
  return j;
}

Json siteJson(const FileReport& f, const Site& s, const LiveSite* live, Encoding encoding) {
  Json devices = Json::array();
  for (const auto& d : s.devices) {
    Json at = {{"path", d.path}, {"line", d.line}};
    if (d.cell >= 0) at["cell"] = d.cell;
    devices.push_back({{"device", d.device}, {"because", d.because}, {"at", at}});
  }
  Json bytes;
  if (s.bytes) bytes = toJson(Metric::of(*s.bytes, "B", "predicted", std::nullopt));
  else if (s.kind == "placement" || s.kind == "move" || s.kind == "copy") bytes = toJson(Metric::missing("B", s.bytes_how.empty() ? "the shape does not follow from literals" : s.bytes_how));
  Json j = {{"call", s.call}, {"kind", s.kind}, {"devices", devices}, {"resolution", s.resolution},
          {"expression", orNull(s.expression)}, {"reason", orNull(s.reason)}, {"bytes", bytes}, {"live", live ? liveJson(*live) : Json()}};
  if (s.bytes && s.assumed) j["bytes_assumed"] = true;
  addRange(j, f, s.span, encoding);
  return j;
}

Json findingJson(const FileReport& file, const Finding& f, Encoding encoding) {
  Json related = Json::array();
  for (const auto& r : f.related) {
    related.push_back({{"path", r.path}, {"line", r.line}, {"message", r.message}});
    if (r.cell >= 0) related.back()["cell"] = r.cell;
  }
  Json j = {{"code", f.code}, {"severity", f.severity}, {"message", f.message},
            {"related", related}, {"fix", !f.fix ? "none" : f.fix->safe ? "safe" : "unsafe"}};
  addRange(j, file, f.span, encoding);
  if (f.fix) {
    Json edits = Json::array();
    for (const auto& e : f.fix->edits) {
      edits.push_back({{"newText", e.text}});
      addRange(edits.back(), file, e.span, encoding);
    }
    j["edits"] = edits;
    j["title"] = f.fix->title;
  }
  return j;
}

}  // namespace

void addRange(Json& into, const FileReport& file, Span span, Encoding encoding) {
  const auto json = [](const Range& r) { return Json{{"start", positionJson(r.start)}, {"end", positionJson(r.end)}}; };
  const Cell* cell = file.notebook ? file.notebook->at(span.begin) : nullptr;
  if (!cell) {
    into["range"] = json(file.analysis.unit->lines.range(file.analysis.unit->text, span, encoding));
    return;
  }
  into["cell"] = file.notebook->number(*cell);
  into["range"] = json(cell->doc.lines().range(cell->doc.text(), {span.begin - cell->begin, span.end - cell->begin}, encoding));
}

Json liveJson(const LiveSite& live) {
  Json routes = Json::array(), fallbacks = Json::array(), copies = Json::array();
  for (const auto& r : live.routes) routes.push_back(routeJson(r));
  for (const auto& r : live.backward_routes) { routes.push_back(routeJson(r)); routes.back()["backward"] = true; }
  for (const auto& f : live.fallbacks) fallbacks.push_back({{"op", f.op}, {"calls", f.calls}, {"bytes", f.bytes}});
  for (const auto& c : live.copies) copies.push_back({{"kind", c.kind}, {"calls", c.calls}, {"bytes", c.bytes}});
  const auto metric = [&](const Metric& m, const char* unit) {
    if (!m.value && m.unit.empty()) return toJson(Metric::missing(unit, live.state == "not-executed" ? "not executed yet" : "not reported"));
    return toJson(m);
  };
  Json j = {{"pid", live.pid}, {"process_state", live.process_state}, {"state", live.state},
            {"measured_line", live.measured_line > 0 ? Json(live.measured_line) : Json()},
            {"device", orNull(live.device)}, {"live_bytes", metric(live.live_bytes, "B")}, {"peak_bytes", metric(live.peak_bytes, "B")},
            {"device_time", metric(live.device_time, "s")}, {"backward_time", metric(live.backward_time, "s")},
            {"share", live.share >= 0 ? toJson(Metric::of(100 * live.share, "%", "measured", live.age_s)) : toJson(Metric::missing("%", "no device time was measured yet"))},
            {"calls", live.calls}, {"routes", routes}, {"fallbacks", fallbacks}, {"copies", copies}};
  if (live.measured_cell >= 0) j["measured_cell"] = live.measured_cell;
  if (!live.why.empty()) j["why"] = live.why;
  return j;
}

Json reportJson(const std::vector<FileReport>& files, const CheckOptions& options) {
  Json list = Json::array(), by_code = Json::object();
  size_t sites = 0, resolved = 0;
  for (const auto& f : files) {
    Json j = {{"path", f.path}};
    if (!f.skipped.empty()) {
      j["skipped"] = f.skipped;
      j["sites"] = Json::array();
      j["findings"] = Json::array();
      list.push_back(std::move(j));
      continue;
    }
    Json s = Json::array(), findings = Json::array();
    for (size_t i = 0; i < f.analysis.sites.size(); ++i) {
      const auto& site = f.analysis.sites[i];
      const LiveSite* live = f.live && f.live->ran ? &f.live->sites[i] : nullptr;
      s.push_back(siteJson(f, site, live, options.encoding));
      const LinePrediction* l = f.analysis.predicted ? f.analysis.predicted->at(site.line) : nullptr;
      Json predicted;
      if (l) {
        predicted = {{"seconds", l->seconds ? toJson(Metric::of(*l->seconds, "s", "predicted", std::nullopt)) : toJson(Metric::missing("s", l->why_missing))},
                     {"bound", orNull(l->bound)}, {"kernel", orNull(l->kernel)}, {"ops", orNull(l->ops)}};
        const auto measured = live ? measuredRun(*l, *f.live) : std::nullopt;
        predicted["measured"] = measured ? toJson(Metric::of(*measured, "s", "measured", live->age_s)) : Json();
        predicted["ratio"] = measured && l->seconds ? Json(*l->seconds / *measured) : Json();
      }
      s.back()["predicted"] = predicted;
      ++sites;
      resolved += site.resolution == "exact" || site.resolution == "candidates";
    }
    for (const auto& x : f.analysis.findings) {
      findings.push_back(findingJson(f, x, options.encoding));
      by_code[x.code] = by_code.value(x.code, 0) + 1;
    }
    j["sites"] = s;
    j["findings"] = findings;
    if (f.analysis.predicted) j["predicted"] = predictedJson(*f.analysis.predicted);
    if (f.analysis.gave_up) j["incomplete"] = f.analysis.gave_up_why;
    if (f.broken) {
      j["syntax_error"] = {{"line", f.broken->line}, {"column", f.broken->column}, {"last_line", f.broken->last}, {"message", brokenText(*f.broken)}};
      if (f.broken->cell >= 0) j["syntax_error"]["cell"] = f.broken->cell;
    }
    if (f.live) {
      Json measured = Json::array(), gone = Json::array();
      for (const auto& m : f.live->also) {
        Json row = liveJson(m.live);
        measured.push_back({{"line", f.notebook ? f.notebook->lineAt(m.live.line).line : m.live.line}, {"text", m.text}, {"live", row}});
        addRange(measured.back(), f, m.span, options.encoding);
      }
      for (const auto& g : f.live->gone) gone.push_back(liveJson(g));
      j["measured"] = measured;
      j["gone"] = gone;
      j["process"] = {{"pid", f.live->pid}, {"state", f.live->process_state}, {"executed_this_file", f.live->ran}, {"file_changed_since_run", !f.live->same_text}};
    }
    list.push_back(std::move(j));
  }
  return {{"version", 1}, {"files", list},
          {"summary", {{"files", files.size()}, {"sites", sites}, {"resolved", resolved},
                       {"resolved_share", sites ? Json(static_cast<double>(resolved) / static_cast<double>(sites)) : Json()}, {"findings", by_code}, {"memory", memoryJson(files)}}}};
}

Json reportSarif(const std::vector<FileReport>& files, const CheckOptions&) {
  Json results = Json::array(), notices = Json::array();
  std::map<std::string, bool> codes;
  // What could not be read is no result of a rule, but of the run.
  const auto notice = [&](const FileReport& f, const std::string& text, const char* level, int line, int column) {
    Json place = {{"artifactLocation", {{"uri", uriOfPath(f.path)}}}};
    if (line > 0) place["region"] = {{"startLine", line}, {"startColumn", column}};
    notices.push_back({{"level", level}, {"message", {{"text", text}}}, {"locations", {{{"physicalLocation", place}}}}});
  };
  for (const auto& f : files) {
    if (!f.skipped.empty()) { notice(f, f.skipped, "warning", 0, 0); continue; }
    if (f.broken) notice(f, brokenText(*f.broken), "error", f.broken->line, f.broken->column);
    if (f.analysis.gave_up) notice(f, "incomplete: " + f.analysis.gave_up_why, "note", 0, 0);
    for (const auto& x : f.analysis.findings) {
      codes[x.code] = true;
      Json at;
      addRange(at, f, x.span, Encoding::utf16);
      const auto number = [&](const char* end, const char* what) { return at["range"][end][what].get<int>() + 1; };
      results.push_back({{"ruleId", x.code}, {"level", x.severity == "error" ? "error" : x.severity == "warning" ? "warning" : "note"},
                         {"message", {{"text", x.message}}},
                         {"locations", {{{"physicalLocation", {{"artifactLocation", {{"uri", uriOfPath(f.path)}}},
                           {"region", {{"startLine", number("start", "line")}, {"startColumn", number("start", "character")}, {"endLine", number("end", "line")}, {"endColumn", number("end", "character")}}}}}}}}});
    }
  }
  Json rules = Json::array();
  for (const auto& [code, used] : codes) rules.push_back({{"id", code}});
  return {{"version", "2.1.0"}, {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
          {"runs", {{{"tool", {{"driver", {{"name", "flagos-lsp"}, {"version", kVersion}, {"rules", rules}}}}}, {"columnKind", "utf16CodeUnits"}, {"results", results},
                     {"invocations", {{{"executionSuccessful", true}, {"toolExecutionNotifications", notices}}}}}}}};
}

}  // namespace flagos::lsp

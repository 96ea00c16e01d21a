// Findings as diagnostics: pushed with the document's version, or pulled by clients that can; never both.
#include <algorithm>

#include "lsp/server/server.h"
#include "runtime/telemetry/model.h"

namespace flagos::lsp {

int severityNumber(std::string_view s) { return s == "error" ? 1 : s == "warning" ? 2 : s == "information" ? 3 : 4; }

Json Server::diagnosticJson(const Place& place, const Finding& f) const {
  Json related = Json::array();
  for (const auto& r : f.related) {
    const int line = std::max(0, r.line - 1);
    Json at = {{"start", {{"line", line}, {"character", 0}}}, {"end", {{"line", line}, {"character", 0}}}};
    std::string uri = uriOfPath(r.path);
    if (r.path == place.open->analysis->unit->path) {
      uri = place.open->doc.uri();
      if (place.open->notebook) for (const Cell* c : place.open->notebook->cells()) if (place.open->notebook->number(*c) == r.cell) uri = c->uri;
    }
    related.push_back({{"location", {{"uri", uri}, {"range", at}}}, {"message", r.message}});
  }
  Json d = {{"range", range(place, f.span)}, {"severity", severityNumber(f.severity)}, {"code", f.code}, {"source", "flagos"}, {"message", f.message}};
  if (!related.empty()) d["relatedInformation"] = related;
  return d;
}

Json Server::diagnosticsJson(const Place& place, const Snapshot& s) {
  Json out = Json::array();
  if (!s.analysis) {
    if (!place.open->problem.empty())
      out.push_back({{"range", range(place, {place.all().begin, place.all().begin})}, {"severity", 3}, {"source", "flagos"}, {"code", "not-analysed"}, {"message", place.open->problem}});
    return out;
  }
  for (const auto& f : s.analysis->findings)
    if (place.holds(f.span)) out.push_back(diagnosticJson(place, f));
  for (const auto& f : place.open->live_findings)
    if (place.holds(f.span)) out.push_back(diagnosticJson(place, f));
  return out;
}

void Server::clear(const std::string& uri, int version) {
  if (!client_.pull_diagnostics) notify("textDocument/publishDiagnostics", {{"uri", uri}, {"version", version}, {"diagnostics", Json::array()}});
}

void Server::publish(Open& o) {
  const Snapshot s = snapshot(o);
  o.publish = false;
  const auto tell = [&](const Place& place) {
    o.shown.insert(place.uri());
    notify("textDocument/publishDiagnostics", {{"uri", place.uri()}, {"version", place.version()}, {"diagnostics", diagnosticsJson(place, s)}});
  };
  if (!o.notebook) { tell({&o, nullptr}); return; }
  for (const Cell* c : o.notebook->cells()) {
    if (c->python()) tell({&o, c});
    else if (o.shown.erase(c->uri)) clear(c->uri, c->doc.version());   // it was Python before
  }
}

void Server::onDiagnostic(const Json& params, Reply& reply) {
  const Place place = placeOf(params, reply);
  if (!place.open) {
    reply.result({{"kind", "full"}, {"items", Json::array()}});
    return;
  }
  Json items = Json::array();
  if (!place.cell || place.cell->python()) items = diagnosticsJson(place, snapshot(*place.open));
  const std::string id = std::to_string(telemetry::fnv1a(dump(items)));
  place.open->publish = false;
  if (textMember(params, "previousResultId") == id) reply.result({{"kind", "unchanged"}, {"resultId", id}});
  else reply.result({{"kind", "full"}, {"resultId", id}, {"items", std::move(items)}});
}

// What a pulling client has been told may be wrong for a reason that it cannot know.
void Server::refreshDiagnostics() {
  if (client_.pull_diagnostics && client_.diagnostic_refresh) ask("flagos/refresh/" + std::to_string(next_id_++), "workspace/diagnostic/refresh", nullptr);
}

}  // namespace flagos::lsp

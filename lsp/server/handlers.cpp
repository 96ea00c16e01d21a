// Requests about one document, and what is published about it: features' plain answers as LSP JSON.
#include <algorithm>

#include "lsp/server/server.h"
#include "runtime/base/metric.h"

namespace flagos::lsp {
namespace {

Json positionJson(Position p) { return {{"line", p.line}, {"character", p.character}}; }

Position positionOf(const Json& j) { return {intMember(j, "line"), intMember(j, "character")}; }

int severityNumber(std::string_view s) { return s == "error" ? 1 : s == "warning" ? 2 : s == "information" ? 3 : 4; }

// For clients that show hovers as they are.
std::string plain(std::string s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '*' && i + 1 < s.size() && s[i + 1] == '*') { ++i; continue; }
    if (s[i] != '`') out += s[i];
  }
  return out;
}

}  // namespace

Json Server::locationRange(const SourceUnit& unit, Span s) const {
  const Range r = unit.lines.range(unit.text, s, encoding_);
  return {{"start", positionJson(r.start)}, {"end", positionJson(r.end)}};
}

Json Server::range(const Open& o, Span s) const {
  const Range r = o.doc.lines().range(o.doc.text(), s, encoding_);
  return {{"start", positionJson(r.start)}, {"end", positionJson(r.end)}};
}

Server::Open* Server::openOf(const Json& params, Reply& reply) {
  const Json& document = member(params, "textDocument");
  if (!member(document, "uri").is_string()) { reply.error(kInvalidParams, "params.textDocument.uri must be a string"); return nullptr; }
  const auto it = documents_.find(textMember(document, "uri"));
  if (it == documents_.end()) { reply.result(nullptr); return nullptr; }   // closed, or of a kind that is ignored
  front_ = it->first;
  if (it->second->doc.outOfSync()) { reply.error(kContentModified, "the text is out of step with the editor"); return nullptr; }
  return it->second.get();
}

void Server::onHover(const Json& params, Reply& reply) {
  Open* o = openOf(params, reply);
  if (!o) return;
  if (!member(params, "position").is_object()) { reply.error(kInvalidParams, "params.position must be an object"); return; }
  const Snapshot s = snapshot(*o);
  if (!s.analysis) {
    if (o->problem.empty()) reply.result(nullptr);
    else reply.result({{"contents", {{"kind", "plaintext"}, {"value", o->problem}}}});
    return;
  }
  const auto h = hover(s, o->doc.lines().offset(o->doc.text(), positionOf(member(params, "position")), encoding_));
  if (!h) { reply.result(nullptr); return; }
  reply.result({{"contents", {{"kind", client_.markdown_hover ? "markdown" : "plaintext"}, {"value", client_.markdown_hover ? h->markdown : plain(h->markdown)}}},
                {"range", range(*o, h->span)}});
}

void Server::onSymbols(const Json& params, Reply& reply) {
  Open* o = openOf(params, reply);
  if (!o) return;
  const Snapshot s = snapshot(*o);
  Json out = Json::array();
  if (s.analysis) {
    const std::function<Json(const Symbol&)> nested = [&](const Symbol& x) {
      Json children = Json::array();
      for (const auto& c : x.children) children.push_back(nested(c));
      return Json{{"name", x.name}, {"detail", x.detail}, {"kind", x.kind}, {"range", range(*o, x.span)}, {"selectionRange", range(*o, x.selection)}, {"children", children}};
    };
    const std::function<void(const Symbol&, const std::string&)> flat = [&](const Symbol& x, const std::string& in) {
      out.push_back({{"name", x.detail.empty() ? x.name : x.name + " → " + x.detail}, {"kind", x.kind}, {"containerName", in},
                     {"location", {{"uri", o->doc.uri()}, {"range", range(*o, x.span)}}}});
      for (const auto& c : x.children) flat(c, x.name);
    };
    for (const auto& x : symbols(s)) { if (client_.hierarchical_symbols) out.push_back(nested(x)); else flat(x, ""); }
  }
  reply.result(out);
}

void Server::onHints(const Json& params, Reply& reply) {
  Open* o = openOf(params, reply);
  if (!o) return;
  const Snapshot s = snapshot(*o);
  Json out = Json::array();
  if (s.analysis) {
    Span within{0, UINT32_MAX};
    if (const Json& r = member(params, "range"); r.is_object())
      within = {o->doc.lines().offset(o->doc.text(), positionOf(member(r, "start")), encoding_), o->doc.lines().offset(o->doc.text(), positionOf(member(r, "end")), encoding_)};
    for (const auto& h : hints(s, within, hint_level_))
      out.push_back({{"position", positionJson(o->doc.lines().position(o->doc.text(), h.offset, encoding_))}, {"label", h.label},
                     {"paddingLeft", true}, {"tooltip", {{"kind", "markdown"}, {"value", h.tooltip}}}});
  }
  reply.result(out);
}

void Server::onCompletion(const Json& params, Reply& reply) {
  Open* o = openOf(params, reply);
  if (!o) return;
  const auto offset = o->doc.lines().offset(o->doc.text(), positionOf(member(params, "position")), encoding_);
  const auto start = o->doc.lines().lineStart(o->doc.lines().lineOf(offset));
  Json out = Json::array();
  const auto line = std::string_view(o->doc.text()).substr(start, offset - start);
  const auto quote = line.find_last_of("\"'");
  for (const auto& c : completions(machine_, line)) {
    out.push_back({{"label", c.label}, {"kind", 12}, {"detail", c.detail},
                   {"textEdit", {{"range", range(*o, {start + static_cast<uint32_t>(quote) + 1, offset})}, {"newText", c.label}}}});
  }
  reply.result(out);
}

Json Server::diagnosticsJson(Open& o) {
  const Snapshot s = snapshot(o);
  Json out = Json::array();
  if (!s.analysis) {
    if (!o.problem.empty())
      out.push_back({{"range", range(o, {0, 0})}, {"severity", 3}, {"source", "flagos"}, {"code", "not-analysed"}, {"message", o.problem}});
    return out;
  }
  for (const auto& f : s.analysis->findings) {
    std::string severity = f.severity;
    if (const auto it = severity_.find(f.code); it != severity_.end()) severity = it->second;
    if (severity == "off") continue;
    Json related = Json::array();
    for (const auto& r : f.related) {
      const bool here = r.path == s.analysis->unit->path;
      const int line = std::max(0, r.line - 1);
      Json at = {{"start", {{"line", line}, {"character", 0}}}, {"end", {{"line", line}, {"character", 0}}}};
      related.push_back({{"location", {{"uri", here ? o.doc.uri() : uriOfPath(r.path)}, {"range", at}}}, {"message", r.message}});
    }
    Json d = {{"range", range(o, f.span)}, {"severity", severityNumber(severity)}, {"code", f.code}, {"source", "flagos"}, {"message", f.message}};
    if (!related.empty()) d["relatedInformation"] = related;
    out.push_back(std::move(d));
  }
  return out;
}

void Server::publish(Open& o) {
  o.publish = false;
  world_.send({{"jsonrpc", "2.0"}, {"method", "textDocument/publishDiagnostics"},
               {"params", {{"uri", o.doc.uri()}, {"version", o.doc.version()}, {"diagnostics", diagnosticsJson(o)}}}});
}

void Server::onDiagnostic(const Json& params, Reply& reply) {
  Open* o = openOf(params, reply);
  if (!o) {
    reply.result({{"kind", "full"}, {"items", Json::array()}});
    return;
  }
  reply.result({{"kind", "full"}, {"items", diagnosticsJson(*o)}});
  o->publish = false;
}

void Server::onActions(const Json& params, Reply& reply) {
  Open* o = openOf(params, reply);
  if (!o) return;
  const Snapshot s = snapshot(*o);
  Json out = Json::array();
  const Json& only = path(params, "context.only");
  bool wanted = !only.is_array() || only.empty();
  if (only.is_array()) for (const auto& k : only) wanted = wanted || k == "quickfix" || k == "";
  if (s.analysis && wanted) {
    const Json& r = member(params, "range");
    const Span within{o->doc.lines().offset(o->doc.text(), positionOf(member(r, "start")), encoding_), o->doc.lines().offset(o->doc.text(), positionOf(member(r, "end")), encoding_)};
    for (const auto& a : actions(s, within)) {
      Json edits = Json::array();
      for (const auto& e : a.edits) edits.push_back({{"range", range(*o, e.span)}, {"newText", e.text}});
      Json edit;
      if (client_.document_changes)
        edit["documentChanges"] = {{{"textDocument", {{"uri", o->doc.uri()}, {"version", o->doc.version()}}}, {"edits", edits}}};
      else
        edit["changes"] = {{o->doc.uri(), edits}};
      Json diagnostics = Json::array();
      diagnostics.push_back({{"range", range(*o, a.finding->span)}, {"severity", severityNumber(a.finding->severity)}, {"code", a.finding->code}, {"source", "flagos"}, {"message", a.finding->message}});
      out.push_back({{"title", a.title}, {"kind", "quickfix"}, {"isPreferred", a.preferred}, {"diagnostics", diagnostics}, {"edit", edit}});
    }
  }
  reply.result(out);
}

void Server::onCommand(const Json& params, Reply& reply) {
  const std::string command = textMember(params, "command");
  const auto view = world_.live ? world_.live() : nullptr;
  if (command == "flagos.processes") {
    Json out = Json::array();
    if (view) for (const auto& p : view->processes) out.push_back({{"pid", p->pid}, {"state", p->state}, {"script", p->script}});
    reply.result(out);
    return;
  }
  if (command == "flagos.attach") {
    const Json& a = member(params, "arguments");
    pinned_pid_ = a.is_array() && !a.empty() && a[0].is_number_integer() ? a[0].get<int>() : 0;
    for (auto& [uri, o] : documents_) { o->live_version = 0; o->process = nullptr; o->live.reset(); }
    live_dirty_ = true;
    sendStatus();
    reply.result(nullptr);
    return;
  }
  reply.error(kInvalidParams, "no command " + command + "; there are flagos.attach and flagos.processes");
}

void Server::onTree(const Json& params, Reply& reply) {
  const std::string view = textMember(params, "view");
  static const std::vector<std::string> views = {"devices", "lines", "routes", "fallbacks", "findings"};
  if (std::find(views.begin(), views.end(), view) == views.end()) {
    reply.error(kInvalidParams, "params.view must be devices, lines, routes, fallbacks or findings");
    return;
  }
  const auto front = documents_.find(front_);
  Snapshot s;
  const auto live = world_.live ? world_.live() : nullptr;
  if (front != documents_.end()) s = snapshot(*front->second);
  s.view = live.get();
  s.machine = &machine_;
  if (!s.process && live) for (const auto& p : live->processes) if (p->state == "live") { s.process = p; break; }
  const std::function<Json(const TreeNode&)> node = [&](const TreeNode& n) {
    Json children = Json::array();
    for (const auto& c : n.children) children.push_back(node(c));
    Json location;
    if (n.unit) location = {{"uri", front != documents_.end() && n.path == front->second->doc.path() ? front->first : uriOfPath(n.path)}, {"range", locationRange(*n.unit, n.span)}};
    return Json{{"label", n.label}, {"description", n.description}, {"tooltip", n.tooltip}, {"location", location}, {"children", children}};
  };
  Json out = Json::array();
  for (const auto& n : tree(s, view)) out.push_back(node(n));
  reply.result(out);
}

// For tests: everything that was pending is done when the answer comes.
void Server::onSync(const Json&, Reply& reply) {
  for (auto& [uri, o] : documents_) {
    if (o->publish && !client_.pull_diagnostics) publish(*o); else ensure(*o);
  }
  reply.result(nullptr);
}

}  // namespace flagos::lsp

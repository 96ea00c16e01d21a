// Requests about one document: features' plain answers as LSP JSON.
#include <algorithm>

#include "lsp/server/server.h"
#include "runtime/base/metric.h"

namespace flagos::lsp {
namespace {

// For clients that show hovers as they are.
std::string plain(std::string s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '*' && i + 1 < s.size() && s[i + 1] == '*') { ++i; continue; }
    if (s[i] != '`') out += s[i];
  }
  return out;
}

Json positionJson(Position p) { return {{"line", p.line}, {"character", p.character}}; }

}  // namespace

Json rangeJson(const Range& r) { return {{"start", positionJson(r.start)}, {"end", positionJson(r.end)}}; }
Position positionOf(const Json& j) { return {intMember(j, "line"), intMember(j, "character")}; }

Json Server::range(const Place& p, Span s) const { return rangeJson(p.range(s, encoding_)); }

Place Server::placeOf(const Json& params, Reply& reply) {
  const Json& document = member(params, "textDocument");
  if (!member(document, "uri").is_string()) { reply.error(kInvalidParams, "params.textDocument.uri must be a string"); return {}; }
  const Place place = find(textMember(document, "uri"));
  if (!place.open) { reply.result(nullptr); return {}; }   // closed, or of a kind that is ignored
  front_ = place.open->doc.uri();
  if (place.open->notebook ? place.open->notebook->outOfSync() : place.open->doc.outOfSync()) {
    reply.error(kContentModified, "the text is out of step with the editor");
    return {};
  }
  return place;
}

void Server::onHover(const Json& params, Reply& reply) {
  const Place place = placeOf(params, reply);
  if (!place.open) return;
  if (!member(params, "position").is_object()) { reply.error(kInvalidParams, "params.position must be an object"); return; }
  if (place.cell && !place.cell->python()) { reply.result(nullptr); return; }
  const Snapshot s = snapshot(*place.open);
  if (!s.analysis) {
    if (place.open->problem.empty()) reply.result(nullptr);
    else reply.result({{"contents", {{"kind", "plaintext"}, {"value", place.open->problem}}}});
    return;
  }
  const auto h = hover(s, place.offset(positionOf(member(params, "position")), encoding_));
  if (!h || !place.holds(h->span)) { reply.result(nullptr); return; }
  reply.result({{"contents", {{"kind", client_.markdown_hover ? "markdown" : "plaintext"}, {"value", client_.markdown_hover ? h->markdown : plain(h->markdown)}}},
                {"range", range(place, h->span)}});
}

void Server::onSymbols(const Json& params, Reply& reply) {
  const Place place = placeOf(params, reply);
  if (!place.open) return;
  const Snapshot s = snapshot(*place.open);
  Json out = Json::array();
  if (s.analysis) {
    const std::function<Json(const Symbol&)> nested = [&](const Symbol& x) {
      Json children = Json::array();
      for (const auto& c : x.children) children.push_back(nested(c));
      return Json{{"name", x.name}, {"detail", x.detail}, {"kind", x.kind}, {"range", range(place, x.span)}, {"selectionRange", range(place, x.selection)}, {"children", children}};
    };
    const std::function<void(const Symbol&, const std::string&)> flat = [&](const Symbol& x, const std::string& in) {
      out.push_back({{"name", x.detail.empty() ? x.name : x.name + " → " + x.detail}, {"kind", x.kind}, {"containerName", in},
                     {"location", {{"uri", place.uri()}, {"range", range(place, x.span)}}}});
      for (const auto& c : x.children) flat(c, x.name);
    };
    for (const auto& x : symbols(s)) {
      if (!place.holds(x.span)) continue;
      if (client_.hierarchical_symbols) out.push_back(nested(x)); else flat(x, "");
    }
  }
  reply.result(out);
}

void Server::onHints(const Json& params, Reply& reply) {
  const Place place = placeOf(params, reply);
  if (!place.open) return;
  const Snapshot s = snapshot(*place.open);
  Json out = Json::array();
  if (s.analysis) {
    Span within = place.all();
    if (const Json& r = member(params, "range"); r.is_object())
      within = {place.offset(positionOf(member(r, "start")), encoding_), place.offset(positionOf(member(r, "end")), encoding_)};
    for (const auto& h : hints(s, within, hint_level_)) {
      if (!place.holds({h.offset, h.offset})) continue;
      Json hint = {{"position", positionJson(place.position(h.offset, encoding_))}, {"label", h.label}, {"paddingLeft", true}};
      if (client_.inlay_resolve) hint["data"] = {{"uri", place.uri()}, {"version", place.version()}, {"line", h.line}};
      else hint["tooltip"] = {{"kind", "markdown"}, {"value", h.tooltip}};
      out.push_back(std::move(hint));
    }
  }
  reply.result(out);
}

// The tooltip, which is long and seldom read, only for the hint that is pointed at.
void Server::onResolveHint(const Json& params, Reply& reply) {
  Json hint = params;
  if (!hint.is_object()) { reply.error(kInvalidParams, "params must be an inlay hint"); return; }
  const Json& data = member(params, "data");
  const Place place = find(textMember(data, "uri"));
  if (place.open && intMember(data, "version", -1) == place.version()) {
    const auto text = hintTooltip(snapshot(*place.open), intMember(data, "line"), hint_level_);
    if (!text.empty()) hint["tooltip"] = {{"kind", "markdown"}, {"value", text}};
  }
  reply.result(std::move(hint));
}

void Server::onCompletion(const Json& params, Reply& reply) {
  const Place place = placeOf(params, reply);
  if (!place.open) return;
  const Document& doc = place.cell ? place.cell->doc : place.open->doc;
  const auto offset = doc.lines().offset(doc.text(), positionOf(member(params, "position")), encoding_);
  const auto start = doc.lines().lineStart(doc.lines().lineOf(offset));
  Json out = Json::array();
  const auto line = std::string_view(doc.text()).substr(start, offset - start);
  const auto quote = line.find_last_of("\"'");
  for (const auto& c : completions(machine_, line)) {
    const Range at = doc.lines().range(doc.text(), {start + static_cast<uint32_t>(quote) + 1, offset}, encoding_);
    out.push_back({{"label", c.label}, {"kind", 12}, {"detail", c.detail}, {"textEdit", {{"range", rangeJson(at)}, {"newText", c.label}}}});
  }
  reply.result(out);
}

// Edits of a notebook may touch several of its cells.
Json Server::editJson(const Place& p, const std::vector<Edit>& edits) const {
  std::vector<std::pair<Place, Json>> by_place;
  for (const auto& e : edits) {
    Place at = p;
    if (p.open->notebook && !p.holds(e.span)) at.cell = p.open->notebook->at(e.span.begin);
    if (!at.holds(e.span) || (p.open->notebook && !at.cell)) return nullptr;
    auto it = std::find_if(by_place.begin(), by_place.end(), [&](const auto& x) { return x.first.cell == at.cell; });
    if (it == by_place.end()) it = by_place.insert(by_place.end(), {at, Json::array()});
    it->second.push_back({{"range", range(at, e.span)}, {"newText", e.text}});
  }
  Json edit;
  for (auto& [at, list] : by_place) {
    if (client_.document_changes) edit["documentChanges"].push_back({{"textDocument", {{"uri", at.uri()}, {"version", at.version()}}}, {"edits", std::move(list)}});
    else edit["changes"][at.uri()] = std::move(list);
  }
  return edit;
}

void Server::onActions(const Json& params, Reply& reply) {
  const Place place = placeOf(params, reply);
  if (!place.open) return;
  const Snapshot s = snapshot(*place.open);
  Json out = Json::array();
  const Json& only = path(params, "context.only");
  // A kind asked for means itself and the kinds below it. Without a list, everything about the place, but not the whole file.
  const auto wanted = [&](std::string_view kind) {
    if (!only.is_array() || only.empty()) return !kind.starts_with("source");
    return std::any_of(only.begin(), only.end(), [&](const Json& k) {
      if (!k.is_string()) return false;
      const auto& asked = k.get_ref<const std::string&>();
      return asked.empty() || kind == asked || (kind.starts_with(asked) && kind[asked.size()] == '.');
    });
  };
  if (!s.analysis) { reply.result(out); return; }
  const Json& r = member(params, "range");
  const Span within{place.offset(positionOf(member(r, "start")), encoding_), place.offset(positionOf(member(r, "end")), encoding_)};
  const auto list = actions(s, within);
  for (size_t i = 0; i < list.size(); ++i) {
    const Action& a = list[i];
    const char* kind = a.kind == Action::Kind::fix_all ? "source.fixAll.flagos" : a.kind == Action::Kind::explain ? "flagos.explain" : "quickfix";
    if (!wanted(kind)) continue;
    Json action = {{"title", a.title}, {"kind", kind}};
    if (a.finding) {
      if (!place.holds(a.finding->span)) continue;
      Json d = diagnosticJson(place, *a.finding);
      d.erase("relatedInformation");
      action["diagnostics"] = Json::array({std::move(d)});
      action["isPreferred"] = a.preferred;
    }
    if (a.kind == Action::Kind::explain) {
      const Position at = place.position(a.at, encoding_);
      action["command"] = {{"title", a.title}, {"command", "flagos.explain"}, {"arguments", {{{"uri", place.uri()}, {"line", at.line}, {"show", true}}}}};
    } else {
      Json edit = editJson(place, a.edits);
      if (edit.is_null()) continue;
      if (client_.action_resolve)
        action["data"] = {{"uri", place.uri()}, {"version", place.open->doc.version()}, {"begin", within.begin}, {"end", within.end}, {"index", i}, {"title", a.title}};
      else
        action["edit"] = std::move(edit);
    }
    out.push_back(std::move(action));
  }
  reply.result(out);
}

// The edit of the action that was chosen, if the text is still the one that it was made for.
void Server::onResolveAction(const Json& params, Reply& reply) {
  Json action = params;
  if (!action.is_object()) { reply.error(kInvalidParams, "params must be a code action"); return; }
  const Json& data = member(params, "data");
  const Place place = find(textMember(data, "uri"));
  if (!data.is_object()) { reply.result(std::move(action)); return; }
  if (!place.open || intMember(data, "version", -1) != place.open->doc.version()) {
    reply.error(kContentModified, "the text has changed since this action was offered");
    return;
  }
  const Snapshot s = snapshot(*place.open);
  if (s.analysis) {
    const auto list = actions(s, {static_cast<uint32_t>(intMember(data, "begin")), static_cast<uint32_t>(intMember(data, "end"))});
    const auto i = static_cast<size_t>(intMember(data, "index"));
    if (i < list.size() && list[i].title == textMember(data, "title")) {
      if (Json edit = editJson(place, list[i].edits); !edit.is_null()) action["edit"] = std::move(edit);
    }
  }
  if (!action.contains("edit")) { reply.error(kContentModified, "what this action was about has changed"); return; }
  reply.result(std::move(action));
}

void Server::onCommand(const Json& params, Reply& reply) {
  const std::string command = textMember(params, "command");
  const auto view = world_.live ? world_.live() : nullptr;
  if (command == "flagos.processes") {
    Json out = Json::array();
    if (view) {
      for (const auto& p : view->processes) {
        const auto rank = view->ranks.find(p->pid);
        out.push_back({{"pid", p->pid}, {"state", p->state}, {"script", p->script}, {"rank", rank == view->ranks.end() || rank->second.rank < 0 ? Json() : Json(rank->second.rank)}});
      }
    }
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
  if (command == "flagos.explain") { explain(member(params, "arguments"), reply); return; }
  reply.error(kInvalidParams, "no command " + command + "; there are flagos.attach, flagos.explain and flagos.processes");
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
    if (n.unit && front != documents_.end()) {
      Place place{front->second.get(), nullptr};
      if (place.open->notebook) place.cell = place.open->notebook->at(n.span.begin);
      if (!place.open->notebook || (place.cell && place.holds(n.span))) location = {{"uri", place.uri()}, {"range", range(place, n.span)}};
    }
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

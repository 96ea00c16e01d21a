#include "lsp/server/server.h"

#include <algorithm>

#include "lsp/live/drift.h"
#include "lsp/server/machine.h"
#include "runtime/base/clock.h"
#include "runtime/base/version.h"

namespace flagos::lsp {
namespace {
constexpr uint64_t kQuietNs = 150'000'000;           // a storm of edits is analysed at least this often
constexpr uint64_t kRefreshNs = 2'000'000'000;       // inlay refresh is global: not more often than this
constexpr uint64_t kAfterEditNs = 1'250'000'000;     // and not while the user types
}  // namespace

Server::Server(ServerOptions options, World world)
    : options_(std::move(options)), world_(std::move(world)), workspace_([this](const std::string& path) -> std::optional<std::string> {
        for (const auto& [uri, o] : documents_) if (o->doc.path() == path && !o->doc.outOfSync()) return o->doc.text();
        return std::nullopt;
      }) {
  if (options_.devices) machine_ = machineOf(*options_.devices);
}

const std::map<std::string, Server::Handler, std::less<>>& Server::requests() {
  static const std::map<std::string, Handler, std::less<>> table = {
      {"initialize", &Server::initialize}, {"shutdown", &Server::shutdown}, {"textDocument/hover", &Server::onHover},
      {"textDocument/documentSymbol", &Server::onSymbols}, {"textDocument/codeAction", &Server::onActions},
      {"textDocument/inlayHint", &Server::onHints}, {"textDocument/completion", &Server::onCompletion},
      {"textDocument/diagnostic", &Server::onDiagnostic}, {"workspace/executeCommand", &Server::onCommand},
      {"flagos/tree", &Server::onTree}, {"flagos/sync", &Server::onSync}};
  return table;
}

const std::map<std::string, Server::Notice, std::less<>>& Server::notices() {
  static const std::map<std::string, Notice, std::less<>> table = {
      {"initialized", &Server::initialized}, {"exit", &Server::exit}, {"textDocument/didOpen", &Server::didOpen},
      {"textDocument/didChange", &Server::didChange}, {"textDocument/didSave", &Server::didSave},
      {"textDocument/didClose", &Server::didClose}, {"workspace/didChangeConfiguration", &Server::didChangeConfiguration},
      {"workspace/didChangeWatchedFiles", &Server::didChangeFiles}, {"$/cancelRequest", &Server::nothing}, {"$/setTrace", &Server::nothing}};
  return table;
}

void Server::parseError(const std::string& problem) {
  world_.send({{"jsonrpc", "2.0"}, {"id", nullptr}, {"error", {{"code", kParseError}, {"message", problem}}}});
}

void Server::handle(const Json& m) {
  if (!m.is_object()) {
    world_.send({{"jsonrpc", "2.0"}, {"id", nullptr}, {"error", {{"code", kInvalidRequest}, {"message", "a message must be one JSON object"}}}});
    return;
  }
  const Json& method = member(m, "method");
  const Json& id = member(m, "id");
  const Json& params = member(m, "params");
  if (!method.is_string()) {
    if (m.contains("result") || m.contains("error")) {  // an answer to one of ours
      if (member(m, "id").is_string() && member(m, "id") == "flagos/configuration" && member(m, "result").is_array() && !member(m, "result").empty())
        configure(member(m, "result")[0]);
      return;
    }
    if (!id.is_null()) Reply(id, world_.send).error(kInvalidRequest, "a request without a method");
    return;
  }
  const auto& name = method.get_ref<const std::string&>();
  if (!m.contains("id")) {
    if (name != "exit" && !initialized_) return;
    const auto it = notices().find(name);
    if (it != notices().end()) (this->*it->second)(params);
    return;
  }
  Reply reply(id, world_.send);
  if (world_.cancelled && world_.cancelled(id)) { reply.error(kRequestCancelled, "cancelled"); return; }
  if (!initialized_ && name != "initialize") { reply.error(kServerNotInitialized, "initialize comes first"); return; }
  if (initialized_ && name == "initialize") { reply.error(kInvalidRequest, "initialize was already called"); return; }
  if (shutdown_) { reply.error(kInvalidRequest, "the server was shut down"); return; }
  const auto it = requests().find(name);
  if (it == requests().end()) { reply.error(kMethodNotFound, "no method " + name); return; }
  (this->*it->second)(params, reply);
}

void Server::initialize(const Json& params, Reply& reply) {
  const Json& c = member(params, "capabilities");
  const Json& text = member(c, "textDocument");
  client_.pull_diagnostics = path(text, "diagnostic").is_object();
  client_.diagnostic_refresh = path(c, "workspace.diagnostics.refreshSupport") == true;
  client_.inlay_refresh = path(c, "workspace.inlayHint.refreshSupport") == true;
  client_.document_changes = path(c, "workspace.workspaceEdit.documentChanges") == true;
  client_.hierarchical_symbols = path(text, "documentSymbol.hierarchicalDocumentSymbolSupport") == true;
  client_.code_action_literals = path(text, "codeAction.codeActionLiteralSupport").is_object();
  client_.configuration = path(c, "workspace.configuration") == true;
  const Json& formats = path(text, "hover.contentFormat");
  if (formats.is_array() && !formats.empty()) client_.markdown_hover = std::find(formats.begin(), formats.end(), "markdown") != formats.end();
  const Json& encodings = path(c, "general.positionEncodings");
  encoding_ = Encoding::utf16;
  if (encodings.is_array()) {
    const auto offers = [&](const char* e) { return std::find(encodings.begin(), encodings.end(), e) != encodings.end(); };
    encoding_ = offers("utf-8") ? Encoding::utf8 : offers("utf-32") ? Encoding::utf32 : Encoding::utf16;
  }
  std::vector<std::string> roots;
  if (const Json& folders = member(params, "workspaceFolders"); folders.is_array())
    for (const auto& f : folders) if (auto p = pathOfUri(textMember(f, "uri")); !p.empty()) roots.push_back(p);
  if (roots.empty()) if (auto p = pathOfUri(textMember(params, "rootUri")); !p.empty()) roots.push_back(p);
  workspace_.setRoots(std::move(roots));
  const Json& devices = path(params, "initializationOptions.devices");
  if (!options_.devices) {
    if (devices.is_array() && !devices.empty()) {
      std::vector<std::string> list;
      for (const auto& d : devices) if (d.is_string() && d != "none") list.push_back(d.get<std::string>());
      options_.devices = list;
    } else if (devices.is_string() && !devices.get_ref<const std::string&>().empty()) {
      options_.devices = splitDevices(devices.get<std::string>());
    }
    if (options_.devices) machine_ = machineOf(*options_.devices);
  }
  configure(member(params, "initializationOptions"));
  initialized_ = true;
  Json capabilities = {
      {"positionEncoding", encoding_ == Encoding::utf8 ? "utf-8" : encoding_ == Encoding::utf32 ? "utf-32" : "utf-16"},
      {"textDocumentSync", {{"openClose", true}, {"change", 2}, {"save", {{"includeText", false}}}}},
      {"hoverProvider", true}, {"documentSymbolProvider", true}, {"inlayHintProvider", {{"resolveProvider", false}}},
      {"codeActionProvider", {{"codeActionKinds", {"quickfix"}}}},
      {"completionProvider", {{"triggerCharacters", {"\"", "'", ":"}}}},
      {"executeCommandProvider", {{"commands", {"flagos.attach", "flagos.processes"}}}},
      {"workspace", {{"workspaceFolders", {{"supported", true}}}}}};
  if (client_.pull_diagnostics)
    capabilities["diagnosticProvider"] = {{"identifier", "flagos"}, {"interFileDependencies", true}, {"workspaceDiagnostics", false}};
  reply.result({{"capabilities", capabilities}, {"serverInfo", {{"name", "flagos-lsp"}, {"version", kVersion}}}});
  if (world_.start_background) world_.start_background();
}

void Server::shutdown(const Json&, Reply& reply) {
  shutdown_ = true;
  reply.result(nullptr);
}

void Server::exit(const Json&) { exit_code_ = shutdown_ ? 0 : 1; }

void Server::initialized(const Json&) {
  if (client_.configuration)
    world_.send({{"jsonrpc", "2.0"}, {"id", "flagos/configuration"}, {"method", "workspace/configuration"}, {"params", {{"items", {{{"section", "flagos"}}}}}}});
  sendStatus();
}

void Server::configure(const Json& s) {
  const std::string level = textMember(s, "inlayHints");
  if (level == "off") hint_level_ = HintLevel::off;
  else if (level == "problems") hint_level_ = HintLevel::problems;
  else if (level == "all") hint_level_ = HintLevel::all;
  if (const Json& severities = member(s, "severity"); severities.is_object()) {
    severity_.clear();
    for (const auto& [code, value] : severities.items()) if (value.is_string()) severity_[code] = value.get<std::string>();
    for (auto& [uri, o] : documents_) o->publish = true;
  }
}

void Server::didChangeConfiguration(const Json& params) {
  const Json& settings = member(params, "settings");
  configure(settings.is_object() && settings.contains("flagos") ? member(settings, "flagos") : settings);
  if (client_.configuration)
    world_.send({{"jsonrpc", "2.0"}, {"id", "flagos/configuration"}, {"method", "workspace/configuration"}, {"params", {{"items", {{{"section", "flagos"}}}}}}});
}

void Server::didOpen(const Json& params) {
  const Json& d = member(params, "textDocument");
  const std::string uri = textMember(d, "uri");
  if (uri.empty() || uri.starts_with("git:")) return;
  auto o = std::make_unique<Open>(Document(uri, pathOfUri(uri), intMember(d, "version"), textMember(d, "text")));
  o->dirty_since = nowNs();
  rememberBaseline(o->doc.text());
  documents_[uri] = std::move(o);
  front_ = uri;
  live_dirty_ = true;
}

void Server::didChange(const Json& params) {
  const Json& d = member(params, "textDocument");
  const auto it = documents_.find(textMember(d, "uri"));
  if (it == documents_.end()) return;
  std::vector<TextChange> changes;
  if (const Json& list = member(params, "contentChanges"); list.is_array()) {
    for (const auto& c : list) {
      TextChange change;
      change.text = textMember(c, "text");
      if (const Json& r = member(c, "range"); r.is_object())
        change.range = Range{{intMember(member(r, "start"), "line", -1), intMember(member(r, "start"), "character", -1)},
                             {intMember(member(r, "end"), "line", -1), intMember(member(r, "end"), "character", -1)}};
      changes.push_back(std::move(change));
    }
  }
  Open& o = *it->second;
  o.doc.apply(changes, intMember(d, "version", o.doc.version()), encoding_);
  if (!o.dirty) o.dirty_since = nowNs();
  o.dirty = o.publish = true;
  front_ = it->first;
  last_edit_ = nowNs();
  // Files that followed this one may say something else now.
  for (auto& [uri, other] : documents_) {
    if (other->doc.path().empty() || !other->analysis || uri == it->first) continue;
    for (const auto& u : other->analysis->others)
      if (u->path == o.doc.path()) { other->dirty = other->publish = true; other->dirty_since = nowNs(); }
  }
}

void Server::didSave(const Json& params) {
  const auto it = documents_.find(textMember(member(params, "textDocument"), "uri"));
  if (it == documents_.end()) return;
  rememberBaseline(it->second->doc.text());
  it->second->doc.saved();
  front_ = it->first;
}

void Server::didClose(const Json& params) {
  const auto it = documents_.find(textMember(member(params, "textDocument"), "uri"));
  if (it == documents_.end()) return;
  if (!client_.pull_diagnostics)
    world_.send({{"jsonrpc", "2.0"}, {"method", "textDocument/publishDiagnostics"},
                 {"params", {{"uri", it->first}, {"version", it->second->doc.version()}, {"diagnostics", Json::array()}}}});
  documents_.erase(it);
}

void Server::didChangeFiles(const Json&) { markAllDirty(); }

void Server::markAllDirty() {
  for (auto& [uri, o] : documents_) { o->dirty = o->publish = true; o->dirty_since = nowNs(); }
}

void Server::machineFound(Machine machine) {
  if (options_.devices) return;
  machine_ = std::move(machine);
  markAllDirty();
  sendStatus();
}

void Server::liveChanged() {
  live_dirty_ = true;
  sendStatus();
}

void Server::sendStatus() {
  if (!initialized_ || !machine_.known) return;
  const auto view = world_.live ? world_.live() : nullptr;
  static const LiveView none;
  const auto front = documents_.find(front_);
  const Status now = status(machine_, view ? *view : none, front == documents_.end() ? "" : front->second->doc.path(), pinned_pid_);
  if (last_status_ && *last_status_ == now) return;
  last_status_ = now;
  world_.send({{"jsonrpc", "2.0"}, {"method", "flagos/status"},
               {"params", {{"state", now.state}, {"text", now.text}, {"tooltip", now.tooltip}, {"severity", now.severity}}}});
}

void Server::ensure(Open& o) {
  if (o.dirty) {
    o.dirty = false;
    o.analysis.reset();
    o.live.reset();
    o.live_version = 0;
    o.problem.clear();
    if (o.doc.outOfSync()) {
      o.problem = "the text is out of step with the editor; reopen the file";
    } else if (const auto& tree = o.doc.tree(); !tree) {
      o.problem = tree.error().text();
    } else {
      AnalysisOptions options;
      options.machine = machine_;
      const std::string name = o.doc.path().empty() ? o.doc.uri() : o.doc.path();
      o.analysis = analyse(makeUnit(name, o.doc.text(), *tree), workspace_, options);
    }
  }
  const auto view = world_.live ? world_.live() : nullptr;
  if (!view || !o.analysis || o.live_version == view->version) return;
  o.live_version = view->version;
  auto p = processFor(*view, o.doc.path(), pinned_pid_);
  if (p == o.process && o.live) return;
  o.process = p;
  o.live.reset();
  if (p) {
    o.live = joinLive(*o.analysis, o.doc.text(), *p, &o.doc.origins());
    if (!o.live->ran) o.live.reset();
  }
}

Snapshot Server::snapshot(Open& o) {
  ensure(o);
  Snapshot s;
  s.analysis = o.analysis ? &*o.analysis : nullptr;
  s.live = o.live ? &*o.live : nullptr;
  s.process = o.process;
  static thread_local std::shared_ptr<const LiveView> view;   // keeps what the snapshot points to
  view = world_.live ? world_.live() : nullptr;
  s.view = view.get();
  s.machine = &machine_;
  return s;
}

uint64_t Server::tick(uint64_t now, bool queue_empty) {
  if (!initialized_ || shutdown_) return 0;
  uint64_t next = 0;
  const auto later = [&](uint64_t at) { if (next == 0 || at < next) next = at; };
  for (auto& [uri, o] : documents_) {
    if (!o->publish || client_.pull_diagnostics) continue;
    if (!queue_empty && now - o->dirty_since < kQuietNs) { later(o->dirty_since + kQuietNs); continue; }
    publish(*o);
  }
  if (live_dirty_) {
    live_dirty_ = false;
    sendStatus();
    const auto front = documents_.find(front_);
    if (client_.inlay_refresh && hint_level_ != HintLevel::off && front != documents_.end()) {
      const uint64_t due = std::max(last_refresh_ + kRefreshNs, last_edit_ + kAfterEditNs);
      if (now < due) {
        live_dirty_ = true;
        later(due);
      } else {
        std::string shown;
        const Snapshot s = snapshot(*front->second);
        if (s.analysis) for (const auto& h : hints(s, {0, UINT32_MAX}, hint_level_)) shown += std::to_string(h.offset) + h.label + "\n";
        if (shown != last_hints_) {
          last_hints_ = shown;
          last_refresh_ = now;
          world_.send({{"jsonrpc", "2.0"}, {"id", "flagos/refresh/" + std::to_string(next_id_++)}, {"method", "workspace/inlayHint/refresh"}});
        }
      }
    }
  }
  return next;
}

}  // namespace flagos::lsp

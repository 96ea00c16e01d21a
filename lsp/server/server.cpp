#include "lsp/server/server.h"

#include <malloc.h>

#include <algorithm>

#include "lsp/findings/live.h"
#include "lsp/python/modules.h"
#include "lsp/server/machine.h"
#include "runtime/base/clock.h"
#include "runtime/base/version.h"

namespace flagos::lsp {
namespace {
constexpr uint64_t kQuietNs = 150'000'000;           // a storm of edits is analysed at least this often
constexpr uint64_t kSlowNs = 50'000'000;             // a document that takes longer waits for a pause in typing: half of what
constexpr uint64_t kLongestWaitNs = 150'000'000;     // it takes, but not longer than this
constexpr uint64_t kUnseenNs = 500'000'000;          // findings that are older than this are brought up to date even while the user types
constexpr uint64_t kRefreshNs = 2'000'000'000;       // inlay refresh is global: not more often than this
constexpr uint64_t kAfterEditNs = 1'250'000'000;     // and not while the user types
constexpr size_t kKeptAnalyses = 6;                  // trees of the documents used last; the others are read again when asked for
constexpr uint64_t kIdleNs = 1'000'000'000;
constexpr size_t kAnsweredIds = 256;
constexpr size_t kKeptTreeBytes = 16u << 20;
constexpr unsigned kTrimEvery = 16, kTrimAtOnce = 64;   // analyses
}  // namespace

Server::Server(ServerOptions options, World world)
    : options_(std::move(options)), world_(std::move(world)), workspace_([this](const std::string& path) -> std::optional<std::string> {
        for (const auto& [uri, o] : documents_) if (!o->notebook && o->doc.path() == path && !o->doc.outOfSync()) return o->doc.text();
        return std::nullopt;
      }) {
  if (options_.devices) if (auto m = machineFrom(*options_.devices)) machine_ = std::move(*m);
}

const std::map<std::string, Server::Handler, std::less<>>& Server::requests() {
  static const std::map<std::string, Handler, std::less<>> table = {
      {"initialize", &Server::initialize}, {"shutdown", &Server::shutdown}, {"textDocument/hover", &Server::onHover},
      {"textDocument/documentSymbol", &Server::onSymbols}, {"textDocument/codeAction", &Server::onActions},
      {"codeAction/resolve", &Server::onResolveAction}, {"textDocument/inlayHint", &Server::onHints},
      {"inlayHint/resolve", &Server::onResolveHint}, {"textDocument/completion", &Server::onCompletion},
      {"textDocument/diagnostic", &Server::onDiagnostic}, {"workspace/executeCommand", &Server::onCommand},
      {"flagos/tree", &Server::onTree}, {"flagos/sync", &Server::onSync}};
  return table;
}

const std::map<std::string, Server::Notice, std::less<>>& Server::notices() {
  static const std::map<std::string, Notice, std::less<>> table = {
      {"initialized", &Server::initialized}, {"exit", &Server::exit}, {"textDocument/didOpen", &Server::didOpen},
      {"textDocument/didChange", &Server::didChange}, {"textDocument/didSave", &Server::didSave},
      {"textDocument/didClose", &Server::didClose}, {"notebookDocument/didOpen", &Server::notebookOpened},
      {"notebookDocument/didChange", &Server::notebookChanged}, {"notebookDocument/didSave", &Server::notebookSaved},
      {"notebookDocument/didClose", &Server::notebookClosed}, {"workspace/didChangeConfiguration", &Server::didChangeConfiguration},
      {"workspace/didChangeWorkspaceFolders", &Server::didChangeFolders}, {"workspace/didChangeWatchedFiles", &Server::didChangeFiles},
      {"workspace/didRenameFiles", &Server::filesRenamed}, {"workspace/didDeleteFiles", &Server::filesDeleted},
      {"workspace/didCreateFiles", &Server::filesCreated}, {"window/workDoneProgress/cancel", &Server::progressCancelled},
      {"$/cancelRequest", &Server::cancel}, {"$/setTrace", &Server::setTrace}};
  return table;
}

void Server::notify(const char* method, Json params) { world_.send({{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}}); }

void Server::ask(const std::string& id, const char* method, Json params) {
  Json message = {{"jsonrpc", "2.0"}, {"id", id}, {"method", method}};
  if (!params.is_null()) message["params"] = std::move(params);
  world_.send(message);
}

void Server::parseError(const std::string& problem) {
  world_.send({{"jsonrpc", "2.0"}, {"id", nullptr}, {"error", {{"code", kParseError}, {"message", problem}}}});
}

void Server::answered(const Json& m) {
  const Json& id = member(m, "id");
  if (id == "flagos/configuration" && member(m, "result").is_array() && !member(m, "result").empty()) configure(member(m, "result")[0]);
  // A client that cannot show progress says so here; nothing more is sent then.
  if (id == "flagos/progress" && m.contains("error")) client_.progress = false;
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
    if (m.contains("result") || m.contains("error")) answered(m);
    else if (!id.is_null()) Reply(id, world_.send).error(kInvalidRequest, "a request without a method");
    return;
  }
  const auto& name = method.get_ref<const std::string&>();
  if (!m.contains("id")) {
    if (name != "exit" && !initialized_) return;
    const auto it = notices().find(name);
    if (it != notices().end()) (this->*it->second)(params);
    return;
  }
  const uint64_t start = trace_ ? nowNs() : 0;
  Reply reply(id, world_.send);
  answered_.push_back(dump(id));
  if (answered_.size() > kAnsweredIds) answered_.pop_front();
  if (world_.cancelled && world_.cancelled(id)) { reply.error(kRequestCancelled, "cancelled"); return; }
  if (!initialized_ && name != "initialize") { reply.error(kServerNotInitialized, "initialize comes first"); return; }
  if (initialized_ && name == "initialize") { reply.error(kInvalidRequest, "initialize was already called"); return; }
  if (shutdown_) { reply.error(kInvalidRequest, "the server was shut down"); return; }
  const auto it = requests().find(name);
  if (it == requests().end()) { reply.error(kMethodNotFound, "no method " + name); return; }
  (this->*it->second)(params, reply);
  if (trace_) notify("$/logTrace", {{"message", name + " " + dump(id) + ": " + std::to_string((nowNs() - start) / 1000) + " us"}});
}

// Of a request that a background job answers; of one that is answered already, the loop's memory of it is dropped.
void Server::cancel(const Json& params) {
  const Json& id = member(params, "id");
  if (const auto it = pending_.find(dump(id)); it != pending_.end()) {
    it->second->error(kRequestCancelled, "cancelled");
    pending_.erase(it);
  }
  if (world_.cancelled && std::find(answered_.begin(), answered_.end(), dump(id)) != answered_.end()) world_.cancelled(id);
}

void Server::setTrace(const Json& params) { trace_ = textMember(params, "value") == "messages" || textMember(params, "value") == "verbose"; }

void Server::initialize(const Json& params, Reply& reply) {
  const Json& c = member(params, "capabilities");
  const Json& text = member(c, "textDocument");
  const auto has = [](const Json& list, const char* what) { return list.is_array() && std::find(list.begin(), list.end(), what) != list.end(); };
  client_.pull_diagnostics = path(text, "diagnostic").is_object();
  client_.diagnostic_refresh = path(c, "workspace.diagnostics.refreshSupport") == true;
  client_.inlay_refresh = path(c, "workspace.inlayHint.refreshSupport") == true;
  client_.inlay_resolve = has(path(text, "inlayHint.resolveSupport.properties"), "tooltip");
  client_.document_changes = path(c, "workspace.workspaceEdit.documentChanges") == true;
  client_.hierarchical_symbols = path(text, "documentSymbol.hierarchicalDocumentSymbolSupport") == true;
  client_.action_resolve = path(text, "codeAction.dataSupport") == true && has(path(text, "codeAction.resolveSupport.properties"), "edit");
  client_.configuration = path(c, "workspace.configuration") == true;
  client_.register_configuration = path(c, "workspace.didChangeConfiguration.dynamicRegistration") == true;
  client_.register_watched_files = path(c, "workspace.didChangeWatchedFiles.dynamicRegistration") == true;
  client_.progress = path(c, "window.workDoneProgress") == true;
  const Json& formats = path(text, "hover.contentFormat");
  if (formats.is_array() && !formats.empty()) client_.markdown_hover = has(formats, "markdown");
  const Json& encodings = path(c, "general.positionEncodings");
  encoding_ = has(encodings, "utf-8") ? Encoding::utf8 : has(encodings, "utf-32") ? Encoding::utf32 : Encoding::utf16;
  if (const Json& folders = member(params, "workspaceFolders"); folders.is_array())
    for (const auto& f : folders) if (auto p = pathOfUri(textMember(f, "uri")); !p.empty()) roots_.push_back(p);
  if (roots_.empty()) if (auto p = pathOfUri(textMember(params, "rootUri")); !p.empty()) roots_.push_back(p);
  workspace_.setRoots(roots_);
  configure(member(params, "initializationOptions"));
  setTrace({{"value", member(params, "trace")}});
  initialized_ = true;
  reply.result({{"capabilities", capabilities()}, {"serverInfo", {{"name", "flagos-lsp"}, {"version", kVersion}}}});
  if (world_.start_background) world_.start_background();
}

Json Server::capabilities() const {
  const Json files = {{"filters", {{{"scheme", "file"}, {"pattern", {{"glob", "**/*.{py,ipynb}"}}}}, {{"scheme", "file"}, {"pattern", {{"glob", "**"}, {"matches", "folder"}}}}}}};
  Json out = {
      {"positionEncoding", encoding_ == Encoding::utf8 ? "utf-8" : encoding_ == Encoding::utf32 ? "utf-32" : "utf-16"},
      {"textDocumentSync", {{"openClose", true}, {"change", 2}, {"save", {{"includeText", false}}}}},
      {"notebookDocumentSync", {{"notebookSelector", {{{"notebook", "*"}}}}, {"save", true}}},
      {"hoverProvider", true}, {"documentSymbolProvider", true}, {"inlayHintProvider", {{"resolveProvider", true}}},
      {"codeActionProvider", {{"codeActionKinds", {"quickfix", "source.fixAll.flagos"}}, {"resolveProvider", true}}},
      {"completionProvider", {{"triggerCharacters", {"\"", "'", ":"}}}},
      {"executeCommandProvider", {{"commands", {"flagos.attach", "flagos.processes", "flagos.explain"}}}},
      {"workspace", {{"workspaceFolders", {{"supported", true}, {"changeNotifications", true}}},
                     {"fileOperations", {{"didRename", files}, {"didDelete", files}, {"didCreate", files}}}}}};
  if (client_.pull_diagnostics)
    out["diagnosticProvider"] = {{"identifier", "flagos"}, {"interFileDependencies", true}, {"workspaceDiagnostics", false}};
  return out;
}

void Server::shutdown(const Json&, Reply& reply) {
  shutdown_ = true;
  for (auto& [id, waiting] : pending_) waiting->error(kRequestCancelled, "the server is shutting down");
  pending_.clear();
  reply.result(nullptr);
}

void Server::exit(const Json&) { exit_code_ = shutdown_ ? 0 : 1; }

void Server::initialized(const Json&) {
  registerInterests();
  askConfiguration();
  sendStatus();
  startIndex();
}

void Server::machineFound(Machine machine) {
  found_machine_ = std::move(machine);
  useDevices();
}

void Server::liveChanged() {
  live_dirty_ = true;
  sendStatus();
}

void Server::sendStatus() {
  if (!initialized_ || !machine_.known) return;
  const auto view = world_.live ? world_.live() : nullptr;
  static const LiveView none;
  static const RanAs nowhere;
  const auto front = documents_.find(front_);
  const Status now = status(machine_, view ? *view : none, front == documents_.end() ? nowhere : front->second->ran_as, pinned_pid_);
  if (last_status_ && *last_status_ == now) return;
  last_status_ = now;
  notify("flagos/status", {{"state", now.state}, {"text", now.text}, {"tooltip", now.tooltip}, {"severity", now.severity}});
}

void Server::ensure(Open& o, bool unasked) {
  o.used_at = nowNs();
  if (o.dirty || (!o.analysis && o.problem.empty())) {
    o.dirty = false;
    o.analysis.reset();
    o.live.reset();
    o.live_version = 0;
    o.problem.clear();
    o.follows.clear();
    const uint64_t start = nowNs();
    // The imported modules of the document in work stay, so that an edit is quick; those of many documents are too much.
    const bool much = last_analysed_ != o.doc.uri() && workspace_.modules().treeBytes() > kKeptTreeBytes;
    if (much) workspace_.modules().clear();
    last_analysed_ = o.doc.uri();
    if (o.notebook ? o.notebook->outOfSync() : o.doc.outOfSync()) {
      o.problem = "the text is out of step with the editor; reopen the file";
    } else if (const auto& tree = o.doc.tree(); !tree) {
      o.problem = tree.error().text();
    } else {
      AnalysisOptions options;
      options.machine = machine_;
      options.severity = severityFile(o.doc.path().substr(0, o.doc.path().rfind('/') + 1));
      for (const auto& [code, level] : severity_) options.severity[code] = level;
      const std::string name = o.doc.path().empty() ? o.doc.uri() : o.doc.path();
      if (unasked && world_.edit_waits && !o.notebook)
        options.stop = [this, &o, until = o.dirty_since + kUnseenNs] { return nowNs() < until && world_.edit_waits(o.doc.uri()); };
      o.analysis = analyse(makeUnit(name, o.doc.text(), *tree), workspace_, options, &*tree);
      if (o.analysis->abandoned) {
        o.analysis.reset();
        o.dirty = true;
        return;
      }
      for (const auto& u : o.analysis->others) o.follows.push_back(u->path);
      o.analysis->others.clear();   // their trees are the workspace's to keep
      if (o.notebook) sayCells(*o.analysis, *o.notebook);
    }
    o.cost_ns = nowNs() - start;
    trimMemory(o);
    analyses_ += much ? kTrimEvery : 1;
    analysed_at_ = nowNs();
    if (analyses_ >= kTrimAtOnce) giveBack();
  }
  const auto view = world_.live ? world_.live() : nullptr;
  if (!view || !o.analysis || o.live_version == view->version) return;
  o.live_version = view->version;
  const auto p = processFor(*view, o.ran_as, pinned_pid_);
  const bool alone = p && jobOf(*view, o.ran_as, p).size() < 2;
  if (p == o.process && o.live && alone) return;
  o.process = p;
  o.live = p ? liveOf(*view, *o.analysis, o.doc.text(), o.ran_as, pinned_pid_, o.notebook ? nullptr : &o.doc.origins()) : std::nullopt;
  std::vector<Finding> found;
  if (o.live) {
    AnalysisOptions options;
    options.machine = machine_;
    options.severity = severityFile(o.doc.path().substr(0, o.doc.path().rfind('/') + 1));
    for (const auto& [code, level] : severity_) options.severity[code] = level;
    found = liveFindings(*o.analysis, *o.live, *p, options);
  }
  const auto same = [](const Finding& a, const Finding& b) { return a.code == b.code && a.span == b.span && a.severity == b.severity; };
  if (!std::equal(found.begin(), found.end(), o.live_findings.begin(), o.live_findings.end(), same)) o.publish = true;
  o.live_findings = std::move(found);
}

// What was freed goes back to the system.
void Server::giveBack() {
  analyses_ = 0;
  ::malloc_trim(0);
}

// Syntax trees of many open files are most of the memory: those not used lately are dropped; what they said stays shown.
void Server::trimMemory(const Open& keep) {
  std::vector<Open*> full;
  for (auto& [uri, o] : documents_) if (o->analysis && o.get() != &keep) full.push_back(o.get());
  if (full.size() < kKeptAnalyses) return;
  std::sort(full.begin(), full.end(), [](const Open* a, const Open* b) { return a->used_at > b->used_at; });
  for (size_t i = kKeptAnalyses - 1; i < full.size(); ++i) {
    full[i]->analysis.reset();
    full[i]->live.reset();
    full[i]->live_version = 0;
    full[i]->doc.dropTree();
  }
}

Snapshot Server::snapshot(Open& o) {
  ensure(o);
  view_ = world_.live ? world_.live() : nullptr;
  Snapshot s;
  s.analysis = o.analysis ? &*o.analysis : nullptr;
  s.live = o.live ? &*o.live : nullptr;
  s.process = o.process;
  s.view = view_.get();
  s.machine = &machine_;
  return s;
}

// Refreshing is for the whole editor, so it happens seldom, never while the user types, and only if a text would change.
uint64_t Server::refreshHints(uint64_t now) {
  const auto front = documents_.find(front_);
  if (!client_.inlay_refresh || hint_level_ == HintLevel::off || front == documents_.end()) return 0;
  const uint64_t due = std::max(last_refresh_ + kRefreshNs, last_edit_ + kAfterEditNs);
  if (now < due) return due;
  std::string shown = front_ + "\n";
  for (const auto& h : hints(snapshot(*front->second), {0, UINT32_MAX}, hint_level_)) shown += std::to_string(h.offset) + h.label + "\n";
  if (shown == last_hints_) return 0;
  last_hints_ = std::move(shown);
  last_refresh_ = now;
  ask("flagos/refresh/" + std::to_string(next_id_++), "workspace/inlayHint/refresh", nullptr);
  return 0;
}

uint64_t Server::tick(uint64_t now, bool queue_empty) {
  if (!initialized_ || shutdown_) return 0;
  uint64_t next = 0;
  const auto later = [&](uint64_t at) { if (next == 0 || at < next) next = at; };
  for (auto& [uri, o] : documents_) {
    if (!o->publish || client_.pull_diagnostics) continue;
    uint64_t at = queue_empty ? 0 : o->dirty_since + kQuietNs;
    if (o->cost_ns > kSlowNs && o->typing) at = std::max(at, o->edited_at + std::min(o->cost_ns / 2, kLongestWaitNs));
    if (now < at) { later(at); continue; }
    ensure(*o, true);
    if (o->dirty) { later(now); continue; }   // an edit waits: it is looked at with it
    publish(*o);
  }
  // After the answers: it takes milliseconds. A few analyses are not worth it until nothing happens.
  if (queue_empty && analyses_ > 0) {
    const uint64_t at = analyses_ >= kTrimEvery ? now : analysed_at_ + kIdleNs;
    if (now >= at) giveBack(); else later(at);
  }
  if (live_dirty_) {
    live_dirty_ = false;
    sendStatus();
    const auto front = documents_.find(front_);
    if (front != documents_.end() && !front->second->dirty && !client_.pull_diagnostics) {
      ensure(*front->second);
      if (front->second->publish) later(now);
    }
    if (const uint64_t due = refreshHints(now)) { live_dirty_ = true; later(due); }
  }
  if (index_running_ && (!queue_empty || indexSome(now))) later(now);
  return next;
}

}  // namespace flagos::lsp

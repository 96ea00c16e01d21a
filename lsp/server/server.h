// The language server's state and dispatch: JSON in, JSON out, no I/O of its own. One thread.
//
// The loop (loop.h) feeds it messages and the time; it calls `send` for everything it has to say. Documents are analysed
// when something asks for them or when the queue of messages is empty, so that a storm of edits costs one analysis.
// Split by subject: server.cpp (life, dispatch, analysis), documents.cpp (texts and notebooks), configuration.cpp
// (settings, folders, watched files), diagnostics.cpp (push and pull), handlers.cpp (requests), explain.cpp.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "lsp/findings/severity.h"
#include "lsp/protocol/message.h"
#include "lsp/server/open.h"

namespace flagos::lsp {

struct ServerOptions {
  std::optional<std::vector<std::string>> devices;   // --devices
};

// What the client can do, flattened once.
struct ClientCapabilities {
  bool pull_diagnostics = false, diagnostic_refresh = false, inlay_refresh = false, inlay_resolve = false, document_changes = false,
       markdown_hover = true, hierarchical_symbols = false, action_resolve = false, configuration = false,
       register_configuration = false, register_watched_files = false, progress = false;
};

class Server {
 public:
  using Job = std::function<std::function<void()>()>;
  // What the server asks of the world around it.
  struct World {
    Send send;
    std::function<bool(const Json& id)> cancelled;                 // and forgets it
    std::function<std::shared_ptr<const LiveView>()> live;         // null: not watching
    std::function<void()> start_background;                        // after initialize: look at the machine, watch processes
    std::function<void(Job)> background;                           // runs the job elsewhere, then what it returned in this thread
    std::function<bool(const std::string& uri)> edit_waits;        // an edit of this document has come and is not yet handled
  };
  Server(ServerOptions options, World world);

  void handle(const Json& message);
  void parseError(const std::string& problem);
  void machineFound(Machine machine);
  void liveChanged();
  // Work that waits for a quiet moment; `now_ns` is monotonic. Returns when it wants to be called again (0: when something
  // happens).
  uint64_t tick(uint64_t now_ns, bool queue_empty);
  bool exiting() const { return exit_code_.has_value(); }
  int exitCode() const { return exit_code_.value_or(1); }
  bool shutdownSeen() const { return shutdown_; }

 private:
  using Handler = void (Server::*)(const Json& params, Reply& reply);
  using Notice = void (Server::*)(const Json& params);
  static const std::map<std::string, Handler, std::less<>>& requests();
  static const std::map<std::string, Notice, std::less<>>& notices();

  // server.cpp
  void initialize(const Json& params, Reply& reply);
  Json capabilities() const;
  void shutdown(const Json& params, Reply& reply);
  void initialized(const Json& params);
  void exit(const Json& params);
  void cancel(const Json& params);
  void setTrace(const Json& params);
  void nothing(const Json&) {}
  void notify(const char* method, Json params);
  void ask(const std::string& id, const char* method, Json params);   // a request of ours
  void answered(const Json& message);
  // Analysis and live values up to date. `unasked`: nobody waits for it, so an edit that comes meanwhile ends it; the
  // document then stays dirty.
  void ensure(Open& o, bool unasked = false);
  Snapshot snapshot(Open& o);
  void trimMemory(const Open& keep);
  void giveBack();
  void sendStatus();
  uint64_t refreshHints(uint64_t now);

  // documents.cpp
  void didOpen(const Json& params);
  void didChange(const Json& params);
  void didSave(const Json& params);
  void didClose(const Json& params);
  void notebookOpened(const Json& params);
  void notebookChanged(const Json& params);
  void notebookSaved(const Json& params);
  void notebookClosed(const Json& params);
  std::vector<TextChange> changesOf(const Json& list) const;
  Place find(const std::string& uri);
  void edited(Open& o);
  void layOut(Open& o, int version);
  void forget(const std::string& uri);                 // closes it and clears what it shows
  void markDirty(Open& o);
  void markAllDirty();
  void markFollowers(const std::string& path);

  // configuration.cpp
  void configure(const Json& settings);
  void askConfiguration();
  void registerInterests();
  void didChangeConfiguration(const Json& params);
  void didChangeFolders(const Json& params);
  void didChangeFiles(const Json& params);
  void filesRenamed(const Json& params);
  void filesDeleted(const Json& params);
  void filesCreated(const Json& params);
  void progressCancelled(const Json& params);
  void startIndex();
  bool indexSome(uint64_t now);                        // false: done, or not wanted
  void endIndex(const char* how);
  void useDevices();
  void learnFormerPaths(Open& o);
  const Severities& severityFile(const std::string& folder);

  // diagnostics.cpp
  void publish(Open& o);
  Json diagnosticsJson(const Place& place, const Snapshot& s);
  Json diagnosticJson(const Place& place, const Finding& f) const;
  void clear(const std::string& uri, int version);
  void onDiagnostic(const Json& params, Reply& reply);
  void refreshDiagnostics();

  // handlers.cpp
  void onHover(const Json& params, Reply& reply);
  void onSymbols(const Json& params, Reply& reply);
  void onActions(const Json& params, Reply& reply);
  void onResolveAction(const Json& params, Reply& reply);
  void onHints(const Json& params, Reply& reply);
  void onResolveHint(const Json& params, Reply& reply);
  void onCompletion(const Json& params, Reply& reply);
  void onCommand(const Json& params, Reply& reply);
  void onTree(const Json& params, Reply& reply);
  void onSync(const Json& params, Reply& reply);
  Place placeOf(const Json& params, Reply& reply);     // answers an error itself if it gives nothing
  Json range(const Place& p, Span s) const;
  Json editJson(const Place& p, const std::vector<Edit>& edits) const;

  // explain.cpp
  void explain(const Json& arguments, Reply& reply);

  ServerOptions options_;
  World world_;
  ClientCapabilities client_;
  Encoding encoding_ = Encoding::utf16;
  std::vector<std::string> roots_;
  Workspace workspace_;
  Machine machine_;
  std::optional<Machine> found_machine_;
  std::vector<std::string> configured_devices_;
  HintLevel hint_level_ = HintLevel::problems;
  bool index_wanted_ = true, index_running_ = false, progress_begun_ = false, trace_ = false;
  uint64_t index_told_ = 0;
  Severities severity_;                                // the editor's settings: code -> severity or "off"
  std::map<std::string, Severities> severity_files_;   // by path, read once
  std::map<std::string, std::unique_ptr<Open>> documents_;
  std::map<std::string, Open*> cells_;                 // cell URI -> its notebook
  std::map<std::string, std::string> renamed_;         // new path -> old path, files and folders
  std::string front_;                                  // URI of the document that the user touched last
  std::map<std::string, std::shared_ptr<Reply>> pending_;      // by id as text: answered by a background job
  std::deque<std::string> answered_;                   // ids of the last requests, for cancels that come too late
  std::optional<Status> last_status_;
  std::shared_ptr<const LiveView> view_;               // keeps what the last snapshot points to
  std::string last_hints_;                             // what the shown hints said, to refresh only on change
  uint64_t last_refresh_ = 0, last_edit_ = 0;
  bool initialized_ = false, shutdown_ = false, live_dirty_ = false;
  int pinned_pid_ = 0;
  std::string last_analysed_;                          // URI
  unsigned analyses_ = 0;                              // since memory was given back
  uint64_t analysed_at_ = 0;                           // the last of them
  int64_t next_id_ = 1;
  std::optional<int> exit_code_;
};

// LSP's shapes, shared by the files of this class.
Json rangeJson(const Range& r);
Position positionOf(const Json& j);
int severityNumber(std::string_view severity);

}  // namespace flagos::lsp

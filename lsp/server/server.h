// The language server's state and dispatch: JSON in, JSON out, no I/O of its own. One thread.
//
// The loop (loop.h) feeds it messages and the time; it calls `send` for everything it has to say. Documents are analysed
// when something asks for them or when the queue of messages is empty, so that a storm of edits costs one analysis.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "lsp/features/snapshot.h"
#include "lsp/protocol/message.h"
#include "lsp/text/document.h"

namespace flagos::lsp {

struct ServerOptions {
  std::optional<std::vector<std::string>> devices;   // --devices
};

// What the client can do, flattened once.
struct ClientCapabilities {
  bool pull_diagnostics = false, diagnostic_refresh = false, inlay_refresh = false, document_changes = false,
       markdown_hover = true, hierarchical_symbols = false, code_action_literals = false, configuration = false, progress = false;
};

class Server {
 public:
  // What the server asks of the world around it.
  struct World {
    Send send;
    std::function<bool(const Json& id)> cancelled;                 // and forgets it
    std::function<std::shared_ptr<const LiveView>()> live;         // null: not watching
    std::function<void()> start_background;                        // after initialize: look at the machine, watch processes
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
  struct Open {
    Open(Document d) : doc(std::move(d)) {}
    Document doc;
    std::optional<Analysis> analysis;
    std::string problem;                   // why there is no analysis
    bool dirty = true, publish = true;
    uint64_t dirty_since = 0;
    std::optional<LiveFile> live;
    std::shared_ptr<const telemetry::ProcessRow> process;
    uint64_t live_version = 0;
    std::string diagnostics_id;
  };
  using Handler = void (Server::*)(const Json& params, Reply& reply);
  using Notice = void (Server::*)(const Json& params);
  static const std::map<std::string, Handler, std::less<>>& requests();
  static const std::map<std::string, Notice, std::less<>>& notices();

  void initialize(const Json& params, Reply& reply);
  void shutdown(const Json& params, Reply& reply);
  void onHover(const Json& params, Reply& reply);
  void onSymbols(const Json& params, Reply& reply);
  void onActions(const Json& params, Reply& reply);
  void onHints(const Json& params, Reply& reply);
  void onCompletion(const Json& params, Reply& reply);
  void onDiagnostic(const Json& params, Reply& reply);
  void onCommand(const Json& params, Reply& reply);
  void onTree(const Json& params, Reply& reply);
  void onSync(const Json& params, Reply& reply);

  void initialized(const Json& params);
  void exit(const Json& params);
  void didOpen(const Json& params);
  void didChange(const Json& params);
  void didSave(const Json& params);
  void didClose(const Json& params);
  void didChangeConfiguration(const Json& params);
  void didChangeFiles(const Json& params);
  void nothing(const Json&) {}

  Open* openOf(const Json& params, Reply& reply);      // answers an error itself if it gives null
  void ensure(Open& o);                                // analysis and live values up to date
  Snapshot snapshot(Open& o);
  void publish(Open& o);
  Json diagnosticsJson(Open& o);
  void sendStatus();
  void markAllDirty();
  Json range(const Open& o, Span s) const;
  Json locationRange(const SourceUnit& unit, Span s) const;
  void configure(const Json& settings);

  ServerOptions options_;
  World world_;
  ClientCapabilities client_;
  Encoding encoding_ = Encoding::utf16;
  Workspace workspace_;
  Machine machine_;
  HintLevel hint_level_ = HintLevel::problems;
  std::map<std::string, std::string, std::less<>> severity_;   // settings: code -> severity or "off"
  std::map<std::string, std::unique_ptr<Open>> documents_;
  std::string front_;                                  // URI the user touched last
  std::optional<Status> last_status_;
  std::string last_hints_;                             // what the shown hints said, to refresh only on change
  uint64_t last_refresh_ = 0, last_edit_ = 0;
  bool initialized_ = false, shutdown_ = false, live_dirty_ = false;
  int pinned_pid_ = 0;
  int64_t next_id_ = 1;
  std::optional<int> exit_code_;
};

}  // namespace flagos::lsp

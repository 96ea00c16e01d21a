#include "lsp/live/hub.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "lsp/live/ranks.h"
#include "runtime/base/paths.h"
#include "runtime/telemetry/client.h"

namespace flagos::lsp {
namespace {

constexpr size_t kMaxWatched = 8;
constexpr auto kTick = std::chrono::milliseconds(250);

struct Watched {
  telemetry::ProcessEntry entry;
  std::unique_ptr<telemetry::Client> client;
  std::mutex lock;                 // guards the two below: the client's thread writes them
  Json snapshot;
  bool fresh = false, lost = false;
  std::shared_ptr<const telemetry::ProcessRow> row;
  Rank rank;
  bool ended = false;
};

class Hub final : public LiveHub {
 public:
  explicit Hub(std::function<void()> changed) : changed_(std::move(changed)), view_(std::make_shared<LiveView>()) {
    thread_ = std::thread([this] { run(); });
  }
  ~Hub() override {
    {
      const std::lock_guard guard(lock_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  std::shared_ptr<const LiveView> view() const override {
    const std::lock_guard guard(lock_);
    return view_;
  }

 private:
  using Key = std::pair<uint64_t, int>;   // start time and pid name a process for ever
  std::function<void()> changed_;
  mutable std::mutex lock_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::shared_ptr<const LiveView> view_;
  std::map<Key, std::unique_ptr<Watched>> watched_;
  std::string problem_;
  std::thread thread_;

  void connect(Watched& w) {
    auto client = telemetry::Client::connect(w.entry, 500);
    if (!client) return;
    w.client = std::move(*client);
    const Json params = {{"rate_hz", 4}, {"parts", {"devices", "sites", "routes", "fallbacks", "events"}}, {"top", 1000}};
    auto ok = w.client->subscribe(params, [&w](const Json& message) {
      const std::lock_guard guard(w.lock);
      const auto type = message.find("type");
      if (type == message.end() || !type->is_string()) return;
      if (*type == "snapshot") { w.snapshot = message; w.fresh = true; }
      else if (w.snapshot.is_object() && (*type == "delta" || *type == "event")) {
        if (telemetry::applyDelta(w.snapshot, message)) w.fresh = w.fresh || *type == "delta";
        else w.lost = true;
      }
    });
    if (!ok) w.client.reset();
  }

  // True if what viewers see has changed.
  bool look(bool search) {
    bool changed = false;
    if (search) {
      auto found = telemetry::listProcesses();
      const std::string problem = found ? "" : found.error().text();
      if (problem != problem_) { problem_ = problem; changed = true; }
      if (found) {
        for (auto& e : *found) {
          const Key key{e.start_time, e.pid};
          if (watched_.count(key) || watched_.size() >= 64) continue;
          auto w = std::make_unique<Watched>();
          w->entry = e;
          if (e.state != "ended") w->rank = rankOf(e.pid);
          if (e.state == "ended") {
            auto row = std::make_shared<telemetry::ProcessRow>(telemetry::processFromJson(e.last_snapshot));
            row->pid = e.pid;
            row->state = "ended";
            if (row->script.empty()) row->script = e.script;
            row->start_time = e.start_time;
            w->row = row;
            w->ended = true;
            changed = true;
          }
          watched_.emplace(key, std::move(w));
        }
      }
    }
    size_t live = 0;
    for (auto it = watched_.rbegin(); it != watched_.rend(); ++it) {   // newest first
      Watched& w = *it->second;
      if (w.ended) continue;
      if (w.client && !w.client->connected()) {
        w.client.reset();
        w.ended = true;
        auto row = w.row ? std::make_shared<telemetry::ProcessRow>(*w.row) : std::make_shared<telemetry::ProcessRow>();
        row->pid = w.entry.pid;
        row->script = row->script.empty() ? w.entry.script : row->script;
        row->state = "ended";
        w.row = row;
        changed = true;
        continue;
      }
      if (++live > kMaxWatched) continue;
      if (!w.client) {
        if (search) connect(w);
        if (!w.client) {
          if (!processIsThere(w.entry)) { w.ended = true; if (w.row) changed = true; }
          continue;
        }
      }
      Json copy;
      {
        const std::lock_guard guard(w.lock);
        if (w.lost) {
          w.lost = false;
          w.snapshot = nullptr;
        }
        if (w.fresh) { copy = w.snapshot; w.fresh = false; }
      }
      if (copy.is_object()) {
        auto row = std::make_shared<telemetry::ProcessRow>(telemetry::processFromJson(copy));
        row->pid = w.entry.pid;
        row->state = "live";
        row->start_time = w.entry.start_time;
        if (row->script.empty()) row->script = w.entry.script;
        w.row = row;
        changed = true;
      } else if (w.snapshot.is_null() && w.row) {
        if (auto again = w.client->request("snapshot", Json::object(), 1000); again && again->is_object()) {
          const std::lock_guard guard(w.lock);
          if (w.snapshot.is_null()) { w.snapshot = *again; w.fresh = true; }
        }
      }
    }
    return changed;
  }

  static bool processIsThere(const telemetry::ProcessEntry& e) {
    const auto started = processStartTime(e.pid);
    return started && (*started == e.start_time || e.start_time == 0);
  }

  void publish() {
    auto view = std::make_shared<LiveView>();
    for (auto it = watched_.rbegin(); it != watched_.rend(); ++it) {
      if (it->second->row) {
        view->processes.push_back(it->second->row);
        view->ranks[it->second->entry.pid] = it->second->rank;
      }
    }
    view->problem = problem_;
    {
      const std::lock_guard guard(lock_);
      view->version = view_->version + 1;
      view_ = view;
    }
    changed_();
  }

  void run() {
    for (unsigned tick = 0;; ++tick) {
      if (look(tick % 2 == 0)) publish();
      std::unique_lock guard(lock_);
      if (wake_.wait_for(guard, kTick, [&] { return stop_; })) break;
    }
    watched_.clear();
  }
};

}  // namespace

std::unique_ptr<LiveHub> LiveHub::start(std::function<void()> changed) { return std::make_unique<Hub>(std::move(changed)); }

bool executed(const telemetry::ProcessRow& p, const std::string& path) {
  if (path.empty()) return false;
  if (p.script == path) return true;
  return std::any_of(p.files.begin(), p.files.end(), [&](const auto& f) { return f.path == path; });
}

}  // namespace flagos::lsp

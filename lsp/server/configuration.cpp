// Settings, folders, files that changed outside the editor, and the background index that follows from them.
#include <algorithm>

#include "lsp/findings/severity.h"
#include "lsp/server/machine.h"
#include "lsp/server/server.h"

namespace flagos::lsp {
namespace {

constexpr const char* kToken = "flagos/index";
constexpr uint64_t kIndexSliceNs = 2'000'000;        // a message waits at most so long for the index
constexpr uint64_t kIndexReportNs = 250'000'000;

}  // namespace

void Server::configure(const Json& s) {
  if (!s.is_object()) return;
  const std::string level = textMember(s, "inlayHints");
  const HintLevel before = hint_level_;
  if (level == "off") hint_level_ = HintLevel::off;
  else if (level == "problems") hint_level_ = HintLevel::problems;
  else if (level == "all") hint_level_ = HintLevel::all;
  if (before != hint_level_ && initialized_ && client_.inlay_refresh)
    ask("flagos/refresh/" + std::to_string(next_id_++), "workspace/inlayHint/refresh", nullptr);
  if (const Json& severities = member(s, "severity"); severities.is_object()) {
    Severities fresh;
    for (const auto& [code, value] : severities.items()) {
      if (auto added = addSeverity(fresh, code, value.is_string() ? value.get<std::string>() : dump(value)); !added)
        notify("window/logMessage", {{"type", 2}, {"message", "flagos.severity: " + added.error().text()}});
    }
    if (fresh != severity_) {
      severity_ = std::move(fresh);
      markAllDirty();
      refreshDiagnostics();
    }
  }
  const Json& devices = member(s, "devices");
  if (devices.is_array() || devices.is_string()) {
    std::string list;
    if (devices.is_string()) list = devices.get<std::string>();
    else for (const auto& d : devices) if (d.is_string()) list += (list.empty() ? "" : ",") + d.get<std::string>();
    std::vector<std::string> fresh;
    if (!list.empty()) { fresh = splitDevices(list); if (fresh.empty()) fresh = {"none"}; }
    if (fresh != configured_devices_) {
      configured_devices_ = std::move(fresh);
      useDevices();
    }
  }
  const bool wanted = boolMember(s, "index", index_wanted_);
  if (wanted != index_wanted_) {
    index_wanted_ = wanted;
    workspace_.setIndexing(wanted);
    if (initialized_) startIndex();
  }
}

// .flagos.json of the folder that a file is in, or above it; read again when it changes.
const Severities& Server::severityFile(const std::string& folder) {
  static const Severities none;
  const std::string path = folder.empty() ? std::string() : findSettingsFile(folder);
  if (path.empty()) return none;
  const auto it = severity_files_.find(path);
  if (it != severity_files_.end()) return it->second;
  auto read = readSeverityFile(path);
  if (!read) notify("window/showMessage", {{"type", 2}, {"message", read.error().text()}});
  return severity_files_[path] = read ? std::move(*read) : Severities{};
}

// The command line beats the settings, which beat what was found.
void Server::useDevices() {
  Machine now = machine_;
  if (options_.devices) return;
  if (configured_devices_ == std::vector<std::string>{"none"}) now = machineOf({});
  else if (auto m = machineFrom(configured_devices_); m && !configured_devices_.empty()) now = std::move(*m);
  else if (!m) notify("window/showMessage", {{"type", 2}, {"message", "devices: " + m.error().text()}});
  else now = found_machine_.value_or(Machine{});
  const auto models = [](const Machine& m) {
    std::string out;
    for (const auto& [device, d] : m.details) out += device + "=" + d.description.name + ",";
    return out;
  };
  if (now.known == machine_.known && now.devices == machine_.devices && models(now) == models(machine_)) return;
  machine_ = std::move(now);
  markAllDirty();
  refreshDiagnostics();
  sendStatus();
}

void Server::askConfiguration() {
  if (client_.configuration) ask("flagos/configuration", "workspace/configuration", {{"items", {{{"section", "flagos"}}}}});
}

void Server::registerInterests() {
  Json list = Json::array();
  if (client_.register_configuration)
    list.push_back({{"id", "flagos/configuration"}, {"method", "workspace/didChangeConfiguration"}, {"registerOptions", {{"section", "flagos"}}}});
  if (client_.register_watched_files)
    list.push_back({{"id", "flagos/files"}, {"method", "workspace/didChangeWatchedFiles"}, {"registerOptions", {{"watchers", {{{"globPattern", "**/*.py"}}, {{"globPattern", std::string("**/") + kSettingsFile}}}}}}});
  if (!list.empty()) ask("flagos/register", "client/registerCapability", {{"registrations", list}});
}

void Server::didChangeConfiguration(const Json& params) {
  const Json& settings = member(params, "settings");
  configure(settings.is_object() && settings.contains("flagos") ? member(settings, "flagos") : settings);
  askConfiguration();
}

void Server::didChangeFolders(const Json& params) {
  const Json& event = member(params, "event");
  if (const Json& removed = member(event, "removed"); removed.is_array())
    for (const auto& f : removed) std::erase(roots_, pathOfUri(textMember(f, "uri")));
  if (const Json& added = member(event, "added"); added.is_array())
    for (const auto& f : added) if (auto p = pathOfUri(textMember(f, "uri")); !p.empty() && std::find(roots_.begin(), roots_.end(), p) == roots_.end()) roots_.push_back(p);
  workspace_.setRoots(roots_);
  markAllDirty();
  refreshDiagnostics();
  startIndex();
}

void Server::didChangeFiles(const Json& params) {
  const Json& changes = member(params, "changes");
  if (!changes.is_array()) { markAllDirty(); return; }
  bool appeared = false;
  for (const auto& c : changes) {
    const std::string path = pathOfUri(textMember(c, "uri"));
    if (path.empty()) continue;
    appeared = appeared || intMember(c, "type") != 2;
    if (path.ends_with(kSettingsFile)) { severity_files_.clear(); appeared = true; continue; }
    markFollowers(path);   // an open file is what the editor says, whatever the disk says
  }
  if (!appeared) return;
  markAllDirty();          // an import may find a file now that it did not find before, or the other way round
  refreshDiagnostics();
}

void Server::filesRenamed(const Json& params) {
  const Json& files = member(params, "files");
  if (!files.is_array()) return;
  for (const auto& f : files) {
    const std::string from = pathOfUri(textMember(f, "oldUri")), to = pathOfUri(textMember(f, "newUri"));
    if (from.empty() || to.empty()) continue;
    // A process runs on under the old name; of a renamed folder, the rest of each path stays.
    renamed_[to] = from;
  }
  for (auto& [uri, o] : documents_) learnFormerPaths(*o);
  markAllDirty();
  refreshDiagnostics();
  live_dirty_ = true;
}

// Follows renames back, also through several and through folders.
void Server::learnFormerPaths(Open& o) {
  o.ran_as.former.clear();
  std::string at = o.doc.path();
  for (int i = 0; i < 8; ++i) {
    std::string before;
    for (const auto& [now, was] : renamed_) {
      if (at == now) before = was;
      else if (before.empty() && at.starts_with(now + "/")) before = was + at.substr(now.size());
    }
    if (before.empty() || before == o.doc.path() || std::find(o.ran_as.former.begin(), o.ran_as.former.end(), before) != o.ran_as.former.end()) break;
    o.ran_as.former.push_back(before);
    at = before;
  }
  o.live_version = 0;
}

// Imports may find less now, or more.
void Server::filesDeleted(const Json&) {
  markAllDirty();
  refreshDiagnostics();
}

void Server::filesCreated(const Json& params) { filesDeleted(params); }

// Which files import which, read in slices between messages. What analyses say can depend on it, so they are made anew at
// the end.
void Server::startIndex() {
  if (index_running_) endIndex("started again");
  index_running_ = index_wanted_ && !roots_.empty();
  if (index_running_ && client_.progress) ask("flagos/progress", "window/workDoneProgress/create", {{"token", kToken}});
  progress_begun_ = false;
}

void Server::progressCancelled(const Json& params) {
  if (member(params, "token") == kToken && index_running_) endIndex("stopped");
}

void Server::endIndex(const char* how) {
  index_running_ = false;
  if (client_.progress && progress_begun_) notify("$/progress", {{"token", kToken}, {"value", {{"kind", "end"}, {"message", how}}}});
  progress_begun_ = false;
}

bool Server::indexSome(uint64_t now) {
  if (!index_running_) return false;
  const bool done = workspace_.index(kIndexSliceNs);
  const auto [read, total] = workspace_.indexed();
  const std::string message = std::to_string(read) + "/" + std::to_string(total) + " files";
  if (client_.progress && (!progress_begun_ || now - index_told_ > kIndexReportNs)) {
    Json value = {{"kind", progress_begun_ ? "report" : "begin"}, {"message", message}, {"percentage", total ? 100 * read / total : 100}};
    if (!progress_begun_) { value["title"] = "FlagOS: reading the workspace"; value["cancellable"] = true; }
    notify("$/progress", {{"token", kToken}, {"value", std::move(value)}});
    progress_begun_ = true;
    index_told_ = now;
  }
  const bool too_many = workspace_.tooMany();
  if (!done && !too_many) return true;
  endIndex(too_many ? "more files than are read: who imports whom stays unknown" : message.c_str());
  markAllDirty();
  refreshDiagnostics();
  return false;
}

}  // namespace flagos::lsp

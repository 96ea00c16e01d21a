// Which files of the workspace import which: read from import lines alone, without parsing.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "lsp/python/import_effects.h"
#include "lsp/python/workspace.h"
#include "runtime/base/clock.h"
#include "runtime/base/json.h"

namespace flagos::lsp {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMaxFiles = 6000;         // a folder with more is no project: programs are not looked for
constexpr uint64_t kListAgainNs = 5'000'000'000;
constexpr size_t kMaxPrograms = 8;
constexpr size_t kMaxClosure = 200;
constexpr size_t kMaxWords = 5000;          // files that are looked through for a word: each is one look-up

// Without one of these a text can neither place anything nor be told that it does.
constexpr std::array<std::string_view, 4> kPieces = {"torch", ".to(", ".cpu(", "privateuse"};
// Not inside another word: "input", "dumps".
constexpr std::array<std::string_view, 4> kWords = {"cuda", "npu", "xpu", "mps"};

bool wordChar(char c) { return c == '_' || c == '.' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80); }

struct Cursor {
  std::string_view text;
  size_t at = 0;
  void spaces(bool lines) {
    while (at < text.size()) {
      const char c = text[at];
      if (c == ' ' || c == '\t' || c == '\\' || (lines && (c == '\n' || c == '\r'))) { ++at; continue; }
      if (lines && c == '#') { while (at < text.size() && text[at] != '\n') ++at; continue; }
      if (c == '\r' || c == '\n') { if (at > 0 && text[at - 1] == '\\') { ++at; continue; } }
      return;
    }
  }
  std::string word() {
    const size_t from = at;
    while (at < text.size() && wordChar(text[at])) ++at;
    return std::string(text.substr(from, at - from));
  }
  bool is(std::string_view w) {
    if (text.substr(at, w.size()) != w || (at + w.size() < text.size() && wordChar(text[at + w.size()]))) return false;
    at += w.size();
    return true;
  }
};

// Calls fn(module, name or "") for each import line, but for those below `if TYPE_CHECKING:`, which no program runs.
template <typename F> void importLines(std::string_view text, F fn) {
  size_t line = 0;
  std::optional<size_t> typing;            // how far such an `if` is indented
  while (line < text.size()) {
    Cursor c{text, line};
    while (c.at < text.size() && (text[c.at] == ' ' || text[c.at] == '\t')) ++c.at;
    const size_t indent = c.at - line;
    const char first = c.at < text.size() ? text[c.at] : '\n';
    if (typing && (indent > *typing || first == '\n' || first == '\r' || first == '#')) {
      const auto next = text.find('\n', c.at);
      line = next == std::string_view::npos ? text.size() : next + 1;
      continue;
    }
    typing.reset();
    if (Cursor ahead = c; ahead.is("if")) {
      ahead.spaces(false);
      const std::string asked = ahead.word();
      if ((asked == "TYPE_CHECKING" || asked.ends_with(".TYPE_CHECKING")) && ahead.at < text.size() && text[ahead.at] == ':') typing = indent;
    }
    if (c.is("import")) {
      do {
        c.spaces(false);
        const std::string module = c.word();
        if (!module.empty()) fn(module, std::string());
        c.spaces(false);
        if (c.is("as")) { c.spaces(false); c.word(); c.spaces(false); }
      } while (c.at < text.size() && text[c.at] == ',' && ++c.at);
    } else if (c.is("from")) {
      c.spaces(false);
      const std::string module = c.word();
      c.spaces(false);
      if (!module.empty() && c.is("import")) {
        c.spaces(false);
        bool open = false;
        if (c.at < text.size() && text[c.at] == '(') { open = true; ++c.at; }
        bool more = true;
        while (more) {
          c.spaces(open);
          const std::string name = c.word();
          if (name.empty()) break;
          fn(module, name);
          c.spaces(open);
          if (c.is("as")) { c.spaces(open); c.word(); c.spaces(open); }
          more = c.at < text.size() && text[c.at] == ',';
          if (more) ++c.at;
        }
        fn(module, std::string());
      }
    }
    const auto end = text.find('\n', std::max(line, c.at == 0 ? 0 : c.at - 1));
    line = end == std::string_view::npos ? text.size() : end + 1;
  }
}

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

template <typename F> bool anyHit(std::string_view text, std::string_view word, F&& counts) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (const void* hit = memmem(at, static_cast<size_t>(end - at), word.data(), word.size())) {
    const auto begin = static_cast<size_t>(static_cast<const char*>(hit) - text.data());
    const std::string_view after = text.substr(begin + word.size());
    const char before = begin > 0 ? text[begin - 1] : ' ';
    if (!letter(before) && counts(before, after)) return true;
    at = static_cast<const char*>(hit) + 1;
  }
  return false;
}

bool hasWord(std::string_view text) {
  if (std::any_of(kPieces.begin(), kPieces.end(), [&](std::string_view w) { return memmem(text.data(), text.size(), w.data(), w.size()) != nullptr; })) return true;
  if (std::any_of(kWords.begin(), kWords.end(), [&](std::string_view w) { return anyHit(text, w, [](char, std::string_view after) { return after.empty() || !letter(after[0]); }); })) return true;
  for (size_t at = text.find(".device"); at != std::string_view::npos; at = text.find(".device", at + 1))
    if (!text.substr(at).starts_with(".device_encoding")) return true;   // os.device_encoding() is about terminals
  // `device=`, `device_map`, `devices = ...`, `device(...)`: a use, and not a word of a sentence.
  return anyHit(text, "device", [](char before, std::string_view after) {
    if (before == '_') return false;       // is_block_device()
    if (after.starts_with("s")) after.remove_prefix(1);
    if (after.starts_with("_")) return !after.starts_with("_encoding");
    return after.starts_with("=") || after.starts_with(" =") || after.starts_with("(") || after.starts_with(":") || (!after.empty() && after[0] == before && (before == '"' || before == '\''));
  });
}

}  // namespace

Workspace::Imports Workspace::importsOf(const std::string& path, std::string_view text) {
  Imports out;
  out.words = hasWord(text);
  ImportEffects effects = effectsOfImport(text);
  out.settings = effects.sets;
  out.setters = std::move(effects.setters);
  out.calls = std::move(effects.calls);
  importLines(text, [&](const std::string& module, const std::string& name) {
    const std::string full = name.empty() ? module : (module.ends_with('.') ? module : module + ".") + name;
    if (const auto file = resolve(path, full); !file.empty() && file != path) out.files.push_back(file);
  });
  std::sort(out.files.begin(), out.files.end());
  out.files.erase(std::unique(out.files.begin(), out.files.end()), out.files.end());
  return out;
}

struct Workspace::Walk {
  std::vector<std::string> found;
  std::set<std::string> seen;
  size_t root = 0;
  std::optional<fs::recursive_directory_iterator> at;
};

bool Workspace::listRoots(uint64_t until) {
  if (!walk_) walk_ = std::make_shared<Walk>();
  Walk& w = *walk_;
  bool too_many = false;
  size_t steps = 0;
  for (; w.root < roots_.size() && !too_many; ++w.root, w.at.reset()) {
    std::error_code ec;
    if (!w.at) w.at.emplace(roots_[w.root], fs::directory_options::skip_permission_denied, ec);
    for (auto& it = *w.at; !ec && it != fs::recursive_directory_iterator(); it.increment(ec)) {
      if (++steps % 64 == 0 && nowNs() > until) return false;
      const auto name = it->path().filename().string();
      if (it->is_directory(ec)) {
        if (name.starts_with(".") || name == "node_modules" || name == "__pycache__" || name == "site-packages") it.disable_recursion_pending();
        continue;
      }
      if (!name.ends_with(".py")) continue;
      std::error_code none;
      if (!it->is_regular_file(none)) continue;   // a pipe would be waited for
      std::string path = it->path().string();
      if (w.seen.insert(path).second) w.found.push_back(std::move(path));
      if (w.found.size() > kMaxFiles) { too_many = true; break; }
    }
  }
  if (too_many) w.found.clear();
  if (w.found != listed_) {   // a new file may be what an old import means
    imports_.clear();
    complete_ = false;
  }
  listed_ = std::move(w.found);
  walk_.reset();
  next_ = 0;
  too_many_ = too_many;
  return true;
}

const Workspace::Imports& Workspace::importsNow(const std::string& path) {
  Imports& known = imports_[path];
  if (overlay_) {                          // what is typed counts before it is saved
    if (known.turn == turn_) return known;
    if (const auto open = overlay_(path)) {
      const size_t hash = std::hash<std::string>()(*open) | 1;
      if (known.open_hash != hash) known = importsOf(path, *open);
      known.open_hash = hash;
      known.turn = turn_;
      return known;
    }
    if (known.open_hash != 0) known = {};
  }
  const Status st = status(path);
  if (known.stamp == st.stamp && known.size == st.size) return known;
  auto text = readFile(path, kMaxSourceBytes);
  known = text ? importsOf(path, *text) : Imports{};
  known.stamp = st.stamp;
  known.size = st.size;
  return known;
}

bool Workspace::index(uint64_t budget_ns) {
  if (!indexing_) return false;
  const uint64_t start = nowNs();
  if (walk_ || listed_at_ == 0 || (complete_ && !trusted_ && start - listed_at_ > kListAgainNs)) {
    // While the folders are listed again, what was known of them holds.
    if (!listRoots(start + budget_ns)) return complete_;
    listed_at_ = start;
  }
  if (too_many_) return false;
  if (complete_ && next_ == listed_.size()) return true;
  for (; next_ < listed_.size(); ++next_) {
    if (next_ % 16 == 15 && nowNs() - start > budget_ns) return complete_;
    importsNow(listed_[next_]);
  }
  complete_ = true;
  importers_.clear();
  for (const auto& path : listed_) for (const auto& f : imports_[path].files) importers_[f].push_back(path);
  return true;
}

Workspace::Users Workspace::usersOf(const std::string& path, size_t most) {
  Users out;
  if (!complete_) return out;
  std::vector<std::string> todo{path};
  while (!todo.empty()) {
    const std::string at = std::move(todo.back());
    todo.pop_back();
    const auto it = importers_.find(at);
    if (it == importers_.end()) {
      if (at != path) out.programs.push_back(at);
      continue;
    }
    for (const auto& user : it->second)
      if (user != path && out.between.insert(user).second) todo.push_back(user);
    if (out.between.size() > most) return {};
  }
  std::sort(out.programs.begin(), out.programs.end());
  if (out.programs.size() > kMaxPrograms) out.programs.resize(kMaxPrograms);
  return out;
}

bool Workspace::changesOthers(const std::string& path) {
  if (changes_turn_ != turn_) { changes_.clear(); changes_turn_ = turn_; }
  if (const auto it = changes_.find(path); it != changes_.end()) return it->second;
  std::set<std::string> seen;
  std::set<std::string_view> setters, calls;
  std::vector<std::string> todo{path};
  while (!todo.empty() && seen.size() < kMaxClosure) {
    const std::string at = std::move(todo.back());
    todo.pop_back();
    if (!seen.insert(at).second) continue;
    const Imports& known = importsNow(at);
    if (known.settings) return changes_[path] = true;
    setters.insert(known.setters.begin(), known.setters.end());
    calls.insert(known.calls.begin(), known.calls.end());
    todo.insert(todo.end(), known.files.begin(), known.files.end());
  }
  const bool changes = std::any_of(setters.begin(), setters.end(), [&](std::string_view s) { return calls.count(s) != 0; });
  changes_[path] = changes;
  // What all of them together do not do, none of them does.
  if (!changes && todo.empty()) for (const auto& s : seen) changes_[s] = false;
  return changes;
}

bool Workspace::mayMatter(const SourceUnit& unit) {
  if (hasWord(unit.text)) return true;
  std::set<std::string> seen{unit.path};
  std::vector<std::string> todo = importsOf(unit.path, unit.text).files;
  while (!todo.empty()) {
    const std::string at = std::move(todo.back());
    todo.pop_back();
    if (!seen.insert(at).second) continue;
    const Imports& known = importsNow(at);
    if (known.words || seen.size() > kMaxWords) return true;
    todo.insert(todo.end(), known.files.begin(), known.files.end());
  }
  return false;
}

}  // namespace flagos::lsp

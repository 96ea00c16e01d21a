#include "lsp/python/workspace.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "lsp/python/modules.h"
#include "runtime/base/clock.h"
#include "runtime/base/json.h"

namespace flagos::lsp {
namespace {

constexpr uint64_t kLookAgainNs = 500'000'000;

std::string parentOf(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash == 0 ? 1 : slash);
}

bool within(const std::string& folder, const std::string& root) { return folder == root || folder.starts_with(root == "/" ? root : root + "/"); }

// As `src` and `tests` of one project are.
bool beside(const std::string& root, const std::string& own) { return !own.empty() && parentOf(root) == parentOf(own); }

}  // namespace

bool SourceUnit::says(std::string_view literal) const {
  for (const auto& [word, there] : said_) if (word == literal) return there;
  return said_.emplace_back(literal, text.find(literal) != std::string::npos).second;
}

std::shared_ptr<const SourceUnit> makeUnit(std::string path, std::string text, const SyntaxTree& tree) {
  auto unit = std::make_shared<SourceUnit>();
  unit->path = std::move(path);
  unit->text = std::move(text);
  unit->lines = LineIndex(unit->text);
  unit->ast = lower(unit->text, tree);
  return unit;
}

std::shared_ptr<const SourceUnit> makeUnit(std::string path, std::string text, std::string* why) {
  auto tree = SyntaxTree::parse(text);
  if (!tree) {
    if (why) *why = tree.error().text();
    return nullptr;
  }
  return makeUnit(std::move(path), std::move(text), *tree);
}

Workspace::Workspace(Overlay overlay) : overlay_(std::move(overlay)), modules_(std::make_unique<ModuleStore>()) {}
Workspace::~Workspace() = default;

void Workspace::setRoots(std::vector<std::string> roots) {
  for (auto& r : roots) {
    r = std::filesystem::path(r).lexically_normal().string();
    while (r.size() > 1 && r.back() == '/') r.pop_back();
  }
  roots_.clear();
  for (auto& r : roots) if (std::find(roots_.begin(), roots_.end(), r) == roots_.end()) roots_.push_back(std::move(r));
  resolved_.clear();
  walk_.reset();
  complete_ = false;
  listed_at_ = 0;
}

void Workspace::begin() {
  ++turn_;
  const uint64_t now = nowNs();
  if (begun_ != 0 && (trusted_ || now - begun_ < kLookAgainNs)) return;
  begun_ = now;
  ++generation_;
  resolved_.clear();
}

const Workspace::Status& Workspace::status(const std::string& path) {
  Status& s = statuses_[path];
  if (s.checked == generation_) return s;
  struct stat st{};
  s = {generation_, false, 0, 0};
  if (::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode)) s = {generation_, true, st.st_mtim.tv_sec * 1'000'000'000LL + st.st_mtim.tv_nsec, st.st_size};
  return s;
}

std::shared_ptr<const SourceUnit> Workspace::file(const std::string& path) {
  Entry& e = cache_[path];
  auto unit = e.unit.lock();
  if (overlay_ && (e.checked != turn_ || (e.open && !unit))) {
    e.checked = turn_;
    if (std::optional<std::string> open = overlay_(path)) {
      if (unit && unit->text == *open) {   // opening a file changes nothing: what imports it stays as it is
        e.open = true;
        return unit;
      }
      const bool lent = lent_.tree && *lent_.path == path && *lent_.text == *open;
      unit = lent ? makeUnit(path, std::move(*open), *lent_.tree) : makeUnit(path, std::move(*open));
      e.open = true;
      e.unit = unit;
      return unit;
    }
    if (e.open) e.stamp = -1;              // what is on the disk may be another text
    e.open = false;
  }
  if (e.open && unit) return unit;
  const Status& st = status(path);
  if (!st.regular) { cache_.erase(path); return nullptr; }
  if (unit && e.stamp == st.stamp && e.size == st.size) return unit;
  auto read = readFile(path, kMaxSourceBytes);
  if (!read || !SyntaxTree::readable(*read)) { cache_.erase(path); return nullptr; }
  e.stamp = st.stamp;
  e.size = st.size;
  e.open = false;
  if (unit && unit->text == *read) return unit;
  auto later = std::make_shared<SourceUnit>();
  later->path = path;
  later->text = std::move(*read);
  later->lines = LineIndex(later->text);
  later->ast.readLater(later->text);
  unit = later;
  e.unit = unit;
  return unit;
}

std::string Workspace::rootOf(const std::string& folder) const {
  std::string best;
  for (const auto& r : roots_) if (within(folder, r) && r.size() > best.size()) best = r;
  return best;
}

std::string Workspace::abovePackages(std::string folder) {
  while (folder.size() > 1 && status(folder + "/__init__.py").regular) folder = parentOf(folder);
  return folder;
}

std::string Workspace::resolve(const std::string& from_path, const std::string& module) {
  if (from_path.empty() || module.empty()) return {};
  const std::string folder = parentOf(from_path);
  const std::string key = folder + "\n" + module;
  auto [known, added] = resolved_.try_emplace(key);
  if (!added && known->second != from_path) return known->second;
  size_t dots = 0;
  while (dots < module.size() && module[dots] == '.') ++dots;
  std::string relative = module.substr(dots);
  std::replace(relative.begin(), relative.end(), '.', '/');
  std::vector<std::string> bases;
  std::string dir = folder;
  if (dots > 0) {
    for (size_t i = 1; i < dots; ++i) dir = parentOf(dir);
    bases.push_back(dir);
  } else {
    bases.push_back(dir);
    // A package's own absolute imports: the folder above the outermost __init__.py.
    const std::string up = abovePackages(dir);
    // Other packages beside it are the workspace's only inside the roots: installed libraries stand beside each other too.
    const std::string own = up + "/" + relative.substr(0, relative.find('/'));
    if (up != dir && (!rootOf(up).empty() || dir == own || dir.starts_with(own + "/"))) bases.push_back(up);
    for (const auto& r : roots_) {
      const bool inside = within(folder, r);
      if (!inside && !beside(r, rootOf(folder))) continue;   // another project
      // A root that is a package is imported by its name; what lies in it has names of its own only for its scripts.
      const std::string above = abovePackages(r);
      const bool package = above != r;
      if (package && (r + "/").starts_with(above + "/" + relative.substr(0, relative.find('/')) + "/")) bases.push_back(above);
      if (package && !inside) continue;
      bases.push_back(r);
      bases.push_back(r + "/src");
    }
  }
  std::string found;
  for (const auto& base : bases) {
    const std::string stem = relative.empty() ? base : base + "/" + relative;
    for (const auto& candidate : {relative.empty() ? stem + "/__init__.py" : stem + ".py", stem + "/__init__.py"}) {
      if (candidate == from_path || (!status(candidate).regular && !(overlay_ && overlay_(candidate)))) continue;
      found = candidate;
      break;
    }
    if (!found.empty()) break;
  }
  if (known->second.empty()) known->second = found;
  return found;
}

std::shared_ptr<const SourceUnit> Workspace::import(const std::string& from_path, const std::string& module) {
  const std::string path = resolve(from_path, module);
  return path.empty() ? nullptr : file(path);
}

}  // namespace flagos::lsp

#include "lsp/python/workspace.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/json.h"

namespace flagos::lsp {
namespace fs = std::filesystem;

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

std::shared_ptr<const SourceUnit> Workspace::file(const std::string& path) {
  std::string text;
  Entry& e = cache_[path];
  std::optional<std::string> open = overlay_ ? overlay_(path) : std::nullopt;
  if (open) {
    if (e.unit && e.stamp == -1 && e.text == *open) return e.unit;
    e = {-1, 0, *open, makeUnit(path, *open)};
    return e.unit;
  }
  struct stat st{};
  if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) { cache_.erase(path); return nullptr; }
  const int64_t stamp = st.st_mtim.tv_sec * 1'000'000'000LL + st.st_mtim.tv_nsec;
  if (e.unit && e.stamp == stamp && e.size == st.st_size) return e.unit;
  auto read = readFile(path, kMaxSourceBytes);
  if (!read) { cache_.erase(path); return nullptr; }
  e = {stamp, st.st_size, {}, makeUnit(path, std::move(*read))};
  return e.unit;
}

std::shared_ptr<const SourceUnit> Workspace::import(const std::string& from_path, const std::string& module) {
  if (from_path.empty()) return nullptr;
  size_t dots = 0;
  while (dots < module.size() && module[dots] == '.') ++dots;
  std::string relative = module.substr(dots);
  std::replace(relative.begin(), relative.end(), '.', '/');
  std::vector<fs::path> bases;
  fs::path dir = fs::path(from_path).parent_path();
  if (dots > 0) {
    for (size_t i = 1; i < dots; ++i) dir = dir.parent_path();
    bases.push_back(dir);
  } else {
    bases.push_back(dir);
    // A package's own absolute imports: the folder above the outermost __init__.py.
    std::error_code ec;
    fs::path up = dir;
    while (fs::exists(up / "__init__.py", ec) && up.has_parent_path() && up != up.parent_path()) up = up.parent_path();
    if (up != dir) bases.push_back(up);
    for (const auto& r : roots_) {
      bases.emplace_back(r);
      bases.push_back(fs::path(r) / "src");
    }
  }
  for (const auto& base : bases) {
    const fs::path stem = relative.empty() ? base : base / relative;
    for (const auto& candidate : {relative.empty() ? stem / "__init__.py" : fs::path(stem.string() + ".py"), stem / "__init__.py"}) {
      if (candidate == from_path) continue;
      if (auto unit = file(candidate.lexically_normal().string())) return unit;
    }
  }
  return nullptr;
}

}  // namespace flagos::lsp

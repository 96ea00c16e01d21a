#include "lsp/python/modules.h"

#include <algorithm>
#include <set>

namespace flagos::lsp {
namespace {
constexpr size_t kMaxText = 32u << 20;     // bytes of source text kept
}

LoadedModule& ModuleStore::of(const std::shared_ptr<const SourceUnit>& unit) {
  auto& m = modules_[unit.get()];
  if (!m) {
    m = std::make_unique<LoadedModule>();
    m->unit = unit;
    m->owner = next_owner_++;
    const uint32_t before = heap.own(m->owner);
    m->scope = heap.make();
    heap.own(before);
    scopes_[m->scope] = m.get();
    text_bytes_ += unit->text.size();
  }
  return *m;
}

size_t ModuleStore::treeBytes() const {
  size_t sum = 0;
  for (const auto& [unit, m] : modules_) sum += unit->ast.bytes();
  return sum;
}

LoadedModule* ModuleStore::byScope(ObjectId scope) {
  const auto it = scopes_.find(scope);
  return it == scopes_.end() ? nullptr : it->second;
}

void ModuleStore::closure(LoadedModule& m, std::vector<LoadedModule*>& out, std::unordered_map<const LoadedModule*, bool>& seen) {
  if (!seen.emplace(&m, true).second) return;
  out.push_back(&m);
  for (size_t i = 0; i < m.imports.size(); ++i) closure(*m.imports[i], out, seen);
}

void ModuleStore::clear() {
  aside_.clear();
  modules_.clear();
  scopes_.clear();
  heap = Heap();
  text_bytes_ = 0;
}

void ModuleStore::refresh(Workspace& workspace, const std::string& machine) {
  aside_.clear();
  if (machine != machine_ || treeBytes() > max_trees_ || text_bytes_ > kMaxText) { clear(); machine_ = machine; return; }
  // Modules that were imported and not yet used stay: without them all that import them would have to run again.
  std::vector<const SourceUnit*> stale;
  for (const auto& [unit, m] : modules_)
    if (m->state == LoadedModule::State::running || workspace.file(unit->path).get() != unit)
      stale.push_back(unit);
  if (!stale.empty()) drop(stale);
}

void ModuleStore::drop(const std::vector<const SourceUnit*>& stale) {
  std::set<const LoadedModule*> gone;
  for (const auto* u : stale) gone.insert(modules_.at(u).get());
  for (bool more = true; more;) {
    more = false;
    for (const auto& [unit, m] : modules_) {
      if (gone.count(m.get())) continue;
      for (const auto* i : m->imports) if (gone.count(i)) { gone.insert(m.get()); more = true; break; }
    }
  }
  for (auto it = modules_.begin(); it != modules_.end();) {
    if (!gone.count(it->second.get())) { ++it; continue; }
    if (std::find(stale.begin(), stale.end(), it->first) == stale.end()) aside_.push_back(it->second->unit);   // run again, not read again
    heap.release(it->second->owner);
    scopes_.erase(it->second->scope);
    text_bytes_ -= it->first->text.size();
    it = modules_.erase(it);
  }
}

}  // namespace flagos::lsp

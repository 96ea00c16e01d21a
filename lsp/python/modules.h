// Modules that have been run once and stay: what `import` gives to every analysis of the workspace.
//
// Each module is run in the state an untouched program would have; what it changes outside itself (the default device, a
// name of another module) is kept as a delta and replayed for whoever imports it. Importing is then a look-up, and the same
// whoever asked first. Single-threaded.
#pragma once
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "lsp/python/heap.h"
#include "lsp/python/workspace.h"

namespace flagos::lsp {

struct LoadedModule {
  enum class State : uint8_t { idle, running, done };
  std::shared_ptr<const SourceUnit> unit;
  uint32_t owner = 0;                      // in the heap
  ObjectId scope = 0;
  State state = State::idle;
  bool cut = false;                        // its step budget ran out
  Delta effects;                           // on objects that are not its own
  std::vector<LoadedModule*> imports;      // directly, in order
};

class ModuleStore {
 public:
  Heap heap;

  // The module of a unit: made on first use, not yet run. Its scope exists.
  LoadedModule& of(const std::shared_ptr<const SourceUnit>& unit);
  // Null: the scope of something that is no stored module.
  LoadedModule* byScope(ObjectId scope);
  // Before an analysis: forgets modules whose file changed and all that imported them, and everything if the devices that
  // conditions were decided by are others now or too much has gathered.
  void refresh(Workspace& workspace, const std::string& machine);
  void clear();
  size_t size() const { return modules_.size(); }
  size_t treeBytes() const;                // of the nodes of all kept trees: the most of the memory
  // Above this, everything is forgotten before the next analysis. Modules that import each other must then all run again for
  // every file that touches them, so a pass over many files wants room for the whole of them.
  void limitTrees(size_t bytes) { max_trees_ = bytes; }
  // Module and all that it imports, each once.
  void closure(LoadedModule& m, std::vector<LoadedModule*>& out, std::unordered_map<const LoadedModule*, bool>& seen);

 private:
  void drop(const std::vector<const SourceUnit*>& stale);
  std::map<const SourceUnit*, std::unique_ptr<LoadedModule>> modules_;
  std::unordered_map<ObjectId, LoadedModule*> scopes_;
  std::vector<std::shared_ptr<const SourceUnit>> aside_;   // sound texts of dropped modules, for the analysis that comes
  std::string machine_;
  uint32_t next_owner_ = 1;
  size_t max_trees_ = 256u << 20;              // an editor's at the very most
  size_t text_bytes_ = 0;                      // of all modules
};

}  // namespace flagos::lsp

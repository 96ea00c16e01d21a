// Source files as the analysis sees them: text, lines and syntax tree, loaded once per content; which file an import means;
// and which files import a file.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "lsp/python/ast.h"
#include "lsp/text/position.h"

namespace flagos::lsp {

struct SourceUnit {
  std::string path;
  std::string text;
  LineIndex lines;
  Ast ast;
  // Whether these characters are anywhere in the text; looked for once, since findings ask at each call that they see.
  bool says(std::string_view literal) const;

 private:
  mutable std::vector<std::pair<std::string_view, bool>> said_;
};

// Fails (null and a reason) as SyntaxTree::parse does.
std::shared_ptr<const SourceUnit> makeUnit(std::string path, std::string text, std::string* why = nullptr);
std::shared_ptr<const SourceUnit> makeUnit(std::string path, std::string text, const SyntaxTree& tree);

class ModuleStore;

class Workspace {
 public:
  // `overlay` gives the text of a file that is open in the editor.
  using Overlay = std::function<std::optional<std::string>(const std::string& path)>;
  explicit Workspace(Overlay overlay = {});
  ~Workspace();
  void setRoots(std::vector<std::string> roots);
  // The file that `import module` in `from_path` means, or null: not in the workspace. Leading dots are relative.
  std::shared_ptr<const SourceUnit> import(const std::string& from_path, const std::string& module);
  // The path only; "" = not in the workspace.
  std::string resolve(const std::string& from_path, const std::string& module);
  std::shared_ptr<const SourceUnit> file(const std::string& path);
  // The syntax tree of an open text, until the next begin(): a module that imports that file does not read it again. Both
  // must live as long.
  void lend(const std::string* path, const std::string* text, const SyntaxTree* tree) { lent_ = {path, text, tree}; }
  // Once before each analysis: files are looked at again if that was more than half a second ago.
  void begin();
  // For one pass over many files: the disk is looked at once.
  void trustDisk() { trusted_ = true; }

  // ---- who imports whom ----
  // Reads the import lines of the roots' files for at most `budget_ns`; true when all are known. Cheap once they are.
  bool index(uint64_t budget_ns);
  // False: no file is read but those that are imported, directly or through others; who imports a file is then not known.
  void setIndexing(bool on) { indexing_ = on; }
  // How many of the roots' files have been read, and how many there are.
  std::pair<size_t, size_t> indexed() const { return {next_, listed_.size()}; }
  bool tooMany() const { return too_many_; }                   // the roots hold more files than are read
  // The programs that use a file: files that import it, directly or through others, and that nothing imports. `between` is
  // every file on the way, the programs included. Both empty before the index is complete, and where more than `most` files
  // lie between.
  struct Users { std::vector<std::string> programs; std::set<std::string> between; };
  Users usersOf(const std::string& path, size_t most);
  // Whether running this file, with all that it imports, changes anything outside itself.
  bool changesOthers(const std::string& path);
  // False: neither this text nor anything it imports from the workspace has a word that PyTorch or a device needs.
  bool mayMatter(const SourceUnit& unit);

  ModuleStore& modules() { return *modules_; }

 private:
  struct Entry {
    int64_t stamp = 0, size = 0;
    uint64_t checked = 0;
    bool open = false;
    std::weak_ptr<const SourceUnit> unit;
  };
  struct Status { uint64_t checked = 0; bool regular = false; int64_t stamp = 0, size = 0; };
  struct Imports {
    int64_t stamp = -1, size = -1;         // on the disk
    uint64_t turn = 0;                     // when it was last seen to be open in the editor
    size_t open_hash = 0;                  // of the open text that this was read from; 0: from the disk
    bool words = false, settings = false;
    std::vector<std::string> files, setters, calls;
  };
  struct Walk;                                                 // of the roots' folders, between two calls of index()
  const Status& status(const std::string& path);
  std::string rootOf(const std::string& folder) const;         // the innermost that it lies in; "" = in none
  std::string abovePackages(std::string folder);               // itself where it is no package
  bool listRoots(uint64_t until);                              // false: not yet done
  Imports importsOf(const std::string& path, std::string_view text);
  const Imports& importsNow(const std::string& path);          // of the file as it is in the editor or on the disk

  struct Lent { const std::string* path = nullptr; const std::string* text = nullptr; const SyntaxTree* tree = nullptr; };
  Overlay overlay_;
  Lent lent_;
  std::vector<std::string> roots_;
  std::map<std::string, Entry> cache_;
  std::unordered_map<std::string, Status> statuses_;
  std::unordered_map<std::string, std::string> resolved_;      // "folder\nmodule" -> path, this generation
  std::unordered_map<std::string, Imports> imports_;
  std::unordered_map<std::string, std::vector<std::string>> importers_;
  std::unordered_map<std::string, bool> changes_;              // changesOthers(), this turn
  uint64_t changes_turn_ = 0;
  std::vector<std::string> listed_;
  std::shared_ptr<Walk> walk_;
  size_t next_ = 0;                                            // of listed_: read so far
  bool complete_ = false, too_many_ = false, indexing_ = true, trusted_ = false;
  uint64_t generation_ = 1;                                    // of the disk
  uint64_t turn_ = 1;                                          // of open files: every analysis
  uint64_t begun_ = 0, listed_at_ = 0;
  std::unique_ptr<ModuleStore> modules_;
};

}  // namespace flagos::lsp

// Reads the workspace in the background: which files there are, what each imports, and which speak of devices.
//
// One thread of low priority; it yields while the editor is being answered. Nothing of a file's tree is kept, so a
// workspace of thousands of files costs some hundred bytes a file. Folders that hold other people's code (virtual
// environments, node_modules, hidden ones) are not entered, and a workspace is cut at kMaxFiles.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lsp/server/server.h"

namespace flagos::lsp {

inline constexpr size_t kMaxFiles = 20'000;

struct FileSummary {
  int64_t stamp = 0, size = 0;
  std::vector<std::string> imports;     // as written: "torch", ".model"
  unsigned definitions = 0;             // functions and classes
  bool speaks_of_devices = false;       // a device string, `.to(`, `.cuda(` or `device=` is in it
  bool readable = true;                 // its syntax could be read within the caps
};

// One file, from its text.
FileSummary summarise(const std::string& path, std::string text);
// The Python files below these folders, sorted; `cut` if there are more than kMaxFiles.
std::vector<std::string> pythonFiles(const std::vector<std::string>& roots, bool& cut, const std::atomic<bool>& stop);

class WorkspaceIndex {
 public:
  // `progress` is called on the index's thread: at the start, some times a second, and once with `finished`.
  explicit WorkspaceIndex(std::function<void(const IndexProgress&)> progress);
  ~WorkspaceIndex();
  // Starts anew with these folders; stops if there are none. Files whose time and size have not changed are not read again.
  void start(std::vector<std::string> roots);
  void update(const std::string& path);   // changed, created or deleted
  void setBusy(bool busy) { busy_ = busy; }
  std::map<std::string, FileSummary> files() const;
  // Files that import a module of this name (the last part counts: "model" for "a.model" and ".model").
  std::vector<std::string> importersOf(const std::string& module) const;

 private:
  struct State;
  std::shared_ptr<State> state_;          // shared with the thread, which may outlive this object while it reads
  std::atomic<bool>& busy_;
};

}  // namespace flagos::lsp

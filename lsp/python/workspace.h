// Source files as the analysis sees them: text, lines and syntax tree, loaded once per content.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lsp/python/ast.h"
#include "lsp/text/position.h"

namespace flagos::lsp {

struct SourceUnit {
  std::string path;
  std::string text;
  LineIndex lines;
  Ast ast;
};

// Fails (null and a reason) as SyntaxTree::parse does.
std::shared_ptr<const SourceUnit> makeUnit(std::string path, std::string text, std::string* why = nullptr);
std::shared_ptr<const SourceUnit> makeUnit(std::string path, std::string text, const SyntaxTree& tree);

class Workspace {
 public:
  // `overlay` gives the text of a file that is open in the editor.
  using Overlay = std::function<std::optional<std::string>(const std::string& path)>;
  explicit Workspace(Overlay overlay = {}) : overlay_(std::move(overlay)) {}
  void setRoots(std::vector<std::string> roots) { roots_ = std::move(roots); }
  // The file that `import module` in `from_path` means, or null: not in the workspace. Leading dots are relative.
  std::shared_ptr<const SourceUnit> import(const std::string& from_path, const std::string& module);
  std::shared_ptr<const SourceUnit> file(const std::string& path);

 private:
  struct Entry { int64_t stamp = 0; int64_t size = 0; std::string text; std::shared_ptr<const SourceUnit> unit; };
  Overlay overlay_;
  std::vector<std::string> roots_;
  std::map<std::string, Entry> cache_;
};

}  // namespace flagos::lsp

// A notebook as one virtual text: its Python cells in order, each ending with a line break, magics blanked.
//
// Offsets of the virtual text map to (cell, offset within the cell) and back; a cell's own text keeps its own positions.
// Cells are known by URI: a cell that is moved keeps its text, since clients send texts only once.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lsp/text/document.h"
#include "runtime/base/json.h"

namespace flagos::lsp {

struct CellVersion { std::string text; std::string name; };   // name: what ipykernel calls this text ("123456.py")

struct Cell {
  std::string uri;
  bool code = false;                    // kind "code"
  std::string language = "python";
  Document doc;                         // the cell's own text, as the editor shows it
  uint32_t begin = 0;                   // in the virtual text; only of Python cells
  int first_line = 0;                   // of the virtual text, 0-based
  std::vector<CellVersion> history;     // texts it had, oldest first: one of them may have been run
  bool python() const { return code && language == "python"; }
  uint32_t size() const { return static_cast<uint32_t>(doc.text().size()); }
};

class Notebook {
 public:
  struct Entry { std::string uri; bool code = false; };
  // The order of cells: `removed` entries at `start` give way to `added`. Numbers outside the notebook are clamped.
  void splice(int start, int removed, const std::vector<Entry>& added);
  void setKind(const std::string& uri, bool code);
  // The text of a cell arrives beside the order, before or after it; `language` is an LSP language id.
  void openCell(const std::string& uri, const std::string& language, int version, std::string text);
  void closeCell(const std::string& uri);
  // False: no such cell.
  bool changeCell(const std::string& uri, const std::vector<TextChange>& changes, int version, Encoding encoding);

  // The virtual text; also lays the cells out. Call after changes and before the mapping functions.
  std::string layOut();
  const Cell* cell(const std::string& uri) const;
  // The cell that holds a byte of the virtual text (its end included); null between cells.
  const Cell* at(uint32_t offset) const;
  // 0-based place among all cells, markdown included.
  int number(const Cell& cell) const;
  // 1-based line of the virtual text -> 1-based line within its cell.
  struct Line { const Cell* cell; int line; };
  Line lineAt(int virtual_line) const;
  std::vector<const Cell*> cells() const;
  bool outOfSync() const;

 private:
  std::vector<Entry> order_;
  std::map<std::string, Cell> texts_;
  void remember(Cell& cell);
};

// ipykernel's file name of a cell's text, without the folder: "/tmp/ipykernel_41/602534638.py" -> "602534638.py".
std::string ipykernelName(std::string_view cell_text);
// The name if the path is one of ipykernel's files, else "".
std::string_view ipykernelFile(std::string_view path);

// A notebook from its file. The error says why it is none, or that it is in another language.
Result<Notebook> notebookFromJson(const Json& document);

}  // namespace flagos::lsp

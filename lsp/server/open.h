// What is open in the editor: a text, or a notebook as one virtual text, with what was found out about it.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lsp/features/snapshot.h"
#include "lsp/text/document.h"
#include "lsp/text/notebook.h"

namespace flagos::lsp {

struct Open {
  explicit Open(Document d) : doc(std::move(d)) {}
  Document doc;                          // of a notebook: its virtual text
  std::optional<Notebook> notebook;
  bool cell_as_text = false;             // a cell that a client without notebook support opened as a text of its own
  std::optional<Analysis> analysis;
  std::string problem;                   // why there is no analysis
  bool dirty = true, publish = true;
  uint64_t dirty_since = 0, edited_at = 0, used_at = 0, cost_ns = 0;   // cost: of the last analysis
  bool typing = false;                   // the last edit came soon after the one before
  std::optional<LiveFile> live;
  std::vector<Finding> live_findings;    // what only the running process proves
  uint64_t live_version = 0;
  std::shared_ptr<const telemetry::ProcessRow> process;
  std::vector<std::string> follows;      // files that the last analysis read besides this one
  std::set<std::string> shown;           // URIs that have diagnostics in the editor
  RanAs ran_as;                          // former paths are kept here
};

// A place in the editor: the document, and for a notebook the cell.
struct Place {
  Open* open = nullptr;
  const Cell* cell = nullptr;
  const std::string& uri() const { return cell ? cell->uri : open->doc.uri(); }
  int version() const { return cell ? cell->doc.version() : open->doc.version(); }
  uint32_t offset(Position p, Encoding e) const {
    if (cell) return cell->begin + cell->doc.lines().offset(cell->doc.text(), p, e);
    return open->doc.lines().offset(open->doc.text(), p, e);
  }
  // Spans of other cells have no place here.
  bool holds(Span s) const { return !cell || (cell->python() && s.begin >= cell->begin && s.end <= cell->begin + cell->size()); }
  Position position(uint32_t offset, Encoding e) const {
    if (cell) return cell->doc.lines().position(cell->doc.text(), offset - cell->begin, e);
    return open->doc.lines().position(open->doc.text(), offset, e);
  }
  Range range(Span s, Encoding e) const { return {position(s.begin, e), position(s.end, e)}; }
  // The part of the virtual text that is here.
  Span all() const { return cell ? Span{cell->begin, cell->begin + cell->size()} : Span{0, static_cast<uint32_t>(open->doc.text().size())}; }
};

}  // namespace flagos::lsp

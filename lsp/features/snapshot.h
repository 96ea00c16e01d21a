// What a feature may see: one document as analysed, with its live values. No JSON, no I/O.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "lsp/live/hub.h"
#include "lsp/live/ran_as.h"
#include "lsp/python/analysis.h"

namespace flagos::lsp {

struct Snapshot {
  const Analysis* analysis = nullptr;
  const LiveFile* live = nullptr;                       // null: no process executed this file
  std::shared_ptr<const telemetry::ProcessRow> process;
  const LiveView* view = nullptr;
  const Machine* machine = nullptr;
};

struct HoverText { std::string markdown; Span span; };
std::optional<HoverText> hover(const Snapshot& s, uint32_t offset);

struct Symbol { std::string name, detail; int kind = 0; Span span, selection; std::vector<Symbol> children; };
std::vector<Symbol> symbols(const Snapshot& s);

// `offset`: the line's end. `label` is short and of a width that does not change with each value.
struct Hint { uint32_t offset = 0; int line = 0; std::string label, tooltip; };
enum class HintLevel : uint8_t { off, problems, all };
std::vector<Hint> hints(const Snapshot& s, Span within, HintLevel level);
// What the hint of this line (1-based) says when it is pointed at; "" if it has none any more.
std::string hintTooltip(const Snapshot& s, int line, HintLevel level);

// What can be done about a place. A safe fix keeps what the program computes; an unsafe one says so in its title.
struct Action {
  enum class Kind : uint8_t { fix, ignore, fix_all, explain } kind = Kind::fix;
  std::string title;
  bool preferred = false;
  const Finding* finding = nullptr;    // null: fix_all, explain
  std::vector<Edit> edits;
  uint32_t at = 0;                     // explain: where
};
std::vector<Action> actions(const Snapshot& s, Span within);

struct Completion { std::string label, detail; };
// `line` up to the cursor.
std::vector<Completion> completions(const Machine& machine, std::string_view line);

struct Status { std::string state, text, tooltip; int severity = 0; bool operator==(const Status&) const = default; };
// `front`: the document in front of the user.
Status status(const Machine& machine, const LiveView& view, const RanAs& front, int pinned);

struct TreeNode { std::string label, description, tooltip; std::string path; Span span; const SourceUnit* unit = nullptr; int line = 0; std::vector<TreeNode> children; };
std::vector<TreeNode> tree(const Snapshot& s, std::string_view view);

}  // namespace flagos::lsp

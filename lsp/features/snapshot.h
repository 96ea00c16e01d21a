// What a feature may see: one document as analysed, with its live values. No JSON, no I/O.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "lsp/live/hub.h"
#include "lsp/live/join.h"
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

struct Hint { uint32_t offset = 0; std::string label, tooltip; };
enum class HintLevel : uint8_t { off, problems, all };
std::vector<Hint> hints(const Snapshot& s, Span within, HintLevel level);

struct Action { std::string title; bool preferred = false; const Finding* finding = nullptr; std::vector<Edit> edits; };
std::vector<Action> actions(const Snapshot& s, Span within);

struct Completion { std::string label, detail; };
// `line` up to the cursor.
std::vector<Completion> completions(const Machine& machine, std::string_view line);

struct Status { std::string state, text, tooltip; int severity = 0; bool operator==(const Status&) const = default; };
// `path`: the document in front of the user.
Status status(const Machine& machine, const LiveView& view, const std::string& path, int pinned);

struct TreeNode { std::string label, description, tooltip; std::string path; Span span; const SourceUnit* unit = nullptr; int line = 0; std::vector<TreeNode> children; };
std::vector<TreeNode> tree(const Snapshot& s, std::string_view view);

}  // namespace flagos::lsp

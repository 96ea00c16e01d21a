// What a document was called when a process ran it: its path, a former path (renamed since), or ipykernel's file per cell.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "lsp/live/hub.h"
#include "lsp/live/join.h"
#include "lsp/text/notebook.h"

namespace flagos::lsp {

struct RanAs {
  std::string path;
  std::vector<std::string> former;      // paths that it was renamed from
  const Notebook* notebook = nullptr;   // laid out
};

// Lines that the analysis names become (cell, line within it).
void sayCells(Analysis& analysis, const Notebook& notebook);

bool executed(const telemetry::ProcessRow& process, const RanAs& document);
// The process to show: `pinned` if it is there, else the newest live one that executed the document (of a job its lowest
// rank), else the newest ended one that did. Null if none did.
std::shared_ptr<const telemetry::ProcessRow> processFor(const LiveView& view, const RanAs& document, int pinned);
// The processes of the same job that executed the document, `primary` included, by rank; only `primary` if it is alone.
std::vector<std::shared_ptr<const telemetry::ProcessRow>> jobOf(const LiveView& view, const RanAs& document,
                                                                 const std::shared_ptr<const telemetry::ProcessRow>& primary);
// joinLive in the document's own lines, cells and names.
LiveFile joinDocument(const Analysis& analysis, std::string_view text, const telemetry::ProcessRow& process, const RanAs& document,
                      const std::vector<LineOrigins>* origins);
// All of it: the process to show, joined, with the spread over its job. Nothing if no process executed the document.
std::optional<LiveFile> liveOf(const LiveView& view, const Analysis& analysis, std::string_view text, const RanAs& document, int pinned,
                               const std::vector<LineOrigins>* origins);

// The file and line under which the process knows a place of the document (`line` as in LiveSite::measured_line).
struct RanAt { std::string path; int line = 0; };
RanAt ranAt(const telemetry::ProcessRow& process, const RanAs& document, const LiveSite& site);

}  // namespace flagos::lsp

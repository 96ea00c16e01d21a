// The documents of `flagos-lsp --check`: JSON by contract, text for people.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lsp/live/join.h"
#include "lsp/predict/predict.h"
#include "lsp/python/analysis.h"
#include "lsp/text/notebook.h"
#include "runtime/base/json.h"

namespace flagos::lsp {

// The first part of a file that does not parse: the rest is read, but not all of it.
struct Broken { int line = 0, column = 0, last = 0, cell = -1; };   // 1-based; the cell 0-based, lines within it

struct FileReport {
  std::string path;
  std::string skipped;                  // reason; then the rest is empty
  std::optional<Broken> broken;
  Analysis analysis;
  std::optional<LiveFile> live;         // joined telemetry
  std::shared_ptr<const Notebook> notebook;   // the file is one; spans are of its virtual text
};

struct CheckOptions {
  std::vector<std::string> paths;
  bool json = false, sarif = false, attach = false;
  std::optional<int> pid;
  std::optional<std::vector<std::string>> devices;   // --devices
  std::map<std::string, std::string> severity;       // --severity, over those of .flagos.json
  Encoding encoding = Encoding::utf16;
  int attach_ms = 1500;
};

Json reportJson(const std::vector<FileReport>& files, const CheckOptions& options);
// Names of files and pieces of sources may hold what a terminal takes as orders: those characters are written as \xNN, line
// ends and tabs too unless they are the text's own.
std::string visible(std::string_view text, bool lines = false);
std::string reportText(const std::vector<FileReport>& files, const CheckOptions& options);
Json reportSarif(const std::vector<FileReport>& files, const CheckOptions& options);

// Runs the check; returns the exit code.
int runCheck(const CheckOptions& options);

// Adds "range", and "cell" (0-based) for a notebook, whose ranges are within the cell.
void addRange(Json& into, const FileReport& file, Span span, Encoding encoding);
std::string brokenText(const Broken& b);   // "does not parse from here to line 7; ..."
Json liveJson(const LiveSite& live);
// predicted.cpp
Json predictedJson(const Predicted& p);
Json memoryJson(const std::vector<FileReport>& files);       // needs of each device over all files
std::string memoryText(const std::vector<FileReport>& files);
std::string functionsText(const FileReport& f);

// "npu:0 or cpu", "npu:<LOCAL_RANK>", "unknown: reason".
std::string devicesText(const Site& site);

}  // namespace flagos::lsp

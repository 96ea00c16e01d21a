// The result of device flow analysis of one file: its device sites and findings. Plain data; no tree-sitter, no JSON.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lsp/predict/predicted.h"
#include "lsp/python/workspace.h"
#include "runtime/dal/description.h"

namespace flagos::lsp {

// What is known of an assumed device beyond its name.
struct MachineDevice {
  dal::DeviceDescription description;
  std::optional<double> free_bytes;        // of a device that is really there, when it was read
  std::string free_source, why_no_free;    // "sysfs"; why a device that is there does not tell
  double free_read_at = 0;                 // seconds since the epoch
  std::string rates;                       // of a card of the table: its figures, their confidence, what is assumed
};

// The devices that the analysis assumes. `known` is false until the machine has been looked at: conditions on
// is_available() are then not decided.
struct Machine {
  bool known = false;
  std::vector<std::string> devices;        // "npu:0", "npu:1"
  std::map<std::string, MachineDevice> details;   // by device; none for a device of which only the name is given
  bool has(std::string_view type) const;
  int count(std::string_view type) const;
  // The accelerator torch.accelerator means: the first device's type, or "".
  std::string accelerator() const;
};

struct ResolvedDevice {
  std::string device, because, path;
  int line = 0;                            // 1-based, in path
  int cell = -1;                           // of a notebook (0-based); `line` is then within the cell
};

struct Site {
  Span span;
  int line = 0;                            // 1-based
  std::string call, kind;                  // placement | move | copy | source | mention | context | setting
  std::string resolution;                  // exact | candidates | runtime | unknown
  std::string expression, reason;          // "" = null
  std::vector<ResolvedDevice> devices;     // the likeliest first
  std::optional<double> bytes;
  std::string bytes_how;                   // "131,072 float32", or why the bytes are not known
  bool assumed = false;                    // `bytes` follow from a default that a caller or the command line can change
  uint32_t object = 0;                     // moves of one module have one number; 0 = not known
  const Node* node = nullptr;
};

struct Edit { Span span; std::string text; };
struct Fix { bool safe = false; std::string title; std::vector<Edit> edits; };
struct Related { std::string path; int line = 0; std::string message; int cell = -1; };
struct Finding {
  std::string code, severity, message;     // severity: error | warning | information | hint
  Span span;
  std::vector<Related> related;
  std::optional<Fix> fix;
};

// A fact for hover only: "cast, stays on npu:1".
struct Note { Span span; std::string text; };

struct Analysis {
  std::shared_ptr<const SourceUnit> unit;
  std::vector<Site> sites;                 // by position
  std::vector<Finding> findings;           // by position, suppressed ones left out
  std::vector<Note> notes;
  std::vector<OpUse> ops;                  // operator calls that were followed, in order
  std::shared_ptr<const Predicted> predicted;
  std::vector<std::shared_ptr<const SourceUnit>> others;  // files that were followed
  bool gave_up = false;                    // something was left out: results are what was seen
  std::string gave_up_why;
  bool abandoned = false;
  size_t steps = 0;                        // evaluated nodes, with those of the modules that were run for it
};

struct AnalysisOptions {
  Machine machine;
  // Finding code -> "off" or a severity, over the defaults of findings/severity.h.
  std::map<std::string, std::string> severity;
  size_t max_steps = 200'000;              // evaluated nodes
  uint64_t max_ns = 1'000'000'000;         // an editor must not wait longer for one file
  // Asked now and then; true ends the analysis at once, and `abandoned` says so: nothing of it may be shown.
  std::function<bool()> stop;
};

// `tree` is the unit's, if the caller has it at hand.
Analysis analyse(std::shared_ptr<const SourceUnit> unit, Workspace& workspace, const AnalysisOptions& options, const SyntaxTree* tree = nullptr);

}  // namespace flagos::lsp

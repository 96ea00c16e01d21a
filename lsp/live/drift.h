// Where a measured site is now: finds the place of a telemetry site in a text that may have been edited since the run.
//
// exact: it is where it was. moved: the same call, on another line. edited: the call there has changed; its value was
// measured before the edit. gone: no such call. A value is never given to a call that cannot be told apart from another:
// with a baseline text (found by its content hash) lines are matched by a diff, so an identical call on a new line gets
// nothing; without one, only calls whose number did not change are matched.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lsp/python/workspace.h"
#include "lsp/text/document.h"
#include "runtime/telemetry/model.h"

namespace flagos::lsp {

enum class DriftState : uint8_t { exact, moved, edited, gone };
const char* driftName(DriftState);

struct Placement {
  DriftState state = DriftState::gone;
  const Node* node = nullptr;          // in the current tree; null if gone, or if the row had no columns and its line several calls
  int line = 0;                        // 1-based, now; 0 if gone
  std::string why;                     // for gone: what was looked for
};

class Drift {
 public:
  // `ran_hash`: hash of the content that the process runs; `baseline`: that content, if it could be found.
  // `rows`: all rows of this file (to count what cannot be told apart). `origins`: lines followed through an editor's
  // edits, which know more than a diff where an identical line was put beside another.
  Drift(const SourceUnit& now, std::string_view raw_now, std::string_view ran_hash, std::optional<std::string> baseline,
        const std::vector<const telemetry::SiteRow*>& rows, const std::vector<LineOrigins>* origins = nullptr);
  Placement place(const telemetry::SiteRow& row) const;
  bool sameText() const { return same_; }
  bool haveBaseline() const { return same_ || baseline_.has_value(); }

 private:
  struct Place { uint32_t begin, end; const Node* node; };
  const Node* nodeAt(uint32_t begin, uint32_t end) const;
  const Node* bestOnLine(int line, const std::string& hash) const;
  Placement byBaseline(const telemetry::SiteRow& row) const;
  Placement byHash(const telemetry::SiteRow& row) const;
  Placement inPlace(const telemetry::SiteRow& row) const;
  const SourceUnit& now_;
  bool same_ = false;
  std::optional<std::string> baseline_;
  LineIndex baseline_lines_;
  std::vector<int> line_map_;                                   // baseline line -> current line, or -1 (0-based)
  std::vector<int> followed_;                                   // the same through edits, changed lines included; may be empty
  std::vector<const Node*> expressions_;                        // of the current tree, by position
  std::multimap<std::string, const Node*> by_hash_;
  std::map<std::string, std::vector<std::pair<int, int>>> rows_by_hash_;   // distinct (line, column)
};

// For each line of `a` the line of `b` that it is, or -1. Equal lines only, in order; the longest such matching.
std::vector<int> matchLines(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b);

std::string hash16(uint64_t hash);
// The text whose hash is `hash`: remembered by this process, kept by the runtime in its cache, or nothing.
std::optional<std::string> baselineText(const std::string& hash);
void rememberBaseline(const std::string& raw_text);

}  // namespace flagos::lsp

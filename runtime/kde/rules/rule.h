// Routing rules as data: predicates over a call's facts, and what to do where all of them hold.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/kde/facts.h"
#include "runtime/kde/router.h"

namespace flagos::kde {

enum class Compare : uint8_t { eq, ne, lt, le, gt, ge };

struct Test {
  Compare compare = Compare::eq;
  double number = 0;         // integer, bytes, boolean fields
  std::string text;          // text (with wildcards), dtype, kind fields
};

// One entry of `when`: the field meets any of the tests. An unknown operand meets none.
struct Predicate {
  Field field = Field::op;
  std::vector<Test> any;
  std::string text;          // "m > 1024", "device.kind = discrete or npu"
  bool holds(const Facts&) const;
  bool onDevice() const noexcept { return field >= Field::device_kind; }
};

enum class Action : uint8_t { use, prefer, forbid };
enum class Level : uint8_t { user, device, vendor, builtin };  // the order of precedence
std::string_view actionName(Action) noexcept;
std::string_view levelName(Level) noexcept;

struct Rule {
  std::string name;
  std::vector<std::string> ops;         // patterns; a composite operator brings those it runs as
  std::vector<Predicate> when;
  Action action = Action::use;
  std::string target;                   // as written
  std::vector<CandidateId> targets;     // one, or all that a forbidding glob names
  Level level = Level::user;
  std::string from;                     // "rules.json:4" or "built-in"
  bool covers(std::string_view op) const;
  std::string predicate() const;        // "m > 1024 and dtype = float16", "always"
  std::string label() const;            // "rule wide-mm (rules.json:4)"
};

// All rules of one text, or every mistake in it: `where` is "file:line:column", exit is broken_input. A text with
// mistakes gives no rules at all.
struct RuleFile {
  std::vector<Rule> rules;
  std::vector<Error> errors;
};
RuleFile parseRules(std::string_view json_text, std::string_view from, Level level);

// A rule made by `flagos route set --op --use`; the error names the nearest candidate.
Result<Rule> makeRule(std::string_view op_glob, std::string_view candidate, std::string_view name);

// Why a rule with this `op` and these targets could never apply: no operator that it covers is of a family that any of
// the targets runs. "" if it may. What cannot be checked (a glob that names no operator with an OpenCL kernel) may.
std::string whyNoFit(std::string_view op, const std::vector<CandidateId>& targets);
// The candidate of the operator's own family and the same variant ("opencl.conv.tiled" for aten::mm: opencl.gemm.tiled).
std::string sameForFamily(std::string_view op, CandidateId);
// The pattern, and for a composite operator those that PyTorch runs instead.
std::vector<std::string> withComposites(std::string_view op);
std::string nearestCandidate(std::string_view name);

}  // namespace flagos::kde

#include "runtime/kde/rules/rule.h"

#include <algorithm>
#include <set>

#include "runtime/base/settings.h"
#include "runtime/kde/catalog/catalog.h"
#include "runtime/kde/catalog/native_ops.h"
#include "runtime/kde/query.h"

namespace flagos::kde {
namespace {

bool compare(double a, Compare c, double b) {
  switch (c) {
    case Compare::eq: return a == b;
    case Compare::ne: return a != b;
    case Compare::lt: return a < b;
    case Compare::le: return a <= b;
    case Compare::gt: return a > b;
    case Compare::ge: return a >= b;
  }
  return false;
}

bool isGlob(std::string_view op) { return op.find_first_of("*?") != std::string_view::npos; }

// Families of the operators that a rule's `op` covers, those that a composite runs as included.
std::set<Family> familiesOf(std::string_view op) {
  std::set<Family> out;
  if (!isGlob(op) && familyOf(op) != Family::other) out.insert(familyOf(op));
  for (const NativeOp& row : nativeOpTable()) {
    if (!opMatches(op, row.op)) continue;
    out.insert(row.family);
    for (std::string_view target : row.runs_as)
      if (const NativeOp* native = findNativeOp(target)) out.insert(native->family);
  }
  return out;
}

}  // namespace

std::string whyNoFit(std::string_view op, const std::vector<CandidateId>& targets) {
  const auto runs = [&](const std::set<Family>& families) {
    return std::any_of(targets.begin(), targets.end(), [&](CandidateId id) { return families.count(candidate(id).family) != 0; });
  };
  if (targets.empty() || runs({Family::other})) return {};
  const std::set<Family> families = familiesOf(op);
  if (runs(families) || (families.empty() && isGlob(op))) return {};
  const CandidateRow& row = candidate(targets.front());
  std::string own;
  for (const Family f : families) own += (own.empty() ? "" : ", ") + std::string(familyName(f));
  return std::string(row.name) + " runs " + std::string(familyName(row.family)) + " operators; " + std::string(op) +
         (own.empty() ? " has no OpenCL kernel" : " is in family " + own);
}

std::string sameForFamily(std::string_view op, CandidateId id) {
  for (const Family f : familiesOf(op))
    for (const CandidateRow& row : candidates())
      if (row.family == f && row.shape == candidate(id).shape) return std::string(row.name);
  return {};
}

std::string_view actionName(Action a) noexcept {
  return a == Action::use ? "use" : a == Action::prefer ? "prefer" : "forbid";
}
std::string_view levelName(Level l) noexcept {
  switch (l) {
    case Level::user: return "user";
    case Level::device: return "device";
    case Level::vendor: return "vendor";
    case Level::builtin: return "built-in";
  }
  return "user";
}

bool Predicate::holds(const Facts& f) const {
  if (!f.known(field)) return false;
  const FieldType type = fieldInfo(field).type;
  const bool textual = type == FieldType::text || type == FieldType::dtype || type == FieldType::kind;
  return std::any_of(any.begin(), any.end(), [&](const Test& t) {
    if (!textual) return compare(static_cast<double>(*f.number(field)), t.compare, t.number);
    const bool equal = field == Field::op ? opMatches(t.text, f.op()) : globMatches(t.text, f.text(field));
    return equal == (t.compare == Compare::eq);
  });
}

bool Rule::covers(std::string_view op) const {
  auto matches = [&](std::string_view candidate) {
    return std::any_of(ops.begin(), ops.end(), [&](const std::string& p) { return opMatches(p, candidate); });
  };
  if (matches(op)) return true;
  const NativeOp* native = findNativeOp(op);
  return native && std::any_of(native->runs_as.begin(), native->runs_as.end(), matches);
}

std::string Rule::predicate() const {
  std::string out;
  for (const Predicate& p : when) out += (out.empty() ? "" : " and ") + p.text;
  return out.empty() ? "always" : out;
}

std::string Rule::label() const { return "rule " + name + " (" + from + ")"; }

Result<Rule> makeRule(std::string_view op_glob, std::string_view name_of_candidate, std::string_view name) {
  const CandidateId id = candidateId(name_of_candidate);
  if (id == kNoCandidate) {
    const std::string near = nearestCandidate(name_of_candidate);
    return fail("no candidate is named '" + std::string(name_of_candidate) + "'",
                near.empty() ? "`flagos explain OP` lists them" : "Did you mean " + near + "?");
  }
  if (op_glob.find("::") == std::string_view::npos && op_glob.find_first_of("*?") == std::string_view::npos)
    return fail("'" + std::string(op_glob) + "' is no operator name", "Write aten::" + std::string(op_glob));
  if (op_glob.find_first_of("*?") == std::string_view::npos)
    if (auto known = checkOp(std::string(op_glob)); !known) return known.error();
  if (const std::string why = whyNoFit(op_glob, {id}); !why.empty()) {
    const std::string own = sameForFamily(op_glob, id);
    return fail(why, own.empty() ? "`flagos explain OP` lists what can run it" : "Did you mean " + own + "?");
  }
  Rule r;
  r.name = std::string(name);
  r.ops = withComposites(op_glob);
  r.action = Action::use;
  r.target = std::string(name_of_candidate);
  r.targets = {id};
  r.from = "flagos route set";
  return r;
}

std::vector<std::string> withComposites(std::string_view op) {
  std::vector<std::string> out{std::string(op)};
  if (op.find_first_of("*?") != std::string_view::npos) return out;
  for (const NativeOp& row : nativeOpTable())
    if (!row.runs_as.empty() && (row.op == op || baseName(row.op) == op))
      for (std::string_view target : row.runs_as) out.emplace_back(target);
  return out;
}

std::string nearestCandidate(std::string_view name) {
  const auto names = candidateNames();
  if (std::string near = nearest(name, names); !near.empty()) return near;
  // A half-typed name is farther from its whole than a misspelled one.
  for (const std::string& n : names)
    if (name.size() >= 4 && n.substr(0, name.size()) == name) return n;
  return {};
}

}  // namespace flagos::kde

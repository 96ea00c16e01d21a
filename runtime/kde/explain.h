// The evaluation of one call with its trace, and the search for what would change the answer.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/kde/decide.h"

namespace flagos::kde {

struct ExplainInput {
  const Signature& signature;
  const dal::DeviceDescription& device;
  Situation situation;
  const std::vector<Rule>& rules;                              // in order of precedence
  std::function<double(CandidateId)> measured;                 // seconds that telemetry saw; < 0 = none; may be empty
};

// The document of the command contract, without `query` and `counts`.
Json explainCall(const ExplainInput&, std::string_view why_not);

struct Change { std::string if_, then; };
// The first flips of single facts that lead to another candidate: thresholds of rules, dtype, layout, size, kind of device,
// switches.
std::vector<Change> wouldChange(const ExplainInput&, const Decision& now);

// Rules that hold, one by one in order (the decision tree gives the same list).
std::vector<const Rule*> rulesThatHold(const std::vector<Rule>&, const Facts&);

}  // namespace flagos::kde

// The one evaluation behind Router::choose and explain: which candidates are legal, what rules say, what they cost, which
// one it is and why. Depends on the signature, the description, the rules, the switches and the stored measurements only
// (and on the queue's state where all routes give the same bits), so the same script takes the same routes again.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/kde/cost.h"
#include "runtime/kde/measured.h"
#include "runtime/kde/rules/rule.h"

namespace flagos::kde {

// Two predictions closer than this cannot be told apart by the cost model.
inline constexpr double kSeparation = 3;

// Calls predicted to take less are not timed: launching and waiting would be, and both vary by more.
inline constexpr double kShortest = 2e-5;

struct Situation {
  Mode mode = Mode::automatic;
  Fallback fallback = Fallback::warn;
  bool queue_busy = true;
  const MeasuredStore* measured = nullptr;   // null: none are kept, or kept ones must not choose
  bool may_measure = false;                  // a choice that is still open can be measured before the first use
};

struct CandidateVerdict {
  CandidateId id = kNoCandidate;
  bool legal = false;
  std::string why;                           // not legal: which rule, switch or limit; legal: how it did
  Cost cost;
  std::optional<Measurement> kept;           // from the store
  std::optional<double> measured;            // its seconds, with the wait that is counted for the host
};

struct RuleVerdict {
  const Rule* rule = nullptr;
  bool decided = false;                      // this rule chose the candidate
  bool rejected = false;                     // it holds, but what it asks for cannot be done
  std::string why;
};

struct Decision {
  CandidateId chosen = kNoCandidate;
  std::string reason;                        // for viewers; no numbers of this one call, so that texts stay few
  const Rule* rule = nullptr;                // the rule that chose, if one did
  bool bit_equal = false;                    // the state of the queue may choose
  std::vector<CandidateId> open;             // to be timed before the first use: the cost model cannot tell them apart
  std::vector<CandidateVerdict> candidates;  // of the operator's family, in order of preference
  std::vector<RuleVerdict> rules;            // those that hold, in order
  const CandidateVerdict* verdict(CandidateId) const noexcept;
};

// Calls whose candidates may be timed against each other: of pure operators, not too large to be run some times more. It
// depends on the shape class alone, so that all its calls are measured or none.
bool worthMeasuring(const Facts&);

Decision decide(const Facts&, const Situation&, const std::vector<const Rule*>& holding);

}  // namespace flagos::kde

// Findings about loops wait until everything was followed: only then is it known whether a loop has another one inside that
// does the work, so that what is outside of that one happens once an epoch.
#pragma once
#include <memory>
#include <set>
#include <vector>

#include "lsp/findings/common.h"

namespace flagos::lsp {

class LoopReports {
 public:
  // Listens to the interpreter; keep one for all findings that use it.
  static std::shared_ptr<LoopReports> attach(Interp& interp);
  // Reports at the end: as a warning if it happens in every pass, as a hint if it is guarded, not at all if it is rare or
  // once an epoch. `f` has no `related` loop yet.
  void add(const CallEvent& e, const Repetition& r, Finding f);

 private:
  struct Waiting { Finding finding; const SourceUnit* unit; const Node* loop; const SourceUnit* loop_unit; Often often; };
  void see(Interp& interp, const CallEvent& e);
  void finish(Interp& interp);
  std::vector<Waiting> waiting_;
  std::set<const Node*> epochs_;       // loops with an inner loop that trains, infers or uploads
  std::set<const Node*> outer_;        // loops with an inner loop that does anything on a device
};

}  // namespace flagos::lsp

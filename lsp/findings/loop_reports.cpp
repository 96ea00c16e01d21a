#include "lsp/findings/loop_reports.h"

namespace flagos::lsp {
namespace {

bool isWork(const CallEvent& e) {
  if (e.kind == E::call) {
    return e.call == "Module.__call__" || e.call.ends_with(".backward") || e.call.ends_with(".step") || e.args->keyword("$target") != nullptr;
  }
  return e.kind == E::foreign && (e.call == "backward" || e.call == "step");
}

}  // namespace

std::shared_ptr<LoopReports> LoopReports::attach(Interp& interp) {
  auto reports = std::make_shared<LoopReports>();
  interp.listen(E::call | E::foreign | E::operation, [reports](Interp&, const CallEvent& e) { reports->see(e); });
  interp.finishers.emplace_back([reports](Interp& i) { reports->finish(i); });
  return reports;
}

void LoopReports::see(const CallEvent& e) {
  if (e.loops->size() < 2 || e.loops->back().node->kind == N::comp) return;
  std::set<const Node*>* into = nullptr;
  if (e.kind == E::operation) {
    for (const auto& a : e.args->list) if (!acceleratorOf(a.value).empty()) into = &outer_;
  } else if (isWork(e)) {
    into = &epochs_;
  }
  if (!into) return;
  // One loop may be on the list twice: a function that is called in a loop of its own kind.
  for (size_t i = 0; i + 1 < e.loops->size(); ++i)
    if ((*e.loops)[i].node != e.loops->back().node) into->insert((*e.loops)[i].node);
}

void LoopReports::add(const CallEvent& e, const Repetition& r, Finding f) {
  waiting_.push_back({std::move(f), e.unit, r.loop, r.unit, r.often});
}

void LoopReports::finish(Interp& interp) {
  for (auto& w : waiting_) {
    if (w.often == Often::never || w.often == Often::once_a_while || epochs_.count(w.loop)) continue;
    if (w.often == Often::sometimes || outer_.count(w.loop)) {
      w.finding.severity = "hint";
      w.finding.message += w.often == Often::sometimes ? " (only where the condition around it holds)" : " (once for every run of the inner loop)";
    }
    w.finding.related.push_back({w.loop_unit->path, w.loop->line, "the loop"});
    interp.report(std::move(w.finding), w.unit);
  }
  waiting_.clear();
}

}  // namespace flagos::lsp

#include "lsp/findings/loop_reports.h"

namespace flagos::lsp {
namespace {

bool isWork(const CallEvent& e) {
  if (e.kind == E::call) {
    return e.call == "Module.__call__" || e.call.ends_with(".backward") || e.call.ends_with(".step") || e.args->keyword("$target") != nullptr;
  }
  return e.kind == E::foreign && (e.call == "backward" || e.call == "step");
}

// Loops around the event that are the program's: those inside a module's forward(), over its layers, are one piece of work.
size_t programLoops(Interp& interp, const CallEvent& e) {
  const auto inModule = [&](const LoopInfo& l) {
    bool forward = false;
    for (const Frame* f : *e.frames) {
      if (!f->def) continue;
      forward = forward || (f->def->text == "forward" && f->self && interp.isModule(f->self));
      if (forward && f->unit == l.unit && f->def->begin <= l.node->begin && l.node->end <= f->def->end) return true;
    }
    return false;
  };
  size_t n = e.loops->size();
  while (n > 0 && inModule((*e.loops)[n - 1])) --n;
  return n;
}

}  // namespace

std::shared_ptr<LoopReports> LoopReports::attach(Interp& interp) {
  auto reports = std::make_shared<LoopReports>();
  interp.listen(E::call | E::foreign | E::operation, [reports](Interp& i, const CallEvent& e) { reports->see(i, e); });
  interp.finishers.emplace_back([reports](Interp& i) { reports->finish(i); });
  return reports;
}

void LoopReports::see(Interp& interp, const CallEvent& e) {
  if (e.loops->size() < 2) return;
  const size_t own = programLoops(interp, e);
  if (own < 2 || (*e.loops)[own - 1].node->kind == N::comp) return;
  std::set<const Node*>* into = nullptr;
  if (e.kind == E::operation) {
    for (const auto& a : e.args->list) if (!acceleratorOf(a.value).empty()) into = &outer_;
  } else if (isWork(e)) {
    into = &epochs_;
  }
  if (!into) return;
  // One loop may be on the list twice: a function that is called in a loop of its own kind.
  for (size_t i = 0; i + 1 < own; ++i)
    if ((*e.loops)[i].node != (*e.loops)[own - 1].node) into->insert((*e.loops)[i].node);
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

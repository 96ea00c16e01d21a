#include "runtime/kde/decide.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "runtime/base/metric.h"

namespace flagos::kde {
namespace {

bool isNative(Shape s) { return s == Shape::wide || s == Shape::tiled; }
// Chosen by its cost; the fallback is where nothing else can, a library where a rule says so.
bool competes(Shape s) { return s != Shape::fallback && s != Shape::library; }

std::string suits(const CandidateRow& row, dal::Kind kind) {
  if (row.family == Family::composed) return "other operators on the device do it";
  switch (row.shape) {
    case Shape::wide: return std::string("CPU-shaped kernel on a device of kind ") + dal::kindName(kind);
    case Shape::tiled: return std::string("GPU-shaped kernel on a device of kind ") + dal::kindName(kind);
    case Shape::library: return std::string("library on a device of kind ") + dal::kindName(kind);
    case Shape::host: return "host kernel on shared memory";
    case Shape::fallback: return "copied to the host and back";
  }
  return {};
}

// The order in which candidates are asked: the shape made for this kind of device, the other one, a library, the host, the
// fallback.
// The host comes first where it is asked for, and before a composed operator.
std::vector<CandidateId> order(const Facts& f, Mode mode) {
  std::vector<CandidateId> out;
  const bool cpu = f.device().kind == dal::Kind::cpu;
  auto take = [&](auto wanted) {
    const auto all = candidates();
    for (size_t i = 0; i < all.size(); ++i)
      if (wanted(all[i])) out.push_back(static_cast<CandidateId>(i + 1));
  };
  auto own = [&](Shape s) { return [&f, s](const CandidateRow& c) { return c.shape == s && c.family == f.family(); }; };
  auto shape = [](Shape s) { return [s](const CandidateRow& c) { return c.shape == s; }; };
  const bool host_first = mode == Mode::host || f.family() == Family::composed;
  if (host_first) take(shape(Shape::host));
  take(own(cpu ? Shape::wide : Shape::tiled));
  take(own(cpu ? Shape::tiled : Shape::wide));
  take(own(Shape::library));
  if (!host_first) take(shape(Shape::host));
  take(shape(Shape::fallback));
  return out;
}

std::string switchedOff(const CandidateRow& row, const Situation& s) {
  if (row.shape == Shape::host && s.mode == Mode::opencl) return "FLAGOS_ROUTE=opencl allows only opencl.* candidates";
  if (row.shape == Shape::fallback && s.fallback == Fallback::forbid) return "FLAGOS_FALLBACK=forbid";
  return {};
}

struct Choice { const CandidateVerdict* best = nullptr; std::string reason; std::vector<CandidateId> open; };

std::string ratio(double slow, double fast) {
  char buf[32];
  std::snprintf(buf, sizeof buf, "%.1fx", fast > 0 ? slow / fast : 0.0);
  return buf;
}

// Measured where the model cannot tell, the model where it can, else the order of preference.
Choice byCost(std::vector<CandidateVerdict>& all, const Facts& f, bool bit_equal) {
  std::vector<CandidateVerdict*> legal;
  for (CandidateVerdict& v : all)
    if (v.legal && competes(candidate(v.id).shape)) legal.push_back(&v);
  if (legal.empty())   // the last resort is never chosen for its speed
    for (CandidateVerdict& v : all)
      if (v.legal && candidate(v.id).shape == Shape::fallback) legal.push_back(&v);
  if (legal.empty()) return {};
  Choice c{legal.front(), suits(candidate(legal.front()->id), f.device().kind), {}};
  const std::string of = " of " + std::to_string(legal.size()) + " legal candidates";
  std::vector<const CandidateVerdict*> near;   // of the fastest prediction
  for (const CandidateVerdict* v : legal)
    if (v->cost.known() && candidate(v->id).shape != Shape::fallback) near.push_back(v);
  const auto fastest = std::min_element(near.begin(), near.end(), [](auto* a, auto* b) { return a->cost.seconds < b->cost.seconds; });
  const double least = fastest == near.end() ? 0 : (*fastest)->cost.seconds;
  for (size_t i = 1; i < legal.size(); ++i) {
    const CandidateVerdict &a = *c.best, &b = *legal[i];
    const bool predicted = a.cost.known() && b.cost.known();
    const bool clear = predicted && (a.cost.seconds >= kSeparation * b.cost.seconds || b.cost.seconds >= kSeparation * a.cost.seconds);
    if (clear) {
      if (b.cost.seconds < a.cost.seconds) c = {&b, "predicted fastest" + of, {}};
    } else if (least >= kShortest && a.measured && b.measured) {
      if (*b.measured < *a.measured) c.best = &b;
      c.reason = "measured fastest" + of;
    } else if (bit_equal && predicted && b.cost.seconds < a.cost.seconds) {
      c = {&b, "predicted fastest" + of + ", which give the same bits", {}};
    }
  }
  if (least >= kShortest) {
    std::erase_if(near, [&](const CandidateVerdict* v) { return v->cost.seconds >= kSeparation * least; });
    if (near.size() > 1 && std::any_of(near.begin(), near.end(), [](const CandidateVerdict* v) { return !v->measured; }))
      for (const CandidateVerdict* v : near) c.open.push_back(v->id);
  }
  if (legal.size() == 1 && !isNative(candidate(c.best->id).shape)) {
    // The host runs it because no kernel can: say which limit it was.
    for (const CandidateVerdict& v : all)
      if (!v.legal && isNative(candidate(v.id).shape)) { c.reason = v.why; break; }
    if (all.size() <= 2) c.reason = std::string(f.op()) + " has no OpenCL kernel";
  }
  return c;
}

void explainLosers(std::vector<CandidateVerdict>& all, const CandidateVerdict& winner, bool by_rule) {
  for (CandidateVerdict& v : all) {
    if (!v.legal) continue;
    if (v.id == winner.id) { v.why = "chosen"; continue; }
    if (candidate(v.id).shape == Shape::fallback) v.why = "legal; used only where nothing else is";
    else if (candidate(v.id).shape == Shape::library) v.why = "legal; made for GPUs: only a rule or `flagos route set` chooses it";
    else if (v.measured && winner.measured) v.why = "legal; measured " + ratio(*v.measured, *winner.measured) + " the time of the chosen one";
    else if (!v.cost.known()) v.why = "legal; not predicted: " + v.cost.why;
    else if (!winner.cost.known()) v.why = "legal; the chosen one is not predicted";
    else if (v.cost.seconds >= winner.cost.seconds) v.why = "legal; predicted " + ratio(v.cost.seconds, winner.cost.seconds) + " the time of the chosen one";
    else v.why = "legal; predicted " + ratio(winner.cost.seconds, v.cost.seconds) + " faster, " +
                 (by_rule ? "but a rule has decided" : "but predictions closer than 3x cannot tell");
  }
}

// FLAGOS_ROUTE=host, and the host can run this call.
bool hostFirst(const std::vector<CandidateVerdict>& candidates, Mode mode) {
  return mode == Mode::host && !candidates.empty() && candidates.front().legal && candidate(candidates.front().id).shape == Shape::host;
}

}  // namespace

const CandidateVerdict* Decision::verdict(CandidateId id) const noexcept {
  for (const CandidateVerdict& v : candidates)
    if (v.id == id) return &v;
  return nullptr;
}

bool worthMeasuring(const Facts& f) {
  switch (f.family()) {
    case Family::pointwise: case Family::reduce: case Family::gemm: case Family::conv: case Family::pool: case Family::softmax:
    case Family::loss: case Family::norm: case Family::attention: case Family::resample: break;
    default: return false;
  }
  constexpr double kMostBytes = 64 << 20;   // of the operands, at the largest sizes of the class
  double bytes = 0;
  const Signature& s = f.signature();
  for (int i = 0; i < std::min<int>(s.nargs, kMaxArgs); ++i) {
    const ArgSig& a = s.args[static_cast<size_t>(i)];
    if (a.rank > kMaxRank) return false;
    double n = static_cast<double>(dtypeBytes(a.dtype));
    for (int d = 0; d < a.rank; ++d) n *= static_cast<double>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(a.sizes[static_cast<size_t>(d)], 1))));
    bytes += n;
  }
  return bytes <= kMostBytes;
}

Decision decide(const Facts& f, const Situation& s, const std::vector<const Rule*>& holding) {
  Decision d;
  d.bit_equal = familyRow(f.family()).bit_equal;
  const bool worth = s.measured && worthMeasuring(f);
  const std::string shape = worth && (s.may_measure || !s.measured->empty()) ? shapeClass(f.signature()) : std::string();
  // Where results could differ in their last bits the queue's state must not choose: the wait is always counted.
  const bool busy = !d.bit_equal || s.queue_busy;
  for (const CandidateId id : order(f, s.mode)) {
    CandidateVerdict v;
    v.id = id;
    v.why = whyIllegal(candidate(id), f);
    if (v.why.empty()) v.why = switchedOff(candidate(id), s);
    v.legal = v.why.empty();
    v.cost = predict(candidate(id), f, busy);
    if (!shape.empty()) v.kept = s.measured->find(shape, candidate(id).name);
    if (v.kept) v.measured = v.kept->seconds + (candidate(id).shape == Shape::host && busy ? f.device().wait_s : 0);
    d.candidates.push_back(std::move(v));
  }
  auto find = [&](CandidateId id) -> CandidateVerdict* {
    for (CandidateVerdict& v : d.candidates)
      if (v.id == id) return &v;
    return nullptr;
  };

  for (const Rule* rule : holding) {
    RuleVerdict r;
    r.rule = rule;
    if (d.rule) {
      r.why = "an earlier rule has decided";
    } else if (rule->action == Action::prefer && hostFirst(d.candidates, s.mode)) {
      r.rejected = true;
      r.why = "FLAGOS_ROUTE=host comes before a preference";
    } else if (rule->action == Action::forbid) {
      r.why = "forbids " + rule->target;
      for (const CandidateId id : rule->targets)
        if (CandidateVerdict* v = find(id); v && v->legal) { v->legal = false; v->why = "forbidden by " + rule->label(); }
    } else if (const CandidateVerdict* v = find(rule->targets.front()); v && v->legal) {
      d.rule = rule;
      d.chosen = v->id;
      d.reason = rule->label();
      r.decided = true;
      r.why = std::string(actionName(rule->action)) + "s " + rule->target;
    } else {
      r.rejected = true;
      const std::string why = v ? v->why : whyIllegal(candidate(rule->targets.front()), f);
      r.why = "it asks for " + rule->target + ", which cannot run this: " + why;
    }
    d.rules.push_back(std::move(r));
  }
  if (!d.rule) {
    const Choice c = hostFirst(d.candidates, s.mode)
                         ? Choice{&d.candidates.front(), "FLAGOS_ROUTE=host", {}}
                         : byCost(d.candidates, f, d.bit_equal);
    if (c.best) { d.chosen = c.best->id; d.reason = c.reason; }
    if (worth && s.may_measure && !s.measured->givenUp(shape)) d.open = c.open;
  }
  if (const CandidateVerdict* winner = d.verdict(d.chosen)) {
    const CandidateVerdict copy = *winner;   // the losers' texts are written into the same vector
    explainLosers(d.candidates, copy, d.rule != nullptr);
    CandidateVerdict* chosen = find(d.chosen);
    chosen->why = d.reason;
  } else {
    // The first candidate says why no kernel runs it, the last why nothing else may.
    d.reason = f.family() == Family::other ? std::string(f.op()) + " has no OpenCL kernel" : d.candidates.front().why;
    if (d.candidates.back().why != d.reason) d.reason += "; " + d.candidates.back().why;
  }
  return d;
}

}  // namespace flagos::kde

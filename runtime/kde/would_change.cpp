// Tries one change at a time on the same evaluation and keeps those that lead elsewhere. Each family of changes gives at
// most a few lines: the nearest threshold first.
#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/kde/catalog/clblast.h"
#include "runtime/kde/explain.h"

namespace flagos::kde {
namespace {

constexpr size_t kMostChanges = 8;
constexpr size_t kMostTrials = 400;

class Search {
 public:
  Search(const ExplainInput& in, const Decision& now) : in_(in), now_(now), facts_(Facts::of(in.signature, in.device)) {}

  std::vector<Change> run() {
    thresholds();
    layout();
    dtypes();
    sizes();
    kinds();
    switches();
    return std::move(found_);
  }

 private:
  const ExplainInput& in_;
  const Decision& now_;
  const Facts facts_;
  std::vector<Change> found_;
  std::set<Field> up_, down_;   // fields with a flip towards larger and smaller values: the nearest one is enough
  size_t trials_ = 0;

  Decision ask(const Facts& f, const Situation& s) { ++trials_; return decide(f, s, rulesThatHold(in_.rules, f)); }
  bool differs(const Decision& d) const { return d.chosen != now_.chosen; }
  bool full() const { return found_.size() >= kMostChanges || trials_ >= kMostTrials; }
  void add(std::string condition, const Decision& d) {
    const std::string then = d.chosen == kNoCandidate ? "nothing may run it: " + d.reason
                                                      : std::string(candidateName(d.chosen)) + " (" + d.reason + ")";
    for (const Change& c : found_)
      if (c.if_ == condition) return;
    found_.push_back({std::move(condition), then});
  }
  std::string now(Field f) const { return " (now " + facts_.show(f) + ")"; }

  // Numbers and flags that rules compare: the nearest value on the other side of each threshold.
  void thresholds() {
    struct Trial { double distance; Field field; int64_t value; const Predicate* p; };
    std::vector<Trial> trials;
    std::set<std::pair<Field, int64_t>> seen;
    for (const Rule& r : in_.rules) {
      if (!r.covers(facts_.op())) continue;
      for (const Predicate& p : r.when) {
        const FieldType type = fieldInfo(p.field).type;
        if (type != FieldType::integer && type != FieldType::bytes && type != FieldType::boolean) continue;
        if (p.onDevice() || !facts_.known(p.field)) continue;
        const auto value = *facts_.number(p.field);
        for (const Test& t : p.any) {
          const double floor = std::floor(t.number);
          for (const double candidate : {floor - 1, floor, floor + 1}) {
            if (candidate < 0 || candidate > 9e15 || (type == FieldType::boolean && candidate > 1)) continue;
            const auto v = static_cast<int64_t>(candidate);
            if (v != value && seen.insert({p.field, v}).second)
              trials.push_back({std::fabs(candidate - static_cast<double>(value)), p.field, v, &p});
          }
        }
      }
    }
    std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) { return a.distance < b.distance; });
    for (const Trial& t : trials) {
      if (full()) return;
      const bool greater = t.value > *facts_.number(t.field);
      if ((greater ? up_ : down_).count(t.field)) continue;
      const Decision d = ask(facts_.with(t.field, t.value), in_.situation);
      if (!differs(d)) continue;
      (greater ? up_ : down_).insert(t.field);
      const std::string name(fieldInfo(t.field).name);
      const std::string value = fieldInfo(t.field).type == FieldType::boolean ? (t.value ? "true" : "false") : std::to_string(t.value);
      add(name + " = " + value + now(t.field), d);
    }
  }

  void layout() {
    Signature s = in_.signature;
    std::string changed;
    for (int i = 0; i < std::min<int>(s.nargs, kMaxArgs); ++i) {
      ArgSig& a = s.args[static_cast<size_t>(i)];
      if (a.layout == Layout::none || a.layout == Layout::contiguous) continue;
      Signature one = in_.signature;
      one.args[static_cast<size_t>(i)].layout = Layout::contiguous;
      a.layout = Layout::contiguous;
      changed += (changed.empty() ? "argument " : ", ") + std::to_string(i);
      const Decision d = ask(Facts::of(one, in_.device), in_.situation);
      if (differs(d)) add("argument " + std::to_string(i) + " is contiguous", d);
    }
    if (changed.empty() || full()) return;
    const Decision d = ask(Facts::of(s, in_.device), in_.situation);
    if (differs(d) && found_.empty()) add("all operands are contiguous (" + changed + ")", d);
  }

  void dtypes() {
    std::set<CandidateId> told;
    for (const DType t : {DType::float32, DType::float16, DType::bfloat16, DType::float64, DType::int64}) {
      if (full() || t == facts_.dtype() || facts_.dtype() == DType::other) continue;
      Signature s = in_.signature;
      for (int i = 0; i < std::min<int>(s.nargs, kMaxArgs); ++i)
        if (s.args[static_cast<size_t>(i)].dtype == facts_.dtype()) s.args[static_cast<size_t>(i)].dtype = t;
      const Decision d = ask(Facts::of(s, in_.device), in_.situation);
      if (differs(d) && told.insert(d.chosen).second) add("dtype = " + std::string(dtypeName(t)) + now(Field::dtype), d);
    }
  }

  // Where the predicted times cross: powers of four in both directions, then the exact place by halving.
  void sizes() {
    const Field field = facts_.family() == Family::gemm ? Field::m : facts_.family() == Family::conv ? Field::n : Field::numel;
    if (!facts_.known(field) || *facts_.number(field) < 1) return;
    const int64_t value = *facts_.number(field);
    for (const bool larger : {false, true}) {
      if ((larger ? up_ : down_).count(field)) continue;   // a rule's threshold said it already
      int64_t inside = value, outside = 0;
      for (int64_t v = larger ? value * 4 : value / 4; v >= 1 && v < (int64_t{1} << 40); v = larger ? v * 4 : v / 4) {
        if (full()) return;
        if (differs(ask(facts_.with(field, v), in_.situation))) { outside = v; break; }
        inside = v;
      }
      if (!outside) continue;
      while (std::llabs(outside - inside) > 1 && !full()) {
        const int64_t middle = inside + (outside - inside) / 2;
        (differs(ask(facts_.with(field, middle), in_.situation)) ? outside : inside) = middle;
      }
      add(std::string(fieldInfo(field).name) + (larger ? " >= " : " <= ") + std::to_string(outside) + now(field),
          ask(facts_.with(field, outside), in_.situation));
    }
  }

  void kinds() {
    std::set<CandidateId> told;
    for (const dal::Kind k : {dal::Kind::cpu, dal::Kind::discrete}) {
      if (full() || k == in_.device.kind) continue;
      dal::DeviceDescription device = in_.device;
      device.kind = k;
      const Decision d = ask(Facts::of(in_.signature, device), in_.situation);
      if (differs(d) && told.insert(d.chosen).second) add(std::string("device.kind = ") + dal::kindName(k) + now(Field::device_kind), d);
    }
    if (!full() && clblastPresence(in_.device) != dal::Presence::yes) {
      const AssumeClblast installed(dal::Presence::yes);
      const Decision d = ask(facts_, in_.situation);
      if (differs(d)) add("libclblast1 is installed", d);
    }
    if (full() || !in_.device.shared_memory) return;
    dal::DeviceDescription device = in_.device;
    device.shared_memory = false;
    const Decision d = ask(Facts::of(in_.signature, device), in_.situation);
    if (differs(d)) add("FLAGOS_SHARED_MEMORY=0", d);
  }

  void switches() {
    struct Switch { const char* text; Mode mode; };
    for (const Switch& s : {Switch{"FLAGOS_ROUTE=auto", Mode::automatic}, Switch{"FLAGOS_ROUTE=host", Mode::host},
                            Switch{"FLAGOS_ROUTE=opencl", Mode::opencl}}) {
      if (full() || s.mode == in_.situation.mode) continue;
      Situation changed = in_.situation;
      changed.mode = s.mode;
      const Decision d = ask(facts_, changed);
      if (differs(d)) add(s.text, d);
    }
    const bool forbidden = in_.situation.fallback == Fallback::forbid;
    Situation policy = in_.situation;
    policy.fallback = forbidden ? Fallback::warn : Fallback::forbid;
    const Decision d = ask(facts_, policy);
    if (!full() && differs(d)) add(forbidden ? "FLAGOS_FALLBACK=warn" : "FLAGOS_FALLBACK=forbid", d);
  }
};

}  // namespace

std::vector<Change> wouldChange(const ExplainInput& in, const Decision& now) { return Search(in, now).run(); }

}  // namespace flagos::kde

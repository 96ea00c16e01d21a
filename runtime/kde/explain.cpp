#include "runtime/kde/explain.h"

#include <algorithm>
#include <ctime>

#include "runtime/kde/catalog/native_ops.h"

namespace flagos::kde {
namespace {

Json seconds(double s) { return s >= 0 ? Json(s) : Json(nullptr); }
Json textOrNull(std::string_view s) { return s.empty() ? Json(nullptr) : Json(std::string(s)); }

Json operand(const Facts& f, Field field) {
  if (!f.known(field)) return nullptr;
  switch (fieldInfo(field).type) {
    case FieldType::boolean: return *f.number(field) != 0;
    case FieldType::integer:
    case FieldType::bytes: return *f.number(field);
    default: return std::string(f.text(field));
  }
}

Json signatureJson(const Facts& f) {
  const Signature& s = f.signature();
  Json args = Json::array(), scalars = Json::object();
  for (int i = 0; i < std::min<int>(s.nargs, kMaxArgs); ++i) {
    const ArgSig& a = s.args[static_cast<size_t>(i)];
    if (a.layout == Layout::none) { args.push_back(nullptr); continue; }
    Json shape = Json::array();
    for (int d = 0; d < std::min<int>(a.rank, kMaxRank); ++d) shape.push_back(a.sizes[static_cast<size_t>(d)]);
    Json arg = {{"dtype", dtypeName(a.dtype)}, {"shape", std::move(shape)}, {"layout", layoutName(a.layout)}};
    if (a.rank > kMaxRank) arg["rank"] = a.rank;
    if (!a.on_device) arg["device"] = "cpu";
    args.push_back(std::move(arg));
  }
  const auto names = scalarNames(f.family());
  for (int i = 0; i < std::min<int>(s.nscalars, 8); ++i) {
    const auto k = static_cast<size_t>(i);
    scalars[k < names.size() ? std::string(names[k]) : "#" + std::to_string(i)] = s.scalars[k];
  }
  return {{"op", f.op()}, {"family", familyName(f.family())}, {"args", std::move(args)}, {"scalars", std::move(scalars)}};
}

Json costJson(const Cost& c, const Facts& f) {
  Json j = {{"flops", c.work.flops >= 0 ? Json(c.work.flops) : Json(nullptr)},
            {"bytes", c.work.bytes >= 0 ? Json(c.work.bytes) : Json(nullptr)}, {"launches", c.work.launches},
            {"efficiency_source", "table"}, {"rates_source", textOrNull(f.device().rates_source)}};
  for (const auto& [name, value] : {std::pair{"compute_s", c.compute_s}, {"memory_s", c.memory_s}, {"copy_s", c.copy_s},
                                    {"launch_s", c.launch_s}, {"host_s", c.host_s}})
    j[name] = c.known() ? Json(value) : Json(nullptr);
  j["why_missing"] = c.known() ? Json(nullptr) : Json(c.why);
  return j;
}

// Why a rule does not hold: its first predicate that fails, with the operand's value.
std::string whyNot(const Rule& r, const Facts& f) {
  for (const Predicate& p : r.when) {
    if (p.holds(f)) continue;
    if (!f.known(p.field)) return f.whyUnknown(p.field);
    return std::string(fieldInfo(p.field).name) + " is " + f.show(p.field);
  }
  return {};
}

Json ruleStep(const Rule& r, const Facts& f, const Decision& d) {
  Json operands = Json::object();
  for (const Predicate& p : r.when) operands[std::string(fieldInfo(p.field).name)] = operand(f, p.field);
  Json step = {{"kind", "rule"}, {"name", r.name}, {"from", r.from}, {"level", levelName(r.level)}, {"predicate", r.predicate()},
               {"operands", std::move(operands)}, {"verdict", "no"}, {"why", nullptr}, {"predicted_s", nullptr}, {"measured_s", nullptr}};
  step["action"] = std::string(actionName(r.action)) + " " + r.target;
  for (const RuleVerdict& v : d.rules) {
    if (v.rule != &r) continue;
    step["verdict"] = v.rejected ? "rejected" : "match";
    step["why"] = v.why;
    return step;
  }
  step["why"] = whyNot(r, f);
  return step;
}

// What was timed to choose between candidates, with its age.
Json keptJson(const std::optional<Measurement>& m) {
  if (!m) return nullptr;
  return {{"seconds", m->seconds}, {"runs", m->runs}, {"age_s", std::max<int64_t>(0, static_cast<int64_t>(std::time(nullptr)) - m->at)}};
}

Json candidateStep(const CandidateVerdict& v, const Facts& f, const Decision& d, const ExplainInput& in) {
  const CandidateRow& row = candidate(v.id);
  Json operands = Json::object();
  for (const Field field : constraintFields(row, f)) operands[std::string(fieldInfo(field).name)] = operand(f, field);
  if (row.shape == Shape::host) operands["device.shared_memory"] = f.device().shared_memory;
  double measured = in.measured ? in.measured(v.id) : -1;
  if (measured < 0 && v.measured) measured = *v.measured;
  const char* verdict = v.id == d.chosen ? "chosen" : v.legal ? "match" : "rejected";
  return {{"kind", "candidate"}, {"name", row.name}, {"from", "built-in"}, {"predicate", row.constraint}, {"operands", std::move(operands)},
          {"verdict", verdict}, {"why", v.why}, {"predicted_s", seconds(v.cost.seconds)}, {"measured_s", seconds(measured)},
          {"measured_choice", keptJson(v.kept)}, {"bound", textOrNull(v.cost.bound)}, {"cost", costJson(v.cost, f)}};
}

}  // namespace

std::vector<const Rule*> rulesThatHold(const std::vector<Rule>& rules, const Facts& f) {
  std::vector<const Rule*> out;
  for (const Rule& r : rules)
    if (r.covers(f.op()) && std::all_of(r.when.begin(), r.when.end(), [&](const Predicate& p) { return p.holds(f); })) out.push_back(&r);
  return out;
}

Json explainCall(const ExplainInput& in, std::string_view why_not) {
  const Facts f = Facts::of(in.signature, in.device);
  const Decision d = decide(f, in.situation, rulesThatHold(in.rules, f));
  Json steps = Json::array();
  for (const Rule& r : in.rules)
    if (r.covers(f.op())) steps.push_back(ruleStep(r, f, d));
  for (const CandidateVerdict& v : d.candidates) steps.push_back(candidateStep(v, f, d, in));

  Json changes = Json::array();
  for (const Change& c : wouldChange(in, d)) changes.push_back({{"if", c.if_}, {"then", c.then}});

  Json out = {{"version", 1}, {"device", "npu:" + std::to_string(in.signature.device)}, {"signature", signatureJson(f)},
              {"steps", std::move(steps)}, {"would_change", std::move(changes)}};
  out["device_description"] = {{"name", in.device.name}, {"kind", dal::kindName(in.device.kind)}, {"shared_memory", in.device.shared_memory},
                               {"rates_source", textOrNull(in.device.rates_source)}};
  out["chosen"] = textOrNull(candidateName(d.chosen));
  out["reason"] = d.reason;
  out["rule"] = d.rule ? Json(d.rule->name) : Json(nullptr);
  const CandidateVerdict* winner = d.verdict(d.chosen);
  out["bound"] = winner ? textOrNull(winner->cost.bound) : Json(nullptr);
  out["predicted_s"] = winner ? seconds(winner->cost.seconds) : Json(nullptr);
  double measured = winner && in.measured ? in.measured(winner->id) : -1;
  if (measured < 0 && winner && winner->measured) measured = *winner->measured;
  out["measured_s"] = seconds(measured);
  Json runs_as = nullptr;
  if (const NativeOp* native = findNativeOp(f.op()); native && !native->runs_as.empty()) {
    runs_as = Json::array();
    for (std::string_view name : native->runs_as) runs_as.push_back(name);
  }
  out["runs_as"] = std::move(runs_as);
  if (!why_not.empty()) {
    const CandidateId id = candidateId(why_not);
    Json w = {{"name", why_not}};
    const CandidateVerdict* v = d.verdict(id);
    if (id == kNoCandidate) w["verdict"] = "rejected", w["why"] = "no candidate is named " + std::string(why_not);
    else if (!v) w["verdict"] = "rejected", w["why"] = whyIllegal(candidate(id), f);
    else w["verdict"] = id == d.chosen ? "chosen" : v->legal ? "match" : "rejected", w["why"] = v->why;
    if (v && v->legal && id != d.chosen && d.rule) w["why"] = d.rule->label() + " decides first; " + v->why;
    out["why_not"] = std::move(w);
  }
  return out;
}

}  // namespace flagos::kde

// Puts shapes on results, and remembers the operator calls whose time can be predicted.
#include <algorithm>

#include "lsp/python/assumed.h"
#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {
constexpr size_t kMaxOps = 4000;
}

Value Interp::shaped(const Value& result, const Value& receiver, const Args& args, std::string_view what, const Node* n) {
  if (!is(result, V::tensor)) return result;
  const std::string_view name = what.substr(what.rfind('.') == std::string_view::npos ? 0 : what.rfind('.') + 1);
  Inferred inferred;
  uint32_t object = 0;
  if (is(receiver, V::instance)) {
    const Value& cls = heap_.at(receiver->object).cls;
    if (!is(cls, V::external) || !args.at(0)) return result;
    object = receiver->object;
    inferred = inferLayer(cls->text.substr(cls->text.rfind('.') + 1), heap_.get(receiver->object, "$config"), args.at(0)->value);
  } else {
    inferred = inferFunction(name, receiver, args);
  }
  if (!inferred.handled) return result;
  auto t = makeVal(*result);
  t->shape = inferred.shape;
  if (inferred.dtype != DType::other) t->dtype = inferred.dtype;
  else if (!inferred.shape) t->dtype = DType::other;
  t->assumed = assumesIn(args);
  if (is(receiver, V::tensor)) t->assumed = t->assumed || receiver->assumed;
  if (object != 0) t->assumed = t->assumed || moduleAssumed(receiver);
  const size_t before = ops_.size();
  noteOps(n, std::move(inferred.ops), t->device, object, inferred.shape ? "" : "the sizes of `" + textOf(n, 40) + "` do not follow from what was read");
  if (ops_.size() > before) ops_.back().assumed = t->assumed;
  return t;
}

void Interp::noteOps(const Node* n, std::vector<OpCall> calls, const Value& device, uint32_t object, std::string why, double copied) {
  if (!n || quiet_ > 0 || ops_.size() >= kMaxOps || (calls.empty() && why.empty() && copied == 0)) return;
  OpUse use;
  const Frame* inner = nullptr;
  std::vector<std::string> ways;   // beside `inside`: which passes of the function's loops this is
  for (const Frame* f : frames_) {
    if (f->unit != unit_.get()) continue;
    inner = f;
    if (!f->def || f->def->kind != N::def || !f->statement) continue;
    OpUse::Inside i{f->def->begin, std::string(f->def->text), f->def->line, f->statement->line};
    std::string passes;
    for (size_t l = f->loops; l < loops_.size(); ++l) {
      if (loops_[l].passes > 0) i.times *= static_cast<double>(loops_[l].passes); else i.open = true;
      if (loops_[l].exact) passes += std::to_string(loops_[l].pass) + ",";
    }
    // A recursion counts once.
    if (std::none_of(use.inside.begin(), use.inside.end(), [&](const auto& o) { return o.function == i.function; })) {
      use.inside.push_back(i);
      ways.push_back(std::move(passes));
    }
  }
  if (!inner) return;
  const bool own = frame().unit == unit_.get();
  use.line = own ? n->line : inner->statement ? inner->statement->line : 0;
  use.span = own ? n->span() : inner->statement ? inner->statement->span() : Span{};
  if (use.line == 0) return;
  bool several = false, certain = true;
  forEach(device, [&](const Value& d) {
    if (d->kind != V::device) { certain = false; return; }
    if (use.device.empty()) use.device = d->text; else several = several || use.device != d->text;
  });
  if (use.device == "cpu" && certain && !several && copied == 0) return;   // what the host computes is not predicted
  if (why.empty() && (several || !certain || use.device.empty())) why = several ? "it runs on one of several devices" : "the device is not known";
  if (!why.empty()) { calls.clear(); if (several || !certain) use.device.clear(); }
  // A loop is walked more than once, and a line may be reached by several ways: the same call counts once.
  std::string key = std::to_string(n->begin) + "/" + std::to_string(object) + "/" + std::to_string(use.line);
  for (const auto& c : calls) key += c.op + c.shapes() + c.dtypes() + c.scalars;
  for (const auto& i : use.inside) key += "@" + std::to_string(i.line);
  const auto [it, fresh] = op_seen_.try_emplace(std::move(key), OpSeen{ops_.size(), std::vector<std::set<std::string>>(ways.size())});
  OpSeen& seen = it->second;
  if (!fresh) {
    // Another pass of a loop that is run pass by pass counts; the second walk of any other does not.
    for (const LoopInfo& l : loops_) if (!l.exact && l.pass > 0) return;
    OpUse& first = ops_[seen.index];
    for (size_t i = 0; i < ways.size() && i < first.inside.size(); ++i)
      if (seen.passes[i].size() < 64 && seen.passes[i].insert(ways[i]).second) first.inside[i].times += use.inside[i].times;
    return;
  }
  ++news_;
  for (size_t i = 0; i < ways.size(); ++i) seen.passes[i].insert(ways[i]);
  for (const LoopInfo& l : loops_) if (l.exact) use.pass.push_back(l.pass);
  use.calls = std::move(calls);
  use.why = std::move(why);
  use.copied = copied;
  ops_.push_back(std::move(use));
}

void Interp::noteCopy(const Node* n, const Value& from, const Value& to, std::optional<double> bytes) {
  const auto one = [&](const Value& v) -> std::string {
    std::string text;
    bool certain = true;
    forEach(v, [&](const Value& d) {
      certain = certain && d->kind == V::device && (text.empty() || text == d->text);
      text = d->text;
    });
    return certain ? text : "";
  };
  const std::string a = one(from), b = one(to);
  if (a == b && !a.empty()) return;
  if (a.empty() || b.empty()) { noteOps(n, {}, to, 0, "where it is copied from or to is not known"); return; }
  if (!bytes) { noteOps(n, {}, a == "cpu" ? to : from, 0, "the size of what is copied does not follow from what was read"); return; }
  noteOps(n, {}, a == "cpu" ? to : from, 0, a != "cpu" && b != "cpu" ? "a copy between two devices is not predicted" : "", *bytes);
}

}  // namespace flagos::lsp

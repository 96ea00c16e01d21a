#include "runtime/kde/router.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <tuple>
#include <unordered_map>

#include "runtime/base/paths.h"
#include "runtime/base/settings.h"
#include "runtime/kde/embedded.h"
#include "runtime/kde/epoch.h"
#include "runtime/kde/explain.h"
#include "runtime/kde/route_cache.h"
#include "runtime/kde/routes.h"
#include "runtime/kde/rules/tree.h"

namespace flagos::kde {
namespace {

constexpr size_t kMaxProblems = 100;

// Rules in order of precedence with their trees per operator (made on first use, under the router's lock).
struct RuleSet {
  std::vector<Rule> rules;
  std::unordered_map<NameId, RuleTree> trees;
  std::vector<bool> complained;   // by rule: its rejection is in `problems` already
};

std::string fileName(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    else out += keep ? c : '-';
  }
  return out;
}

class TheRouter final : public Router {
 public:
  explicit TheRouter(RouterOptions options)
      : options_(std::move(options)), mode_(options_.mode), fallback_(options_.fallback), deterministic_(options_.deterministic) {
    if (options_.read_files) readFiles();
    builtin_ = load(embedded("builtin"), "built-in", Level::builtin);
    rebuild();
    if (!options_.identity.empty()) {
      const std::string dir = options_.cache_dir.empty() ? cacheDir() : options_.cache_dir;
      if (auto opened = measured_.open(dir, options_.identity); !opened) problems_.push_back(opened.error().text());
    }
    Route r;
    r.reason = internName("out of memory while routing");
    out_of_memory_ = publishRoute(r);
  }

  const Route& choose(const Signature& s) noexcept override {
    const uint64_t hash = s.hash();
    const uint32_t epoch = epoch_.load(std::memory_order_acquire);
    if (RouteCache::Entry* e = cache_.find(s, hash); e && e->epoch.load(std::memory_order_acquire) == epoch)
      return *(s.queue_idle ? e->idle : e->busy).load(std::memory_order_relaxed);
    try {
      return miss(s, hash);
    } catch (...) {
      return out_of_memory_ ? *out_of_memory_ : emergency_;
    }
  }

  uint32_t epoch() const noexcept { return epoch_.load(std::memory_order_acquire); }

  Result<void> setRules(std::string_view text, std::string_view from) override {
    RuleFile file = parseRules(text, from, Level::user);
    if (!file.errors.empty()) {
      Error e = file.errors.front();
      if (file.errors.size() > 1) e.what += " (and " + std::to_string(file.errors.size() - 1) + " more)";
      return e;
    }
    std::lock_guard lock(mutex_);
    user_ = std::move(file.rules);
    set_.clear();
    rebuild();
    return {};
  }

  Result<void> setRule(std::string_view op_glob, std::string_view name) override {
    std::lock_guard lock(mutex_);
    auto rule = makeRule(op_glob, name, "set-" + std::to_string(++set_count_));
    if (!rule) { --set_count_; return rule.error(); }
    set_.insert(set_.begin(), std::move(*rule));   // the newest wins
    rebuild();
    return {};
  }

  void resetRules() override {
    std::lock_guard lock(mutex_);
    set_.clear();
    user_ = user_at_start_;
    rebuild();
  }

  Json rulesJson() const override {
    const auto rules = current();
    Json list = Json::array();
    for (const Rule& r : rules->rules) {
      Json row = {{"level", levelName(r.level)}, {"name", r.name}, {"from", r.from}, {"op", r.ops.front()}, {"when", r.predicate()}};
      row[std::string(actionName(r.action))] = r.target;
      list.push_back(std::move(row));
    }
    static constexpr const char* modes[] = {"auto", "opencl", "host"};
    static constexpr const char* measures[] = {"off", "use", "on"};
    static constexpr const char* policies[] = {"allow", "warn", "forbid"};
    return {{"version", 1}, {"device", options_.device.name}, {"mode", modes[static_cast<size_t>(mode())]},
            {"fallback", policies[static_cast<size_t>(fallback())]}, {"rules", std::move(list)}, {"problems", problems()},
            {"measured", {{"mode", measures[static_cast<size_t>(options_.measure)]}, {"shapes", measured_.size()}}}};
  }

  void setMode(Mode m) override { std::lock_guard lock(mutex_); mode_.store(m); bump(); }
  void setFallback(Fallback f) override { std::lock_guard lock(mutex_); fallback_.store(f); bump(); }
  Mode mode() const noexcept override { return mode_.load(std::memory_order_relaxed); }
  Fallback fallback() const noexcept override { return fallback_.load(std::memory_order_relaxed); }
  std::vector<std::string> problems() const override { std::lock_guard lock(mutex_); return problems_; }
  void recordMeasured(RouteId id, double seconds) noexcept override { setMeasured(id, seconds); }
  const RouterOptions& options() const noexcept override { return options_; }
  MeasuredStore& measured() noexcept override { return measured_; }
  void setDeterministic(bool on) override {
    std::lock_guard lock(mutex_);
    if (deterministic_.exchange(on) != on) bump();
  }
  Result<size_t> forgetMeasured(std::string_view op) override {
    std::lock_guard lock(mutex_);
    auto gone = measured_.forget(op);
    bump();
    return gone;
  }
  std::vector<CandidateId> contenders(const Signature& s) const override {
    const auto rules = current();
    const Facts facts = Facts::of(s, options_.device);
    return decide(facts, situation(true), rulesThatHold(rules->rules, facts)).open;
  }
  const Route& reconsider(const Signature& s) noexcept override {
    const uint64_t hash = s.hash();
    {
      std::lock_guard lock(mutex_);
      if (RouteCache::Entry* e = cache_.find(s, hash)) e->epoch.store(0, std::memory_order_release);
    }
    return choose(s);
  }

  Json explain(const Signature& s, std::string_view why_not) const override {
    const auto rules = current();
    ExplainInput in{s, options_.device, situation(!s.queue_idle), rules->rules, {}};
    in.measured = [this, &s](CandidateId id) { return seen(s, id); };
    return explainCall(in, why_not);
  }

 private:
  RouterOptions options_;
  std::atomic<Mode> mode_;
  std::atomic<Fallback> fallback_;
  std::atomic<bool> deterministic_;
  mutable std::mutex mutex_;
  std::vector<Rule> set_, user_, user_at_start_, device_, vendor_, builtin_;
  int set_count_ = 0;
  std::shared_ptr<RuleSet> rules_;
  std::vector<std::string> problems_;
  MeasuredStore measured_;
  RouteCache cache_;
  std::atomic<uint32_t> epoch_{1};
  std::map<std::tuple<NameId, CandidateId, NameId>, const Route*> general_;
  const Route* out_of_memory_ = nullptr;
  Route emergency_;

  std::vector<Rule> load(std::string_view text, std::string_view from, Level level) {
    RuleFile file = parseRules(text, from, level);
    for (const Error& e : file.errors) problem(e.text());
    return std::move(file.rules);
  }
  void problem(const std::string& text) {
    // Valid UTF-8 whatever a path holds: a Python warning made of anything else becomes an exception in the user's call.
    if (problems_.size() < kMaxProblems) problems_.push_back(Json::parse(dump(Json(text))).get<std::string>());
  }

  void readFiles() {
    const auto named = options_.rules_file.empty() ? setting("FLAGOS_RULES") : std::optional<std::string>(options_.rules_file);
    user_ = user_at_start_ = readLevel(named ? *named : configDir() + "/rules.json", Level::user, named.has_value());
    if (!options_.identity.empty())
      device_ = readLevel(configDir() + "/rules/device/" + fileName(options_.identity) + ".json", Level::device, false);
    if (!options_.device.vendor.empty())
      vendor_ = readLevel(configDir() + "/rules/vendor/" + fileName(options_.device.vendor) + ".json", Level::vendor, false);
  }
  std::vector<Rule> readLevel(const std::string& path, Level level, bool must_exist) {
    if (!must_exist && ::access(path.c_str(), F_OK) != 0) return {};
    auto text = readFile(path, 4u << 20);
    if (!text) { problem(text.error().text()); return {}; }
    return load(*text, path, level);
  }

  // Under the lock (or in the constructor).
  void rebuild() {
    auto next = std::make_shared<RuleSet>();
    for (const auto* level : {&set_, &user_, &device_, &vendor_, &builtin_}) next->rules.insert(next->rules.end(), level->begin(), level->end());
    next->complained.resize(next->rules.size());
    rules_ = std::move(next);
    bump();
  }
  void bump() noexcept { epoch_.fetch_add(1, std::memory_order_acq_rel); }
  std::shared_ptr<const RuleSet> current() const { std::lock_guard lock(mutex_); return rules_; }
  // Kept times choose only where everything else is left to FlagOS: a run that must repeat itself must not depend on when
  // a measurement was taken.
  Situation situation(bool busy) const {
    const bool choose = options_.measure != Measure::off && mode() == Mode::automatic && !deterministic_.load(std::memory_order_relaxed);
    return {mode(), fallback(), busy, choose ? &measured_ : nullptr, choose && options_.measure == Measure::on && !options_.identity.empty()};
  }

  double seen(const Signature& s, CandidateId id) const {
    std::lock_guard lock(mutex_);
    const RouteCache::Entry* e = cache_.find(s, s.hash());
    double out = -1;
    if (e)
      for (const Route* r : e->history)
        if (r->chosen == id && measuredSeconds(r->id) >= 0) out = measuredSeconds(r->id);
    return out;
  }

  const Route& miss(const Signature& s, uint64_t hash) {
    std::lock_guard lock(mutex_);
    RouteCache::Entry* e = cache_.find(s, hash);
    const uint32_t epoch = epoch_.load(std::memory_order_acquire);
    if (!e || e->epoch.load(std::memory_order_relaxed) != epoch) {
      const Facts facts = Facts::of(s, options_.device);
      auto tree = rules_->trees.find(s.op);
      if (tree == rules_->trees.end()) tree = rules_->trees.emplace(s.op, RuleTree::build(rules_->rules, facts)).first;
      const auto holding = tree->second.matches(facts);
      const Decision busy = decide(facts, situation(true), holding);
      complain(busy);
      const bool keep = e || cache_.size() < options_.max_routes;
      if (!keep) return *general(s, s.queue_idle && busy.bit_equal ? decide(facts, situation(false), holding) : busy);
      if (!e) e = cache_.insert(s, hash);
      const Route* r = publish(*e, busy);
      const Route* idle = busy.bit_equal ? publish(*e, decide(facts, situation(false), holding)) : r;
      e->busy.store(r, std::memory_order_relaxed);
      e->idle.store(idle, std::memory_order_relaxed);
      e->epoch.store(epoch, std::memory_order_release);
    }
    return *(s.queue_idle ? e->idle : e->busy).load(std::memory_order_relaxed);
  }

  static Route routeOf(const Signature& s, const Decision& d) {
    Route r;
    r.chosen = d.chosen;
    r.op = s.op;
    r.kernel = internName(candidateName(d.chosen));
    r.reason = internName(d.reason);
    r.signature = s;
    r.open = !d.open.empty();
    if (const CandidateVerdict* v = d.verdict(d.chosen); v && v->cost.known()) {
      r.predicted_s = v->cost.seconds;
      r.bound = internName(v->cost.bound);
    }
    return r;
  }
  // A decision that this signature had before keeps its id, so that counters go on.
  const Route* publish(RouteCache::Entry& e, const Decision& d) {
    const Route r = routeOf(e.signature, d);
    for (const Route* old : e.history)
      if (old->chosen == r.chosen && old->reason == r.reason && old->predicted_s == r.predicted_s && old->open == r.open) return old;
    const Route* made = publishRoute(r);
    if (!made) return general(e.signature, d);
    e.history.push_back(made);
    return made;
  }
  const Route* general(const Signature& s, const Decision& d) {
    Route r = routeOf(s, d);
    r.open = false;
    auto& known = general_[{r.op, r.chosen, r.reason}];
    if (!known) {
      r.predicted_s = -1;
      r.bound = 0;
      known = publishRoute(r);
    }
    return known ? known : out_of_memory_;
  }

  void complain(const Decision& d) {
    for (const RuleVerdict& v : d.rules) {
      if (!v.rejected || v.rule->action != Action::use) continue;
      const auto index = static_cast<size_t>(v.rule - rules_->rules.data());
      if (rules_->complained[index]) continue;
      rules_->complained[index] = true;
      problem(v.rule->from + ": rule " + v.rule->name + ": " + v.why);
    }
  }
};

}  // namespace

std::unique_ptr<Router> Router::create(RouterOptions options) { return std::make_unique<TheRouter>(std::move(options)); }

uint32_t epochOf(const Router& router) noexcept { return static_cast<const TheRouter&>(router).epoch(); }

void switchesFromEnvironment(RouterOptions& o) {
  if (const auto v = setting("FLAGOS_ROUTE")) {
    if (*v == "opencl") o.mode = Mode::opencl;
    if (*v == "host") o.mode = Mode::host;
  }
  if (const auto v = setting("FLAGOS_MEASURE")) {
    if (*v == "off") o.measure = Measure::off;
    if (*v == "use") o.measure = Measure::use;
    if (*v == "on") o.measure = Measure::on;
  }
  if (const auto v = setting("FLAGOS_FALLBACK")) {
    if (*v == "allow") o.fallback = Fallback::allow;
    if (*v == "warn") o.fallback = Fallback::warn;
    if (*v == "forbid") o.fallback = Fallback::forbid;
  }
}

}  // namespace flagos::kde

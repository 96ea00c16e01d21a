// Imports: which module a name means, when it is run, and the programs of the workspace that call into a file.
#include <algorithm>

#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {
constexpr int kMaxChain = 48;              // modules that wait for each other's import
constexpr size_t kModuleSteps = 60'000;    // evaluated nodes for one module's top level
constexpr size_t kMaxBetween = 64;         // a file with more users is a library: its callers are not all run

// PyTorch is what the analysis knows by heart: never its sources, even where they are the workspace.
bool isTorch(std::string_view dotted) { return dotted == "torch" || dotted.starts_with("torch."); }

Value moduleValue(const std::string& dotted, const SourceUnit* unit, ObjectId scope) {
  auto v = makeVal();
  v->kind = V::module;
  v->text = dotted;
  v->unit = unit;
  v->object = scope;
  return v;
}
}  // namespace

Interp::Interp(std::shared_ptr<const SourceUnit> unit, Workspace& workspace, const AnalysisOptions& options)
    : unit_(std::move(unit)), workspace_(workspace), options_(options), store_(workspace.modules()), heap_(store_.heap) {}

Interp::~Interp() {
  if (loading_) return;
  heap_.rollback(0);
  heap_.release(0);
}

ObjectId Interp::runModule(const std::shared_ptr<const SourceUnit>& unit, ObjectId scope, bool program) {
  heap_.set(scope, "__name__", string(program ? "__main__" : unit->path));
  heap_.set(scope, "__file__", string(unit->path));
  Frame f;
  f.unit = unit.get();
  f.scope = scope;
  f.mark = heap_.mark();
  frames_.push_back(&f);
  auto contexts = std::move(contexts_);
  contexts_.clear();
  auto loops = std::move(loops_);
  loops_.clear();
  auto guards = std::move(guards_);
  guards_.clear();
  execBlock(unit->ast.root()->list);
  guards_ = std::move(guards);
  contexts_ = std::move(contexts);
  loops_ = std::move(loops);
  frames_.pop_back();
  return scope;
}

void Interp::use(LoadedModule& m, bool effects) {
  if (used_.insert(&m).second) {
    used_in_order_.push_back(&m);
    if (loading_) loading_->imports.push_back(&m);
  }
  if (!effects || m.state != LoadedModule::State::done || m.effects.empty()) return;
  if (quiet_ == 0 && !applied_.insert(&m).second) return;
  heap_.apply(m.effects);
}

ObjectId Interp::moduleScope(const std::shared_ptr<const SourceUnit>& unit) {
  if (const auto own = own_.find(unit.get()); own != own_.end()) return own->second;
  if (in_program_ && between_.count(unit->path)) {
    const ObjectId scope = heap_.make();
    own_[unit.get()] = scope;
    kept_.push_back(unit);
    return runModule(unit, scope, false);
  }
  LoadedModule& m = store_.of(unit);
  if (typing_ > 0) {                       // only names: what the module does to others is not done
    if (!used_.count(&m)) typed_.insert(&m);
    use(m, false);
    return m.scope;
  }
  typed_.erase(&m);
  if (workspace_.changesOthers(unit->path)) ensureLoaded(m.scope);
  use(m);
  return m.scope;
}

void Interp::ensureLoaded(ObjectId scope) {
  LoadedModule* m = store_.byScope(scope);
  if (!m || m->state != LoadedModule::State::idle || load_depth_ >= kMaxChain || spent()) return;
  m->state = LoadedModule::State::running;
  auto aside = heap_.suspend();
  const uint32_t owner = heap_.own(m->owner);
  {
    AnalysisOptions options = options_;
    options.max_steps = kModuleSteps;
    Interp loader(m->unit, workspace_, options);
    loader.loading_ = m;
    loader.load_depth_ = load_depth_ + 1;
    loader.deadline_ = UINT64_MAX;         // what is kept must not depend on how busy the machine is
    Frame base;
    base.unit = m->unit.get();
    base.scope = m->scope;
    loader.frames_.push_back(&base);
    loader.runModule(m->unit, m->scope, false);
    m->cut = loader.gave_up_;
    module_steps_ += loader.steps();
    if (loader.abandoned_) gave_up_ = abandoned_ = true;
  }
  m->effects = heap_.settle(m->owner);
  heap_.own(owner);
  if (!abandoned_) m->state = LoadedModule::State::done;   // else it is half run: the next analysis forgets it
  heap_.resume(std::move(aside));
  use(*m, !typed_.count(m));
}

Value Interp::moduleSlot(const Value& module, const std::string& name) {
  ensureLoaded(module->object);
  return resolved(heap_.get(module->object, name));
}

Value Interp::resolved(Value v) {
  for (int i = 0; is(v, V::forward); ++i) {
    if (i == 8) return unknown("`" + v->text + "` is imported in a circle");
    ensureLoaded(v->object);
    Value found = heap_.get(v->object, v->text);
    if (!found && v->unit && v->unit->path.ends_with("__init__.py")) {  // `from package import module`
      if (auto unit = workspace_.import(v->unit->path, "." + v->text)) return moduleValue(v->text, unit.get(), moduleScope(unit));
    }
    if (!found) {
      const LoadedModule* m = store_.byScope(v->object);
      return unknown("`" + v->text + "` is not in " + v->self->text + (m && m->cut ? ", as far as it was followed" : ""));
    }
    v = found;
  }
  return v;
}

Value Interp::importModule(const std::string& dotted, const Node*) {
  if (isTorch(dotted)) return external(dotted);
  const std::string path = workspace_.resolve(frame().unit->path, dotted);
  if (path.empty()) return external(dotted);
  std::shared_ptr<const SourceUnit> unit = in_program_ && path == unit_->path ? unit_ : nullptr;
  if (!unit && in_program_) for (const auto& k : kept_) if (k->path == path) unit = k;
  if (!unit) unit = workspace_.file(path);
  if (!unit) return external(dotted);
  // `import a.b.c` runs a and a.b first.
  if (dotted[0] != '.')
    if (const auto dot = dotted.rfind('.'); dot != std::string::npos) importModule(dotted.substr(0, dot), nullptr);
  return moduleValue(dotted, unit.get(), moduleScope(unit));
}

void Interp::execImport(const Node* n) {
  for (const Node* a : n->list) {
    if (!a->text.empty()) { bindName(a->name, importModule(a->value, n)); continue; }
    const std::string head = a->value.substr(0, a->value.find('.'));
    bindName(internName(head), importModule(head, n));
    if (head != a->value) importModule(a->value, n);
  }
}

void Interp::execFromImport(const Node* n) {
  if (n->value == "__future__") return;
  const Value module = importModule(n->value, n);
  const std::string dotted = is(module, V::external) ? module->text : n->value;
  if (n->text == "*") {
    if (!is(module, V::module)) { heap_.set(frame().scope, "$star", module); return; }
    if (quiet_ > 0) return;                // on a way that is not taken: hundreds of modules would run for nothing
    ensureLoaded(module->object);
    const Slots slots = heap_.at(module->object).slots;
    std::set<std::string> listed;
    const Value all = heap_.get(module->object, "__all__");
    const bool has_all = is(all, V::list) || is(all, V::tuple);
    if (has_all) for (const auto& i : all->items) if (is(i, V::string)) listed.insert(i->text);
    for (const auto& [name, value] : slots) {
      if (value && (has_all ? listed.count(name) != 0 : !name.starts_with('_') && name != "$star")) bindName(&name, value);
      if (name == "$star" && value) heap_.set(frame().scope, "$star", value);
    }
    return;
  }
  for (const Node* a : n->list) {
    if (is(module, V::module)) {
      auto v = makeVal();
      v->kind = V::forward;
      v->object = module->object;
      v->unit = module->unit;
      v->text = a->value;
      v->self = module;
      bindName(a->name, v);
    } else if (n->value == ".") {
      bindName(a->name, importModule("." + a->value, n));
    } else {
      bindName(a->name, external(dotted + "." + a->value));
    }
  }
}

bool Interp::hasPrograms() { return !workspace_.usersOf(unit_->path, kMaxBetween).programs.empty(); }

void Interp::runPrograms() {
  const auto users = workspace_.usersOf(unit_->path, kMaxBetween);
  if (users.programs.empty()) return;
  between_ = users.between;
  in_program_ = true;
  for (const auto& path : users.programs) {
    if (gave_up_) break;
    auto unit = workspace_.file(path);
    if (!unit) continue;
    const size_t mark = heap_.mark();
    const auto own = own_;
    const ObjectId scope = heap_.make();
    own_[unit.get()] = scope;
    kept_.push_back(unit);
    runModule(unit, scope, true);
    heap_.rollback(mark);
    own_ = own;
  }
  in_program_ = false;
}

}  // namespace flagos::lsp

// Functions, classes, and the code that nobody calls.
#include <algorithm>

#include "lsp/python/assumed.h"
#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {
constexpr size_t kMaxFrames = 24;
constexpr int kManyCalls = 60;       // contexts in which one function is followed, and more while it costs little
constexpr int kMaxCalls = 1'000;
constexpr size_t kCallSteps = 20'000;
constexpr int64_t kNoGradFunction = 1;  // Val::number of a function under @torch.no_grad()
}  // namespace

size_t Args::positional() const {
  return static_cast<size_t>(std::count_if(list.begin(), list.end(), [](const Arg& a) { return a.name.empty(); }));
}
const Arg* Args::at(size_t i) const {
  for (const auto& a : list) if (a.name.empty() && i-- == 0) return &a;
  return nullptr;
}
const Arg* Args::keyword(std::string_view name) const {
  for (const auto& a : list) if (a.name == name) return &a;
  return nullptr;
}
const Arg* Args::get(size_t i, std::string_view name) const {
  if (const Arg* a = keyword(name)) return a;
  return at(i);
}

void Interp::addStar(Args& args, const Value& v) {
  if (is(v, V::tuple) || is(v, V::list)) {
    for (const auto& i : v->items) args.list.push_back({"", i, nullptr});
  } else {
    args.unknown_rest = true;
    if (is(v, V::iterable)) args.stars.push_back(v);
  }
}

void Interp::addDoubleStar(Args& args, const Value& v) {
  if (!is(v, V::dict)) { args.unknown_rest = true; return; }
  for (const auto& [k, value] : heap_.at(v->object).slots) {
    if (!value) continue;
    if (k[0] == '$') { args.unknown_rest = true; continue; }
    if (!args.keyword(k)) args.list.push_back({k, value, nullptr});
  }
}

Args Interp::evalArgs(const Node* n) {
  Args args;
  for (const Node* a : n->list) {
    if (a->kind == N::keyword) args.list.push_back({std::string(a->text), eval(a->a), a->a});
    else if (a->kind == N::starred) addStar(args, eval(a->a));
    else if (a->kind == N::dstarred) addDoubleStar(args, eval(a->a));
    else args.list.push_back({"", eval(a), a});
  }
  return args;
}

Value Interp::evalCall(const Node* n) {
  if (!n->a) return unknown("a call without a function");
  if (n->a->kind == N::attribute) {
    const Value base = eval(n->a->a);
    Args args = evalArgs(n);
    const std::string& name = *n->a->name;
    const bool one = !is(base, V::union_);
    return map(base, [&](const Value& b) -> Value {
      Args own;
      if (!one) own = args;   // a callee may add to what it gets
      Args& mine = one ? args : own;
      if (b->kind == V::unknown || b->kind == V::runtime) {
        if (b->kind == V::runtime) if (auto v = callText(b, name, mine, n)) return *v;
        if (auto v = callOnUnknown(b, name, mine, n)) return *v;
        emit(E::foreign, n, name, b, mine);
        return unknown("`" + textOf(n, 40) + "`: " + (b->kind == V::unknown ? b->text : "decided when the program runs"));
      }
      if (b->kind == V::external && b->text.ends_with("()"))
        if (auto v = libraryMethod(b, name, mine, n)) return *v;
      if (b->kind == V::external && b->text != "$super") {
        if (auto v = externalAttribute(b->text + "." + name); v && (*v)->kind != V::external) return *v;
      }
      return callOne(attributeOf(b, n->a->name, n->a), mine, n);
    });
  }
  const Value callee = eval(n->a);
  return call(callee, evalArgs(n), n);
}

Value Interp::call(const Value& callee, Args args, const Node* n) {
  if (callee && !is(callee, V::union_)) return callOne(callee, args, n);
  return map(callee, [&](const Value& c) {
    Args mine = args;
    return callOne(c, mine, n);
  });
}

Value Interp::callOne(const Value& callee, Args& args, const Node* n) {
  switch (callee->kind) {
    case V::function: return callFunction(callee, args, n);
    case V::class_: return instantiate(callee, args, n);
    case V::external: return callExternal(callee->text, args, n);
    case V::instance: return callInstance(callee, args, n);
    case V::partial: {
      Args all;
      for (const auto& i : callee->items) all.list.push_back({"", i, nullptr});
      all.list.insert(all.list.end(), args.list.begin(), args.list.end());
      for (const auto& [k, v] : callee->named) if (!args.keyword(k)) all.list.push_back({k, v, nullptr});
      all.unknown_rest = args.unknown_rest;
      return call(callee->self, all, n);
    }
    case V::bound: return callBound(callee, args, n);
    case V::unknown: return unknown("`" + textOf(n, 40) + "`: " + callee->text);
    default: return unknown("`" + textOf(n, 40) + "` is not followed");
  }
}

Value Interp::callBound(const Value& m, Args& args, const Node* n) {
  if (!m->items.empty()) return callFunction(m->items[0], args, n, m->self);
  const Value& self = m->self;
  switch (self->kind) {
    case V::tensor: return withTraits(shaped(callTensor(self, m->text, args, n), self, args, m->text, n), self, args, m->text);
    case V::instance: {
      if (auto v = callModuleMethod(self, m->text, args, n)) return *v;
      if (auto v = callParser(self, m->text, args, n)) return *v;
      const Value& cls = heap_.at(self->object).cls;
      if (is(cls, V::external)) return callExternal(cls->text + "()." + m->text, args, n);
      return unknown("`" + textOf(n, 40) + "` is a method of a class outside the workspace");
    }
    case V::dict: if (auto v = callDict(self, m->text, args, n)) return *v; break;
    case V::string: case V::runtime: if (auto v = callText(self, m->text, args, n)) return *v; break;
    case V::list: case V::tuple: case V::iterable: if (auto v = callList(self, m->text, args, n)) return *v; break;
    default: break;
  }
  if (auto v = callOnUnknown(self, m->text, args, n)) return *v;
  return unknown("`" + textOf(n, 40) + "` is not followed");
}

Value Interp::callFunction(const Value& fn, const Args& args, const Node* n, const Value& self) {
  const Node* def = fn->node;
  int same_def = 0;
  for (const Frame* f : frames_) same_def += f->def == def;
  if (frames_.size() >= kMaxFrames) {
    if (why_.empty()) why_ = "calls are nested deeper than " + std::to_string(kMaxFrames) + " levels: the inner ones are not followed";
    return unknown("calls nested too deeply to follow");
  }
  if (same_def >= 2) return unknown("`" + std::string(def->text) + "` calls itself");
  if (!worthFollowing(fn, args, self)) return notFollowed(def, args, self);
  // A function of another file that left everything as it was is cut without harm: its result is not known, and that says
  // why wherever it goes. A cut call in this file leaves places out, and one that changes things leaves them as they were.
  const bool local = fn->unit != unit_.get() && !reaches_out_.count(def);
  const int calls = ++called_[def];
  if (calls > kManyCalls && (calls > kMaxCalls || stepsIn(def) > kCallSteps)) {
    if (why_.empty() && quiet_ == 0 && !local)
      why_ = "`" + std::string(def->text) + "` is called from more than " + std::to_string(calls - 1) + " places: the later calls are not followed";
    return unknown("`" + std::string(def->text) + "` is called from too many places to follow each");
  }

  Frame f;
  f.unit = fn->unit;
  f.def = def;
  f.scope = heap_.make(fn->object);
  f.self = self;
  if (!fn->items.empty()) f.defining_class = fn->items[0];
  f.mark = heap_.mark();
  f.statement = def;
  const uint64_t serial = heap_.serial() - 1;   // the frame's own scope is younger

  // Bind the parameters.
  std::vector<SlotName> used;
  size_t position = 0;
  const size_t given = args.positional();
  bool self_bound = self == nullptr;
  const int line = frame().statement ? frame().statement->line : 0;
  const auto fname = [&] { return def->kind == N::lambda ? std::string("a lambda") : "`" + std::string(def->text) + "()`"; };
  bool keyword_only = false;
  for (const Node* p : def->list2) {
    const std::string& name = *p->name;
    if (p->value == "*") {
      keyword_only = true;
      if (name.empty()) continue;
      std::vector<Value> items;
      while (position < given) items.push_back(args.at(position++)->value);
      heap_.set(f.scope, p->name, args.unknown_rest ? iterableOf(unknown("an argument that is not followed")) : tuple(items));
      continue;
    }
    if (p->value == "**") {
      const ObjectId id = heap_.make();
      for (const auto& a : args.list)
        if (!a.name.empty() && std::none_of(used.begin(), used.end(), [&](SlotName u) { return *u == a.name; })) heap_.set(id, a.name, a.value);
      if (args.unknown_rest) heap_.set(id, "$any", unknown("an argument that is not followed"));
      auto v = makeVal();
      v->kind = V::dict;
      v->object = id;
      heap_.set(f.scope, p->name, v);
      continue;
    }
    if (!self_bound) {
      self_bound = true;
      heap_.set(f.scope, p->name, self);
      continue;
    }
    Value v;
    if (const Arg* a = args.keyword(name)) {
      v = a->value;
      used.push_back(p->name);
    } else if (!keyword_only && position < given) {
      v = args.at(position++)->value;
    } else if (args.unknown_rest) {
      v = unknown("`" + name + "` of " + fname() + " may come from *args or **kwargs that are not followed");
    } else {
      bool defaulted = false;
      for (const auto& [k, d] : fn->named) if (k == name) { heap_.set(f.scope, p->name, assumedIf(!n && uncalled_, d)); defaulted = true; }
      if (defaulted) continue;
      v = unknown("`" + name + "` of " + fname() + " gets no value here" + (def->decorators.empty() ? "" : "; its decorator may give one when the program runs"));
    }
    if (n) v = rename(v, line, [&] { return "argument `" + name + "` of " + fname(); });
    heap_.set(f.scope, p->name, v);
  }

  f.loops = loops_.size();
  const size_t steps = steps_, news = news_;
  frames_.push_back(&f);
  const int grad = no_grad_;
  no_grad_ += fn->number == kNoGradFunction;
  if (def->kind == N::lambda) {
    f.returns.push_back(eval(def->a));
  } else {
    execBlock(fn->unit->ast.body(def));
  }
  frames_.pop_back();
  no_grad_ = grad;
  if (!f.dead && !f.exits.empty()) {
    if (!f.at_end) f.returns.push_back(none());
    f.exits.push_back(heap_.since(f.mark));
  }
  if (f.exits.size() > 1 || f.dead) {
    heap_.rollback(f.mark);
    heap_.merge(f.exits);
  }
  if (local && heap_.wroteOlder(f.mark, serial)) reaches_out_.insert(def);
  Value result = !f.yields.empty() ? iterableOf(joinAll(f.yields)) : f.returns.empty() ? none() : joinAll(f.returns);
  wasFollowed(def, steps_ - steps, news_ != news, f.mark, serial, result);
  return result;
}

Value Interp::definition(const Node* n) {
  auto v = makeVal();
  v->kind = V::function;
  v->node = n;
  v->unit = frame().unit;
  v->object = frame().scope;
  for (const Node* d : n->decorators) {
    const Value decorator = eval(d);
    const std::string name = is(decorator, V::external) ? decorator->text : "";
    for (const char* special : {"property", "staticmethod", "classmethod"})
      if (name == std::string("builtins.") + special) v->text = special;
    if (name == "functools.cached_property") v->text = "property";
    if (name == "torch.no_grad" || name == "torch.no_grad()" || name == "torch.inference_mode" || name == "torch.inference_mode()") v->number = kNoGradFunction;
  }
  for (const Node* p : n->list2) {
    if (!p->a) continue;
    Value d = eval(p->a);
    const std::string name(p->text);
    if (is(d, V::string) || is(d, V::device)) sourceOfDefault(p->a, d, name);
    v->named.emplace_back(name, rename(d, "default of parameter `" + name + "`", p->line));
  }
  functions_.push_back(v);
  return v;
}

Value Interp::classDefinition(const Node* n) {
  for (const Node* d : n->decorators) eval(d);
  auto v = makeVal();
  v->kind = V::class_;
  v->node = n;
  v->unit = frame().unit;
  for (const Node* b : n->list2) {
    const Value base = b->kind == N::keyword ? eval(b->a) : eval(b);
    if (b->kind != N::keyword) v->items.push_back(base);
  }
  // The class body runs in its own scope, which methods do not see: their closure is the scope around the class.
  const ObjectId around = frame().scope;
  v->object = heap_.make(around);
  const size_t functions = functions_.size();
  frame().scope = v->object;
  execBlock(n->list);
  frame().scope = around;
  const Value cls = v;
  for (size_t i = functions; i < functions_.size(); ++i) {
    if (functions_[i]->object != cls->object) continue;
    auto method = makeVal(*functions_[i]);
    method->object = around;
    method->items = {cls};
    const SlotName name = method->node->name;
    if (const Value held = heap_.get(cls->object, name); held == functions_[i]) heap_.set(cls->object, name, method);
    functions_[i] = method;
  }
  for (const Node* s : n->list) {  // a field with a device in it is a source
    if (s->kind != N::assign || !s->a || s->a->kind != N::name || !s->b || s->b->kind != N::string) continue;
    sourceOfDefault(s->b, heap_.get(cls->object, s->a->name), std::string(s->a->text));
  }
  classes_.push_back(cls);
  return cls;
}

Value Interp::classAttribute(const Value& cls, SlotName name, Value* owner) {
  if (!is(cls, V::class_)) return nullptr;
  if (const Value v = resolved(heap_.get(cls->object, name))) {
    if (owner) *owner = cls;
    return v;
  }
  for (const auto& base : cls->items) {
    if (base == cls) continue;
    if (const Value v = classAttribute(base, name, owner)) return v;
  }
  return nullptr;
}

bool Interp::derivesFrom(const Value& cls, const std::function<bool(const std::string&)>& external_base) {
  if (is(cls, V::external)) return external_base(cls->text);
  if (!is(cls, V::class_)) return false;
  for (const auto& base : cls->items) if (base != cls && derivesFrom(base, external_base)) return true;
  return false;
}

Value Interp::instantiate(const Value& cls, const Args& args, const Node* n) {
  auto v = makeVal();
  v->kind = V::instance;
  v->object = heap_.make();
  v->node = cls->node;
  heap_.at(v->object).cls = cls;
  heap_.at(v->object).born = n;
  const Value self = v;
  auto& known = instances_[cls->node];
  if (known.size() < 4) known.push_back(self);
  if (const Value init = classAttribute(cls, internName("__init__")); is(init, V::function)) {
    callFunction(init, args, n, self);
    return self;
  }
  // A dataclass (or NamedTuple, or anything with annotated fields): fields in order, bases first.
  std::vector<const Node*> fields;
  const std::function<void(const Value&)> gather = [&](const Value& c) {
    if (!is(c, V::class_)) return;
    for (const auto& base : c->items) if (base != c) gather(base);
    for (const Node* s : c->node->list)
      if (s->kind == N::assign && s->c && s->a && s->a->kind == N::name) fields.push_back(s);
  };
  gather(cls);
  const int line = frame().statement ? frame().statement->line : 0;
  size_t position = 0;
  for (const Node* field : fields) {
    const std::string name(field->a->text);
    const Arg* a = args.keyword(name);
    if (!a) a = args.at(position++);
    if (a) {
      heap_.set(self->object, field->a->name, rename(a->value, "argument `" + name + "` of `" + std::string(cls->node->text) + "()`", line));
    } else if (const Value d = classAttribute(cls, field->a->name)) {
      heap_.set(self->object, field->a->name, d);
    }
  }
  if (const Value post = classAttribute(cls, internName("__post_init__")); is(post, V::function)) callFunction(post, {}, n, self);
  return self;
}

Value Interp::callInstance(const Value& instance, Args& args, const Node* n) {
  if (heap_.get(instance->object, "$copies_inputs")) {
    const Value device = moduleDevice(instance);
    for (auto& a : args.list) if (a.value) a.value = onDevice(a.value, device);
  }
  const Value& cls = heap_.at(instance->object).cls;
  for (const char* name : {"__call__", "forward"}) {
    const Value m = classAttribute(cls, internName(name));
    if (is(m, V::function) && (name[0] == '_' || isModule(instance))) {
      emit(n, "Module.__call__", instance, args);
      return callFunction(m, args, n, instance);
    }
  }
  if (isModule(instance)) {
    emit(n, "Module.__call__", instance, args);
    if (const Value items = heap_.get(instance->object, "$items"); items && is(cls, V::external) && cls->text == "torch.nn.Sequential") {
      Value x = args.at(0) ? args.at(0)->value : unknown("no input");
      for (const auto& i : items->items) {
        Args one;
        one.list.push_back({"", x, nullptr});
        // A part that was not followed is a module all the same: it takes a tensor and gives one on the same device.
        if (is(i, V::unknown)) x = map(x, [&](const Value& t) { return t->kind == V::tensor ? tensorOn(t->device) : t; });
        else x = call(i, one, n);
      }
      if (heap_.get(instance->object, "$open") || heap_.get(instance->object, "$times"))
        noteOps(n, {}, moduleDevice(instance), instance->object, "how many layers `" + textOf(n, 40) + "` runs is not followed");
      return x;
    }
    for (const auto& a : args.list)
      if (isAny(a.value, V::tensor))
        return withTraits(shaped(map(a.value, [&](const Value& t) { return t->kind == V::tensor ? tensorOn(t->device) : t; }), instance, args, "()", n), instance, args, "()");
    return withTraits(tensorOn(moduleDevice(instance)), instance, args, "()");
  }
  return unknown("`" + textOf(n, 40) + "` is not followed");
}

Value Interp::superValue() {
  for (auto it = frames_.rbegin(); it != frames_.rend(); ++it) {
    if (!(*it)->self || !(*it)->defining_class) continue;
    auto v = makeVal();
    v->kind = V::external;
    v->text = "$super";
    v->self = (*it)->self;
    v->items = {(*it)->defining_class};
    return v;
  }
  return unknown("super() outside a class");
}

void Interp::runUncalled() {
  // Functions and methods that nothing calls are run once with their defaults, so that their sites are known.
  for (size_t i = 0; i < functions_.size() && !gave_up_; ++i) {
    const Value fn = functions_[i];
    if (fn->unit != unit_.get() || called_.count(fn->node)) continue;
    Args args;
    Value self;
    std::vector<Value> selves;
    if (!fn->items.empty() && fn->text != "staticmethod") {
      const Value cls = fn->items[0];
      if (fn->text == "classmethod") {
        selves = {cls};
      } else {
        if (instances_[cls->node].empty()) {
          Args none_given;
          if (const Value init = classAttribute(cls, internName("__init__")); is(init, V::function)) none_given.unknown_rest = false;
          instantiate(cls, none_given, nullptr);
        }
        selves = instances_[cls->node];
      }
      if (called_.count(fn->node)) continue;
    } else {
      selves = {nullptr};
    }
    for (const auto& s : selves) {
      // What one uncalled function did to the machine says nothing about another.
      const Value used = heap_.get(0, "$used");
      const std::string owner = fn->node->kind == N::lambda ? "a lambda" : "`" + std::string(fn->node->text) + "`";
      Args open;
      size_t index = 0;
      for (const Node* p : fn->node->list2) {
        if (p->text.empty() || p->value == "*" || p->value == "**") continue;
        if (index++ == 0 && s) continue;
        const std::string name(p->text);
        const Value* d = nullptr;
        for (const auto& [k, v] : fn->named) if (k == name) d = &v;
        if (d && (*d)->kind != V::boolean && (*d)->kind != V::none) continue;  // the default is what is known
        Value v;
        if (d) {
          // A flag or an optional: either its default, or something that nobody here passes.
          v = (*d)->kind == V::boolean ? unknown("a flag that no call seen sets") : *d;
        } else if (const std::string annotation = dottedName(p->c); annotation.ends_with("Tensor") || annotation.ends_with("nn.Module")) {
          v = annotation.ends_with("Tensor")
                  ? tensorOn(unknown("parameter `" + name + "` of " + owner + " has no call in what was read"))
                  : unknown("parameter `" + name + "` of " + owner + " has no call in what was read");
        } else if (const Value object = annotated(p->c)) {
          v = object;
        } else if (name == "model" && is(s, V::instance) && derivesFrom(heap_.at(s->object).cls, [](const std::string& base) {
                     return base.starts_with("transformers.") && base.ends_with("Trainer");
                   })) {
          // transformers calls its own methods with the model where it put it.
          auto m = makeVal();
          m->kind = V::instance;
          m->object = heap_.make();
          heap_.at(m->object).cls = external("transformers.PreTrainedModel");
          heap_.set(m->object, "$device", runtimeValue("<args.device>", here(fn->node, "decided by transformers when the program runs")));
          v = m;
        } else {
          v = unknown("parameter `" + name + "` of " + owner + " has no default and no call in what was read");
        }
        open.list.push_back({name, v, nullptr});
      }
      callFunction(fn, open, nullptr, s);
      heap_.set(0, "$used", used);
    }
  }
}

}  // namespace flagos::lsp

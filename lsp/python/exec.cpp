// Statements.
#include <algorithm>

#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {
constexpr size_t kUnroll = 8;  // literal lists up to this long are walked item by item
}

void Interp::execBlock(const std::vector<Node*>& block) {
  for (size_t i = 0; i < block.size(); ++i) {
    if (frame().dead) {  // unreachable, but its sites are worth knowing
      discard([&] { for (size_t k = i; k < block.size(); ++k) exec(block[k]); });
      return;
    }
    exec(block[i]);
  }
}

void Interp::discard(const std::function<void()>& path) {
  Frame& f = frame();
  const size_t mark = heap_.mark(), returns = f.returns.size(), exits = f.exits.size(), yields = f.yields.size();
  std::vector<std::pair<size_t, size_t>> loops;
  for (const auto& l : f.open_loops) loops.emplace_back(l.breaks.size(), l.continues.size());
  const bool dead = f.dead;
  f.dead = false;
  ++quiet_;
  path();
  --quiet_;
  heap_.rollback(mark);
  f.returns.resize(returns);
  f.exits.resize(exits);
  f.yields.resize(yields);
  for (size_t i = 0; i < loops.size(); ++i) {
    f.open_loops[i].breaks.resize(loops[i].first);
    f.open_loops[i].continues.resize(loops[i].second);
  }
  f.dead = dead;
}

void Interp::branch(const std::vector<std::function<void()>>& paths) {
  Frame& f = frame();
  const size_t mark = heap_.mark();
  std::vector<Delta> live;
  for (const auto& path : paths) {
    f.dead = false;
    path();
    if (!f.dead) live.push_back(heap_.since(mark));
    heap_.rollback(mark);
  }
  f.dead = live.empty();
  heap_.merge(live);
}

void Interp::bindName(SlotName name, Value v) {
  Frame& f = frame();
  if (std::find(f.globals.begin(), f.globals.end(), name) != f.globals.end()) {
    // global and nonlocal: the nearest enclosing scope that has the name, else the module's.
    for (ObjectId s = heap_.at(f.scope).parent; s; s = heap_.at(s).parent) {
      if (heap_.get(s, name) || heap_.at(s).parent == 0) { heap_.set(s, name, std::move(v)); return; }
    }
  }
  heap_.set(f.scope, name, std::move(v));
}

void Interp::assign(const Node* target, Value v, const Node* statement) {
  if (!target) return;
  switch (target->kind) {
    case N::name: bindName(target->name, boundTo(v, target->text, statement)); break;
    case N::attribute: {
      const Value base = eval(target->a);
      const SlotName slot = target->name;
      const Value bound = boundTo(v, textOf(target), statement);
      size_t owners = 0;
      forEach(base, [&](const Value& b) { owners += b->kind == V::instance || b->kind == V::class_ || b->kind == V::module; });
      forEach(base, [&](const Value& b) {
        if (b->kind != V::instance && b->kind != V::class_ && b->kind != V::module) return;
        // Several possible owners: each may keep what it had.
        heap_.set(b->object, slot, owners > 1 ? join(heap_.get(b->object, slot), bound) : bound);
      });
      break;
    }
    case N::subscript: {
      const Value base = eval(target->a);
      Value key;
      for (const Node* k : target->list) key = eval(k);
      const bool environment = is(base, V::external) && base->text == "os.environ";
      if (key && (environment || isAny(base, V::tensor))) {
        Args stored;  // the value under its own name, since there may be several indices
        for (const Node* k : target->list) stored.list.push_back({"", environment ? key : eval(k), k});
        stored.list.push_back({"$value", v, nullptr});
        emit(E::store, target, environment ? "os.environ" : "", base, stored);
      }
      if (environment && is(key, V::string)) heap_.set(0, "$env:" + key->text, boundTo(v, textOf(target), statement));
      forEach(base, [&](const Value& b) {
        if (b->kind != V::dict) return;
        if (is(key, V::string)) heap_.set(b->object, key->text, boundTo(v, textOf(target), statement));
        else heap_.set(b->object, "$any", join(heap_.get(b->object, "$any"), v));
      });
      break;
    }
    case N::tuple: case N::list: {
      const auto parts = unpack(v, target->list.size());
      for (size_t i = 0; i < target->list.size(); ++i) {
        const Node* t = target->list[i];
        assign(t->kind == N::starred ? t->a : t, parts[i], statement);
      }
      break;
    }
    default: break;
  }
}

void Interp::exec(const Node* n) {
  if (!n) return;
  if (spent()) { gave_up_ = true; return; }
  frame().statement = n;
  switch (n->kind) {
    case N::expr_stmt: eval(n->a); break;
    case N::assign:
      if (n->b && n->b->kind == N::assign) {  // a = b = value
        exec(n->b);
        frame().statement = n;
        assign(n->a, eval(n->b->a), n);
      } else if (n->b) {
        const Value v = eval(n->b);
        if (wants(E::assign)) tellAssign(n, v);
        assign(n->a, v, n);
      }
      break;
    case N::aug_assign: {
      const Value a = eval(n->a), b = eval(n->b);
      if (wants(E::augment)) {
        Args operand;
        operand.list.push_back({"", b, n->b});
        emit(E::augment, n, n->text, a, operand);
      }
      if (is(a, V::list) && is(b, V::list)) {
        auto items = a->items;
        items.insert(items.end(), b->items.begin(), b->items.end());
        assign(n->a, list(std::move(items)), n);
      } else {
        assign(n->a, map(a, [&](const Value& x) { return map(b, [&](const Value& y) { return binaryOn(n, x, y); }); }), n);
      }
      break;
    }
    case N::return_: {
      Frame& f = frame();
      f.returns.push_back(n->a ? eval(n->a) : none());
      if (f.def && n->parent == f.def && n == f.def->list.back()) { f.at_end = true; break; }   // what is left behind is what is there
      f.exits.push_back(heap_.since(f.mark));
      f.dead = true;
      break;
    }
    case N::raise:
      if (n->a) eval(n->a);
      frame().dead = true;
      break;
    case N::assert_: for (const Node* e : n->list) e == n->list[0] ? condition(e) : eval(e); break;
    case N::delete_:
      for (const Node* e : n->list) if (e->kind == N::name) heap_.set(frame().scope, e->name, nullptr);
      break;
    case N::if_: execIf(n); break;
    case N::for_: case N::while_: execLoop(n); break;
    case N::try_: execTry(n); break;
    case N::with_: execWith(n); break;
    case N::def: {
      const Value fn = definition(n);
      bindName(n->name, fn);
      break;
    }
    case N::class_: bindName(n->name, classDefinition(n)); break;
    case N::import_: execImport(n); break;
    case N::from_import: execFromImport(n); break;
    case N::global_: for (const Node* e : n->list) frame().globals.push_back(e->name); break;
    case N::match: {
      for (const Node* s : n->list) eval(s);
      std::vector<std::function<void()>> paths;
      for (const Node* c : n->list2) paths.push_back([this, c] { guarded(c, [&] { execBlock(c->list); }); });
      paths.push_back([] {});
      branch(paths);
      break;
    }
    case N::break_: case N::continue_: {
      Frame& f = frame();
      if (!f.open_loops.empty()) {
        auto& loop = f.open_loops.back();
        (n->kind == N::break_ ? loop.breaks : loop.continues).push_back(heap_.since(loop.mark));
      }
      f.dead = true;
      break;
    }
    case N::error: execBlock(n->list); break;
    default: break;
  }
}

void Interp::execIf(const Node* n) {
  const Value asked = condition(n->a);
  const Truth t = truth(asked);
  if (isTypeChecking(asked)) {
    // No program runs this, but packages that load their parts when they are asked for name them here.
    ++typing_;
    discard([&] { execBlock(n->list); });
    for (const Node* s : n->list) if (s->kind == N::import_ || (s->kind == N::from_import && s->text != "*")) exec(s);
    --typing_;
    execBlock(n->list2);
    return;
  }
  if (t == Truth::unknown) {
    branch({[&] { guarded(n, [&] { execBlock(n->list); }); }, [&] { guarded(n, [&] { execBlock(n->list2); }); }});
    return;
  }
  const auto& taken = t == Truth::yes ? n->list : n->list2;
  const auto& other = t == Truth::yes ? n->list2 : n->list;
  discard([&] { execBlock(other); });
  execBlock(taken);
}

void Interp::execLoop(const Node* n) {
  std::vector<Value> items;
  bool exact = false, may_skip = true;
  int64_t passes = 0;
  if (n->kind == N::for_) {
    Value over = eval(n->b);
    emit(E::iterate, n->b, "", over, {});
    // The layers of a ModuleList or Sequential, one by one.
    if (is(over, V::instance) && !heap_.get(over->object, "$times") && !heap_.get(over->object, "$open"))
      if (const Value parts = heap_.get(over->object, "$items"); is(parts, V::list)) over = parts;
    if ((is(over, V::tuple) || is(over, V::list)) && !over->items.empty() && over->items.size() <= kUnroll) {
      items = over->items;
      exact = true;
    } else {
      const Value e = elementOf(over);
      items = {e, e};
      passes = passesOf(over);
    }
    may_skip = !exact;
  } else {
    may_skip = truth(condition(n->a)) != Truth::yes;
    items = {nullptr, nullptr};
  }
  Frame& f = frame();
  loops_.push_back({n, f.unit, exact, exact ? 1 : passes, 0});
  const size_t start = heap_.mark();
  std::vector<Delta> after;
  if (may_skip) after.push_back({});
  f.open_loops.push_back({start, {}, {}});
  for (size_t i = 0; i < items.size() && !f.dead; ++i) {
    loops_.back().pass = static_cast<int>(i);
    if (n->kind == N::for_) { f.statement = n; assign(n->a, items[i], n); }
    else if (i > 0) condition(n->a);
    execBlock(n->list);
    // What a `continue` left behind joins what the end of the body left.
    auto paths = std::move(f.open_loops.back().continues);
    f.open_loops.back().continues.clear();
    if (!f.dead) paths.push_back(heap_.since(start));
    heap_.rollback(start);
    heap_.merge(paths);
    f.dead = paths.empty();
    if (!f.dead && (!exact || i + 1 == items.size())) after.push_back(heap_.since(start));
  }
  for (auto& d : f.open_loops.back().breaks) after.push_back(std::move(d));
  f.open_loops.pop_back();
  heap_.rollback(start);
  heap_.merge(after);
  loops_.pop_back();
  f.dead = after.empty() && !(n->kind == N::while_ && may_skip);
  execBlock(n->list2);
}

void Interp::execTry(const Node* n) {
  std::vector<std::function<void()>> paths;
  paths.push_back([&] {
    execBlock(n->list);
    for (const Node* h : n->list2) if (h->kind == N::else_) execBlock(h->list);
  });
  for (const Node* h : n->list2) {
    if (h->kind != N::except) continue;
    paths.push_back([this, h] {
      if (!h->text.empty()) bindName(h->name, unknown("an exception"));
      guarded(h, [&] { execBlock(h->list); });
    });
  }
  branch(paths);
  for (const Node* h : n->list2) if (h->kind == N::finally_) execBlock(h->list);
}

void Interp::execWith(const Node* n) {
  const size_t contexts = contexts_.size();
  const int grad = no_grad_;
  std::vector<std::pair<std::string, Value>> restore;
  for (const Node* item : n->list2) {
    const Value v = item->a ? eval(item->a) : nullptr;
    if (isAny(v, V::device) || isAny(v, V::runtime)) {
      if (item->a->kind != N::call) record(item->a, "torch.device", "context", asDevice(v, item->a));
      contexts_.push_back(asDevice(v, item->a));
    } else if (is(v, V::external) && (v->text == "torch.no_grad()" || v->text == "torch.inference_mode()")) {
      ++no_grad_;
    } else if (is(v, V::external) && v->text == "torch.enable_grad()") {
      no_grad_ = 0;
    } else if (is(v, V::external) && v->text.starts_with("$current:")) {
      restore.emplace_back(v->text, heap_.get(0, v->text));
      heap_.set(0, v->text, v->self);
    }
    if (!item->b) continue;
    Value entered = v;
    if (is(v, V::instance)) {
      const Value enter = attribute(v, internName("__enter__"), item->a);
      if (is(enter, V::bound) && !enter->items.empty()) entered = call(enter, {}, item->a);
    }
    assign(item->b, entered ? entered : unknown("a context manager"), n);
  }
  execBlock(n->list);
  contexts_.resize(contexts);
  no_grad_ = grad;
  for (auto it = restore.rbegin(); it != restore.rend(); ++it) heap_.set(0, it->first, it->second);
}

}  // namespace flagos::lsp

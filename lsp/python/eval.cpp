// Expressions.
#include <cstdlib>
#include <unordered_set>

#include "lsp/python/assumed.h"
#include "lsp/python/interp.h"
#include "runtime/base/clock.h"

namespace flagos::lsp {
namespace {
constexpr int kMaxNesting = 1500;   // evaluations inside evaluations, calls included

struct Depth {
  int& d;
  explicit Depth(int& depth) : d(depth) { ++d; }
  ~Depth() { --d; }
};
}  // namespace

bool Interp::spent() {
  if (gave_up_) return true;
  if (deadline_ == 0) deadline_ = nowNs() + options_.max_ns;
  if (++steps_ > options_.max_steps) return true;
  if (steps_ % 64 != 0) return false;
  if (options_.stop && options_.stop()) gave_up_ = abandoned_ = true;
  return abandoned_ || nowNs() > deadline_;
}

Value Interp::eval(const Node* n) {
  if (!n) return unknown("nothing here");
  if (spent() || depth_ > kMaxNesting) {
    gave_up_ = true;
    if (depth_ > kMaxNesting && why_.empty()) why_ = "expressions and calls are nested deeper than " + std::to_string(kMaxNesting) + " levels";
    return unknown("the analysis stopped: this file takes too many steps to follow");
  }
  Depth depth(depth_);
  return evalInner(n);
}

Value Interp::evalInner(const Node* n) {
  switch (n->kind) {
    case N::name: return evalName(n);
    case N::integer: return literalInteger(n->text);
    case N::real: {
      auto v = makeVal();
      v->kind = V::real;
      v->real = std::strtod(std::string(n->text).c_str(), nullptr);
      return v;
    }
    case N::string: return evalString(n);
    case N::true_: return boolean(true);
    case N::false_: return boolean(false);
    case N::none: return none();
    case N::attribute: return attribute(eval(n->a), n->name, n);
    case N::subscript: return evalSubscript(n);
    case N::call: return evalCall(n);
    case N::binary: return evalBinary(n);
    case N::compare: return evalCompare(n);
    case N::conditional: return evalConditional(n);
    case N::comp: return evalComp(n);
    case N::boolean: {
      const Value a = condition(n->a);
      const bool is_or = n->text == "or";
      const Truth t = truth(a);
      if (t != Truth::unknown && (t == Truth::yes) == is_or) {
        discard([&] { eval(n->b); });
        return a;
      }
      const Value b = eval(n->b);
      if (!is_or && truth(b) == Truth::no) return b;   // whatever a is: false
      return map(a, [&](const Value& x) {
        const Truth tx = truth(x);
        if (tx == Truth::unknown) return join(x, b);
        return (tx == Truth::yes) == is_or ? x : b;
      });
    }
    case N::not_: {
      const Truth t = truth(condition(n->a));
      return t == Truth::unknown ? unknown("a condition that is not known") : boolean(t == Truth::no);
    }
    case N::unary: {
      const Value v = eval(n->a);
      return map(v, [&](const Value& x) -> Value {
        if (x->kind == V::integer) return integer(n->text == "-" ? -x->number : n->text == "~" ? ~x->number : x->number);
        if (x->kind == V::tensor) {
          auto t = makeVal(*x);
          t->made_by = nullptr;
          if (t->text != "?") t->text.clear();
          return withTraits(shaped(t, x, {}, "unary", n), x, {}, "unary");
        }
        return x;
      });
    }
    case N::lambda: {
      auto v = makeVal();
      v->kind = V::function;
      v->node = n;
      v->unit = frame().unit;
      v->object = frame().scope;
      for (const Node* p : n->list2)
        if (p->a) v->named.emplace_back(std::string(p->text), rename(eval(p->a), "default of parameter `" + std::string(p->text) + "`", p->line));
      if (v->unit == unit_.get() && quiet_ == 0 && (functions_.empty() || functions_.back()->node != n)) functions_.push_back(v);
      return v;
    }
    case N::tuple: case N::list: case N::set: {
      std::vector<Value> items;
      for (const Node* c : n->list) {
        if (c->kind != N::starred) { items.push_back(eval(c)); continue; }
        const Value v = eval(c->a);
        if (is(v, V::tuple) || is(v, V::list)) items.insert(items.end(), v->items.begin(), v->items.end());
        else items.push_back(elementOf(v));
      }
      return n->kind == N::tuple ? tuple(std::move(items)) : list(std::move(items));
    }
    case N::dict: {
      const ObjectId id = heap_.make();
      for (const Node* p : n->list) {
        if (p->kind != N::pair) {
          const Value other = p->a ? eval(p->a) : nullptr;
          if (is(other, V::dict)) {
            const Slots slots = heap_.at(other->object).slots;
            for (const auto& [k, v] : slots) heap_.set(id, k, v);
          }
          continue;
        }
        const Value key = eval(p->a);
        const Value value = boundTo(eval(p->b), is(key, V::string) && !key->text.empty() ? key->text : "an entry", n);
        if (is(key, V::string)) heap_.set(id, key->text, value);
        else heap_.set(id, "$any", join(heap_.get(id, "$any"), value));
      }
      auto v = makeVal();
      v->kind = V::dict;
      v->object = id;
      return v;
    }
    case N::await: return eval(n->a);
    case N::yield: {
      Value v = n->a ? eval(n->a) : none();
      frame().yields.push_back(v);
      return unknown("what is sent into a generator");
    }
    case N::named: {
      const Value v = eval(n->b);
      assign(n->a, v, frame().statement ? frame().statement : n);
      return v;
    }
    case N::starred: case N::dstarred: return elementOf(eval(n->a));
    case N::slice:
      for (const Node* c : n->list) {
        const Value v = eval(c);
        if (isAny(v, V::tensor)) emit(E::truth, c, "index", v, {});
      }
      return unknown("a slice");
    case N::error: for (const Node* c : n->list) eval(c); return unknown("this text has a syntax error");
    default: return unknown("not a value");
  }
}

Value Interp::lookup(SlotName name) {
  static const SlotName star_name = internName("$star");
  Value star;
  for (ObjectId s = frame().scope; s; s = heap_.at(s).parent) {
    if (const Value& v = heap_.get(s, name)) return is(v, V::forward) ? resolved(v) : v;
    if (!star) star = heap_.get(s, star_name);
  }
  static const std::unordered_set<std::string_view> builtins = {
      "print", "len", "range", "int", "float", "str", "bool", "list", "tuple", "dict", "set", "iter", "next", "getattr",
      "setattr", "hasattr", "isinstance", "super", "min", "max", "sum", "abs", "sorted", "map", "filter", "zip",
      "enumerate", "open", "vars", "property", "staticmethod", "classmethod", "object", "type", "any", "all", "round",
      "Exception", "ValueError", "RuntimeError", "id", "repr", "input", "reversed", "callable", "format", "divmod",
      "frozenset", "bytes", "complex", "hash", "issubclass", "locals", "globals", "NotImplementedError", "KeyError"};
  if (builtins.count(*name)) return external("builtins." + *name);
  if (star) return attribute(star, name, nullptr);
  return nullptr;
}

Value Interp::evalName(const Node* n) {
  if (Value v = lookup(n->name)) return v;
  return unknown("`" + std::string(n->text) + "` is not assigned in what was read");
}

Value Interp::asText(const Value& v, const Node* n) {
  switch (v->kind) {
    case V::string: case V::device: return string(v->text, v->origin);
    case V::integer: return string(std::to_string(v->number), v->origin);
    case V::runtime: return v;
    default: {
      Origin o = here(n);
      return runtimeValue("<" + textOf(n, 40) + ">", o);
    }
  }
}

Value Interp::concat(const Value& a, const Value& b, const Node*) {
  // The part that was decided elsewhere says where the device comes from; a fresh literal does not.
  const auto is_constant = [](const Value& v) { return v->origin.unit == nullptr || v->origin.fresh; };
  const Origin o = !is_constant(a) ? a->origin : !is_constant(b) ? b->origin : a->origin.unit ? a->origin : b->origin;
  if (a->kind == V::runtime || b->kind == V::runtime) return runtimeValue(a->text + b->text, o);
  return string(a->text + b->text, o);
}

Value Interp::evalString(const Node* n) {
  if (n->text != "f") return string(n->value, here(n));
  Value out = string("", here(n));
  for (const Node* piece : n->list) {
    const bool literal = piece->kind == N::string && piece->list.empty() && piece->text.empty();
    const Value v = literal ? string(piece->value, here(n)) : eval(piece);
    if (!literal) emit(E::format, piece, "", v, {});
    out = map(out, [&](const Value& head) { return map(v, [&](const Value& p) { return concat(head, asText(p, piece), n); }); });
  }
  return out;
}

Value Interp::evalConditional(const Node* n) {
  const Truth t = truth(condition(n->b));
  if (t == Truth::unknown) {
    Value a, c;
    guarded(n, [&] { a = eval(n->a); c = eval(n->c); });
    return join(a, c);
  }
  discard([&] { eval(t == Truth::yes ? n->c : n->a); });
  return eval(t == Truth::yes ? n->a : n->c);
}

Value Interp::evalCompare(const Node* n) {
  std::vector<Value> v;
  for (const Node* o : n->list) v.push_back(eval(o));
  if (v.size() != 2) return unknown("a chained comparison");
  // A device named in a comparison is a mention.
  for (size_t i = 0; i < 2; ++i) {
    const Node* literal = n->list[i];
    const Value& other = v[1 - i];
    if (literal->kind != N::string || !isDeviceString(literal->value)) continue;
    const Node* compared = n->list[1 - i];
    const bool attribute = compared->kind == N::attribute && (compared->text == "device" || compared->text == "type");
    bool about_devices = attribute || (isStrongDeviceString(literal->value) && (isAny(other, V::unknown) || isAny(other, V::runtime)));
    forEach(other, [&](const Value& o) { about_devices = about_devices || o->kind == V::device || (o->kind == V::string && isDeviceString(o->text)); });
    if (about_devices) record(n, "comparison", "mention", asDevice(v[i], literal));
  }
  if (isAny(v[0], V::tensor) || isAny(v[1], V::tensor)) {
    if (n->text != "is" && n->text != "in" && n->text != "is not" && n->text != "not in") {
      return map(binaryOn(n, v[0], v[1]), [](const Value& t) -> Value {
        auto mask = makeVal(*t);
        mask->dtype = DType::bool_;
        mask->graph = false;
        return mask;
      });
    }
    if (n->text.ends_with("in") && isAny(v[1], V::tensor)) emit(E::truth, n, "in", v[1], {});
    return unknown("a comparison of tensors");
  }
  const bool negated = n->text == "!=" || n->text == "is not" || n->text == "not in";
  return map(v[0], [&](const Value& a) {
    return map(v[1], [&](const Value& b) -> Value {
      const auto known = [&](bool yes) { return boolean(yes != negated); };
      const auto unknown_truth = [] { return unknown("a condition that is not known"); };
      if (n->text == "in" || n->text == "not in") {
        if (a->kind != V::string) return unknown_truth();
        if (b->kind == V::string) return known(b->text.find(a->text) != std::string::npos);
        if (b->kind != V::tuple && b->kind != V::list) return unknown_truth();
        for (const auto& item : b->items) {
          if (item->kind != V::string) return unknown_truth();
          if (item->text == a->text) return known(true);
        }
        return known(false);
      }
      if (a->kind == V::none || b->kind == V::none) {
        const Value& o = a->kind == V::none ? b : a;
        if (o->kind == V::unknown || o->kind == V::runtime) return unknown_truth();
        return known(o->kind == V::none);
      }
      if (a->kind == V::integer && b->kind == V::integer) {
        if (n->text == "<") return boolean(a->number < b->number);
        if (n->text == ">") return boolean(a->number > b->number);
        if (n->text == "<=") return boolean(a->number <= b->number);
        if (n->text == ">=") return boolean(a->number >= b->number);
        return known(a->number == b->number);
      }
      const auto textual = [](const Value& x) { return x->kind == V::string || x->kind == V::device || x->kind == V::dtype; };
      if (textual(a) && textual(b) && (n->text == "==" || n->text == "!=")) return known(a->text == b->text);
      return unknown_truth();
    });
  });
}

Value Interp::evalBinary(const Node* n) {
  const Value a = eval(n->a), b = eval(n->b);
  if (n->text == "%" && isAny(a, V::string)) {
    if (b->kind != V::tuple) emit(E::format, n->b, "", b, {});
    else for (size_t i = 0; i < b->items.size(); ++i) emit(E::format, n->b->kind == N::tuple && i < n->b->list.size() ? n->b->list[i] : n->b, "", b->items[i], {});
  }
  return map(a, [&](const Value& x) { return map(b, [&](const Value& y) { return binaryOn(n, x, y); }); });
}

Value Interp::binaryOn(const Node* n, const Value& a, const Value& b) {
  if ((isAny(a, V::tensor) || isAny(b, V::tensor)) && a->kind != V::string) {
    Args both;
    const bool compare = n->kind == N::compare;
    both.list.push_back({"", a, compare ? n->list[0] : n->a});
    both.list.push_back({"", b, compare ? n->list[1] : n->b});
    emit(E::operation, n, n->text, nullptr, both);
    Value device;
    forEach(a, [&](const Value& x) { if (x->kind == V::tensor) device = join(device, x->device); });
    if (!device) forEach(b, [&](const Value& x) { if (x->kind == V::tensor) device = join(device, x->device); });
    // What a file gave may be a number; anything else that was moved to a device and is calculated with is a tensor.
    bool loaded = true;
    for (const Value& v : {a, b}) forEach(v, [&](const Value& x) { loaded = loaded && (x->kind != V::tensor || (x->text == "?" && x->number != 0)); });
    auto result = makeVal(*tensorOn(device));
    if (loaded) { result->text = "?"; result->number = 1; }
    return withTraits(shaped(result, nullptr, both, n->text, n), nullptr, both, n->text);
  }
  const auto text = n->text;
  const auto textual = [](const Value& v) { return v->kind == V::string || v->kind == V::runtime; };
  if (text.starts_with("+") && textual(a) && textual(b)) return concat(a, b, n);
  if (text.starts_with("+") && a->kind == V::string && b->kind == V::unknown && n->b) return concat(a, asText(b, n->b), n);
  if (text.starts_with("%") && a->kind == V::string) {
    // Each %s or %d takes the next operand; widths and names are not followed.
    const std::vector<Value> operands = b->kind == V::tuple ? b->items : std::vector<Value>{b};
    Value out = string("", a->origin);
    size_t at = 0, next = 0;
    while (true) {
      const auto hit = a->text.find('%', at);
      const Value piece = string(a->text.substr(at, hit == std::string::npos ? hit : hit - at), a->origin);
      out = map(out, [&](const Value& o) { return concat(o, piece, n); });
      if (hit == std::string::npos) return out;
      const char kind = hit + 1 < a->text.size() ? a->text[hit + 1] : ' ';
      if ((kind != 's' && kind != 'd' && kind != 'i') || next >= operands.size()) return unknown("`" + textOf(n, 40) + "` is not followed");
      const Value operand = operands[next++];
      const Node* from = n->b && n->b->kind == N::tuple && next <= n->b->list.size() ? n->b->list[next - 1] : n->b ? n->b : n;
      out = map(out, [&](const Value& o) { return map(operand, [&](const Value& v) { return concat(o, asText(v, from), n); }); });
      at = hit + 2;
    }
  }
  if (a->kind == V::integer && b->kind == V::integer) {
    const auto result = arithmetic(text, a->number, b->number);
    const Value out = result ? integer(*result) : nullptr;
    if (out) return assumedIf(a->assumed || b->assumed, a->origin.unit ? withOrigin(out, a->origin) : out);
    return unknown("arithmetic that is not followed");
  }
  if (text.starts_with("%") && b->kind == V::integer && b->number == 0) return unknown("`" + textOf(n, 40) + "`: there is no remainder by 0");
  if (a->kind == V::runtime && (b->kind == V::integer || b->kind == V::runtime)) {
    const auto inner = [](const Value& v) {
      if (v->kind == V::integer) return std::to_string(v->number);
      return v->text.size() > 2 && v->text.front() == '<' ? v->text.substr(1, v->text.size() - 2) : v->text;
    };
    auto number = makeVal(*runtimeValue("<" + inner(a) + " " + std::string(text) + " " + inner(b) + ">", a->origin));
    number->number = 1;
    return number;
  }
  if (text.starts_with("+") && (a->kind == V::list || a->kind == V::tuple) && (b->kind == V::list || b->kind == V::tuple)) {
    auto items = a->items;
    items.insert(items.end(), b->items.begin(), b->items.end());
    return list(std::move(items));
  }
  if (text.starts_with("*") && a->kind == V::list) return iterableOf(elementOf(a));
  if (a->kind == V::dict && text.starts_with("|")) {
    if (b->kind != V::dict) return unknown("a dict joined with something that is not followed");
    const ObjectId id = text == "|=" ? a->object : heap_.make();
    for (const auto object : {a->object, b->object}) {
      const Slots slots = heap_.at(object).slots;
      for (const auto& [k, v] : slots) if (v) heap_.set(id, k, v);
    }
    auto v = makeVal();
    v->kind = V::dict;
    v->object = id;
    return v;
  }
  if (a->kind == V::unknown) return a;
  return b->kind == V::unknown ? b : unknown("`" + textOf(n) + "` is not followed");
}

Value Interp::elementOf(const Value& v) {
  return map(v, [&](const Value& x) -> Value {
    switch (x->kind) {
      case V::tuple: case V::list: return x->items.empty() ? unknown("an empty sequence") : joinAll(x->items);
      case V::iterable: return x->self;
      case V::tensor: {
        auto part = makeVal(*tensorOn(x->device));
        part->dtype = x->dtype;
        if (x->text == "?") { part->text = "?"; part->number = x->number; }   // perhaps no tensor at all
        part->graph = x->graph || (x->text == "parameter" && no_grad_ == 0);
        if (x->shape && !x->shape->empty()) part->shape.emplace(x->shape->begin() + 1, x->shape->end());
        return part;
      }
      case V::dict: {
        Value keys;
        for (const auto& [k, value] : heap_.at(x->object).slots) if (value && k[0] != '$') keys = join(keys, string(k));
        return keys ? keys : unknown("a key of a dict");
      }
      case V::string: return unknown("a character");
      case V::instance: {
        if (const Value e = heap_.get(x->object, "$element")) return e;
        for (const char* method : {"__iter__", "__getitem__"}) {
          const Value m = attribute(x, internName(method), nullptr);
          if (!is(m, V::bound) || m->items.empty()) continue;
          Args args;
          if (method[2] == 'g') args.list.push_back({"", unknown("an index"), nullptr});
          const Value got = call(m, args, nullptr);
          return method[2] == 'g' ? got : is(got, V::instance) ? unknown("an iterator") : elementOf(got);
        }
        return unknown("what iterating this object gives");
      }
      case V::unknown: return x;
      default: return unknown("what iterating this gives");
    }
  });
}

std::vector<Value> Interp::unpack(const Value& v, size_t n) {
  std::vector<Value> out(n);
  forEach(v, [&](const Value& x) {
    const bool sequence = (x->kind == V::tuple || x->kind == V::list) && x->items.size() == n;
    const Value element = sequence ? nullptr : elementOf(x);
    for (size_t i = 0; i < n; ++i) out[i] = join(out[i], sequence ? x->items[i] : element);
  });
  for (auto& o : out) if (!o) o = unknown("nothing to unpack");
  return out;
}

Value Interp::evalSubscript(const Node* n) {
  const Value base = eval(n->a);
  Value key;
  Args index, keys;
  for (const Node* k : n->list) keys.list.push_back({"", key = eval(k), k});
  const bool is_slice = !n->list.empty() && n->list[0]->kind == N::slice;
  if (key) index.list.push_back({"", key, n->list.back()});
  if (isAny(base, V::tensor)) emit(E::subscript, n, "", base, keys);
  return map(base, [&](const Value& b) -> Value {
    switch (b->kind) {
      case V::tensor: {
        auto part = makeVal(*tensorOn(b->device));
        part->dtype = b->dtype;
        part->assumed = b->assumed;
        if (b->shape) part->shape = subscriptShape(*b->shape, n, keys);
        if (b->text == "?") { part->text = "?"; part->number = b->number; }
        return withTraits(part, b, index, "[]");
      }
      case V::tuple: case V::list: {
        if (is_slice) return partOf(b, n->list[0]);
        if (is(key, V::integer)) {
          const auto size = static_cast<int64_t>(b->items.size());
          const int64_t i = key->number < 0 ? key->number + size : key->number;
          if (i >= 0 && i < size) return b->items[static_cast<size_t>(i)];
        }
        return elementOf(b);
      }
      case V::iterable: return is_slice ? b : b->self;
      case V::dict: {
        Value out;
        bool all_known = true;
        forEach(key, [&](const Value& k) {
          if (k->kind != V::string) { all_known = false; return; }
          if (const Value v = heap_.get(b->object, k->text)) out = join(out, v); else all_known = false;
        });
        if (all_known && out) return out;
        if (const Value any = heap_.get(b->object, "$any")) return join(out, any);
        if (is(key, V::string)) return join(out, unknown("the dict has no entry '" + key->text + "' in what was read"));
        for (const auto& [k, v] : heap_.at(b->object).slots) if (v && k[0] != '$') out = join(out, v);
        return out ? out : unknown("an entry of a dict");
      }
      case V::external:
        if (b->text == "os.environ") return environment(key, nullptr, n);
        return unknown("`" + textOf(n) + "` comes from outside the workspace");
      case V::instance: {
        const Value m = attribute(b, internName("__getitem__"), n);
        if (is(m, V::bound) && !m->items.empty()) return call(m, index, n);
        if (const Value items = heap_.get(b->object, "$items")) {
          if (is(key, V::integer) && !items->items.empty()) {
            const auto size = static_cast<int64_t>(items->items.size());
            const int64_t i = key->number < 0 ? key->number + size : key->number;
            if (i >= 0 && i < size) return items->items[static_cast<size_t>(i)];
          }
          return elementOf(items);
        }
        return unknown("`" + textOf(n) + "` is not followed");
      }
      case V::unknown: {
        const Value part = unknown("`" + textOf(n) + "`: " + b->text);
        if (!b->loader) return part;
        auto of_loader = makeVal(*part);
        of_loader->loader = b->loader;
        return of_loader;
      }
      default: return unknown("`" + textOf(n) + "` is not followed");
    }
  });
}

Value Interp::attribute(const Value& base, SlotName name, const Node* n) {
  return map(base, [&](const Value& b) { return attributeOf(b, name, n); });
}

Value Interp::attributeOf(const Value& b, SlotName name, const Node* n) {
  const std::string& slot = *name;
  const auto method = [&] {
    auto v = makeVal();
    v->kind = V::bound;
    v->self = b;
    v->text = slot;
    return v;
  };
  switch (b->kind) {
    case V::external: {
      const std::string full = b->text + "." + slot;
      if (slot == "device" && b->self && b->text.ends_with("()")) return libraryDevice(b);
      if (auto v = externalAttribute(full)) return *v;
      return external(full);
    }
    case V::module: {
      if (const Value v = moduleSlot(b, slot)) return v;
      if (b->unit && b->unit->path.ends_with("__init__.py"))
        if (auto inner = workspace_.import(b->unit->path, "." + slot)) {
          auto m = makeVal(*b);
          m->text = b->text + "." + slot;
          m->unit = inner.get();
          m->object = moduleScope(inner);
          return m;
        }
      return unknown("`" + slot + "` is not in " + b->text);
    }
    case V::tensor: return tensorAttribute(b, slot);
    case V::device:
      if (slot == "type") return string(std::string(deviceType(b->text)), b->origin);
      if (slot == "index") {
        const auto colon = b->text.find(':');
        return colon == std::string::npos ? none() : integer(std::strtoll(b->text.c_str() + colon + 1, nullptr, 10));
      }
      return method();
    case V::class_: {
      Value owner;
      if (const Value v = classAttribute(b, name, &owner)) {
        if (v->kind != V::function || v->text != "classmethod") return v;
        auto m = makeVal();
        m->kind = V::bound;
        m->self = b;
        m->text = slot;
        m->items = {v};
        return m;
      }
      if (slot == "apply" && derivesFrom(b, [](const std::string& base) { return base == "torch.autograd.Function" || base == "torch.autograd.function.Function"; })) {
        if (const Value forward = classAttribute(b, internName("forward")); is(forward, V::function)) {  // apply(...) calls forward(ctx, ...)
          auto p = makeVal();
          p->kind = V::partial;
          p->self = forward;
          p->items = {unknown("the context of an autograd function")};
          return p;
        }
      }
      return unknown("`" + slot + "` is not in class " + std::string(b->node ? b->node->text : ""));
    }
    case V::instance: {
      if (const Value& v = heap_.get(b->object, name)) return v;
      Value owner;
      const Value& cls = heap_.at(b->object).cls;
      if (const Value v = classAttribute(cls, name, &owner)) {
        if (v->kind != V::function || v->node->kind != N::def) return v;
        if (v->text == "property") return callFunction(v, {}, n ? n : v->node, b);
        auto m = makeVal();
        m->kind = V::bound;
        m->self = v->text == "classmethod" ? owner : v->text == "staticmethod" ? nullptr : b;
        m->text = slot;
        m->items = {v};
        return m;
      }
      if (isModule(b)) {
        if (slot == "device") {
          if (!heap_.get(b->object, "$device") && derivesFrom(cls, [](const std::string& base) { return base.ends_with(".LightningModule"); }))
            return runtimeValue("<" + textOf(n, 40) + ">", here(n, "decided by Lightning when the program runs"));
          return moduleDevice(b);
        }
        if (slot == "weight" || slot == "bias") return tensorOn(moduleDevice(b));
        return method();
      }
      if (is(cls, V::external)) {
        if (auto v = externalAttribute(cls->text + "()." + slot)) return *v;
        return method();
      }
      if (is(cls, V::class_) && derivesFrom(cls, [](const std::string&) { return true; })) return method();
      return unknown("attribute `" + slot + "` is never assigned in what was read");
    }
    case V::unknown: {
      if (slot == "device" && n) return unknown("`" + textOf(n) + "`: " + b->text);
      return b;
    }
    // A member of an enumeration is its value here.
    case V::string: case V::integer: if (slot == "value") return b; return method();
    case V::runtime: return method();
    default: return method();
  }
}

}  // namespace flagos::lsp

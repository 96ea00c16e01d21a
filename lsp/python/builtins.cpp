// Python's own library, as far as devices pass through it.
#include <algorithm>

#include <cstdlib>

#include "lsp/python/assumed.h"
#include "lsp/python/interp.h"

namespace flagos::lsp {

Value Interp::callExternal(const std::string& name, Args& args, const Node* n) {
  if (name.starts_with("builtins.")) {
    emit(n, name, args.at(0) ? args.at(0)->value : nullptr, args);
    if (auto v = callBuiltin(name.substr(9), args, n)) return *v;
    return unknown("`" + textOf(n, 40) + "` is not followed");
  }
  if (name.starts_with("$super")) {
    const Value super = superValue();
    const std::string method = name.substr(name.find('.') + 1);
    if (!is(super, V::external)) return super;
    for (const auto& base : super->items[0]->items) {
      if (const Value m = classAttribute(base, internName(method)); is(m, V::function)) return callFunction(m, args, n, super->self);
    }
    if (is(super->self, V::instance))
      if (auto v = callModuleMethod(super->self, method, args, n)) return *v;
    return none();
  }
  if (startsProcess(name, args, n)) return unknown("what runs in another process or thread");
  if (auto v = callLibrary(name, args, n)) return *v;
  if (auto v = callTorch(name, args, n)) {
    if (const Arg* out = args.keyword("out"); out && is(out->value, V::tensor)) return out->value;
    return withTraits(shaped(*v, nullptr, args, name, n), nullptr, args, name);
  }
  emit(E::foreign, n, name, nullptr, args);
  if (auto v = callEcosystem(name, args, n)) return *v;
  return unknown("`" + name + "()` is outside the workspace");
}

std::optional<Value> Interp::callBuiltin(const std::string& name, Args& args, const Node* n) {
  const Value first = args.at(0) ? args.at(0)->value : nullptr;
  if (name == "super") return superValue();
  if (name == "str" || name == "repr" || name == "format")
    return first ? map(first, [&](const Value& v) { return asText(v, n->list.empty() ? n : n->list[0]); }) : string("");
  if (name == "int") {
    if (!first) return integer(0);
    return map(first, [&](const Value& v) -> Value {
      if (v->kind == V::runtime) {
        auto number = makeVal(*v);
        number->number = 1;   // a number: as a device, one of the accelerator's
        return number;
      }
      if (v->kind == V::integer) return v;
      if (v->kind == V::string && !v->text.empty() && v->text.find_first_not_of("0123456789") == std::string::npos)
        return assumedIf(v->assumed, withOrigin(integer(std::strtoll(v->text.c_str(), nullptr, 10)), v->origin));
      return v->kind == V::unknown ? v : unknown("an integer that is not known");
    });
  }
  if (name == "bool") {
    const Truth t = truth(first);
    return t == Truth::unknown ? unknown("a condition that is not known") : boolean(t == Truth::yes);
  }
  if (name == "len") {
    if (is(first, V::tuple) || is(first, V::list)) return integer(static_cast<int64_t>(first->items.size()));
    if (is(first, V::tensor) && first->shape && !first->shape->empty()) return assumedIf(first->assumed, integer(first->shape->front()));
    return unknown("a length that is not known");
  }
  if (name == "range") {
    int64_t from = 0, to = 0;
    const Value a = first, b = args.at(1) ? args.at(1)->value : nullptr;
    if (!b && is(a, V::integer)) to = a->number;
    else if (is(a, V::integer) && is(b, V::integer)) { from = a->number; to = b->number; }
    else return iterableOf(unknown("an index of a loop"));
    if (args.positional() > 2 || to - from > 8) {
      auto many = makeVal(*iterableOf(unknown("an index of a loop")));
      if (args.positional() <= 2) many->number = to - from;
      many->assumed = a->assumed || (b && b->assumed);
      return many;
    }
    std::vector<Value> items;
    for (int64_t i = from; i < to; ++i) items.push_back(integer(i));
    return list(std::move(items));
  }
  if (name == "list" || name == "tuple" || name == "sorted" || name == "reversed" || name == "set" || name == "iter" || name == "frozenset") {
    if (!first) return list({});
    if (is(first, V::list) || is(first, V::tuple)) return name == "tuple" ? tuple(first->items) : list(first->items);
    const bool as_many = is(first, V::iterable) && name != "set" && name != "frozenset";
    auto copy = makeVal(*iterableOf(elementOf(first)));
    if (as_many) { copy->number = first->number; copy->assumed = first->assumed; }
    return copy;
  }
  if (name == "next") return first ? elementOf(first) : unknown("next() of nothing");
  if (name == "dict") {
    const ObjectId id = heap_.make();
    if (is(first, V::dict)) { const Slots slots = heap_.at(first->object).slots; for (const auto& [k, v] : slots) heap_.set(id, k, v); }
    for (const auto& a : args.list) if (!a.name.empty()) heap_.set(id, a.name, a.value);
    auto v = makeVal();
    v->kind = V::dict;
    v->object = id;
    return v;
  }
  if (name == "getattr") {
    const Value key = args.at(1) ? args.at(1)->value : nullptr;
    if (!first || !is(key, V::string)) return unknown("getattr() with a name that is not known");
    const Value v = attribute(first, internName(key->text), n);
    const Value fallback = args.at(2) ? args.at(2)->value : nullptr;
    if (fallback && isAny(v, V::unknown)) return is(v, V::unknown) ? join(fallback, v) : v;
    return v;
  }
  if (name == "setattr") {
    const Value key = args.at(1) ? args.at(1)->value : nullptr;
    if (args.at(2) && is(key, V::string))
      forEach(first, [&](const Value& b) { if (b->kind == V::instance || b->kind == V::class_) heap_.set(b->object, key->text, args.at(2)->value); });
    else
      forEach(first, [&](const Value& b) { if (isModule(b)) heap_.set(b->object, "$open", boolean(true)); });   // some part of it has a name that is not known
    return none();
  }
  if (name == "hasattr") {
    // hasattr(torch, "npu"): there on a machine with such a device; without one, the module may be there all the same.
    const Value key = args.at(1) ? args.at(1)->value : nullptr;
    if (is(first, V::external) && first->text == "torch" && is(key, V::string) && options_.machine.known && options_.machine.has(key->text))
      return boolean(true);
    return unknown("a condition that is not known");
  }
  if (name == "isinstance") {
    const Value cls = args.at(1) ? args.at(1)->value : nullptr;
    if (is(cls, V::external) && cls->text == "builtins.str" && first) {
      if (is(first, V::string)) return boolean(true);
      if (is(first, V::device) || is(first, V::none) || is(first, V::integer)) return boolean(false);
    }
    if (is(cls, V::external) && cls->text == "builtins.int" && first && (is(first, V::string) || is(first, V::device))) return boolean(false);
    return unknown("a condition that is not known");
  }
  if (name == "zip") {
    if (args.unknown_rest) return iterableOf(unknown("zip() of what is not followed"));
    std::vector<Value> parts;
    size_t exact = SIZE_MAX;
    for (const auto& a : args.list) {
      const bool sequence = is(a.value, V::list) || is(a.value, V::tuple);
      exact = std::min(exact, sequence ? a.value->items.size() : size_t{99});
    }
    if (exact <= 8) {
      std::vector<Value> rows;
      for (size_t i = 0; i < exact; ++i) {
        std::vector<Value> row;
        for (const auto& a : args.list) {
          const bool sequence = is(a.value, V::list) || is(a.value, V::tuple);
          row.push_back(sequence ? a.value->items[i] : elementOf(a.value));
        }
        rows.push_back(tuple(std::move(row)));
      }
      return list(std::move(rows));
    }
    for (const auto& a : args.list) parts.push_back(elementOf(a.value));
    return iterableOf(tuple(std::move(parts)));
  }
  if (name == "enumerate") {
    if (!first) return unknown("enumerate() of nothing");
    if ((is(first, V::list) || is(first, V::tuple)) && first->items.size() <= 8) {
      std::vector<Value> rows;
      for (size_t i = 0; i < first->items.size(); ++i) rows.push_back(tuple({integer(static_cast<int64_t>(i)), first->items[i]}));
      return list(std::move(rows));
    }
    return iterableOf(tuple({unknown("an index of a loop"), elementOf(first)}));
  }
  if (name == "map") {
    if (!first || !args.at(1)) return unknown("map() of nothing");
    Args one;
    one.list.push_back({"", elementOf(args.at(1)->value), nullptr});
    return iterableOf(call(first, one, n));
  }
  if (name == "filter") return args.at(1) ? iterableOf(elementOf(args.at(1)->value)) : unknown("filter() of nothing");
  if (name == "vars") {
    return map(first ? first : unknown("vars()"), [&](const Value& v) -> Value {
      if (v->kind != V::instance) return unknown("vars() of something that is not followed");
      auto d = makeVal();
      d->kind = V::dict;
      d->object = v->object;
      return d;
    });
  }
  if (name == "print" || name == "open" || name == "input") return name == "print" ? none() : unknown("`" + name + "()`");
  if (name == "max" || name == "min" || name == "sum" || name == "abs" || name == "round") {
    Value t;
    for (const auto& a : args.list) {
      if (isAny(a.value, V::tensor)) t = join(t, a.value);
      else if (a.value->kind == V::list || a.value->kind == V::tuple || a.value->kind == V::iterable) {
        if (const Value e = elementOf(a.value); isAny(e, V::tensor)) t = join(t, e);
      }
    }
    if (t) return map(t, [](const Value& v) { return v->kind == V::tensor ? tensorOn(v->device) : v; });
    return unknown("`" + name + "()` is not followed");
  }
  return std::nullopt;
}

Value Interp::environment(const Value& key, const Value& fallback, const Node* n) {
  if (!is(key, V::string)) return unknown("an environment variable whose name is not known");
  if (const Value written = heap_.get(0, "$env:" + key->text)) return written;
  const Value set = runtimeValue("<" + key->text + ">", here(n, "environment variable " + key->text));
  if (!fallback || is(fallback, V::none)) return set;
  return join(rename(fallback, "default of environment variable " + key->text, frame().statement ? frame().statement->line : n->line), set);
}

std::optional<Value> Interp::callLibrary(const std::string& name, Args& args, const Node* n) {
  const Value first = args.at(0) ? args.at(0)->value : nullptr;
  if ((name == "os.environ.setdefault" || name == "os.putenv") && args.at(1)) emit(E::store, n, "os.environ", nullptr, args);
  if (name == "os.environ.update") {
    Args each;
    if (is(first, V::dict)) for (const auto& [k, v] : heap_.at(first->object).slots) if (v) each.list.push_back({"", string(k), nullptr});
    for (const auto& a : args.list) if (!a.name.empty()) each.list.push_back({"", string(a.name), nullptr});
    emit(E::store, n, "os.environ", nullptr, each);
  }
  if (name == "os.environ.get" || name == "os.getenv" || name == "os.environ.setdefault") {
    if (!first) return unknown("an environment variable");
    const Arg* d = args.get(1, "default");
    const Value v = environment(first, d ? d->value : nullptr, n);
    if (name == "os.environ.setdefault" && is(first, V::string)) heap_.set(0, "$env:" + first->text, v);
    return v;
  }
  if (name == "functools.partial") {
    if (!first) return unknown("partial() of nothing");
    auto v = makeVal();
    v->kind = V::partial;
    v->self = first;
    bool skipped = false;
    for (const auto& a : args.list) {
      if (a.name.empty() && !skipped) { skipped = true; continue; }
      const Value bound = rename(a.value, "argument of `partial`", frame().statement ? frame().statement->line : n->line);
      if (a.name.empty()) v->items.push_back(bound); else v->named.emplace_back(a.name, bound);
    }
    return v;
  }
  if (name == "dataclasses.field") {
    if (const Arg* d = args.keyword("default")) return rename(d->value, "default of a field", n->line);
    if (const Arg* f = args.keyword("default_factory")) return call(f->value, {}, n);
    return unknown("a field without default");
  }
  if (name == "copy.deepcopy" || name == "copy.copy" || name == "dataclasses.replace") {
    if (!first) return unknown("a copy of nothing");
    return map(first, [&](const Value& v) -> Value {
      if (v->kind != V::instance) return v;
      auto c = makeVal(*v);
      c->object = heap_.make();
      const Slots original = heap_.at(v->object).slots;
      heap_.at(c->object).cls = heap_.at(v->object).cls;
      for (const auto& [k, value] : original) heap_.set(c->object, k, value);
      if (name == "dataclasses.replace")
        for (const auto& a : args.list) if (!a.name.empty()) heap_.set(c->object, a.name, rename(a.value, "argument `" + a.name + "` of `replace()`", n->line));
      return c;
    });
  }
  if (name == "argparse.ArgumentParser" || name == "argparse.Namespace" || name == "types.SimpleNamespace") {
    auto v = makeVal();
    v->kind = V::instance;
    v->object = heap_.make();
    heap_.at(v->object).cls = external(name);
    if (name != "argparse.ArgumentParser")
      for (const auto& a : args.list) if (!a.name.empty()) heap_.set(v->object, a.name, boundTo(a.value, a.name, n));
    return v;
  }
  return std::nullopt;
}

std::optional<Value> Interp::callParser(const Value& parser, const std::string& method, Args& args, const Node* n) {
  const Value& cls = heap_.at(parser->object).cls;
  if (!is(cls, V::external) || cls->text != "argparse.ArgumentParser") return std::nullopt;
  if (method == "add_argument_group" || method == "add_mutually_exclusive_group" || method == "add_subparsers" || method == "add_parser")
    return parser;
  if (method == "parse_args" || method == "parse_known_args" || method == "parse_intermixed_args") {
    auto ns = makeVal();
    ns->kind = V::instance;
    ns->object = heap_.make();
    heap_.at(ns->object).cls = external("argparse.Namespace");
    const Slots slots = heap_.at(parser->object).slots;
    for (const auto& [k, v] : slots) if (v) heap_.set(ns->object, k, v);
    if (method == "parse_known_args") return tuple({ns, unknown("arguments that the parser does not know")});
    return ns;
  }
  if (method == "set_defaults") {
    for (const auto& a : args.list)
      if (!a.name.empty()) heap_.set(parser->object, a.name, assumedIf(true, rename(a.value, "default of --" + a.name, n->line)));
    return none();
  }
  if (method != "add_argument") return none();
  std::string flag, dest;
  for (const auto& a : args.list) {
    if (!a.name.empty() || !is(a.value, V::string)) continue;
    const std::string& text = a.value->text;
    if (flag.empty() || (text.starts_with("--") && !flag.starts_with("--"))) flag = text;
  }
  if (const Arg* d = args.keyword("dest"); d && is(d->value, V::string)) dest = d->value->text;
  if (dest.empty()) {
    dest = flag.substr(flag.find_first_not_of('-') == std::string::npos ? 0 : flag.find_first_not_of('-'));
    for (char& c : dest) if (c == '-') c = '_';
  }
  if (dest.empty()) return none();
  const int line = frame().statement ? frame().statement->line : n->line;
  const Arg* d = args.keyword("default");
  Value value = d ? rename(d->value, "default of " + flag, line) : nullptr;
  const Arg* action = args.keyword("action");
  if (const bool is_flag = action && is(action->value, V::string) && action->value->text.starts_with("store_"); is_flag) {
    value = unknown("the flag " + flag + " decides it when the program runs");
  } else if (const Arg* choices = args.keyword("choices"); choices && (is(choices->value, V::list) || is(choices->value, V::tuple))) {
    for (const auto& c : choices->value->items) {
      bool already = false;
      forEach(value, [&](const Value& v) { already = already || (v->kind == c->kind && v->text == c->text && v->number == c->number); });
      if (!already) value = join(value, rename(c, "choice of " + flag, line));
    }
  } else if (!value || is(value, V::none)) {
    const Value given = runtimeValue("<" + flag + ">", here(n, "argument " + flag + " of the command line"));
    value = value ? join(value, given) : given;
  }
  heap_.set(parser->object, dest, assumedIf(true, value));
  if (d) {
    bool names_device = false;
    forEach(d->value, [&](const Value& v) { names_device = names_device || (v->kind == V::string && isDeviceString(v->text)) || v->kind == V::device; });
    if (names_device) record(n, "ArgumentParser.add_argument", "source", asDevice(value, n));
  }
  return none();
}

std::optional<Value> Interp::callDict(const Value& dict, const std::string& method, Args& args, const Node*) {
  const Value key = args.at(0) ? args.at(0)->value : nullptr;
  if (method == "get" || method == "pop" || method == "setdefault") {
    const Value fallback = args.at(1) ? args.at(1)->value : none();
    if (is(key, V::string)) {
      if (const Value v = heap_.get(dict->object, key->text)) return v;
      if (const Value any = heap_.get(dict->object, "$any")) return join(any, fallback);
      return fallback;
    }
    Value all = fallback;
    for (const auto& [k, v] : heap_.at(dict->object).slots) if (v) all = join(all, v);
    return all;
  }
  if (method == "items" || method == "values") {
    std::vector<Value> rows;
    for (const auto& [k, v] : heap_.at(dict->object).slots) {
      if (!v) continue;
      rows.push_back(method == "values" ? v : tuple({k[0] == '$' ? unknown("a key of a dict") : string(k), v}));
    }
    if (rows.size() <= 8 && !heap_.get(dict->object, "$any")) return list(std::move(rows));
    return iterableOf(joinAll(rows));
  }
  if (method == "keys") return iterableOf(elementOf(dict));
  if (method == "update") {
    if (is(key, V::dict)) { const Slots slots = heap_.at(key->object).slots; for (const auto& [k, v] : slots) heap_.set(dict->object, k, v); }
    for (const auto& a : args.list) if (!a.name.empty()) heap_.set(dict->object, a.name, a.value);
    return none();
  }
  if (method == "copy") {
    const ObjectId id = heap_.make();
    const Slots slots = heap_.at(dict->object).slots;
    for (const auto& [k, v] : slots) heap_.set(id, k, v);
    auto v = makeVal();
    v->kind = V::dict;
    v->object = id;
    return v;
  }
  return std::nullopt;
}

std::optional<Value> Interp::callText(const Value& text, const std::string& method, Args& args, const Node* n) {
  if (method == "format" && text->kind == V::string) {
    Value out = string("", text->origin);
    size_t at = 0, next = 0;
    while (true) {
      const auto open = text->text.find('{', at), close = text->text.find('}', open == std::string::npos ? at : open);
      const Value head = string(text->text.substr(at, open == std::string::npos ? std::string::npos : open - at), text->origin);
      out = map(out, [&](const Value& o) { return concat(o, head, n); });
      if (open == std::string::npos || close == std::string::npos) return out;
      const std::string field = text->text.substr(open + 1, close - open - 1);
      const bool plain = field.empty() || field.find_first_not_of("0123456789") == std::string::npos;
      const Arg* a = field.empty() ? args.at(next++) : plain ? args.at(static_cast<size_t>(std::strtol(field.c_str(), nullptr, 10))) : args.keyword(field);
      if (!a) return unknown("a format() whose values are not followed");
      emit(E::format, a->node ? a->node : n, "", a->value, {});
      out = map(out, [&](const Value& o) { return map(a->value, [&](const Value& v) { return concat(o, asText(v, a->node ? a->node : n), n); }); });
      at = close + 1;
    }
  }
  if (method == "lower" || method == "strip" || method == "upper" || method == "rstrip" || method == "lstrip") {
    if (text->kind != V::string) return text;
    std::string s = text->text;
    if (method == "lower" || method == "upper") {
      for (char& c : s) {
        if (method == "lower" && c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
        if (method == "upper" && c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
      }
    } else if (args.list.empty()) {
      const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
      if (method != "lstrip") while (!s.empty() && blank(s.back())) s.pop_back();
      if (method != "rstrip") while (!s.empty() && blank(s.front())) s.erase(0, 1);
    } else {
      return unknown("`" + textOf(n, 40) + "` is not followed");
    }
    return string(std::move(s), text->origin);
  }
  if (method == "join" && args.at(0)) {
    const Value parts = args.at(0)->value;
    if ((!is(parts, V::list) && !is(parts, V::tuple)) || parts->items.size() > 8) return unknown("a text whose parts are not known");
    Value out = string("", parts->items.empty() ? text->origin : parts->items[0]->origin);
    for (size_t i = 0; i < parts->items.size(); ++i) {
      if (i > 0) out = map(out, [&](const Value& o) { return concat(o, text, n); });
      out = map(out, [&](const Value& o) { return map(parts->items[i], [&](const Value& v) { return concat(o, asText(v, n), n); }); });
    }
    return out;
  }
  if (method == "replace" && text->kind == V::string && args.at(0) && args.at(1) && is(args.at(0)->value, V::string) &&
      is(args.at(1)->value, V::string) && !args.at(0)->value->text.empty()) {
    std::string s = text->text;
    const std::string &from = args.at(0)->value->text, &to = args.at(1)->value->text;
    for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
    return string(std::move(s), text->origin);
  }
  if (method == "startswith" && text->kind == V::string) {
    const Value p = args.at(0) ? args.at(0)->value : nullptr;
    if (is(p, V::string)) return boolean(text->text.starts_with(p->text));
  }
  if (method == "split" && text->kind == V::string) {
    const Value sep = args.at(0) ? args.at(0)->value : nullptr;
    if (!is(sep, V::string) || sep->text.empty()) return iterableOf(unknown("a part of a string"));
    std::vector<Value> parts;
    size_t at = 0;
    while (true) {
      const auto end = text->text.find(sep->text, at);
      parts.push_back(string(text->text.substr(at, end == std::string::npos ? end : end - at), text->origin));
      if (end == std::string::npos) return list(std::move(parts));
      at = end + sep->text.size();
    }
  }
  return std::nullopt;
}

// A slice of a tuple or list: the items themselves where the bounds are numbers.
Value Interp::partOf(const Value& sequence, const Node* slice) {
  const std::string text = textOf(slice, 200);
  const auto colons = std::count(text.begin(), text.end(), ':');
  std::vector<int64_t> bounds;
  for (const Node* b : slice->list) {
    const Value v = eval(b);
    if (!is(v, V::integer)) return iterableOf(elementOf(sequence));
    bounds.push_back(v->number);
  }
  const auto size = static_cast<int64_t>(sequence->items.size());
  int64_t from = 0, to = size;
  if (colons != 1 || bounds.size() > 2) return iterableOf(elementOf(sequence));
  if (bounds.size() == 2) { from = bounds[0]; to = bounds[1]; }
  else if (bounds.size() == 1) (text[0] == ':' ? to : from) = bounds[0];
  from = std::clamp<int64_t>(from < 0 ? from + size : from, 0, size);
  to = std::clamp<int64_t>(to < 0 ? to + size : to, from, size);
  std::vector<Value> items(sequence->items.begin() + from, sequence->items.begin() + to);
  return sequence->kind == V::tuple ? tuple(std::move(items)) : list(std::move(items));
}

std::optional<Value> Interp::callList(const Value& list_value, const std::string& method, Args& args, const Node* n) {
  if (method == "append" || method == "add" || method == "insert" || method == "extend") {
    // A list has no identity here: the name it is called through gets the longer list.
    const Arg* a = args.at(method == "insert" ? 1 : 0);
    if (!a || !n || n->kind != N::call || !n->a || n->a->kind != N::attribute) return none();
    const Node* owner = n->a->a;
    Value longer;
    const Value element = method == "extend" ? elementOf(a->value) : a->value;
    if (method == "append") emit(n, "list.append", list_value, args);
    if (list_value->kind == V::list && loopsAreExact() && list_value->items.size() < 32 &&
        (method == "append" || method == "add" || (method == "extend" && is(a->value, V::list)))) {
      auto items = list_value->items;
      if (method == "extend") items.insert(items.end(), a->value->items.begin(), a->value->items.end());
      else items.push_back(element);
      longer = list(std::move(items));
    } else if (list_value->kind == V::list && list_value->items.empty()) {
      longer = iterableOf(element);
    } else {
      longer = iterableOf(join(elementOf(list_value), element));
    }
    if (owner->kind == N::name || owner->kind == N::attribute) assign(owner, longer, frame().statement ? frame().statement : n);
    return none();
  }
  if (method == "pop" || method == "popleft") return elementOf(list_value);
  if (method == "copy") return list_value;
  return std::nullopt;
}

}  // namespace flagos::lsp

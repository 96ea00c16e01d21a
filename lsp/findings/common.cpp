#include "lsp/findings/common.h"

#include <algorithm>

#include "lsp/findings/severity.h"

namespace flagos::lsp {

Finding findingAt(const char* code, const Node* node, std::string message) {
  Finding f;
  f.code = code;
  f.severity = findingCode(code)->severity;
  f.span = node->span();
  f.message = std::move(message);
  return f;
}

bool isAcceleratorName(std::string_view device) {
  const auto type = deviceType(device);
  return !type.empty() && type != "cpu" && type != "meta";
}

std::vector<std::string> placesOfDevice(const Value& device) {
  std::vector<std::string> out;
  bool certain = device != nullptr;
  forEach(device, [&](const Value& d) {
    // A runtime expression counts if its type is written: "npu:<RANK>".
    const bool typed = d->kind == V::runtime && d->text.find(':') != std::string::npos && isDeviceString(deviceType(d->text));
    // The argument of `device=` as it is written, before it becomes a device.
    const bool written = d->kind == V::string && isDeviceString(d->text);
    if (d->kind == V::device || typed || written) out.push_back(d->text);
    else certain = false;
  });
  if (!certain) out.clear();
  return out;
}

std::vector<std::string> placesOf(const Value& v, bool maybe) {
  std::vector<std::string> out;
  bool certain = v != nullptr;
  forEach(v, [&](const Value& t) {
    if (t->kind != V::tensor || (t->text == "?" && !maybe)) { certain = false; return; }
    const auto places = placesOfDevice(t->device);
    if (places.empty()) certain = false;
    out.insert(out.end(), places.begin(), places.end());
  });
  if (!certain) out.clear();
  return out;
}

std::string acceleratorOf(const Value& v, bool maybe) {
  for (const auto& p : placesOf(v, maybe)) if (isAcceleratorName(p)) return p;
  return {};
}

bool certainlyOn(const Value& v, std::string_view device) {
  const auto places = placesOf(v);
  return !places.empty() && std::all_of(places.begin(), places.end(), [&](const auto& p) { return p == device; });
}

void walk(const Node* n, const std::function<bool(const Node*)>& visit) {
  if (!n || !visit(n)) return;
  walk(n->a, visit);
  walk(n->b, visit);
  walk(n->c, visit);
  for (const Node* c : n->list) walk(c, visit);
  for (const Node* c : n->list2) walk(c, visit);
  for (const Node* c : n->decorators) walk(c, visit);
}

bool contains(const Node* outer, const Node* inner) {
  for (; inner; inner = inner->parent) if (inner == outer) return true;
  return false;
}

namespace {
void boundNames(const Node* target, const std::function<void(std::string_view)>& fn) {
  if (!target) return;
  if (target->kind == N::name) fn(target->text);
  if (target->kind == N::starred) boundNames(target->a, fn);
  if (target->kind == N::tuple || target->kind == N::list) for (const Node* t : target->list) boundNames(t, fn);
}

bool endsBlock(const std::vector<Node*>& block) {
  if (block.empty()) return false;
  const N kind = block.back()->kind;
  return kind == N::break_ || kind == N::return_ || kind == N::raise;
}

// A loop over a few literals is no loop in the sense of costs; one that ends in its first pass neither.
bool counts(const Node* loop) {
  if (loop->kind == N::comp) {
    for (const Node* c : loop->list)
      if (c->kind == N::for_in && c->b && c->b->kind != N::tuple && c->b->kind != N::list && c->b->kind != N::set) return true;
    return false;
  }
  if (endsBlock(loop->list)) return false;
  if (loop->kind != N::for_ || !loop->b) return true;
  return loop->b->kind != N::tuple && loop->b->kind != N::list && loop->b->kind != N::set;
}

// "every n-th step", an error path, or something that leaves the loop.
bool isRare(const Node* guard, const Node* node) {
  if (guard->kind == N::except) return true;
  if (guard->kind != N::if_) return false;
  bool modulo = false;
  walk(guard->a, [&](const Node* n) { modulo = modulo || (n->kind == N::binary && n->text == "%"); return true; });
  if (modulo) return true;
  const auto inside = [&](const std::vector<Node*>& block) {
    return std::any_of(block.begin(), block.end(), [&](const Node* s) { return contains(s, node); });
  };
  return (inside(guard->list) && endsBlock(guard->list)) || (inside(guard->list2) && endsBlock(guard->list2));
}
}  // namespace

Repetition repetition(const CallEvent& e) {
  Repetition out;
  for (size_t i = e.loops->size(); i-- > 0;) {
    const LoopInfo& l = (*e.loops)[i];
    if (!counts(l.node)) continue;
    out.loop = l.node;
    out.unit = l.unit;
    out.index = i;
    break;
  }
  if (!out.loop) return out;
  out.same_function = contains(out.loop, e.node) && functionAround(out.loop) == functionAround(e.node);
  out.often = Often::every;
  for (const Guard& g : *e.guards) {
    if (g.loops <= out.index) continue;
    const Often this_one = isRare(g.node, e.node) ? Often::once_a_while : Often::sometimes;
    out.often = std::min(out.often, this_one);
  }
  return out;
}

bool assignedIn(const Node* n, std::string_view name) {
  bool found = false;
  const auto check = [&](std::string_view bound) { found = found || bound == name; };
  walk(n, [&](const Node* c) {
    switch (c->kind) {
      case N::assign: case N::aug_assign: case N::for_: case N::for_in: case N::named: boundNames(c->a, check); break;
      case N::with_item: boundNames(c->b, check); break;
      default: break;
    }
    return !found;
  });
  return found;
}

std::vector<std::string_view> namesIn(const Node* n) {
  std::vector<std::string_view> out;
  walk(n, [&](const Node* c) {
    if (c->kind == N::name) out.push_back(c->text);
    return true;
  });
  return out;
}

const Node* functionAround(const Node* n) {
  for (n = n ? n->parent : nullptr; n; n = n->parent)
    if (n->kind == N::def || n->kind == N::lambda || n->kind == N::module) return n;
  return nullptr;
}

const Node* statementOf(const Node* n) {
  while (n) {
    switch (n->kind) {
      case N::expr_stmt: case N::assign: case N::aug_assign: case N::return_: case N::raise: case N::assert_: case N::delete_: case N::if_:
      case N::while_: case N::for_: case N::with_: case N::def: case N::class_: return n;
      default: n = n->parent;
    }
  }
  return nullptr;
}

const Node* keywordOf(const Node* call, std::string_view name) {
  if (!call || call->kind != N::call) return nullptr;
  for (const Node* a : call->list) if (a->kind == N::keyword && a->text == name) return a->a;
  return nullptr;
}

bool isLiteral(const Node* n) {
  if (!n) return false;
  switch (n->kind) {
    case N::integer: case N::real: case N::true_: case N::false_: return true;
    case N::unary: return isLiteral(n->a);
    case N::binary: return isLiteral(n->a) && isLiteral(n->b);
    case N::list: case N::tuple: return std::all_of(n->list.begin(), n->list.end(), [](const Node* c) { return isLiteral(c); });
    default: return false;
  }
}

std::string sourceOf(const SourceUnit& unit, const Node* n) { return unit.text.substr(n->begin, n->end - n->begin); }

std::string_view selfName(const Node* def) { return def && !def->list2.empty() ? def->list2[0]->text : std::string_view(); }

bool isPlace(const Node* n) { return n && !dottedName(n).empty(); }

std::string nameFor(const SourceUnit& unit, const std::string& dotted) {
  // The name itself, if it was imported; else through the module it is in.
  for (const Node* i : unit.ast.imports()) {
    if (i->kind != N::from_import) continue;
    for (const Node* a : i->list) if (i->value + "." + a->value == dotted) return std::string(a->text);
  }
  for (const Node* i : unit.ast.imports()) {
    const Node& n = *i;
    if (n.kind == N::import_) {
      for (const Node* a : n.list) {
        const std::string full = a->text.empty() ? a->value.substr(0, a->value.find('.')) : a->value;
        const std::string bound = a->text.empty() ? full : std::string(a->text);
        if (full == dotted) return bound;
        if (dotted.starts_with(full + ".") && !full.empty()) return bound + dotted.substr(full.size());
      }
    } else {  // from torch.utils import data
      for (const Node* a : n.list) if (dotted.starts_with(n.value + "." + a->value + ".")) return std::string(a->text) + dotted.substr(n.value.size() + 1 + a->value.size());
    }
  }
  return {};
}

std::optional<Edit> addArgument(const SourceUnit& unit, const Node* call, const std::string& argument) {
  if (!call || call->kind != N::call || call->end == call->begin || unit.text[call->end - 1] != ')') return std::nullopt;
  // A trailing comma before the parenthesis must not become two.
  size_t at = call->end - 1;
  while (at > call->begin && (unit.text[at - 1] == ' ' || unit.text[at - 1] == '\n' || unit.text[at - 1] == '\t')) --at;
  const char before = at > 0 ? unit.text[at - 1] : '(';
  return Edit{{call->end - 1, call->end - 1}, (before == '(' ? "" : before == ',' ? " " : ", ") + argument};
}

}  // namespace flagos::lsp

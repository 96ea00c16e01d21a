// plain-attribute: `self.mean = torch.zeros(3)` in a module's __init__. Module.to() moves parameters, buffers and
// submodules; a plain tensor stays on the CPU, and a plain list hides the modules in it.
#include <algorithm>
#include <map>
#include <memory>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

struct Candidate { Finding finding; const SourceUnit* unit; Value instance; const Node* cls; std::string attribute; bool library; };

const Frame* initFrame(const CallEvent& e) {
  if (e.frames->empty()) return nullptr;
  const Frame* f = e.frames->back();
  return f->def && f->def->kind == N::def && f->def->text == "__init__" && f->self ? f : nullptr;
}

// How methods other than __init__ treat self.NAME.
struct Use { bool used = false, cared_for = false; };
Use usesOf(const Node* cls, const std::string& name) {
  static const Names harmless = {"shape", "device", "dtype", "size", "dim", "numel", "ndim", "tolist", "item"};
  static const Names moving = {"to", "cuda", "npu", "cpu", "type_as", "xpu"};
  Use out;
  for (const Node* method : cls->list) {
    if (method->kind != N::def) continue;
    if (method->text == "_apply" || method->text == "to") out.cared_for = true;
    if (method->text == "__init__") continue;
    walk(method, [&](const Node* n) {
      if (n->kind != N::attribute || n->text != name || !n->a || n->a->kind != N::name || n->a->text != selfName(method)) return true;
      const Node* p = n->parent;
      const bool written = p && (p->kind == N::assign || p->kind == N::aug_assign) && p->a == n;
      if (written) { out.cared_for = true; return true; }
      // self.x.to(...), and self.x.detach().expand(2, -1).to(...)
      for (const Node *at = n, *up = p; up && up->a == at && (up->kind == N::attribute || up->kind == N::call || up->kind == N::subscript); at = up, up = up->parent)
        if (up->kind == N::attribute && moving.count(up->text)) { out.cared_for = true; return true; }
      if (p && p->kind == N::attribute && harmless.count(p->text)) return true;
      out.used = true;
      return true;
    });
  }
  return out;
}

bool superCalledBefore(const Node* init, const Node* statement) {
  bool called = false;
  walk(init, [&](const Node* n) {
    if (n->kind == N::call && n->end < statement->begin && n->a && n->a->kind == N::attribute && n->a->text == "__init__") called = true;
    return true;
  });
  return called;
}

// self.add_module(name, layer), perhaps in a loop over the list.
bool registersByHand(const Node* cls) {
  static const Names registering = {"add_module", "register_module", "setattr", "__setattr__"};
  bool found = false;
  walk(cls, [&](const Node* n) {
    if (n->kind == N::call && n->a && (n->a->kind == N::attribute || n->a->kind == N::name) && registering.count(n->a->text)) found = true;
    return !found;
  });
  return found;
}

// nn.Module -> nn.ModuleList, as this class writes it.
std::string moduleList(const Node* cls) {
  for (const Node* base : cls->list2) {
    const std::string name = dottedName(base);
    if (name.ends_with(".Module")) return name + "List";
  }
  return {};
}

bool holdsModules(Interp& interp, const Value& v) {
  if (is(v, V::list) || is(v, V::tuple)) return !v->items.empty() && std::all_of(v->items.begin(), v->items.end(), [&](const Value& i) { return interp.isModule(i); });
  return is(v, V::iterable) && interp.isModule(v->self);
}

std::optional<Candidate> candidate(Interp& interp, const CallEvent& e) {
  const Frame* init = initFrame(e);
  if (!init || !is(e.receiver, V::instance) || !is(init->self, V::instance) || e.receiver->object != init->self->object) return std::nullopt;
  if (!interp.isModule(e.receiver) || !e.node->a || dottedName(e.node->a->a) != selfName(init->def) || !e.node->b) return std::nullopt;
  const Value cls = interp.classOf(e.receiver);
  // The class that the method is written in, which may be a base of the instance's.
  const Node* written_in = enclosing(init->def, N::class_);
  if (!is(cls, V::class_) || !written_in) return std::nullopt;
  const std::string name(e.node->a->text);
  const Value value = e.args->at(0)->value;
  const bool modules = holdsModules(interp, value);
  const bool tensor = is(value, V::tensor) && value->text.empty() && !value->graph && certainlyOn(value, "cpu");
  if (!modules && !tensor) return std::nullopt;
  // A literal "cpu" was asked for: then it is meant.
  if (tensor && keywordOf(e.node->b, "device")) return std::nullopt;
  const Use use = usesOf(written_in, name);
  if (!use.used || use.cared_for || (modules && registersByHand(written_in))) return std::nullopt;
  Candidate c;
  c.unit = e.unit;
  c.instance = e.receiver;
  c.cls = written_in;
  c.attribute = name;
  c.library = interp.runningUncalled() && e.frames->size() == 2;
  const std::string self(selfName(init->def));
  if (tensor) {
    c.finding = findingAt("plain-attribute", e.node, "`" + self + "." + name + "` is a plain tensor: Module.to() does not move it, and state_dict() does not hold it");
    if (superCalledBefore(init->def, e.node))
      c.finding.fix = Fix{true, "Register it as a buffer that state_dict() leaves out",
                          {{{e.node->begin, e.node->b->begin}, self + ".register_buffer(\"" + name + "\", "}, {{e.node->b->end, e.node->b->end}, ", persistent=False)"}}};
  } else {
    c.finding = findingAt("plain-attribute", e.node, "`" + self + "." + name + "` is a plain list: the modules in it are not part of this one, so that Module.to() and parameters() pass them over");
    if (const auto list = moduleList(written_in); !list.empty())
      c.finding.fix = Fix{false, "Use " + list, {{{e.node->b->begin, e.node->b->begin}, list + "("}, {{e.node->b->end, e.node->b->end}, ")"}}};
  }
  return c;
}

}  // namespace

void listenPlainAttribute(Interp& interp) {
  auto waiting = std::make_shared<std::vector<Candidate>>();
  interp.listen(static_cast<uint16_t>(E::assign), [waiting](Interp& i, const CallEvent& e) {
    if (!e.receiver) return;
    if (auto c = candidate(i, e)) waiting->push_back(std::move(*c));
  });
  interp.finishers.emplace_back([waiting](Interp& i) {
    // A module that this program makes and leaves on the CPU is right as it is.
    for (auto& c : *waiting) {
      bool moved = false;
      for (const auto& p : placesOfDevice(i.state(c.instance->object, "$device"))) moved = moved || isAcceleratorName(p);
      // Set to something else by whoever made it.
      const Value now = i.state(c.instance->object, c.attribute);
      const bool still = is(now, V::tensor) ? certainlyOn(now, "cpu") : now != nullptr;
      if ((moved || c.library) && still) i.report(std::move(c.finding), c.unit);
    }
    waiting->clear();
  });
}

}  // namespace flagos::lsp

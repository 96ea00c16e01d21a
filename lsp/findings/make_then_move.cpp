// make-then-move: a tensor made on the CPU by a factory that takes `device=`, only to be moved at once. The fix makes it
// in place; it is unsafe for random factories, since another device draws other numbers.
#include <set>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const NameSet kRandom = {"torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.normal"};

// What to write after `device=` for the move, or "" if the move says more than a device.
std::string deviceText(const SourceUnit& unit, const Node* move, const Args& args) {
  const std::string method(move->a->text);
  if (method != "to") {
    if (move->list.empty()) return "\"" + method + "\"";
    if (move->list.size() == 1 && move->list[0]->kind == N::integer) return "\"" + method + ":" + sourceOf(unit, move->list[0]) + "\"";
    return {};
  }
  if (move->list.size() != 1) return {};
  const Node* a = move->list[0];
  const Node* value = a->kind == N::keyword && a->text == "device" ? a->a : a;
  if (value->kind == N::keyword || value->kind == N::starred || value->kind == N::dstarred) return {};
  const Arg* given = args.get(0, "device");
  if (!given) return {};
  return sourceOf(unit, value) + (isAny(given->value, V::tensor) ? ".device" : "");
}

// The statement before `s` in its block, or null.
const Node* previous(const Node* s) {
  if (!s || !s->parent) return nullptr;
  for (const auto* block : {&s->parent->list, &s->parent->list2})
    for (size_t i = 1; i < block->size(); ++i) if ((*block)[i] == s) return (*block)[i - 1];
  return nullptr;
}

bool onlySpace(std::string_view s) { return s.find_first_not_of(" \t\r\n") == std::string_view::npos; }

void look(Interp& interp, const CallEvent& e) {
  static const NameSet moves = {"Tensor.to", "Tensor.cuda", "Tensor.npu", "Tensor.xpu"};
  if (moves.count(e.call) == 0 || !is(e.receiver, V::tensor) || !e.receiver->made_by || e.node->kind != N::call) return;
  const Arg* target = e.args->keyword("$target");
  if (!target) return;
  bool leaves_cpu = false;
  forEach(target->value, [&](const Value& d) { leaves_cpu = leaves_cpu || d->kind != V::device || d->text != "cpu"; });
  if (!leaves_cpu) return;
  const Node* made = e.receiver->made_by;
  const Node* move = e.node;
  const SourceUnit& unit = *e.unit;
  const bool direct = move->a->a == made;
  bool next_line = false;
  if (!direct) {  // x = torch.zeros(3)  /  x = x.to(device)
    const Node *second = move->parent, *first = made->parent;
    next_line = second && first && second->kind == N::assign && first->kind == N::assign && second->b == move && first->b == made &&
                second->a && first->a && second->a->kind == N::name && first->a->kind == N::name && second->a->text == first->a->text &&
                move->a->a->kind == N::name && move->a->a->text == first->a->text && previous(second) == first &&
                onlySpace(std::string_view(unit.text).substr(first->end, second->begin - first->end));
    if (!next_line) return;
  }
  // A CPU's generator draws on the CPU alone, and gives the same numbers for every device.
  for (const Node* a : made->list) if (a->kind == N::keyword && a->text == "generator") return;
  const std::string name = dottedName(made->a);
  const std::string last = name.substr(name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1);
  Finding f;
  f.code = "make-then-move";
  f.severity = "hint";
  f.span = move->span();
  f.message = "`" + shortText(unit.text, made->a) + "` makes the tensor on the CPU and `." + std::string(move->a->text) +
              "` copies it; `device=` makes it in place";
  f.related.push_back({unit.path, made->line, "made here"});
  const std::string device = deviceText(unit, move, *e.args);
  if (!device.empty() && made->end > made->begin && unit.text[made->end - 1] == ')') {
    Fix fix;
    fix.safe = !kRandom.count("torch." + last);
    fix.title = "Make it in place with device=" + device + (fix.safe ? "" : " (draws other random numbers)");
    fix.edits.push_back(*addArgument(unit, made, "device=" + device));
    const uint32_t from = direct ? made->end : made->parent->end;
    const uint32_t to = direct ? move->end : move->parent->end;
    fix.edits.push_back({{from, to}, ""});
    f.fix = std::move(fix);
  }
  interp.report(std::move(f), e.unit);
}

}  // namespace

void listenMakeThenMove(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp

// cuda-only-check: a device is chosen by torch.cuda.is_available() alone, so every other accelerator is passed over.
//
// The fix ports the whole idiom at once, file-wide: the check, the "cuda" strings and the .cuda() calls. A half-ported
// file is worse than none, so where one piece has no twin in torch.accelerator there is no fix, and the piece is named.
#include <map>
#include <set>

#include "lsp/findings/registry.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {
namespace {

const std::map<std::string, std::string, std::less<>> kTwins = {
    {"is_available", "is_available"}, {"device_count", "device_count"}, {"current_device", "current_device_index"},
    {"set_device", "set_device_index"}, {"synchronize", "synchronize"}, {"empty_cache", "empty_cache"},
    {"memory_allocated", "memory_allocated"}, {"max_memory_allocated", "max_memory_allocated"},
    {"memory_reserved", "memory_reserved"}, {"max_memory_reserved", "max_memory_reserved"},
    {"reset_peak_memory_stats", "reset_peak_memory_stats"}};
// Work on any machine as they are: they do nothing, or queue up, without CUDA.
const NameSet kHarmless = {"manual_seed", "manual_seed_all", "seed", "seed_all"};

bool isCudaString(const Node* n) {
  return n && n->kind == N::string && n->text.empty() && (n->value == "cuda" || (n->value.starts_with("cuda:") && isDeviceString(n->value)));
}

class Search {
 public:
  explicit Search(Analysis& a) : a_(a), unit_(*a.unit) {}

  void run() {
    for (const Node& n : unit_.ast.nodes()) noteImports(n);
    for (const Node& n : unit_.ast.nodes()) visit(n);
    if (others_) return;  // the file asks for other accelerators as well
    std::vector<const Node*> choosing;
    for (const Node* check : checks_) if (chooses(check)) choosing.push_back(check);
    if (choosing.empty()) return;
    Fix fix = wholeFix();
    for (const Node* check : choosing) {
      Finding f;
      f.code = "cuda-only-check";
      f.severity = "hint";
      f.span = check->span();
      f.message = "only CUDA is asked for here: on any other accelerator this program runs on the CPU. "
                  "`torch.accelerator` asks for whichever is there";
      if (leftovers_.empty()) {
        f.fix = fix;
      } else {
        f.message += "; no automatic fix, since part of it has no twin there";
        f.related = leftovers_;
      }
      for (const Node* s : strings_) f.related.push_back({unit_.path, s->line, "the device that follows from it"});
      a_.findings.push_back(std::move(f));
    }
  }

 private:
  Analysis& a_;
  const SourceUnit& unit_;
  std::map<std::string, std::string, std::less<>> alias_;   // bound name -> dotted name
  std::vector<const Node*> checks_, strings_, moves_, twins_, comparisons_;
  std::vector<Related> leftovers_;
  bool others_ = false;

  void noteImports(const Node& n) {
    if (n.kind == N::import_) {
      for (const Node* a : n.list)
        if (!a->text.empty()) alias_[std::string(a->text)] = a->value;
        else alias_[a->value.substr(0, a->value.find('.'))] = a->value.substr(0, a->value.find('.'));
    } else if (n.kind == N::from_import) {
      for (const Node* a : n.list) alias_[std::string(a->text)] = n.value + "." + a->value;
    }
  }
  std::string dotted(const Node* n) const {
    const std::string raw = dottedName(n);
    const auto dot = raw.find('.');
    const auto it = alias_.find(raw.substr(0, dot));
    if (raw.empty() || it == alias_.end()) return {};
    return it->second + (dot == std::string::npos ? "" : raw.substr(dot));
  }
  // is_torch_npu_available(), is_xpu_available(): a library's own questions.
  static bool asksForOther(std::string_view name) {
    if (!name.starts_with("is_") || !name.ends_with("_available")) return false;
    for (const char* type : {"npu", "xpu", "mps", "hpu", "mlu", "musa", "tpu", "xla", "neuron", "ipu", "gcu"})
      if (name.find("_" + std::string(type) + "_") != std::string_view::npos) return true;
    return false;
  }
  static bool insideIdiom(const Node* n) {
    // The string is used as a device: chosen by a condition, assigned, returned, compared, or handed to a call.
    const Node* p = n->parent;
    if (!p) return false;
    switch (p->kind) {
      case N::conditional: case N::assign: case N::return_: case N::call: case N::keyword: case N::param: case N::boolean: case N::compare: case N::binary: return true;
      default: return false;
    }
  }
  void visit(const Node& n) {
    if (n.kind == N::call && n.a && n.a->kind == N::name && asksForOther(n.a->text)) others_ = true;
    if (n.kind == N::string && n.text.empty() && n.parent && n.parent->kind == N::compare && isStrongDeviceString(n.value) && !n.value.starts_with("cuda")) others_ = true;
    if (n.kind == N::call && n.a && n.a->kind == N::attribute) {
      const std::string name = dotted(n.a);
      if (name == "torch.cuda.is_available") { checks_.push_back(&n); return; }
      if (name.starts_with("torch.") && (name.ends_with(".is_available") || name.ends_with("current_accelerator"))) others_ = true;
      if (asksForOther(n.a->text)) others_ = true;
      if (name.starts_with("torch.cuda.")) {
        const std::string rest = name.substr(11);
        if (kTwins.count(rest)) twins_.push_back(&n);
        else if (!kHarmless.count(rest)) leftovers_.push_back({unit_.path, n.line, "`" + name + "` has no twin in torch.accelerator"});
        return;
      }
      if (name.empty() && n.a->text == "cuda") moves_.push_back(&n);
    } else if (isCudaString(&n) && insideIdiom(&n)) {
      const Node* p = n.parent;
      if (p->kind == N::call && p->a == &n) return;
      // print("cuda") and d["cuda"] are no devices.
      if (p->kind == N::call) {
        const std::string callee = dottedName(p->a);
        const bool device_call = callee.ends_with("device") || callee.ends_with(".to") || callee == "to" ||
                                 (p->a->kind == N::attribute && p->a->text == "to");
        if (!device_call) { if (callee.ends_with("autocast") || callee.ends_with("GradScaler")) strings_.push_back(&n); return; }
      }
      if (p->kind == N::keyword && p->text.find("device") == std::string_view::npos && p->text != "map_location" && p->text != "default") return;
      (p->kind == N::compare ? comparisons_ : strings_).push_back(&n);
    } else if (n.kind == N::string && n.text == "f" && !n.list.empty() && n.list[0]->kind == N::string && n.list[0]->value.starts_with("cuda")) {
      leftovers_.push_back({unit_.path, n.line, "an f-string that builds a CUDA device"});
    }
  }

  // The check decides which device is used: directly, or through a name it is assigned to.
  bool chooses(const Node* check) const {
    const Node* n = check;
    while (n->parent && (n->parent->kind == N::boolean || n->parent->kind == N::not_)) n = n->parent;
    const Node* p = n->parent;
    if (!p) return false;
    if (p->kind == N::conditional && p->b == n) return governs(p);
    if (p->kind == N::if_ && p->a == n) return governs(p);
    if (p->kind == N::assign && p->b == n && p->a && !dottedName(p->a).empty()) {
      const std::string name = dottedName(p->a);
      for (const Node& other : unit_.ast.nodes()) {
        if (other.kind != N::conditional && other.kind != N::if_) continue;
        const Node* condition = other.kind == N::conditional ? other.b : other.a;
        if (mentions(condition, name) && governs(&other)) return true;
      }
    }
    return false;
  }
  static bool mentions(const Node* n, const std::string& name) {
    if (!n) return false;
    if (dottedName(n) == name) return true;
    if (mentions(n->a, name) || mentions(n->b, name)) return true;
    for (const Node* c : n->list) if (mentions(c, name)) return true;
    return false;
  }
  bool governs(const Node* n) const {
    for (const auto* group : {&strings_, &moves_})
      for (const Node* s : *group) if (s->begin >= n->begin && s->end <= n->end) return true;
    return false;
  }

  // "torch" as this file calls it, for the text before ".cuda".
  std::string torchName() const {
    for (const auto& [name, full] : alias_) if (full == "torch") return name;
    return {};
  }
  Fix wholeFix() {
    Fix fix;
    const std::string torch = torchName();
    if (torch.empty()) { leftovers_.push_back({unit_.path, 1, "torch itself is not imported by name in this file"}); return fix; }
    const std::string accelerator = torch + ".accelerator";
    const std::string current = accelerator + ".current_accelerator()";
    fix.safe = comparisons_.empty();
    fix.title = "Ask torch.accelerator: the check, the device and the moves together";
    const auto renamed = [&](const Node* call, const std::string& twin) {
      fix.edits.push_back({call->a->span(), accelerator + "." + twin});
    };
    for (const Node* c : checks_) renamed(c, "is_available");
    for (const Node* c : twins_) renamed(c, kTwins.find(std::string(c->a->text))->second);
    for (const auto* group : {&strings_, &comparisons_}) {
      for (const Node* s : *group) {
        const std::string index = s->value == "cuda" ? "" : " + \"" + s->value.substr(4) + "\"";
        const std::string text = current + ".type" + index;
        const Node* p = s->parent;
        const bool alone = index.empty() || p->kind == N::assign || p->kind == N::call || p->kind == N::keyword || p->kind == N::return_ || p->kind == N::param;
        fix.edits.push_back({s->span(), alone ? text : "(" + text + ")"});
      }
    }
    for (const Node* m : moves_) {
      const uint32_t name_at = m->a->end - static_cast<uint32_t>(m->a->text.size());
      if (!m->list.empty() && m->list[0]->kind == N::integer) {
        leftovers_.push_back({unit_.path, m->line, "`.cuda(index)` names one CUDA device"});
        continue;
      }
      const uint32_t open = static_cast<uint32_t>(unit_.text.find('(', m->a->end));
      fix.edits.push_back({{name_at, open + 1}, "to(" + current + (m->list.empty() ? "" : ", ")});
    }
    return fix;
  }
};

}  // namespace

void findCudaOnlyCheck(Analysis& analysis, const AnalysisOptions&) { Search(analysis).run(); }

}  // namespace flagos::lsp

// How sites are recorded, and how values become devices with a reason.
#include <algorithm>

#include "lsp/python/interp.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {

bool Machine::has(std::string_view type) const { return count(type) > 0; }
int Machine::count(std::string_view type) const {
  return static_cast<int>(std::count_if(devices.begin(), devices.end(), [&](const auto& d) { return deviceType(d) == type; }));
}
std::string Machine::accelerator() const {
  for (const auto& d : devices) if (deviceType(d) != "cpu") return std::string(deviceType(d));
  return {};
}

Origin Interp::here(const Node* n, std::string because) const {
  Origin o;
  o.unit = frame().unit;
  o.line = frame().statement ? frame().statement->line : n ? n->line : 0;
  o.because = std::move(because);
  o.fresh = true;
  return o;
}

std::string Interp::textOf(const Node* n, size_t max) const { return n ? shortText(frame().unit->text, n, max) : std::string(); }

Value Interp::renamed(const Value& x, std::string because, int line) const {
  if (x->kind == V::runtime) {
    Origin o = x->origin;
    o.fresh = false;
    return withOrigin(x, std::move(o));
  }
  Origin o;
  o.unit = frame().unit;
  o.line = line;
  o.because = std::move(because);
  return withOrigin(x, std::move(o));
}

Value Interp::boundTo(const Value& v, std::string_view name, const Node* n) {
  return rename(v, n ? n->line : 0, [&] { return "assigned to `" + std::string(name) + "`"; });
}

Value Interp::currentDevice(const std::string& type, const Origin& fallback) {
  Origin o = fallback;
  o.because += (o.because.empty() ? "" : "; ") + ("`" + type + "` is the current device, " + type + ":0 without a setting");
  if (const Value v = heap_.get(0, "$current:" + type))
    return map(v, [&](const Value& x) { return x->origin.unit || x->kind != V::device ? x : withOrigin(x, o); });   // set on some ways only
  return deviceValue(type + ":0", o);
}

Value Interp::asDevice(const Value& v, const Node* n) {
  return map(v, [&](const Value& x) -> Value {
    switch (x->kind) {
      case V::string: case V::device: {
        if (!isDeviceString(x->text)) return unknown("'" + x->text.substr(0, 40) + "' is no device that PyTorch knows");
        const bool indexed = x->text.find(':') != std::string::npos;
        static const NameSet single = {"cpu", "meta", "mps", "lazy", "vulkan"};
        Origin o = x->origin.unit ? x->origin : here(n);
        if (indexed || single.count(x->text)) return deviceValue(x->text, o);
        return currentDevice(x->text, o);
      }
      case V::integer: {
        const std::string type = options_.machine.accelerator();
        if (type.empty())
          return unknown("an integer means a device of the accelerator, and " +
                         std::string(options_.machine.known ? "none is assumed" : "the machine's is not known yet"));
        Origin o = x->origin.unit ? x->origin : here(n);
        return deviceValue(type + ":" + std::to_string(x->number), o);
      }
      case V::runtime: {
        const std::string type = x->number == 1 && x->text.find(':') == std::string::npos ? options_.machine.accelerator() : std::string();
        return type.empty() ? x : runtimeValue(type + ":" + x->text, x->origin);
      }
      case V::tensor: return x->device;
      case V::instance: return isModule(x) ? moduleDevice(x) : unknown("`" + textOf(n) + "` is an object, not a device");
      case V::none: return unknown("None");
      case V::unknown: return x;
      default: return unknown("`" + textOf(n) + "` is not known as a device");
    }
  });
}

Value Interp::defaultDevice(bool& decided) {
  decided = true;
  if (!contexts_.empty()) return contexts_.back();
  if (const Value v = heap_.get(0, "$default"))
    return map(v, [&](const Value& x) { return x->origin.unit || x->kind != V::device ? x : withOrigin(x, here(nullptr, "PyTorch's default")); });
  decided = false;
  return deviceValue("cpu", here(nullptr, "PyTorch's default"));
}

void Interp::record(const Node* n, std::string call, std::string kind, const Value& device, std::optional<double> bytes,
                    std::string bytes_how, bool assumed, uint32_t object) {
  if (n && kind != "source" && kind != "mention" && kind != "copy" && !isAny(device, V::unknown)) {
    bool accelerator = false;
    forEach(device, [&](const Value& d) { accelerator = accelerator || (d->text != "cpu" && d->text != "meta"); });
    if (accelerator) markUsed(n);
  }
  if (!n || frame().unit != unit_.get()) return;
  auto [it, added] = sites_.try_emplace(n);
  SiteRecord& r = it->second;
  if (added) {
    ++news_;
    r.site.span = n->span();
    r.site.line = n->line;
    r.site.call = std::move(call);
    r.site.kind = std::move(kind);
    r.site.bytes = bytes;
    r.site.bytes_how = std::move(bytes_how);
    r.site.assumed = assumed;
    r.site.object = object;
    r.site.node = n;
  } else {
    const auto dot = r.site.call.find('.');
    if (r.site.call != call && dot != std::string::npos && !(call == "." + r.site.call.substr(dot + 1))) {
      // Seen with receivers of two kinds: only what both share is certain.
      const auto last = call.rfind('.');
      r.site.call = r.site.call == call.substr(last) ? call : r.site.call.starts_with(".") ? call : call.substr(last);
    }
    r.site.assumed = r.site.assumed || assumed;
    if (r.site.object != object) r.site.object = 0;
    if (r.site.bytes != bytes) { ++news_; r.site.bytes.reset(); r.site.bytes_how = "differs between the calls of this line"; }
  }
  Value both = join(r.devices, device);
  if (!added && !same(both, r.devices)) ++news_;
  r.devices = std::move(both);
}

void Interp::markUsed(const Node* n) {
  if (heap_.get(0, "$used")) return;
  auto where = makeVal(*integer(n->line));
  where->node = n;
  where->unit = frame().unit;
  heap_.set(0, "$used", where);
}

void Interp::note(const Node* n, std::string text) {
  if (!n || frame().unit != unit_.get()) return;
  news_ += notes_.count(n->begin) == 0;
  notes_[n->begin] = {n->span(), std::move(text)};
}

void Interp::listen(uint16_t kinds, std::function<void(Interp&, const CallEvent&)> fn) {
  listeners_.push_back({kinds, std::move(fn)});
  wanted_ |= kinds;
}

void Interp::emit(E kind, const Node* n, std::string_view call, const Value& receiver, const Args& args) {
  if (!n || !wants(kind)) return;
  const CallEvent e{kind, n, frame().unit, call, receiver, &args, &loops_, &guards_, &frames_, no_grad_ > 0};
  for (const auto& l : listeners_) if (l.kinds & static_cast<uint16_t>(kind)) l.fn(*this, e);
}

void Interp::report(Finding f, const SourceUnit* unit) {
  if (unit != unit_.get()) return;
  news_ += findings_.try_emplace({f.span.begin, f.code}, std::move(f)).second;
}

void Interp::sourceOfDefault(const Node* n, const Value& v, std::string name) {
  if (n->kind != N::string || !isDeviceString(n->value)) return;
  if (isStrongDeviceString(n->value)) record(n, std::move(name), "source", asDevice(v, n));
  else if (frame().unit == unit_.get()) weak_sources_.push_back({n, std::move(name), asDevice(v, n), n->line});
}

bool Interp::usesTorch() {
  if (!uses_torch_) {
    uses_torch_ = false;
    const auto torch = [](const Node* n) { return n->value == "torch" || n->value.starts_with("torch."); };
    for (const Node* n : unit_->ast.imports())
      if ((n->kind == N::from_import && torch(n)) || std::any_of(n->list.begin(), n->list.end(), torch)) uses_torch_ = true;
  }
  return *uses_torch_;
}

std::vector<std::string> Interp::certainDevices(const Value& tensor) {
  std::vector<std::string> out;
  bool certain = tensor != nullptr;
  forEach(tensor, [&](const Value& t) {
    if (t->kind != V::tensor) { certain = false; return; }
    forEach(t->device, [&](const Value& d) {
      if (d->kind == V::device) out.push_back(d->text);
      else certain = false;
    });
  });
  if (!certain) out.clear();
  return out;
}

bool Interp::onAccelerator(const Value& v) {
  const auto devices = certainDevices(v);
  if (devices.empty()) return false;
  return std::all_of(devices.begin(), devices.end(), [](const auto& d) { return d != "cpu" && d != "meta"; });
}

void Interp::collect(Analysis& out) {
  out.unit = unit_;
  out.ops = std::move(ops_);
  std::vector<LoadedModule*> all;
  std::unordered_map<const LoadedModule*, bool> seen;
  for (auto* m : used_in_order_) store_.closure(*m, all, seen);
  for (const auto* m : all) out.others.push_back(m->unit);
  out.others.insert(out.others.end(), kept_.begin(), kept_.end());
  if (unit_->ast.tooDeep() && why_.empty()) why_ = "expressions are nested deeper than can be read: the innermost are left out";
  if (gave_up_ && why_.empty()) why_ = "this file takes too many steps to follow";
  out.gave_up = gave_up_ || !why_.empty();
  out.gave_up_why = why_;
  // "cpu" as a default is a source where a site gets its device from it; otherwise it may be any word.
  for (const auto& w : weak_sources_) {
    bool reached = false;
    for (const auto& [node, r] : sites_)
      forEach(r.devices, [&](const Value& d) {
        reached = reached || (d->kind == V::device && d->origin.unit == unit_.get() && d->origin.line == w.line && d->text == w.node->value);
      });
    if (!reached) continue;
    auto [it, added] = sites_.try_emplace(w.node);
    if (!added) continue;
    it->second.site.span = w.node->span();
    it->second.site.line = w.node->line;
    it->second.site.call = w.name;
    it->second.site.kind = "source";
    it->second.site.node = w.node;
    it->second.devices = w.device;
  }
  for (auto& [node, r] : sites_) {
    Site s = std::move(r.site);
    bool runtime = false, open = false;
    forEach(r.devices, [&](const Value& d) {
      if (d->kind == V::device) {
        ResolvedDevice rd{d->text, d->origin.because, d->origin.unit ? d->origin.unit->path : unit_->path, d->origin.line};
        if (rd.line == 0) rd.line = s.line;
        for (const auto& x : s.devices) if (x.device == rd.device && x.line == rd.line && x.path == rd.path) return;
        s.devices.push_back(std::move(rd));
      } else if (d->kind == V::runtime) {
        runtime = true;
        if (s.expression.empty()) s.expression = d->text;
        if (s.reason.empty()) s.reason = d->origin.because == "written here" || d->origin.because.empty() ? "decided when the program runs" : d->origin.because;
      } else if (!(d->kind == V::unknown && d->text == "None" )) {
        open = true;
        s.reason = d->kind == V::unknown ? d->text : "not known as a device";
      }
    });
    // The likeliest on the assumed machine first.
    const auto& assumed = options_.machine.devices;
    std::stable_sort(s.devices.begin(), s.devices.end(), [&](const auto& a, const auto& b) {
      const auto there = [&](const ResolvedDevice& d) { return std::find(assumed.begin(), assumed.end(), d.device) != assumed.end(); };
      return there(a) && !there(b);
    });
    bool several = false;
    for (const auto& d : s.devices) several = several || d.device != s.devices[0].device;
    if (runtime) s.resolution = "runtime";
    else if (open || s.devices.empty()) s.resolution = "unknown";
    else s.resolution = several ? "candidates" : "exact";
    if (s.resolution == "unknown" && s.reason.empty()) s.reason = "no device reaches this call in what was read";
    if (s.resolution == "exact" || s.resolution == "candidates") s.reason.clear();
    out.sites.push_back(std::move(s));
  }
  std::sort(out.sites.begin(), out.sites.end(), [](const Site& a, const Site& b) {
    return a.span.begin != b.span.begin ? a.span.begin < b.span.begin : a.span.end > b.span.end;
  });
  for (auto& [key, f] : findings_) out.findings.push_back(std::move(f));
  for (auto& [key, n] : notes_) out.notes.push_back(std::move(n));
}

void Interp::run(bool with_programs) {
  Frame base;  // the frame that calls the module
  base.unit = unit_.get();
  base.scope = heap_.make();
  frames_.push_back(&base);
  own_[unit_.get()] = base.scope;
  runModule(unit_, base.scope, true);
  if (with_programs) runPrograms();
  uncalled_ = true;
  runUncalled();
  uncalled_ = false;
  for (const auto& f : finishers) f(*this);
  frames_.pop_back();
}

}  // namespace flagos::lsp

// PyTorch's functions: factories, layers, devices, settings, and the libraries that place for the user.
#include <array>

#include "lsp/predict/bytes.h"
#include "lsp/python/assumed.h"
#include "lsp/python/interp.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {
namespace {

using Names = NameSet;

const Names kFactories = {"zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "range",
    "linspace", "logspace", "eye", "tensor", "as_tensor", "asarray", "empty_strided", "tril_indices", "triu_indices",
    "hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window", "scalar_tensor",
    "sparse_coo_tensor", "sparse_csr_tensor", "normal", "complex", "empty_permuted"};
const Names kLike = {"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"};
// Functions whose result is no tensor.
const Names kPlain = {"manual_seed", "seed", "initial_seed", "save", "no_grad", "enable_grad", "inference_mode", "set_grad_enabled",
    "is_tensor", "is_grad_enabled", "set_num_threads", "get_num_threads", "use_deterministic_algorithms", "set_printoptions",
    "set_default_dtype", "get_default_dtype", "is_floating_point", "numel", "result_type", "can_cast", "finfo", "iinfo",
    "set_float32_matmul_precision", "Size", "typename", "get_rng_state", "set_rng_state"};
const Names kDeviceModules = {"npu", "cuda", "xpu", "mps", "mlu", "musa", "hpu", "mtia", "flagos", "accelerator"};

// At least one dimension, whatever the sizes are: a number or a non-empty list of sizes is given.
bool hasSize(const std::string& name, const Args& args) {
  static const Names sized = {"torch.zeros", "torch.ones", "torch.empty", "torch.rand", "torch.randn", "torch.full"};
  static const Names always = {"torch.arange", "torch.linspace", "torch.logspace", "torch.eye", "torch.randperm", "torch.range", "torch.tril_indices", "torch.triu_indices"};
  if (always.count(name)) return true;
  const Arg* first = args.at(0);
  if (!sized.count(name) || !first || !first->node) return false;
  const auto numeric = [](const Value& v) { return is(v, V::integer) || is(v, V::unknown) || is(v, V::runtime); };
  if (is(first->value, V::tuple) || is(first->value, V::list)) return !first->value->items.empty();
  // One unknown argument may be an empty shape; two can only be sizes.
  return is(first->value, V::integer) || (args.positional() >= 2 && name != "torch.full" && numeric(first->value));
}

bool capital(std::string_view s) { return !s.empty() && s[0] >= 'A' && s[0] <= 'Z'; }

}  // namespace

std::optional<Value> Interp::externalAttribute(const std::string& name) {
  if (name.starts_with("torch.")) {
    if (const auto dtype = dtypeFromName(name); dtype && name.find('.', 6) == std::string::npos) {
      auto v = makeVal();
      v->kind = V::dtype;
      v->text = std::string(dtypeName(*dtype));
      v->dtype = *dtype;
      return v;
    }
  }
  return libraryAttribute(name);
}

Value Interp::makeDevice(Args& args, const Node* n) {
  const Arg* type = args.get(0, "type");
  const Arg* index = args.get(1, "index");
  if (!type) {
    if (index) return map(index->value, [&](const Value& i) { return asDevice(i, n); });
    return unknown("torch.device() without a device");
  }
  Value out = map(type->value, [&](const Value& t) -> Value {
    if (t->kind == V::string && isDeviceString(t->text)) {
      const Origin o = t->origin.unit ? t->origin : here(n);
      if (!index || t->text.find(':') != std::string::npos) return deviceValue(t->text, o);
      return map(index->value, [&](const Value& i) -> Value {
        if (i->kind == V::none) return deviceValue(t->text, o);
        const Value text = concat(string(t->text + ":", o), asText(i, index->node ? index->node : n), n);
        return text->kind == V::string ? deviceValue(text->text, i->origin.unit && !i->origin.fresh ? i->origin : o) : text;
      });
    }
    if (t->kind == V::integer) return asDevice(t, n);
    if (t->kind == V::device || t->kind == V::runtime || t->kind == V::unknown || t->kind == V::none) {
      // torch.device(rank): an index on the accelerator.
      if (t->kind == V::runtime && t->text.starts_with("<") && !options_.machine.accelerator().empty()) {
        const Node* from = type->node;
        const bool number = from && textOf(from).find("environ") == std::string::npos;
        if (number) return t;
      }
      return t;
    }
    return unknown("`" + textOf(n, 40) + "` is not followed");
  });
  const Node* parent = n->parent;
  const bool with = parent && parent->kind == N::with_item && parent->a == n;
  const char* kind = parent && parent->kind == N::compare ? "mention" : with ? "context" : "source";
  record(n, "torch.device", kind, asDevice(out, n));
  return out;
}

Value Interp::tensorFrom(Args& args, std::string_view why) {
  Value device;
  const std::function<void(const Value&, int)> look = [&](const Value& v, int depth) {
    if (device || !v || depth > 3) return;
    forEach(v, [&](const Value& x) {
      if (x->kind == V::tensor) device = join(device, x->device);
      else if (x->kind == V::list || x->kind == V::tuple) for (const auto& i : x->items) look(i, depth + 1);
      else if (x->kind == V::iterable) look(x->self, depth + 1);
    });
  };
  for (const auto& a : args.list) if (a.name != "$target") look(a.value, 0);
  return tensorOn(device ? device : unknown("`" + std::string(why) + "` gets no tensor that was followed"));
}

namespace {

// A call whose only open arguments are positional: `torch.zeros(1, *sizes)` cannot name a device that way.
bool onlyStars(const Node* n) {
  if (!n || n->kind != N::call) return false;
  bool star = false;
  for (const Node* a : n->list) {
    if (a->kind == N::dstarred) return false;
    star = star || a->kind == N::starred;
  }
  return star;
}

}  // namespace

Value Interp::factory(const std::string& name, Args& args, const Node* n) {
  // Written to a tensor that is there: nothing is placed.
  if (const Arg* out = args.keyword("out"); out && !is(out->value, V::none)) {
    emit(n, name, nullptr, args);
    return out->value;
  }
  const Arg* device = args.keyword("device");
  const auto size = factorySize(name.substr(6), args);
  auto out = makeVal();
  out->kind = V::tensor;
  out->dtype = size.dtype;
  out->shape = size.shape;
  out->assumed = assumesIn(args);
  const std::optional<double> bytes = size.bytes();
  const auto filled = [&](const Value& where) {   // what making it costs: nothing where memory is only taken
    static const std::map<std::string, std::string, std::less<>> fills = {{"zeros", "aten::zero_"}, {"ones", "aten::fill_.Scalar"},
        {"full", "aten::fill_.Scalar"}, {"rand", "aten::uniform_"}, {"randn", "aten::normal_"}};
    const auto f = fills.find(name.substr(6));
    if (f != fills.end() && size.shape && dtypeBytes(size.dtype) > 0) {
      const size_t before = ops_.size();
      noteOps(n, {{f->second, {{*size.shape, size.dtype}}, ""}}, where);
      if (ops_.size() > before) ops_.back().assumed = out->assumed;
    }
  };
  if (device && !is(device->value, V::none)) {
    out->device = asDevice(device->value, device->node ? device->node : n);
    out->dims = hasSize(name, args);
    record(n, name, "placement", out->device, bytes, size.how(), out->assumed);
    filled(out->device);
    emit(n, name, nullptr, args);
    return out;
  }
  const bool copies = name == "torch.tensor" || name == "torch.as_tensor" || name == "torch.asarray";
  if (const Arg* data = args.at(0); copies && data && isAny(data->value, V::tensor)) return tensorFrom(args, name);
  bool decided = false;
  out->device = defaultDevice(decided);
  if (decided) {
    record(n, name, "placement", out->device, bytes, size.how(), out->assumed);
    filled(out->device);
  } else if (args.unknown_rest && !onlyStars(n)) {
    out->device = unknown("`device` may come from **kwargs that are not followed");
    record(n, name, "placement", out->device, bytes, size.how());
  } else {
    out->made_by = n;
    out->dims = hasSize(name, args);
    note(n, "on the CPU: no device is given, and no default or context decides one");
  }
  emit(n, name, nullptr, args);
  return out;
}

Value Interp::layer(const std::string& name, Args& args, const Node* n) {
  const std::string cls = name.substr(name.rfind('.') + 1);
  auto v = makeVal();
  v->kind = V::instance;
  v->object = heap_.make();
  heap_.at(v->object).cls = external(name);
  heap_.at(v->object).born = n;
  const auto& names = layerParameters(cls);
  auto config = makeVal();   // the constructor's arguments by name, for the shapes of its results
  config->kind = V::partial;
  for (size_t i = 0; i < args.list.size() && !args.unknown_rest; ++i) {
    const auto& a = args.list[i];
    if (!a.name.empty()) config->named.emplace_back(a.name, a.value);
  }
  for (size_t i = 0; i < names.size() && !args.unknown_rest; ++i)
    if (const Arg* a = args.at(i)) config->named.emplace_back(names[i], a->value);
  if (!args.unknown_rest) heap_.set(v->object, "$config", config);
  if (cls == "Sequential" || cls == "ModuleList" || cls == "ModuleDict") {
    fillContainer(v, cls, args);
    return v;
  }
  if (const auto size = layerSize(cls, args)) heap_.set(v->object, "$bytes", integer(static_cast<int64_t>(*size)));
  if (assumesIn(args)) heap_.set(v->object, "$assumed", boolean(true));
  if (const Arg* tracked = args.get(4, "track_running_stats"); cls.starts_with("BatchNorm") && (!tracked || truth(tracked->value) == Truth::yes))
    heap_.set(v->object, "$counter", integer(8));   // num_batches_tracked: no cast changes it
  if (const Arg* dtype = args.keyword("dtype"); dtype && is(dtype->value, V::dtype)) heap_.set(v->object, "$dtype", dtype->value);
  const Arg* device = args.keyword("device");
  bool decided = false;
  const Value by_default = defaultDevice(decided);
  const auto bytes = moduleBytes(v);
  const Value dtype = heap_.get(v->object, "$dtype");
  const std::string how = bytes ? "parameters and buffers, " + (dtype ? dtype->text : std::string("float32")) : "the size of a " + cls + " does not follow from literals here";
  const bool assumed = moduleAssumed(v);
  if (device && !is(device->value, V::none)) {
    const Value d = asDevice(device->value, device->node ? device->node : n);
    heap_.set(v->object, "$device", d);
    record(n, name, "placement", d, bytes, how, assumed);
  } else if (decided) {
    heap_.set(v->object, "$device", by_default);
    if (!bytes || *bytes > 0) record(n, name, "placement", by_default, bytes, how, assumed);
  } else if (args.unknown_rest) {
    heap_.set(v->object, "$device", unknown("`device` may come from **kwargs that are not followed"));
  }
  emit(n, name, nullptr, args);
  return v;
}

int64_t Interp::passesOf(const Value& over) const {
  if (is(over, V::list) || is(over, V::tuple)) return static_cast<int64_t>(over->items.size());
  if (is(over, V::iterable)) return over->number;
  if (!is(over, V::instance) || heap_.get(over->object, "$open")) return 0;
  const Value items = heap_.get(over->object, "$items"), times = heap_.get(over->object, "$times");
  if (!is(items, V::list)) return 0;
  int64_t all = static_cast<int64_t>(items->items.size());
  if (times) { all = 0; for (const auto& t : times->items) if (__builtin_add_overflow(all, t->number, &all)) return 0; }
  return all;
}

bool Interp::loopsAreExact() const {
  return std::all_of(loops_.begin(), loops_.end(), [](const LoopInfo& l) { return l.exact; });
}

// What a container of modules is made of. "$times" beside an entry of "$items" says how many there are of its kind;
// "$open": something in it was not followed, so that nothing is said of its size.
void Interp::fillContainer(const Value& container, const std::string& cls, const Args& args) {
  const uint32_t object = container->object;
  std::vector<Value> items, times;
  bool repeated = false, open = false, assumed = false;
  const auto several = [&](const Value& v) {
    if (is(v, V::list) || is(v, V::tuple)) {
      for (const auto& i : v->items) { items.push_back(i); times.push_back(integer(1)); }
      return;
    }
    items.push_back(elementOf(v));
    const int64_t count = is(v, V::iterable) ? v->number : 0;
    open = open || count <= 0;
    assumed = assumed || v->assumed;
    times.push_back(integer(count));
    repeated = true;
  };
  const Value first = args.at(0) ? args.at(0)->value : nullptr;
  if (cls == "ModuleDict") {
    if (is(first, V::dict)) {
      const Slots slots = heap_.at(first->object).slots;
      for (const auto& [k, part] : slots) {
        if (!part) continue;
        if (k[0] == '$') { open = true; continue; }
        heap_.set(object, k, part);
        items.push_back(part);
      }
    } else {
      open = first != nullptr || args.unknown_rest;
    }
    heap_.set(object, "$element", items.empty() ? unknown("an empty container") : joinAll(items));
    if (open) heap_.set(object, "$open", boolean(true));
    return;
  }
  for (const auto& a : args.list) {
    if (!a.name.empty()) continue;
    if (cls == "ModuleList" || isAny(a.value, V::iterable)) several(a.value);
    else { items.push_back(a.value); times.push_back(integer(1)); }
  }
  for (const auto& s : args.stars) several(s);
  open = open || (args.unknown_rest && args.stars.empty());
  heap_.set(object, "$items", list(items));
  heap_.set(object, "$element", items.empty() ? unknown("an empty container") : joinAll(items));
  if (repeated) heap_.set(object, "$times", list(times));
  if (open) heap_.set(object, "$open", boolean(true));
  if (assumed) heap_.set(object, "$assumed", boolean(true));
}

void Interp::addParts(const Value& container, const Value& part, bool several) {
  const Value items = heap_.get(container->object, "$items");
  const bool known = is(items, V::list) && items->items.size() < 64 && loopsAreExact() && !heap_.get(container->object, "$times") &&
                     (!several || is(part, V::list) || is(part, V::tuple));
  std::vector<Value> longer = is(items, V::list) ? items->items : std::vector<Value>{};
  if (several && (is(part, V::list) || is(part, V::tuple))) longer.insert(longer.end(), part->items.begin(), part->items.end());
  else if (longer.size() < 64) longer.push_back(several ? elementOf(part) : part);
  heap_.set(container->object, "$element", joinAll(longer));
  heap_.set(container->object, "$items", list(std::move(longer)));
  if (!known) heap_.set(container->object, "$open", boolean(true));
}

std::optional<Value> Interp::callDeviceModule(const std::string& type, const std::string& rest, Args& args, const Node* n) {
  const Machine& machine = options_.machine;
  const bool any = type == "accelerator";
  const std::string actual = any ? machine.accelerator() : type;
  const std::string full = "torch." + type + "." + rest;
  const Value first = args.list.empty() ? nullptr : args.list[0].value;
  if (rest != "is_initialized" && rest != "manual_seed" && rest != "manual_seed_all") markUsed(n);
  const auto not_yet = [] { return unknown("the machine's devices are not known yet"); };
  if (rest == "is_available" || rest == "is_initialized") {
    emit(n, full, nullptr, args);
    if (!machine.known) return not_yet();
    return boolean(any ? !actual.empty() : machine.has(type));
  }
  if (rest == "device_count") {
    if (!machine.known) return not_yet();
    return integer(any ? machine.count(actual) : machine.count(type));
  }
  if (rest == "current_accelerator") {
    if (!machine.known) return not_yet();
    if (actual.empty()) return none();
    return deviceValue(actual, here(n, "the accelerator of the assumed machine"));
  }
  if (rest == "current_device" || rest == "current_device_index" || rest == "current_device_idx") {
    const Value current = actual.empty() ? nullptr : heap_.get(0, "$current:" + actual);
    if (!current) return integer(0);
    return map(current, [&](const Value& c) -> Value {
      const auto colon = c->text.find(':');
      if (colon == std::string::npos) return unknown("the current device");
      const std::string tail = c->text.substr(colon + 1);
      if (c->kind == V::runtime) return runtimeValue(tail, c->origin);
      return withOrigin(integer(std::strtoll(tail.c_str(), nullptr, 10)), c->origin);
    });
  }
  if (rest == "set_device" || rest == "set_device_index" || rest == "set_device_idx" || rest == "device" || rest == "device_index") {
    Value d = map(first ? first : unknown("no device is given"), [&](const Value& v) -> Value {
      if (v->kind == V::integer || (v->kind == V::runtime && v->text.find(':') == std::string::npos)) {
        if (actual.empty()) return not_yet();
        const Value text = concat(string(actual + ":", here(n)), asText(v, n), n);
        return text->kind == V::string ? deviceValue(text->text, text->origin) : text;
      }
      return asDevice(v, n);
    });
    const bool setting = rest.starts_with("set_");
    const int line = frame().statement ? frame().statement->line : n->line;
    record(n, full, setting ? "setting" : "context", d);
    // From here on a bare "npu" means this device, because of this statement.
    d = map(d, [&](const Value& v) {
      Origin o;
      o.unit = frame().unit;
      o.line = line;
      o.because = "current device, set by " + full + "()";
      return v->kind == V::device || v->kind == V::runtime ? withOrigin(v, o) : v;
    });
    if (setting) {
      if (!actual.empty()) heap_.set(0, "$current:" + actual, d);
      return none();
    }
    auto context = makeVal();
    context->kind = V::external;
    context->text = "$current:" + actual;
    context->self = d;
    return context;
  }
  emit(n, full, first, args);
  if (rest == "amp.autocast" || rest == "stream" || rest == "Stream" || rest == "Event") return external(full + "()");
  if (rest.ends_with("Tensor") && capital(rest)) {  // torch.cuda.FloatTensor(...)
    const Value d = currentDevice(actual, here(n));
    record(n, full, "placement", d);
    return tensorOn(d);
  }
  return unknown("`" + full + "()` gives no device");
}

std::optional<Value> Interp::callTorch(const std::string& name, Args& args, const Node* n) {
  if (!name.starts_with("torch.")) return std::nullopt;
  const std::string rest = name.substr(6);
  const auto dot = rest.find('.');
  const std::string head = rest.substr(0, dot);
  const std::string last = name.substr(name.rfind('.') + 1);
  if (rest == "device") return makeDevice(args, n);
  if (dot != std::string::npos && kDeviceModules.count(head)) return callDeviceModule(head, rest.substr(dot + 1), args, n);
  if (rest == "backends.mps.is_available" || rest == "backends.cuda.is_built")
    return options_.machine.known ? boolean(options_.machine.has(rest.find("mps") != std::string::npos ? "mps" : "cuda")) : unknown("the machine's devices are not known yet");
  if (kFactories.count(rest)) return factory(name, args, n);
  if (kLike.count(rest)) {
    emit(n, name, args.at(0) ? args.at(0)->value : nullptr, args);
    const Arg* d = args.keyword("device");
    if (!d || is(d->value, V::none)) {
      const Value t = args.at(0) ? map(args.at(0)->value, [&](const Value& v) -> Value {
        if (v->kind != V::tensor) return tensorOn(unknown("`" + textOf(n, 40) + "` is made like something that is not followed"));
        auto like = makeVal(*v);
        like->made_by = nullptr;
        return like;
      }) : tensorOn(unknown("made like nothing"));
      return t;
    }
    const Value device = asDevice(d->value, d->node ? d->node : n);
    TensorSize like;
    if (const Value& t = args.at(0) ? args.at(0)->value : nullptr; is(t, V::tensor)) { like.shape = t->shape; like.dtype = t->dtype; }
    if (const Arg* dtype = args.keyword("dtype"); dtype && !is(dtype->value, V::none)) like.dtype = is(dtype->value, V::dtype) ? dtype->value->dtype : DType::other;
    record(n, name, "placement", device, like.bytes(), like.how());
    auto made = makeVal(*tensorOn(device));
    made->shape = like.shape;
    made->dtype = like.dtype;
    return made;
  }
  if (rest == "set_default_device") {
    const Value v = args.get(0, "device") ? asDevice(args.get(0, "device")->value, n) : unknown("no device is given");
    record(n, name, "setting", v);
    const int line = frame().statement ? frame().statement->line : n->line;
    heap_.set(0, "$default", is(v, V::unknown) && v->text == "None" ? nullptr : map(v, [&](const Value& d) {
      Origin o;
      o.unit = frame().unit;
      o.line = line;
      o.because = "default device, set by torch.set_default_device()";
      return d->kind == V::device || d->kind == V::runtime ? withOrigin(d, o) : d;
    }));
    return none();
  }
  if (rest == "get_default_device") { bool decided = false; return defaultDevice(decided); }
  if (rest == "load") {
    const Arg* m = args.get(1, "map_location");
    emit(n, name, nullptr, args);
    if (!m || is(m->value, V::none)) {
      note(n, "`map_location` is not given: every tensor goes back to the device it was saved from, and loading fails where that device is missing");
      return unknown("loaded from a file without map_location");
    }
    const Value target = map(m->value, [&](const Value& v) -> Value {
      if (v->kind == V::dict) {
        Value all;
        for (const auto& [k, x] : heap_.at(v->object).slots) if (x) all = join(all, asDevice(x, m->node));
        return all ? all : unknown("an empty map_location");
      }
      return v->kind == V::function ? unknown("map_location is a function") : asDevice(v, m->node ? m->node : n);
    });
    record(n, name, "placement", target, std::nullopt, "the file's size is not read");
    auto loaded = makeVal(*tensorOn(target));
    loaded->text = "?";
    loaded->number = 1;   // a dict, a number, a text: nothing shows that it is a tensor
    return loaded;
  }
  if (rest == "Generator") {
    const Arg* d = args.get(0, "device");
    auto g = makeVal(*external("torch.Generator()"));
    g->device = d ? asDevice(d->value, n) : deviceValue("cpu", here(n, "generators are made on the CPU"));
    if (d) record(n, name, "placement", g->device);
    return g;
  }
  if (rest == "no_grad" || rest == "inference_mode" || rest == "enable_grad") return external(name + "()");
  if (rest == "autocast" || rest == "amp.autocast" || rest == "amp.GradScaler" || rest == "amp.custom_fwd" || rest == "amp.custom_bwd") {
    const Arg* d = args.get(0, rest == "amp.GradScaler" ? "device" : "device_type");
    if (d && (isAny(d->value, V::string) || isAny(d->value, V::device))) record(n, name, "mention", asDevice(d->value, n));
    emit(n, name, nullptr, args);
    return external(name + "()");
  }
  if (rest == "compile" || rest == "jit.script" || name == "torch.nn.DataParallel" || name.ends_with(".DistributedDataParallel")) {
    emit(n, name, args.at(0) ? args.at(0)->value : nullptr, args);
    if (!args.at(0)) return external(name + "()");  // a decorator with arguments
    // With device_ids the wrapper copies what it is called with to the module's device.
    const Arg* ids = args.get(1, "device_ids");
    const bool copies = name == "torch.nn.DataParallel" || (name.ends_with(".DistributedDataParallel") && ids && !is(ids->value, V::none));
    forEach(args.at(0)->value, [&](const Value& m) { if (copies && m->kind == V::instance) heap_.set(m->object, "$copies_inputs", boolean(true)); });
    return args.at(0)->value;
  }
  if (rest == "nn.Parameter" || rest == "nn.parameter.Parameter") {
    const Value t = tensorFrom(args, name);
    auto p = makeVal(*t);
    p->text = "parameter";
    if (args.at(0) && is(args.at(0)->value, V::tensor)) {
      p->shape = args.at(0)->value->shape;
      p->dtype = args.at(0)->value->dtype;
      p->dims = args.at(0)->value->dims;
    }
    return p;
  }
  if (rest.starts_with("nn.functional.") || rest.starts_with("nn.init.") || rest.starts_with("linalg.") || rest.starts_with("fft.") || rest.starts_with("special.")) {
    emit(n, name, nullptr, args);
    return tensorFrom(args, name);
  }
  if (rest.starts_with("nn.utils.")) return args.at(0) && isAny(args.at(0)->value, V::tensor) ? tensorFrom(args, name) : unknown("`" + name + "()`");
  if (rest.starts_with("nn.") && capital(last)) return layer(name, args, n);
  if (rest == "from_numpy" || rest == "frombuffer" || rest == "from_file") {
    emit(n, name, nullptr, args);
    return tensorOn(deviceValue("cpu", here(n, "`" + name + "` makes CPU tensors")));
  }
  if (rest == "utils.data.TensorDataset") {
    std::vector<Value> parts;
    for (const auto& a : args.list) parts.push_back(elementOf(a.value));
    auto v = makeVal();
    v->kind = V::instance;
    v->object = heap_.make();
    heap_.at(v->object).cls = external(name);
    heap_.set(v->object, "$element", tuple(std::move(parts)));
    return v;
  }
  if (rest == "utils.data.DataLoader") {
    emit(n, name, nullptr, args);
    const Arg* data = args.get(0, "dataset");
    auto v = makeVal();
    v->kind = V::instance;
    v->object = heap_.make();
    heap_.at(v->object).cls = external(name);
    Value element = data ? elementOf(data->value) : unknown("a DataLoader without data");
    if (is(element, V::unknown)) element = unknown("a batch of a DataLoader whose dataset is not followed");
    const Arg* pin = args.keyword("pin_memory");
    const bool pinned = pin && truth(pin->value) == Truth::yes;
    const std::function<Value(const Value&)> batch = [&](const Value& e) {
      return map(e, [&](const Value& x) -> Value {
        auto part = makeVal(*x);
        if (x->kind == V::tuple || x->kind == V::list) for (auto& i : part->items) i = batch(i);
        if (x->kind == V::integer || x->kind == V::real || x->kind == V::string) *part = *unknown("a batch that the DataLoader collates");
        if (part->kind == V::tensor || part->kind == V::unknown) part->loader = n;
        if (x->kind == V::tensor) { part->pinned = pinned; part->shape.reset(); part->made_by = nullptr; part->dims = true; }
        return part;
      });
    };
    element = batch(element);
    heap_.set(v->object, "$element", element);
    return v;
  }
  if (rest.starts_with("optim.")) { emit(n, name, args.at(0) ? args.at(0)->value : nullptr, args); return external(name + "()"); }
  if (rest == "distributed.get_rank" || rest == "distributed.get_node_local_rank" || rest == "distributed.get_world_size") {
    auto number = makeVal(*runtimeValue("<" + last + "()>", here(n, "`" + name + "()`, known when the program runs")));
    number->number = 1;
    return number;
  }
  if (dot != std::string::npos && !rest.starts_with("Tensor.")) { emit(n, name, nullptr, args); return unknown("`" + name + "()` gives no device"); }
  emit(n, name, nullptr, args);
  static const Names legacy = {"Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "IntTensor", "ShortTensor",
      "CharTensor", "ByteTensor", "BoolTensor"};
  if (legacy.count(rest)) {
    bool decided = false;
    const Value by_default = defaultDevice(decided);
    const bool place = decided && rest == "Tensor";   // the typed ones name the CPU
    if (place) record(n, name, "placement", by_default, std::nullopt, "the shape does not follow from literals");
    return tensorOn(place ? by_default : deviceValue("cpu", here(n, "`" + name + "` makes CPU tensors")));
  }
  if (rest.starts_with("Tensor.") && args.at(0) && isAny(args.at(0)->value, V::tensor)) {  // torch.Tensor.to(x, ...)
    const Value self = args.at(0)->value;
    Args others = args;
    for (auto it = others.list.begin(); it != others.list.end(); ++it) if (it->name.empty()) { others.list.erase(it); break; }
    return map(self, [&](const Value& t) -> Value { return t->kind == V::tensor ? callTensor(t, rest.substr(7), others, n) : unknown("`" + textOf(n, 40) + "`"); });
  }
  // Private functions and questions (torch._has_..., torch.is_...): mostly no tensors, and never worth a guess.
  if (kPlain.count(rest) || capital(rest) || rest.starts_with('_') || rest.starts_with("is_")) return unknown("`" + name + "()` gives no device");
  return tensorFrom(args, name);
}

}  // namespace flagos::lsp

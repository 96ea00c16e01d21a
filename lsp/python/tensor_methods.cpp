// Methods of tensors and modules: where they move things, and what stays where it is.
#include <algorithm>
#include <map>

#include "lsp/python/assumed.h"
#include "lsp/python/interp.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {
namespace {

using Names = NameSet;
const Names kScalars = {"item", "tolist", "numpy", "size", "dim", "numel", "stride", "ndimension", "element_size", "storage_offset", "nelement",
    "is_contiguous", "is_floating_point", "is_complex", "is_pinned", "get_device", "data_ptr", "backward", "retain_grad", "register_hook",
    "untyped_storage", "storage", "equal", "allclose", "type", "has_names", "__len__", "__bool__", "__float__", "record_stream"};
const Names kMovers = {"cuda", "npu", "xpu", "mlu", "musa", "hpu", "mtia"};
// Methods of dicts, lists and texts that tensors have not: what they are called on is no tensor.
const Names kOfContainers = {"items", "keys", "pop", "get", "setdefault", "update", "popitem", "append", "extend", "insert", "startswith", "endswith",
    "strip", "lstrip", "rstrip", "lower", "upper", "join", "encode", "decode", "rsplit", "splitlines", "removeprefix", "removesuffix"};
const Names kNew = {"new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"};

// Bytes of the weight of a layer of these arguments, as float32; only of the layers whose weights are shared in practice.
std::optional<int64_t> weightBytes(const Value& config) {
  if (!config) return std::nullopt;
  int64_t n = 4;
  int factors = 0;
  for (const auto& [name, v] : config->named) {
    if (name != "in_features" && name != "out_features" && name != "num_embeddings" && name != "embedding_dim") continue;
    if (!is(v, V::integer) || __builtin_mul_overflow(n, v->number, &n)) return std::nullopt;
    ++factors;
  }
  return factors == 2 ? std::optional<int64_t>(n) : std::nullopt;
}

}  // namespace

bool Interp::isModule(const Value& v) {
  if (!is(v, V::instance)) return false;
  return derivesFrom(heap_.at(v->object).cls, [](const std::string& base) {
    if (base.starts_with("torch.nn.")) return true;
    return base.ends_with(".LightningModule") || base.ends_with(".PreTrainedModel") || base.ends_with(".from_pretrained") ||
           base.starts_with("torchvision.models.") || base == "timm.create_model";
  });
}

Value Interp::moduleDevice(const Value& instance, int depth) {
  if (const Value d = heap_.get(instance->object, "$device")) return d;
  Value out;
  if (depth < 6) {
    const auto part = [&](const Value& v) {
      forEach(v, [&](const Value& x) {
        if (x->kind == V::tensor && (x->text == "parameter" || x->text == "buffer")) out = join(out, x->device);
        else if (x != instance && x->kind == V::instance && x->object != instance->object && isModule(x)) {
          if (heap_.get(x->object, "$bytes") && heap_.get(x->object, "$bytes")->number == 0) return;
          out = join(out, moduleDevice(x, depth + 1));
        }
      });
    };
    for (const auto& [k, v] : heap_.at(instance->object).slots) {
      if (!v || k == "$element") continue;
      if (v->kind == V::list || v->kind == V::tuple) for (const auto& i : v->items) part(i);
      else part(v);
    }
  }
  return out ? out : deviceValue("cpu", here(nullptr, "modules are made on the CPU"));
}

std::optional<double> Interp::moduleBytes(const Value& instance) {
  std::set<uint32_t> seen;
  return moduleBytes(instance, 0, seen);
}

// `seen`: what is used twice is there once.
std::optional<double> Interp::moduleBytes(const Value& instance, int depth, std::set<uint32_t>& seen) {
  if (!seen.insert(instance->object).second) return 0.0;
  if (heap_.get(instance->object, "$open")) return std::nullopt;
  if (const Value b = heap_.get(instance->object, "$bytes")) {
    const Value dtype = heap_.get(instance->object, "$dtype"), counter = heap_.get(instance->object, "$counter");
    int64_t bytes = b->number;
    if (heap_.get(instance->object, "weight")) {   // another module's weight in place of its own
      const auto own = weightBytes(heap_.get(instance->object, "$config"));
      if (!own || is(heap_.get(instance->object, "weight"), V::union_)) return std::nullopt;
      bytes -= *own;
    }
    if (heap_.get(instance->object, "bias")) return std::nullopt;
    if (!dtype) return static_cast<double>(bytes);
    if (dtype->kind != V::dtype || dtypeBytes(dtype->dtype) == 0) return std::nullopt;
    const int64_t whole = counter ? counter->number : 0;
    return static_cast<double>((bytes - whole) / 4 * static_cast<int64_t>(dtypeBytes(dtype->dtype)) + whole);
  }
  if (depth > 8) return std::nullopt;
  const Value& cls = heap_.at(instance->object).cls;
  const Value items = heap_.get(instance->object, "$items"), times = heap_.get(instance->object, "$times");
  if (is(cls, V::external) && !items && cls->text != "torch.nn.ModuleDict") return std::nullopt;
  double sum = 0;
  bool known = true;
  const auto part = [&](const Value& v, int64_t count) {
    if (!v) return;
    if (is(v, V::instance) && isModule(v) && v->object != instance->object) {
      const auto b = moduleBytes(v, depth + 1, seen);
      if (b) sum += *b * static_cast<double>(count); else known = false;
    } else if (is(v, V::tensor) && (v->text == "parameter" || v->text == "buffer")) {
      if (!v->shape || dtypeBytes(v->dtype) == 0) { known = false; return; }
      double n = static_cast<double>(dtypeBytes(v->dtype));
      for (const auto s : *v->shape) n *= static_cast<double>(s);
      sum += n * static_cast<double>(count);
    } else if (v->kind == V::union_) {
      known = false;
    }
  };
  for (const auto& [k, v] : heap_.at(instance->object).slots) {
    if (!v || k == "$element" || k == "$device" || k == "$times") continue;
    if (k != "$items") { part(v, 1); continue; }
    if (v->kind != V::list) return std::nullopt;   // what it holds depends on the way
    for (size_t i = 0; i < v->items.size(); ++i) part(v->items[i], times && i < times->items.size() ? times->items[i]->number : 1);
  }
  if (!known) return std::nullopt;
  return sum;
}

void Interp::moveModule(const Value& instance, const Value& device, int depth) {
  if (depth > 6) return;
  heap_.set(instance->object, "$device", device);
  const Slots slots = heap_.at(instance->object).slots;
  for (const auto& [k, v] : slots) {
    if (!v || k == "$device") continue;
    const auto moved = [&](const Value& x) -> Value {
      if (x->kind == V::tensor && (x->text == "parameter" || x->text == "buffer")) {
        auto t = makeVal(*x);
        t->device = device;
        return t;
      }
      if (x->kind == V::instance && x->object != instance->object && isModule(x)) moveModule(x, device, depth + 1);
      return x;
    };
    if (k == "$items" || k == "$element") { for (const auto& i : v->items) moved(i); if (v->kind == V::instance) moved(v); continue; }
    const Value now = map(v, moved);
    if (!same(now, v)) heap_.set(instance->object, k, now);
  }
}

void Interp::castModule(const Value& instance, DType dtype, int depth) {
  if (depth > 6) return;
  auto to = makeVal();
  to->kind = V::dtype;
  to->dtype = dtype;
  to->text = std::string(dtypeName(dtype));
  const Value kind = to;
  heap_.set(instance->object, "$dtype", kind);
  const auto floating = [](DType t) { return t == DType::float16 || t == DType::bfloat16 || t == DType::float32 || t == DType::float64; };
  const Slots slots = heap_.at(instance->object).slots;
  for (const auto& [k, v] : slots) {
    if (!v || k == "$dtype" || k == "$device") continue;
    const auto cast = [&](const Value& x) -> Value {
      if (x->kind == V::tensor && (x->text == "parameter" || x->text == "buffer") && floating(x->dtype)) {
        auto t = makeVal(*x);
        t->dtype = dtype;
        return t;
      }
      if (x->kind == V::instance && x->object != instance->object && isModule(x)) castModule(x, dtype, depth + 1);
      return x;
    };
    if (k == "$items" || k == "$element") { for (const auto& i : v->items) cast(i); if (v->kind == V::instance) cast(v); continue; }
    const Value now = map(v, cast);
    if (!same(now, v)) heap_.set(instance->object, k, now);
  }
}

bool Interp::moduleAssumed(const Value& instance, int depth) {
  if (!is(instance, V::instance) || depth > 6) return false;
  if (heap_.get(instance->object, "$assumed")) return true;
  const auto part = [&](const Value& v) {
    if (is(v, V::tensor) && (v->text == "parameter" || v->text == "buffer")) return v->assumed;
    return is(v, V::instance) && v->object != instance->object && isModule(v) && moduleAssumed(v, depth + 1);
  };
  for (const auto& [k, v] : heap_.at(instance->object).slots) {
    if (!v || k == "$element") continue;
    if (k != "$items") { if (part(v)) return true; continue; }
    for (const auto& i : v->items) if (part(i)) return true;
  }
  return false;
}

namespace {
// The types of other libraries, as in `.to(tl.int64)` of a Triton kernel.
bool namesDtype(std::string_view dotted) {
  static const Names types = {"int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bfloat16",
      "float8e4nv", "float8e5", "float8_e4m3fn", "float8_e5m2"};
  return types.count(dotted.substr(dotted.rfind('.') == std::string_view::npos ? 0 : dotted.rfind('.') + 1)) > 0;
}
}  // namespace

Value Interp::moveTarget(Args& args, const Node* n, bool& is_device, bool receiver_known) {
  is_device = false;
  const Arg* a = args.keyword("device");
  if (!a) a = args.keyword("other");
  if (!a) a = args.at(0);
  if (!a) {
    if (!args.unknown_rest) return nullptr;
    is_device = receiver_known;
    return unknown("the arguments of `.to()` are not followed");
  }
  const Node* node = a->node ? a->node : n;
  // Names are no evidence: in a program that uses PyTorch, `.to(something)` may move whatever it is called on.
  const bool may_move = a->name == "device" || usesTorch();
  bool devices = false, other = false, open = false;
  forEach(a->value, [&](const Value& v) {
    switch (v->kind) {
      case V::string: (isDeviceString(v->text) ? devices : receiver_known ? open : other) = true; break;
      case V::device: case V::runtime: case V::tensor: case V::integer: devices = true; break;
      case V::instance: (isModule(v) ? devices : other) = true; break;
      case V::dtype: case V::none: other = true; break;
      case V::external: (namesDtype(v->text) ? other : open) = true; break;
      // `.to(x.dtype)` casts, whatever is known of x.
      default: (node->kind == N::attribute && node->text == "dtype" ? other : open) = true;
    }
  });
  is_device = devices || (open && (receiver_known || may_move) && !other);
  return is_device ? asDevice(a->value, node) : nullptr;
}

Value Interp::tensorAttribute(const Value& tensor, std::string_view name) {
  static const Names same_place = {"data", "grad", "T", "mT", "H", "mH", "real", "imag"};
  if (name == "device") return tensor->device;
  if (same_place.count(name)) {
    auto t = makeVal(*tensorOn(tensor->device));
    if (name == "real" || name == "imag") return t;
    const bool turned = name != "data" && name != "grad";
    t->dtype = tensor->dtype;
    t->assumed = tensor->assumed;
    t->shape = turned && tensor->shape ? inferFunction(name.ends_with('T') ? name : name == "H" ? "T" : "mT", tensor, {}).shape : tensor->shape;
    return t;
  }
  if (name == "dtype") {
    if (tensor->dtype == DType::other) return unknown("a dtype that is not known");
    auto v = makeVal();
    v->kind = V::dtype;
    v->dtype = tensor->dtype;
    v->text = std::string(dtypeName(tensor->dtype));
    return v;
  }
  if (name == "shape") {
    if (!tensor->shape) return unknown("a shape that is not known");
    std::vector<Value> items;
    for (const auto s : *tensor->shape) items.push_back(assumedIf(tensor->assumed, integer(s)));
    return tuple(std::move(items));
  }
  if (name.starts_with("is_") && kMovers.count(name.substr(3))) {
    bool all = true, any = false, known = true;
    forEach(tensor->device, [&](const Value& d) {
      if (d->kind != V::device) { known = false; return; }
      const bool on = deviceType(d->text) == name.substr(3);
      all = all && on;
      any = any || on;
    });
    if (known && all == any) return boolean(all);
    return unknown("a condition that is not known");
  }
  auto v = makeVal();
  v->kind = V::bound;
  v->self = tensor;
  v->text = std::string(name);
  return v;
}

Value Interp::callTensor(const Value& tensor, const std::string& method, Args& args, const Node* n) {
  const bool certain = tensor->text != "?";
  if (kOfContainers.count(method) || (!certain && method == "values")) {
    auto part = makeVal(*tensorOn(tensor->device));   // of a loaded dict: what it holds is where the file was mapped to
    part->text = "?";
    part->number = tensor->number;
    if (method == "items") return iterableOf(tuple({unknown("a key"), part}));
    if (method == "values") return iterableOf(part);
    if (method == "keys") return iterableOf(unknown("a key"));
    if (method == "pop" || method == "get" || method == "setdefault") return part;
    return unknown("`." + method + "()` is no method of a tensor");
  }
  const std::string call = (certain ? "Tensor." : ".") + method;
  const auto moved = [&](const Value& device) {
    auto t = makeVal(*tensor);
    t->device = device;
    t->made_by = nullptr;
    if (t->text != "?") t->text.clear();
    return t;
  };
  std::optional<double> bytes;
  std::string how = "the shape does not follow from literals";
  if (tensor->shape && dtypeBytes(tensor->dtype) > 0) {
    double b = static_cast<double>(dtypeBytes(tensor->dtype));
    for (const auto s : *tensor->shape) b *= static_cast<double>(s);
    bytes = b;
    how = std::string(dtypeName(tensor->dtype));
  }
  if (method == "to") {
    bool is_device = false;
    const Value target = moveTarget(args, n, is_device, certain);
    if (!is_device) {
      emit(n, call, tensor, args);
      std::string where;
      forEach(tensor->device, [&](const Value& d) { if (d->kind == V::device) where += (where.empty() ? "" : " or ") + d->text; });
      note(n, "cast, stays on " + (where.empty() ? "its device" : where));
      auto t = makeVal(*tensor);
      if (const Arg* a = args.get(0, "dtype"); a && is(a->value, V::dtype)) t->dtype = a->value->dtype;
      t->made_by = nullptr;
      return t;
    }
    Args event = args;
    event.list.push_back({"$target", target, nullptr});
    emit(n, call, tensor, event);
    record(n, call, "move", target, bytes, how, tensor->assumed);
    noteCopy(n, tensor->device, target, bytes);
    return lateCopy(moved(target), tensor, args, n);
  }
  if (kMovers.count(method)) {
    const Arg* index = args.get(0, "device");
    Value target = index && !is(index->value, V::none)
        ? map(index->value, [&](const Value& v) -> Value {
            if (v->kind == V::integer) return deviceValue(method + ":" + std::to_string(v->number), v->origin.unit ? v->origin : here(n));
            if (v->kind == V::runtime && v->text.find(':') == std::string::npos) return runtimeValue(method + ":" + v->text, v->origin);
            return asDevice(v, n);
          })
        : currentDevice(method, here(n, "`." + method + "()`"));
    Args event = args;
    event.list.push_back({"$target", target, nullptr});
    emit(n, call, tensor, event);
    record(n, call, "move", target, bytes, how, tensor->assumed);
    noteCopy(n, tensor->device, target, bytes);
    return moved(target);
  }
  if (method == "cpu") {
    const Value cpu = deviceValue("cpu", here(n, "`.cpu()`"));
    Args event = args;
    event.list.push_back({"$target", cpu, nullptr});
    emit(n, call, tensor, event);
    record(n, call, "copy", cpu, bytes, how, tensor->assumed);
    noteCopy(n, tensor->device, cpu, bytes);
    return moved(cpu);
  }
  if (kNew.count(method)) {
    emit(n, call, tensor, args);
    const Arg* d = args.keyword("device");
    if (!d || is(d->value, V::none)) return tensorOn(tensor->device);
    const Value device = asDevice(d->value, d->node ? d->node : n);
    record(n, call, "placement", device);
    return tensorOn(device);
  }
  emit(n, call, tensor, args);
  if (method == "copy_" && args.at(0)) {
    const auto from = certainDevices(args.at(0)->value), to = certainDevices(tensor);
    if (from.size() == 1 && to.size() == 1 && from[0] != to[0]) record(n, call, "copy", tensor->device, bytes, how);
    const Value filled = lateCopy(tensor, args.at(0)->value, args, n);
    const Node* owner = n && n->kind == N::call && n->a->kind == N::attribute ? n->a->a : nullptr;
    if (filled->late && owner && owner->kind == N::name) assign(owner, filled, frame().statement ? frame().statement : n);
    return filled;
  }
  if (method == "type" && !args.list.empty()) {
    const Value& to = args.list[0].value;
    if (is(to, V::dtype)) {
      auto t = makeVal(*tensor);
      t->dtype = to->dtype;
      t->made_by = nullptr;
      return t;
    }
    return tensorOn(is(to, V::string) || is(to, V::external) ? unknown("`.type()` names a device by its type") : tensor->device);
  }
  if (method == "get_device") {
    return map(tensor->device, [&](const Value& d) -> Value {
      const auto colon = d->text.find(':');
      if (d->kind != V::device || (colon == std::string::npos && d->text != "cpu")) return unknown("the index of a device that is not known");
      return withOrigin(integer(colon == std::string::npos ? -1 : std::strtoll(d->text.c_str() + colon + 1, nullptr, 10)), d->origin);
    });
  }
  if (tensor->shape) {
    const auto rank = static_cast<int64_t>(tensor->shape->size());
    if (method == "dim" || method == "ndimension") return integer(rank);
    const Arg* d = method == "size" ? args.get(0, "dim") : nullptr;
    if (d && is(d->value, V::integer)) {
      const int64_t i = d->value->number < 0 ? d->value->number + rank : d->value->number;
      if (i >= 0 && i < rank) return assumedIf(tensor->assumed, integer((*tensor->shape)[static_cast<size_t>(i)]));
    }
    if (method == "size" && args.list.empty()) return tensorAttribute(tensor, "shape");
    if (method == "numel" || method == "nelement") {
      int64_t all = 1;
      bool fits = true;
      for (const auto s : *tensor->shape) fits = fits && !__builtin_mul_overflow(all, s, &all);
      if (fits) return assumedIf(tensor->assumed, integer(all));
    }
  }
  if ((method == "split" || method == "chunk") && tensor->shape && !tensor->shape->empty()) {
    // Equal parts, each of known sizes.
    const Arg *count = args.at(0), *dim = args.get(1, "dim");
    const auto rank = static_cast<int64_t>(tensor->shape->size());
    const int64_t at = !dim ? 0 : is(dim->value, V::integer) && dim->value->number >= -rank && dim->value->number < rank ? (dim->value->number + rank) % rank : -1;
    if (count && is(count->value, V::integer) && count->value->number > 0 && count->value->number < (int64_t{1} << 40) && at >= 0 && at < rank) {
      const int64_t whole = (*tensor->shape)[static_cast<size_t>(at)], asked = count->value->number;
      const int64_t size = method == "split" ? asked : (whole + asked - 1) / asked;
      if (size > 0 && whole % size == 0 && whole / size <= 16) {
        auto part = makeVal(*tensor);
        part->made_by = nullptr;
        part->assumed = tensor->assumed || count->value->assumed;
        (*part->shape)[static_cast<size_t>(at)] = size;
        return tuple(std::vector<Value>(static_cast<size_t>(whole / size), part));
      }
    }
  }
  if (kScalars.count(method)) {
    if (method == "numpy" || method == "tolist" || method == "item") return unknown("a Python value read from a tensor");
    return unknown("`." + method + "()` of a tensor");
  }
  if (method == "requires_grad_" || method == "detach" || method == "contiguous" || method == "clone" || method == "pin_memory") {
    auto t = makeVal(*tensor);
    t->made_by = nullptr;
    return t;
  }
  auto t = makeVal(*tensorOn(tensor->device));
  if (!certain) { t->text = "?"; t->number = tensor->number; }
  return t;
}

std::optional<Value> Interp::callModuleMethod(const Value& instance, const std::string& method, Args& args, const Node* n) {
  if (!isModule(instance)) return std::nullopt;
  const std::string call = "Module." + method;
  static const std::map<std::string, DType, std::less<>> casts = {{"half", DType::float16}, {"bfloat16", DType::bfloat16}, {"float", DType::float32}, {"double", DType::float64}};
  if (const auto cast = casts.find(method); cast != casts.end()) castModule(instance, cast->second);
  if (method == "to" || method == "type" || method == "to_empty")   // .to(dtype), .to(device, dtype), .to(dtype=...)
    for (const auto& a : args.list)
      if ((a.name.empty() || a.name == "dtype" || a.name == "dst_type") && is(a.value, V::dtype)) castModule(instance, a.value->dtype);
  const auto bytes = moduleBytes(instance);
  const Value dtype = heap_.get(instance->object, "$dtype");
  const std::string how = bytes ? "parameters and buffers, " + (dtype ? dtype->text : std::string("float32")) : "a layer's size does not follow from literals";
  const auto move = [&](const char* kind, const Value& target) {
    Args event = args;
    event.list.push_back({"$target", target, nullptr});
    emit(n, call, instance, event);
    record(n, call, kind, target, bytes, how, moduleAssumed(instance), instance->object);
    noteCopy(n, moduleDevice(instance), target, bytes);
    moveModule(instance, target);
    return instance;
  };
  if (method == "to") {
    bool is_device = false;
    const Value target = moveTarget(args, n, is_device, true);
    if (is_device) return move("move", target);
    note(n, "cast, stays where it is");
    return instance;
  }
  if (kMovers.count(method)) {
    const Arg* index = args.get(0, "device");
    if (!index || is(index->value, V::none)) return move("move", currentDevice(method, here(n, "`." + method + "()`")));
    return move("move", map(index->value, [&](const Value& v) -> Value {
      if (v->kind == V::integer) return deviceValue(method + ":" + std::to_string(v->number), v->origin.unit ? v->origin : here(n));
      if (v->kind == V::runtime && v->text.find(':') == std::string::npos) return runtimeValue(method + ":" + v->text, v->origin);
      return asDevice(v, n);
    }));
  }
  if (method == "cpu") return move("copy", deviceValue("cpu", here(n, "`.cpu()`")));
  if (method == "to_empty") {
    const Arg* d = args.keyword("device");
    return move("move", d ? asDevice(d->value, n) : unknown("no device is given"));
  }
  if (method == "parameters" || method == "buffers") {
    auto t = makeVal(*tensorOn(moduleDevice(instance)));
    t->text = "parameter";
    auto v = makeVal(*iterableOf(t));
    v->items = {instance};  // so that an optimizer knows whose parameters it got
    return v;
  }
  if (method == "named_parameters" || method == "named_buffers") return iterableOf(tuple({unknown("a name"), tensorOn(moduleDevice(instance))}));
  if (method == "register_buffer" || method == "register_parameter") {
    const Arg* name = args.get(0, "name");
    const Arg* t = args.get(1, method == "register_buffer" ? "tensor" : "param");
    if (name && is(name->value, V::string) && t)
      heap_.set(instance->object, name->value->text, map(t->value, [&](const Value& v) -> Value {
        if (v->kind != V::tensor) return v;
        auto b = makeVal(*v);
        b->text = method == "register_buffer" ? "buffer" : "parameter";
        return b;
      }));
    return none();
  }
  if (method == "add_module" || method == "register_module") {
    const Arg* name = args.get(0, "name");
    if (name && is(name->value, V::string) && args.get(1, "module")) heap_.set(instance->object, name->value->text, args.get(1, "module")->value);
    else heap_.set(instance->object, "$open", boolean(true));
    return none();
  }
  if ((method == "append" || method == "extend") && args.at(0) && heap_.get(instance->object, "$items")) {
    addParts(instance, args.at(0)->value, method == "extend");
    return instance;
  }
  if (method == "register_forward_pre_hook" || method == "register_forward_hook") heap_.set(instance->object, "$hooks", boolean(true));
  emit(n, call, instance, args);
  static const Names same_object = {"train", "eval", "half", "float", "double", "bfloat16", "requires_grad_", "apply", "type"};
  if (same_object.count(method)) return instance;
  if (method == "state_dict") {
    auto entry = makeVal(*tensorOn(moduleDevice(instance)));
    auto v = makeVal();
    v->kind = V::dict;
    v->object = heap_.make();
    heap_.set(v->object, "$any", entry);
    return v;
  }
  if (method == "__init__") return none();
  if (method == "children" || method == "modules") return iterableOf(unknown("a part of a module"));
  if (method == "generate") return tensorFrom(args, call);
  return std::nullopt;
}

std::optional<Value> Interp::callOnUnknown(const Value& receiver, const std::string& method, Args& args, const Node* n) {
  const auto maybe = [&](const Value& device) -> Value {
    auto t = makeVal(*tensorOn(device));
    t->text = "?";
    return t;
  };
  const auto moved = [&](const Value& target) {
    Args event = args;
    event.list.push_back({"$target", target, nullptr});
    emit(n, "." + method, receiver, event);
  };
  if (method == "to") {
    bool is_device = false;
    const Value target = moveTarget(args, n, is_device, false);
    if (!is_device) return std::nullopt;
    record(n, ".to", "move", target, std::nullopt, "what is moved is not known");
    moved(target);
    return maybe(target);
  }
  if (kMovers.count(method) && args.list.size() <= 2) {
    const Arg* index = args.get(0, "device");
    const Value target = index && is(index->value, V::integer) ? deviceValue(method + ":" + std::to_string(index->value->number), here(n))
                         : index && !is(index->value, V::none) ? asDevice(index->value, n)
                                                               : currentDevice(method, here(n, "`." + method + "()`"));
    moved(target);
    record(n, "." + method, "move", target, std::nullopt, "what is moved is not known");
    return maybe(target);
  }
  if (method == "cpu" && args.list.empty()) {
    const Value cpu = deviceValue("cpu", here(n, "`.cpu()`"));
    moved(cpu);
    record(n, ".cpu", "copy", cpu, std::nullopt, "what is copied is not known");
    return maybe(cpu);
  }
  return std::nullopt;
}

}  // namespace flagos::lsp

// Libraries that place for the user: transformers, accelerate, Lightning, torchvision, timm. What they decide when the
// program runs is said as such, with what the arguments already fix.
#include <algorithm>

#include "lsp/python/interp.h"

namespace flagos::lsp {
namespace {

bool isLightning(std::string_view name) { return name.starts_with("lightning") || name.starts_with("pytorch_lightning"); }

// The library that decides the devices of an object made by this call; "" = none.
std::string placer(std::string_view call) {
  if (call == "accelerate.Accelerator()" || call == "accelerate.PartialState()") return "accelerate";
  if (isLightning(call) && (call.ends_with(".Fabric()") || call.ends_with(".Trainer()"))) return "Lightning";
  if (call.starts_with("transformers.") && (call.ends_with("TrainingArguments()") || call.ends_with("Trainer()"))) return "transformers";
  return {};
}

std::string ownName(const std::string& call, const std::string& who) {
  return who == "accelerate" ? "accelerator.device" : who != "Lightning" ? "args.device" : call.ends_with(".Fabric()") ? "fabric.device" : "trainer.device";
}

}  // namespace

Value Interp::libraryObject(const std::string& call, Args& args) {
  auto v = makeVal();
  v->kind = V::external;
  v->text = call;
  // What the arguments fix: on the CPU, or on one kind of device.
  const auto says = [&](const char* name, std::string_view text) {
    const Arg* a = args.keyword(name);
    return a && is(a->value, V::string) && a->value->text == text;
  };
  const auto flag = [&](const char* name) {
    const Arg* a = args.keyword(name);
    return a && truth(a->value) == Truth::yes && !isAny(a->value, V::unknown) && !isAny(a->value, V::runtime);
  };
  if (flag("cpu") || flag("use_cpu") || flag("no_cuda") || says("accelerator", "cpu")) v->self = deviceValue("cpu", here(nullptr, "`" + call + "` is told to use the CPU"));
  return v;
}

Value Interp::libraryDevice(const Value& object) {
  if (object->self) return object->self;
  const std::string who = placer(object->text);
  return runtimeValue("<" + ownName(object->text, who) + ">", here(nullptr, "decided by " + who + " when the program runs"));
}

// `fabric: Fabric`: an object of a library that decides devices, or null.
Value Interp::annotated(const Node* annotation) {
  if (!annotation || dottedName(annotation).empty()) return nullptr;
  const Value type = eval(annotation);
  Args none_given;
  return is(type, V::external) && !placer(type->text + "()").empty() ? libraryObject(type->text + "()", none_given) : nullptr;
}

std::optional<Value> Interp::libraryAttribute(const std::string& name) {
  const auto dot = name.rfind('.');
  const std::string base = name.substr(0, dot), slot = name.substr(dot + 1);
  if (slot == "args" && base.ends_with("Trainer()") && placer(base) == "transformers") return external("transformers.TrainingArguments()");
  if (slot == "device" && !placer(base).empty()) return libraryDevice(external(base));
  return std::nullopt;
}

std::optional<Value> Interp::libraryMethod(const Value& object, const std::string& method, Args& args, const Node* n) {
  const std::string who = placer(object->text);
  if (who.empty() || who == "transformers") return std::nullopt;
  const Value device = libraryDevice(object);
  const auto placed = [&](const Value& v) {
    return map(v, [&](const Value& x) -> Value {
      if (x->kind == V::tensor) {
        auto t = makeVal(*x);
        t->device = device;
        t->made_by = nullptr;
        return t;
      }
      if (x->kind != V::instance) return x;
      if (isModule(x)) moveModule(x, device);
      const Value& cls = heap_.at(x->object).cls;
      if (is(cls, V::external) && cls->text == "torch.utils.data.DataLoader") {
        if (const Value e = heap_.get(x->object, "$element")) heap_.set(x->object, "$element", onDevice(e, device));
      }
      return x;
    });
  };
  if (method == "prepare" || method == "prepare_model" || method == "prepare_data_loader" || method == "setup" || method == "setup_module" ||
      method == "setup_dataloaders") {
    std::vector<Value> out;
    for (const auto& a : args.list) if (a.name.empty()) out.push_back(placed(a.value));
    note(n, who + " places what it is given, when the program runs");
    if (out.empty()) return unknown("`" + textOf(n, 40) + "` gets nothing that was followed");
    return out.size() == 1 ? out[0] : tuple(std::move(out));
  }
  if (method == "launch" && who == "Lightning" && args.at(0)) {   // launch(main, ...) calls main(fabric, ...)
    const Value function = args.at(0)->value;
    if (!isAny(function, V::function) && !isAny(function, V::bound)) return std::nullopt;
    Args handed = args;
    const auto first = std::find_if(handed.list.begin(), handed.list.end(), [](const Arg& a) { return a.name.empty(); });
    *first = {"", object, n};
    return call(function, handed, n);
  }
  if (method == "to_device") return args.at(0) ? placed(args.at(0)->value) : unknown("nothing is moved");
  if (method == "fit" && who == "Lightning") {
    note(n, "Lightning places the module and its batches when the program runs");
    if (const Arg* model = args.get(0, "model")) placed(model->value);
    return none();
  }
  return std::nullopt;
}

// A batch on another device: the tensors in tuples, lists and dicts.
Value Interp::onDevice(const Value& v, const Value& device) {
  return map(v, [&](const Value& x) -> Value {
    if (x->kind == V::tuple || x->kind == V::list) {
      auto t = makeVal(*x);
      for (auto& i : t->items) i = onDevice(i, device);
      return t;
    }
    if (x->kind != V::tensor) return x;
    auto t = makeVal(*x);
    t->device = device;
    t->made_by = nullptr;
    return t;
  });
}

namespace {

// How a process or thread gets its function: 0 = it is none of these.
enum class Starts : uint8_t { nothing, spawn, target };
Starts starts(std::string_view name) {
  if (name == "torch.multiprocessing.spawn" || name == "torch.multiprocessing.start_processes") return Starts::spawn;
  for (const char* n : {"multiprocessing.Process", "torch.multiprocessing.Process", "threading.Thread", "multiprocessing.get_context().Process",
                        "torch.multiprocessing.get_context().Process"})
    if (name == n) return Starts::target;
  return Starts::nothing;
}

}  // namespace

// The function that a process or thread runs gets what is handed over; mp.spawn() puts the process's number before it.
bool Interp::startsProcess(const std::string& name, const Args& args, const Node* n) {
  const Starts how = starts(name);
  if (how == Starts::nothing) return false;
  const Arg* function = how == Starts::spawn ? args.get(0, "fn") : args.get(1, "target");
  const Arg* given = how == Starts::spawn ? args.get(1, "args") : args.get(3, "args");
  if (!function || (!isAny(function->value, V::function) && !isAny(function->value, V::bound))) return false;
  Args handed;
  if (how == Starts::spawn) {
    auto rank = makeVal(*runtimeValue("<rank>", here(n, "number of the process, given by mp.spawn()")));
    rank->number = 1;
    handed.list.push_back({"", rank, n});
  }
  if (given) addStar(handed, given->value);
  if (const Arg* named = how == Starts::target ? args.get(4, "kwargs") : nullptr) addDoubleStar(handed, named->value);
  call(function->value, handed, n);
  return true;
}

// Where a device_map puts a model: a dict's values, one device, or a word that accelerate decides by.
Value Interp::mappedDevices(const Arg& given, const Node* n) {
  return map(given.value, [&](const Value& v) -> Value {
    if (v->kind == V::dict) {
      Value all;
      for (const auto& [k, x] : heap_.at(v->object).slots) if (x) all = join(all, asDevice(x, given.node));
      return all ? all : unknown("an empty device_map");
    }
    if (v->kind == V::string && !isDeviceString(v->text))
      return runtimeValue("<device_map=" + v->text + ">", here(n, "accelerate spreads the model when the program runs"));
    return asDevice(v, given.node ? given.node : n);
  });
}

std::optional<Value> Interp::callEcosystem(const std::string& name, Args& args, const Node* n) {
  const auto module = [&](const std::string& cls, const Value& device) {
    auto v = makeVal();
    v->kind = V::instance;
    v->object = heap_.make();
    heap_.at(v->object).cls = external(cls);
    if (device) heap_.set(v->object, "$device", device);
    return v;
  };
  if (name.ends_with(".from_pretrained")) {
    const Arg* d = args.keyword("device_map");
    if (!d || is(d->value, V::none)) {
      // Tokenizers and configurations have no parameters; `.to()` of what they give is another matter.
      for (const char* plain : {"Tokenizer", "TokenizerFast", "Config", "Processor", "FeatureExtractor"})
        if (name.ends_with(std::string(plain) + ".from_pretrained")) return unknown("`" + name + "()` holds no tensors");
      return module(name, nullptr);
    }
    const Value target = mappedDevices(*d, n);
    record(n, name, "placement", target, std::nullopt, "the checkpoint is not read");
    return module(name, target);
  }
  if (name == "transformers.pipeline") {
    const Arg* d = args.keyword("device");
    const Arg* map_argument = args.keyword("device_map");
    if (d && is(d->value, V::integer) && d->value->number < 0) record(n, name, "placement", deviceValue("cpu", here(n, "device=-1 is the CPU")), std::nullopt, "the checkpoint is not read");
    else if (d && !is(d->value, V::none)) record(n, name, "placement", asDevice(d->value, n), std::nullopt, "the checkpoint is not read");
    else if (map_argument && is(map_argument->value, V::string) && !isDeviceString(map_argument->value->text))
      record(n, name, "placement", runtimeValue("<device_map=" + map_argument->value->text + ">", here(n, "accelerate spreads the model when the program runs")),
             std::nullopt, "the checkpoint is not read");
    return unknown("`" + name + "()` is outside the workspace");
  }
  if (name.starts_with("torchvision.models.") || name == "timm.create_model") {
    bool decided = false;
    const Value by_default = defaultDevice(decided);
    return module(name, decided ? by_default : nullptr);
  }
  if (!placer(name + "()").empty()) {
    if (name.ends_with(".Trainer") && isLightning(name)) note(n, "Lightning places the module and its batches when the program runs");
    return libraryObject(name + "()", args);
  }
  if (const std::string_view f = std::string_view(name).substr(name.rfind('.') + 1);
      name.starts_with("accelerate.") && (f == "dispatch_model" || f == "load_checkpoint_and_dispatch" || f == "cpu_offload" || f == "disk_offload")) {
    const Arg* model = args.get(0, "model");
    if (!model || !is(model->value, V::instance)) return std::nullopt;
    const bool offloads = f == "cpu_offload" || f == "disk_offload";
    const Arg* given = args.keyword(offloads ? "execution_device" : "device_map");
    if (!given) given = args.at(offloads ? (f == "cpu_offload" ? 1 : 2) : (f == "dispatch_model" ? 1 : 2));
    const Value target = given && !is(given->value, V::none) ? mappedDevices(*given, n) : unknown("accelerate places the model when the program runs");
    record(n, name, "placement", target, std::nullopt, "accelerate moves the parts", false, model->value->object);
    moveModule(model->value, target);
    heap_.set(model->value->object, "$hooks", boolean(true));   // they bring the inputs along
    return model->value;
  }
  if (name == "os.environ.update") return none();
  return std::nullopt;
}

}  // namespace flagos::lsp

// loader-starved: the device waits for data. Without a process: a DataLoader without workers whose dataset reads files, and
// whose batches go to an accelerator. With one: the measured share of the time in which the device had work.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "lsp/findings/live.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

constexpr double kStarved = 50;   // percent of the last second with work

const Names kReading = {"open", "imread", "read_image", "load", "loadtxt", "read_csv", "read_parquet", "decode_image", "decode_jpeg", "imdecode", "read_video"};
const std::set<std::string> kFolders = {"ImageFolder", "DatasetFolder", "CocoDetection", "VOCDetection", "VOCSegmentation", "ImageNet", "Cityscapes"};

bool withoutWorkers(const Node* loader) {
  for (const Node* a : loader->list) if (a->kind == N::dstarred || a->kind == N::starred) return false;
  const Node* workers = keywordOf(loader, "num_workers");
  return !workers || (workers->kind == N::integer && workers->text == "0");
}

// What __getitem__ of this class does, or "".
std::string reads(const Node* cls) {
  std::string out;
  for (const Node* method : cls->list) {
    if (method->kind != N::def || (method->text != "__getitem__" && method->text != "__iter__")) continue;
    walk(method, [&](const Node* n) {
      if (n->kind != N::call || !n->a) return true;
      const std::string_view name = n->a->kind == N::name || n->a->kind == N::attribute ? n->a->text : std::string_view();
      if (kReading.count(name)) out = dottedName(n->a).empty() ? std::string(name) : dottedName(n->a);
      return out.empty();
    });
  }
  return out;
}

struct Loader { const SourceUnit* unit; std::string why; };

std::optional<Fix> workers(const SourceUnit& unit, const Node* loader) {
  if (const Node* given = keywordOf(loader, "num_workers")) return Fix{false, "Load in 4 worker processes", {{given->span(), "4"}}};
  if (const auto edit = addArgument(unit, loader, "num_workers=4")) return Fix{false, "Load in 4 worker processes", {*edit}};
  return std::nullopt;
}

}  // namespace

void listenLoaderStarved(Interp& interp) {
  auto loaders = std::make_shared<std::map<const Node*, Loader>>();
  interp.listen(static_cast<uint16_t>(E::call), [loaders](Interp& i, const CallEvent& e) {
    if (e.call == "torch.utils.data.DataLoader") {
      const Arg* data = e.args->get(0, "dataset");
      if (!data || e.node->kind != N::call || !withoutWorkers(e.node)) return;
      std::string why;
      if (is(data->value, V::instance)) {
        const Value cls = i.classOf(data->value);
        if (is(cls, V::class_) && cls->node) why = reads(cls->node);
      } else if (data->value && data->value->kind == V::unknown) {
        for (const auto& name : kFolders) if (data->value->text.find("." + name + "()`") != std::string::npos) why = name;
      }
      if (!why.empty()) (*loaders)[e.node] = {e.unit, why};
      return;
    }
    const Arg* target = e.args->keyword("$target");
    if (!target || !e.receiver || !e.receiver->loader) return;
    const auto it = loaders->find(e.receiver->loader);
    if (it == loaders->end()) return;
    for (const auto& p : placesOfDevice(target->value)) {
      if (!isAcceleratorName(p)) continue;
      Finding f = findingAt("loader-starved", it->first, p + " waits while `" + it->second.why + "` reads each item in the main process: num_workers is 0");
      f.related.push_back({e.unit->path, e.node->line, "the batches go to " + p + " here"});
      f.fix = workers(*it->second.unit, it->first);
      i.report(std::move(f), it->second.unit);
      return;
    }
  });
}

void measuredLoaderStarved(const Analysis& a, const LiveFile& live, const telemetry::ProcessRow& process, std::vector<Finding>& out) {
  if (!live.ran || live.process_state != "live" || !live.same_text) return;
  const telemetry::DeviceRow* busiest = nullptr;
  for (const auto& d : process.devices)
    if (d.utilisation.value && (!busiest || *d.utilisation.value > *busiest->utilisation.value)) busiest = &d;
  // An idle device is no starved one: the program may be at something else.
  if (!busiest || *busiest->utilisation.value <= 0 || *busiest->utilisation.value >= kStarved) return;
  const std::string name = nameFor(*a.unit, "torch.utils.data.DataLoader");
  if (name.empty()) return;
  for (const Node& n : a.unit->ast.nodes()) {
    if (n.kind != N::call || dottedName(n.a) != name || !withoutWorkers(&n)) continue;
    Finding f = findingAt("loader-starved", &n, busiest->device + " had work in " + std::to_string(std::lround(*busiest->utilisation.value)) +
                                                    " % of the last second (measured in process " + std::to_string(process.pid) +
                                                    "), and this DataLoader loads in the main process: num_workers is 0");
    f.fix = workers(*a.unit, &n);
    out.push_back(std::move(f));
  }
}

}  // namespace flagos::lsp

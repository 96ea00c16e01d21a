// predicted-oom: a line that needs more memory than the device has, or than it gives in one piece; and the line with which
// what one block of statements holds goes over. Only for devices of which the memory is known, and for sizes that follow
// from the source.
#include <map>
#include <set>

#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"
#include "runtime/base/metric.h"

namespace flagos::lsp {
namespace {

std::string sized(double bytes) {
  return formatBytes(bytes);   // as every other sentence about memory
}

std::string asked(const Site& s) {
  std::string how = s.bytes_how;
  if (s.assumed) how += std::string(how.empty() ? "" : "; ") + "with defaults that may be changed from outside";
  return "this needs " + sized(*s.bytes) + (how.empty() ? "" : " (" + how + ")");
}

bool counts(const Site& s) {
  return s.bytes && s.resolution == "exact" && !s.devices.empty() && (s.kind == "placement" || s.kind == "move") && s.node;
}

// Too much by itself, and why.
std::string alone(const Site& s, const std::string& name, const MachineDevice& device) {
  const double total = static_cast<double>(device.description.memory_bytes), one = static_cast<double>(device.description.max_alloc_bytes);
  const bool module = s.call.starts_with("Module.") || s.call.starts_with("torch.nn.");
  if (device.free_bytes && *s.bytes > *device.free_bytes) return name + " had " + sized(*device.free_bytes) + " free when it was read";
  if (total > 0 && *s.bytes > total) return name + " has " + sized(total) + " in all";
  if (one > 0 && !module && *s.bytes > one) return name + " gives at most " + sized(one) + " in one piece";
  return {};
}

bool deletedIn(const Node* n, std::string_view name) {
  bool found = false;
  walk(n, [&](const Node* c) {
    if (c->kind == N::delete_) for (const Node* d : c->list) found = found || dottedName(d) == name;
    return !found;
  });
  return found;
}

// What the names of one block of statements hold, statement by statement. Only what is certainly alive counts: the whole
// value of an assignment to a name, and a module moved in place; a name that is assigned again or deleted holds nothing
// more. Statements inside loops and branches count for nothing.
class Block {
 public:
  Block(Analysis& a, const AnalysisOptions& options) : a_(a), options_(options) {
    for (const Site& s : a.sites) if (counts(s)) sites_[s.node] = &s;
  }

  void run(const std::vector<Node*>& block) {
    std::map<std::string, const Site*> held;       // by the name that holds it
    std::set<std::string> over;                    // devices that were told already
    for (const Node* statement : block) {
      if (statement->kind == N::delete_) for (const Node* d : statement->list) held.erase(dottedName(d));
      // What happens in there to the names is not followed: nothing that it touches counts any more.
      if (statement->kind != N::assign && statement->kind != N::expr_stmt && statement->kind != N::def && statement->kind != N::class_)
        std::erase_if(held, [&](const auto& h) { return assignedIn(statement, h.first) || deletedIn(statement, h.first); });
      const Node* value = statement->kind == N::assign ? statement->b : statement->kind == N::expr_stmt ? statement->a : nullptr;
      std::string name;
      if (statement->kind == N::assign) {
        name = dottedName(statement->a);
        held.erase(name);
      }
      const auto it = value ? sites_.find(value) : sites_.end();
      if (it == sites_.end()) continue;
      const Site& s = *it->second;
      const bool module = s.call.starts_with("Module.");
      if (module && s.object == 0) continue;
      // A tensor that is there already is not copied.
      if (value->kind == N::call && value->a && value->a->kind == N::attribute)
        if (const auto from = held.find(dottedName(value->a->a)); from != held.end() && !module && from->second->devices[0].device == s.devices[0].device) continue;
      if (statement->kind == N::expr_stmt) {
        if (!module || value->kind != N::call || !value->a || value->a->kind != N::attribute) continue;
        name = dottedName(value->a->a);
      }
      if (name.empty()) continue;
      std::erase_if(held, [&](const auto& h) { return s.object != 0 && h.second->object == s.object; });
      held[name] = &s;
      tell(s, held, over);
    }
  }

 private:
  void tell(const Site& s, const std::map<std::string, const Site*>& held, std::set<std::string>& over) {
    const std::string& on = s.devices[0].device;
    const auto it = options_.machine.details.find(on);
    if (it == options_.machine.details.end() || over.count(on)) return;
    const MachineDevice& device = it->second;
    const double room = device.free_bytes ? *device.free_bytes : static_cast<double>(device.description.memory_bytes);
    if (room <= 0 || !alone(s, on, device).empty()) return;
    double sum = 0;
    Finding f;
    for (const auto& [name, other] : held) {
      if (other->devices[0].device != on || !alone(*other, on, device).empty()) continue;
      sum += *other->bytes;
      if (other != &s) f.related.push_back({a_.unit->path, other->line, "`" + name + "` holds " + sized(*other->bytes)});
    }
    if (sum <= room || f.related.empty()) return;
    over.insert(on);
    auto related = std::move(f.related);
    f = findingAt("predicted-oom", s.node, asked(s) + ", and with what the lines above hold it is " + sized(sum) + ": " + on + (device.free_bytes ? " had " : " has ") + sized(room) +
                                              (device.free_bytes ? " free when it was read" : " in all"));
    f.related = std::move(related);
    a_.findings.push_back(std::move(f));
  }

  Analysis& a_;
  const AnalysisOptions& options_;
  std::map<const Node*, const Site*> sites_;
};

}  // namespace

void findPredictedOom(Analysis& a, const AnalysisOptions& options) {
  if (options.machine.details.empty()) return;
  for (const Site& s : a.sites) {
    if (!counts(s)) continue;
    const auto it = options.machine.details.find(s.devices[0].device);
    if (it == options.machine.details.end()) continue;
    if (const std::string why = alone(s, it->first, it->second); !why.empty())
      a.findings.push_back(findingAt("predicted-oom", s.node, asked(s) + ", and " + why));
  }
  Block block(a, options);
  std::set<const Node*> around;
  for (const Site& s : a.sites)
    if (counts(s)) if (const Node* f = functionAround(s.node); f && f->kind != N::lambda && around.insert(f).second) block.run(f->list);
}

}  // namespace flagos::lsp

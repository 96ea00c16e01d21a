#include "lsp/predict/predict.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "runtime/kde/catalog/catalog.h"
#include "runtime/kde/cost.h"
#include "runtime/kde/facts.h"
#include "runtime/kde/query.h"
#include "runtime/kde/router.h"

namespace flagos::lsp {
namespace {

struct Priced { double seconds = -1, floor = -1, flops = 0, bytes = 0; std::string bound, kernel, why; };

// One router a device description, kept: compiling the rules takes longer than all its answers for a file.
kde::Router& routerFor(const std::string& device, const dal::DeviceDescription& d) {
  struct Kept { dal::DeviceDescription description; std::unique_ptr<kde::Router> router; };
  thread_local std::map<std::string, Kept> kept;
  Kept& k = kept[device];
  const bool same = k.router && k.description.name == d.name && k.description.bandwidth_bps == d.bandwidth_bps && k.description.flops_f32 == d.flops_f32 &&
                    k.description.launch_s == d.launch_s && k.description.copy_bps == d.copy_bps;
  if (!same) {
    kde::RouterOptions options;
    options.device = d;
    options.read_files = false;
    kde::switchesFromEnvironment(options);
    k = {d, kde::Router::create(std::move(options))};
  }
  return *k.router;
}

std::string shortName(const std::string& op) {
  const auto colon = op.rfind(':');
  const std::string name = op.substr(colon == std::string::npos ? 0 : colon + 1);
  return name.substr(0, name.find('.'));
}

Priced price(const OpCall& call, const std::string& device, const dal::DeviceDescription& d) {
  Priced out;
  for (const auto& o : call.operands)
    if (!o.absent && o.dtype == DType::other) { out.why = "the dtype of an operand of " + shortName(call.op) + " is not known"; return out; }
  const kde::Query query{call.op, call.shapes(), call.dtypes(), "", call.scalars};
  const auto signature = kde::signatureOf(query, 0);
  if (!signature) { out.why = signature.error().what; return out; }
  const kde::Route& route = routerFor(device, d).choose(*signature);
  if (route.chosen == kde::kNoCandidate) { out.why = "no kernel of " + device + " takes " + call.op; return out; }
  const kde::Cost cost = kde::predict(kde::candidate(route.chosen), kde::Facts::of(*signature, d), false);
  out.kernel = std::string(kde::candidateName(route.chosen));
  out.why = cost.why.empty() ? cost.why : shortName(call.op) + " by " + std::string(kde::candidateName(route.chosen)) + ": " + cost.why;
  if (!cost.known()) {
    // Memory traffic at the full bandwidth is a bound that no kernel beats.
    if (cost.work.bytes > 0 && d.bandwidth_bps > 0) out.floor = cost.work.bytes / d.bandwidth_bps;
    return out;
  }
  out.seconds = cost.seconds;
  out.bound = std::string(cost.bound);
  out.flops = std::max(0.0, cost.work.flops);
  out.bytes = std::max(0.0, cost.work.bytes);
  return out;
}

Priced priceCopy(double bytes, const dal::DeviceDescription& d) {
  Priced out;
  if (d.copy_bps <= 0) { out.why = "the copy rate between host and device is not known"; return out; }
  // However little it is, it must be asked for. No table has the latency of a copy; a launch is asked for in the same way.
  if (d.launch_s <= 0) { out.why = "the time to ask for a copy (a launch) is not known"; return out; }
  out.seconds = bytes / d.copy_bps + d.launch_s;
  out.bytes = bytes;
  out.bound = bytes / d.copy_bps >= d.launch_s ? "copy" : "launch";
  return out;
}

void needs(Analysis& a, const Machine& machine, Predicted& out) {
  std::map<std::string, DeviceNeed> by;
  std::set<std::pair<uint32_t, std::string>> moved;   // a module that is moved to a device twice is there once
  for (const auto& s : a.sites) {
    if (s.resolution != "exact" || (s.kind != "placement" && s.kind != "move") || s.devices[0].device == "meta") continue;
    DeviceNeed& n = by[s.devices[0].device];
    ++n.sites;
    if (s.object != 0 && !moved.emplace(s.object, s.devices[0].device).second) continue;
    n.assumed = n.assumed || (s.bytes && s.assumed);
    if (s.bytes) n.bytes += *s.bytes; else ++n.unknown;
    const bool module = s.call.starts_with("Module.") || s.call.starts_with("torch.nn.");
    if (s.bytes && !module) n.largest = std::max(n.largest, *s.bytes);
  }
  for (auto& [device, n] : by) {
    n.device = device;
    if (const auto it = machine.details.find(device); it != machine.details.end()) {
      n.name = it->second.description.name;
      n.free = it->second.free_bytes;
      n.rates = it->second.rates;
      n.piece = static_cast<double>(it->second.description.max_alloc_bytes);
      if (it->second.description.memory_bytes > 0) n.total = static_cast<double>(it->second.description.memory_bytes);
    }
    settleNeed(n);
    out.needs.push_back(n);
  }
}

}  // namespace

void predict(Analysis& a, const Machine& machine) {
  auto out = std::make_shared<Predicted>();
  needs(a, machine, *out);
  struct Sum { LinePrediction line; double slowest = -1; std::string names; };
  struct Function { FunctionPrediction sum; std::map<int, std::pair<double, std::string>> lines; std::map<int, double> slowest; };
  std::map<int, std::map<std::vector<int>, Sum>> lines;   // by the lines that lead here: each way is a run of its own
  std::map<uint32_t, std::map<std::vector<int>, Function>> functions;
  for (const auto& use : a.ops) {
    std::vector<int> way;
    for (size_t i = 0; i + 1 < use.inside.size(); ++i) way.push_back(use.inside[i].line);
    way.insert(way.end(), use.pass.begin(), use.pass.end());
    Sum& sum = lines[use.line][way];
    LinePrediction& l = sum.line;
    l.line = use.line;
    if (!use.device.empty()) l.device = l.device.empty() || l.device == use.device ? use.device : "several";
    const auto detail = machine.details.find(use.device);
    l.assumed = l.assumed || use.assumed;
    std::string missing = use.why;
    if (missing.empty() && detail == machine.details.end())
      missing = "of " + use.device + " only the name is known; --devices " + use.device + "=MODEL predicts for a model of the fingerprint table";
    std::vector<Priced> parts;
    if (missing.empty()) {
      l.rates = detail->second.description.rates_source;
      l.rates_note = detail->second.rates;
      for (const auto& c : use.calls) {
        parts.push_back(price(c, use.device, detail->second.description));
        const std::string name = shortName(c.op);
        if (("," + l.ops + ",").find(name) == std::string::npos) l.ops += (l.ops.empty() ? "" : ", ") + name;
      }
      if (use.copied > 0) { parts.push_back(priceCopy(use.copied, detail->second.description)); if (l.ops.find("copy") == std::string::npos) l.ops += l.ops.empty() ? "copy" : ", copy"; }
    }
    double seconds = 0;
    std::string bound;
    double slowest = -1;
    for (const auto& p : parts) {
      if (p.seconds < 0) {
        missing = p.why;
        if (p.floor > 0) l.at_least = l.at_least.value_or(0) + p.floor;
        continue;
      }
      seconds += p.seconds;
      ++l.calls;
      l.flops += p.flops;
      l.bytes += p.bytes;
      l.seconds = l.seconds.value_or(0) + p.seconds;
      if (p.seconds > slowest) { slowest = p.seconds; bound = p.bound; }
      if (p.seconds > sum.slowest) { sum.slowest = p.seconds; l.bound = p.bound; l.kernel = p.kernel; }
    }
    if (!missing.empty() && l.why_missing.empty()) l.why_missing = missing;
    std::vector<int> callers;
    for (const auto& f : use.inside) {
      Function& fn = functions[f.function][callers];
      callers.push_back(f.line);
      fn.sum.name = f.name;
      fn.sum.first_line = f.first_line;
      if (missing.empty()) ++fn.sum.calls; else ++fn.sum.unknown;
      fn.sum.seconds += seconds * f.times;
      fn.sum.open = fn.sum.open || f.open;
      auto& [line_seconds, line_bound] = fn.lines[f.line];
      line_seconds += seconds * f.times;
      if (slowest > fn.slowest[f.line]) { fn.slowest[f.line] = slowest; line_bound = bound; }
    }
  }
  for (auto& [line, ways] : lines) {
    LinePrediction* slowest = nullptr;
    std::optional<double> least;
    std::string missing;
    for (auto& [way, sum] : ways) {
      if (missing.empty()) missing = sum.line.why_missing;
      const auto rank = [](const LinePrediction& l) { return std::pair{l.seconds.value_or(-1), l.at_least.value_or(-1)}; };
      if (!slowest || rank(sum.line) > rank(*slowest)) slowest = &sum.line;
      if (sum.line.seconds) least = std::min(least.value_or(*sum.line.seconds), *sum.line.seconds);
    }
    if (slowest->seconds && *least < *slowest->seconds * 0.99) slowest->least = least;
    if (slowest->why_missing.empty()) slowest->why_missing = missing;
    for (auto& [way, sum] : ways) {
      slowest->assumed = slowest->assumed || sum.line.assumed;
      if (sum.line.device != slowest->device && !sum.line.device.empty()) slowest->device = slowest->device.empty() ? sum.line.device : "several";
    }
    out->lines.push_back(std::move(*slowest));
  }
  for (auto& [at, ways] : functions) {
    // One run of it: the slowest of the calls that lead here.
    const auto slowest = std::max_element(ways.begin(), ways.end(), [](const auto& x, const auto& y) {
      return std::pair{x.second.sum.seconds, x.second.sum.calls} < std::pair{y.second.sum.seconds, y.second.sum.calls};
    });
    Function& f = slowest->second;
    for (const auto& [line, part] : f.lines) {
      if (f.sum.bottleneck_line != 0 && part.first <= f.lines[f.sum.bottleneck_line].first) continue;
      f.sum.bottleneck_line = line;
      f.sum.bound = part.second;
    }
    if (f.sum.seconds > 0) f.sum.bottleneck_share = f.lines[f.sum.bottleneck_line].first / f.sum.seconds;
    else f.sum.bottleneck_line = 0;
    out->functions.push_back(std::move(f.sum));
  }
  a.predicted = std::move(out);
}

}  // namespace flagos::lsp

#include <algorithm>

#include "lsp/features/phrases.h"
#include "lsp/features/snapshot.h"
#include "runtime/base/bytes.h"

namespace flagos::lsp {
namespace {

TreeNode leaf(std::string label, std::string description = {}, std::string tooltip = {}) {
  TreeNode n;
  n.label = std::move(label);
  n.description = std::move(description);
  n.tooltip = std::move(tooltip);
  return n;
}

std::vector<TreeNode> nothing(const Snapshot& s) {
  if (s.view && !s.view->problem.empty()) return {leaf("Live values cannot be read", s.view->problem)};
  return {leaf("No process attached", "start a program on this device")};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const auto& l : lines) out += (out.empty() ? "" : "\n\n") + l;
  return out;
}

std::vector<TreeNode> deviceNodes(const Snapshot& s) {
  std::vector<TreeNode> out;
  if (s.process) {
    for (const auto& d : s.process->devices) {
      TreeNode n = leaf(d.device, d.name);
      n.children = {leaf("allocated by pid " + std::to_string(s.process->pid), format(d.allocated)), leaf("peak", format(d.allocated_peak)),
                    leaf("total", format(d.total)), leaf("queues busy in the last second", format(d.utilisation))};
      out.push_back(std::move(n));
    }
  } else if (s.machine) {
    for (const auto& d : s.machine->devices) out.push_back(leaf(d, "no process attached"));
  }
  if (out.empty()) out.push_back(leaf("No device", "`flagos devices --why` says why"));
  return out;
}

std::vector<TreeNode> lineNodes(const Snapshot& s) {
  if (!s.live || !s.analysis) return nothing(s);
  std::vector<TreeNode> out;
  const auto add = [&](const LiveSite& l, Span span, const std::string& text) {
    if (l.state == "not-executed") return;
    const auto lines = liveLines(l);
    TreeNode n = leaf((l.line > 0 ? std::to_string(l.line) : std::string("–")) + ": " + text, l.state + "  " + format(l.live_bytes) + (l.share >= 0 ? "  " + percent(l.share) : ""), joined(lines));
    n.path = s.analysis->unit->path;
    n.span = span;
    n.unit = l.line > 0 ? s.analysis->unit.get() : nullptr;
    n.line = l.line;
    for (const auto& r : l.routes) n.children.push_back(leaf(r.op, r.kernel, routeLine(r)));
    for (const auto& r : l.backward_routes) n.children.push_back(leaf("backward: " + r.op, r.kernel, routeLine(r)));
    out.push_back(std::move(n));
  };
  for (size_t i = 0; i < s.live->sites.size(); ++i) add(s.live->sites[i], s.analysis->sites[i].span, shortText(s.analysis->unit->text, s.analysis->sites[i].node, 40));
  for (const auto& m : s.live->also) add(m.live, m.span, m.text);
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
  for (const auto& g : s.live->gone) add(g, {}, "gone, was line " + std::to_string(g.measured_line));
  if (out.empty()) out.push_back(leaf("Nothing of this file was executed yet"));
  return out;
}

}  // namespace

std::vector<TreeNode> tree(const Snapshot& s, std::string_view view) {
  if (view == "devices") return deviceNodes(s);
  if (view == "lines") return lineNodes(s);
  if (view == "findings") {
    std::vector<TreeNode> out;
    if (s.analysis) {
      for (const auto& f : s.analysis->findings) {
        TreeNode n = leaf(f.code, f.message, f.message);
        n.path = s.analysis->unit->path;
        n.span = f.span;
        n.unit = s.analysis->unit.get();
        out.push_back(std::move(n));
      }
    }
    if (out.empty()) out.push_back(leaf("No findings"));
    return out;
  }
  if (!s.process) return nothing(s);
  std::vector<TreeNode> out;
  if (view == "routes") {
    struct Sum { uint64_t calls = 0; double seconds = 0; const telemetry::RouteRow* row = nullptr; };
    std::vector<std::pair<std::string, Sum>> sums;
    for (const auto& r : s.process->routes) {
      const std::string key = r.op + " → " + r.kernel;
      auto it = std::find_if(sums.begin(), sums.end(), [&](const auto& x) { return x.first == key; });
      if (it == sums.end()) it = sums.insert(sums.end(), {key, {}});
      it->second.calls += r.calls;
      it->second.seconds += r.device_time.value.value_or(0);
      it->second.row = &r;
    }
    std::stable_sort(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    for (const auto& [key, sum] : sums) out.push_back(leaf(key, counted(sum.calls, "call") + "  " + formatSeconds(sum.seconds), sum.row->reason));
  } else if (view == "fallbacks") {
    for (const auto& f : s.process->fallbacks)
      out.push_back(leaf(f.op, counted(f.calls, "call") + "  " + formatBytes(static_cast<double>(f.bytes)) + " copied"));
    if (out.empty()) out.push_back(leaf("No fallback in pid " + std::to_string(s.process->pid)));
  }
  if (out.empty()) out.push_back(leaf("Nothing yet"));
  return out;
}

}  // namespace flagos::lsp

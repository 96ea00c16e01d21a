// The status line: "npu:0  1.2/8.0 GiB  63 %".
#include <cmath>
#include <cstdio>

#include "lsp/features/snapshot.h"
#include "runtime/base/bytes.h"

namespace flagos::lsp {
namespace {

std::string gib(const Metric& m) {
  if (!m.value) return "–";
  char b[32];
  std::snprintf(b, sizeof b, "%.1f", *m.value / (1024.0 * 1024.0 * 1024.0));
  return b;
}

std::string line(const telemetry::DeviceRow& d) {
  char use[16] = "–";
  if (d.utilisation.value) std::snprintf(use, sizeof use, "%.0f", *d.utilisation.value);
  return d.device + "  " + gib(d.allocated) + "/" + gib(d.total) + " GiB  " + use + " %";
}

}  // namespace

Status status(const Machine& machine, const LiveView& view, const RanAs& front, int pinned) {
  Status out;
  auto p = processFor(view, front, pinned);
  if (!p) {  // no open file was executed by one of them: the newest live process is still worth showing
    for (const auto& q : view.processes) if (q->state == "live") { p = q; break; }
  }
  std::string others;
  for (const auto& q : view.processes)
    if (q != p && q->state == "live") others += "\n- " + rankName(q->pid, view.ranks) + " " + q->script;
  const telemetry::DeviceRow* device = nullptr;
  if (p) {
    for (const auto& d : p->devices)
      if (!device || d.allocated.value.value_or(-1) > device->allocated.value.value_or(-1)) device = &d;
  }
  if (p && p->state == "live") {
    out.state = "attached";
    out.text = device ? line(*device) : "attached to " + std::to_string(p->pid) + ", no device used yet";
    out.tooltip = "attached to pid " + std::to_string(p->pid) + " `" + p->script + "`\n";
    for (const auto& d : p->devices) {
      out.tooltip += "\n- " + d.device + " " + d.name + ": allocated by this process " + format(d.allocated) + " of " + format(d.total) +
                     ", queues busy in the last second: " + format(d.utilisation);
    }
    if (!others.empty()) out.tooltip += "\n\nother processes:" + others;
    uint64_t fallbacks = 0;
    for (const auto& f : p->fallbacks) fallbacks += f.calls;
    if (fallbacks) { out.severity = 1; out.tooltip += "\n\n" + counted(fallbacks, "call") + " fell back to the CPU"; }
    return out;
  }
  if (p) {
    out.state = "ended";
    out.text = (device ? device->device + "  " : std::string()) + "ended";
    out.tooltip = "pid " + std::to_string(p->pid) + " `" + p->script + "` ended; values on the lines are those last seen";
    return out;
  }
  std::string problem = view.problem.empty() ? "" : "\n\n" + view.problem;
  if (machine.devices.empty()) {
    out.state = "no-device";
    out.text = "no device";
    out.tooltip = "no usable device was found; `flagos devices --why` says what each probe looked for" + problem;
    out.severity = 1;
    return out;
  }
  out.state = "idle";
  out.text = machine.devices[0] + "  idle";
  out.tooltip = "no process attached" + problem;
  return out;
}

}  // namespace flagos::lsp

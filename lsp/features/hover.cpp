#include "lsp/features/phrases.h"
#include "lsp/features/snapshot.h"
#include "lsp/predict/predict.h"
#include "runtime/base/clock.h"

namespace flagos::lsp {
namespace {

void block(std::string& out, const std::string& line) { out += (out.empty() ? "" : "\n\n") + line; }
void item(std::string& out, const std::string& line) { out += "\n- " + line; }

void live(std::string& out, const Snapshot& s, const LiveSite* site) {
  if (!s.live) {
    if (s.view && !s.view->problem.empty()) { block(out, "live values: " + s.view->problem); return; }
    std::string others;
    if (s.view)
      for (const auto& p : s.view->processes)
        if (p->state == "live") others += (others.empty() ? "" : ", ") + std::string("pid ") + std::to_string(p->pid) + " `" + p->script + "`";
    block(out, "no process attached" + (others.empty() ? "" : ": none of the running ones has executed this file (" + others + ")"));
    return;
  }
  if (!site) return;
  const auto lines = liveLines(*site);
  block(out, "**" + lines[0] + "**");
  out += "\n";
  for (size_t i = 1; i < lines.size(); ++i) item(out, lines[i]);
  if (!s.live->same_text && lines[0].find("old code") == std::string::npos) block(out, "file changed since the run; the process runs the old code");
}

// What the device has for it.
std::string memoryText(const Snapshot& s, const Site& site) {
  if (!site.bytes || !s.machine || site.resolution != "exact" || (site.kind != "placement" && site.kind != "move")) return {};
  const std::string& device = site.devices[0].device;
  const auto it = s.machine->details.find(device);
  if (it == s.machine->details.end()) return {};
  const MachineDevice& d = it->second;
  if (d.free_bytes) return device + " had " + formatBytes(*d.free_bytes) + " free (" + d.free_source + ", read " + agoText(wallSeconds() - d.free_read_at) + ")";
  const auto total = static_cast<double>(d.description.memory_bytes);
  if (!d.why_no_free.empty()) return "free memory of " + device + " not reported by the driver (" + d.why_no_free + ")" + (total > 0 ? "; it has " + formatBytes(total) + " in all" : "");
  return total > 0 ? device + " has " + formatBytes(total) + " (table)" : std::string();
}

std::string errorOf(const Snapshot& s, const LinePrediction& line) {
  const auto run = s.live ? measuredRun(line, *s.live) : std::nullopt;
  return run ? errorText(line, *run) : std::string();
}

// On a call that is no device site, and on the name of a function: what is predicted for it.
void prediction(std::string& out, Span& span, const Snapshot& s, uint32_t offset) {
  const OpUse* use = nullptr;
  for (const auto& u : s.analysis->ops)
    if (u.span.contains(offset) && (!use || u.span.end - u.span.begin <= use->span.end - use->span.begin)) use = &u;
  if (use) {
    if (out.empty()) span = use->span;
    if (const auto* l = s.analysis->predicted->at(use->line)) {
      block(out, lineText(*l));
      if (const auto e = errorOf(s, *l); !e.empty()) block(out, e);
      if (l->seconds && !l->rates_note.empty()) block(out, ratesText(l->device, l->rates_note));
    }
    return;
  }
  const int line = s.analysis->unit->lines.lineOf(offset) + 1;
  for (const auto& f : s.analysis->predicted->functions) {
    if (f.first_line != line || !f.calls) continue;
    block(out, functionLine(*s.analysis, s.live, f) + "\n\nAssumed: " + kAssumptions);
    return;
  }
}

}  // namespace

std::optional<HoverText> hover(const Snapshot& s, uint32_t offset) {
  const Site* site = nullptr;
  size_t index = 0;
  for (size_t i = 0; i < s.analysis->sites.size(); ++i) {
    const auto& c = s.analysis->sites[i];
    if (!c.span.contains(offset)) continue;
    if (!site || c.span.end - c.span.begin <= site->span.end - site->span.begin) { site = &c; index = i; }
  }
  const LiveMeasured* measured = nullptr;
  if (s.live) {
    for (const auto& m : s.live->also) {
      if (!m.span.contains(offset)) continue;
      if (!measured || m.span.end - m.span.begin <= measured->span.end - measured->span.begin) measured = &m;
    }
  }
  std::string out;
  Span span{offset, offset};
  bool predictedHere = false;
  // The innermost of both is meant.
  if (site && measured && measured->span.end - measured->span.begin < site->span.end - site->span.begin) site = nullptr;
  if (site) {
    span = site->span;
    block(out, "**" + devicesText(*site) + "** — `" + site->call + "` (" + site->kind + ")\n");
    for (const auto& l : originLines(*site)) item(out, l);
    if (const auto b = bytesText(*site); !b.empty()) item(out, b);
    if (const auto m = memoryText(s, *site); !m.empty()) item(out, m);
    const LinePrediction* line = s.analysis->predicted ? s.analysis->predicted->at(site->line) : nullptr;
    if (line) {
      item(out, lineText(*line));
      if (line->seconds && !line->rates_note.empty()) item(out, ratesText(line->device, line->rates_note));
      if (const auto e = errorOf(s, *line); !e.empty()) item(out, e);
    }
    live(out, s, s.live ? &s.live->sites[index] : nullptr);
    predictedHere = line != nullptr;
  } else if (measured) {
    span = measured->span;
    block(out, "`" + measured->text + "`");
    live(out, s, &measured->live);
  }
  for (const auto& n : s.analysis->notes) {
    if (!n.span.contains(offset) || (site && n.span.end - n.span.begin > site->span.end - site->span.begin)) continue;
    if (out.empty()) span = n.span;
    block(out, n.text);
  }
  for (const auto& f : s.analysis->findings) {
    if (!f.span.contains(offset)) continue;
    if (out.empty()) span = f.span;
    block(out, "**" + f.code + "**: " + f.message);
  }
  if (s.analysis->predicted && !predictedHere) prediction(out, span, s, offset);
  if (out.empty()) return std::nullopt;
  return HoverText{out, span};
}

}  // namespace flagos::lsp

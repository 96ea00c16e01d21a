// Predictions in `--check`: for people and as JSON.
#include <algorithm>
#include <map>

#include "lsp/check/report.h"
#include "lsp/features/phrases.h"

namespace flagos::lsp {
namespace {

Json orNull(const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); }

Json lineJson(const LinePrediction& l) {
  Json j = {{"line", l.line}, {"device", orNull(l.device)}, {"ops", orNull(l.ops)}, {"kernel", orNull(l.kernel)}, {"bound", orNull(l.bound)},
            {"flops", l.flops}, {"bytes", l.bytes}, {"rates", orNull(l.rates)}, {"rates_note", orNull(l.rates_note)}, {"incomplete", l.seconds ? orNull(l.why_missing) : Json(nullptr)}};
  j["assumed"] = l.assumed;
  j["seconds"] = l.seconds ? toJson(Metric::of(*l.seconds, "s", "predicted", std::nullopt)) : toJson(Metric::missing("s", l.why_missing));
  j["seconds_least"] = l.least ? toJson(Metric::of(*l.least, "s", "predicted", std::nullopt)) : Json(nullptr);
  j["at_least"] = l.at_least ? toJson(Metric::of(*l.at_least, "s", "predicted", std::nullopt)) : Json(nullptr);
  return j;
}

// Summed over files; free and total are the device's.
std::vector<DeviceNeed> total(const std::vector<FileReport>& files) {
  std::map<std::string, DeviceNeed> by;
  for (const auto& f : files) {
    if (!f.analysis.predicted) continue;
    for (const auto& n : f.analysis.predicted->needs) {
      auto [it, added] = by.try_emplace(n.device, n);
      if (added) continue;
      it->second.bytes += n.bytes;
      it->second.sites += n.sites;
      it->second.unknown += n.unknown;
      it->second.largest = std::max(it->second.largest, n.largest);
      it->second.assumed = it->second.assumed || n.assumed;
    }
  }
  std::vector<DeviceNeed> out;
  for (auto& [device, n] : by) {
    settleNeed(n);
    out.push_back(n);
  }
  return out;
}

}  // namespace

Json predictedJson(const Predicted& p) {
  Json lines = Json::array(), functions = Json::array();
  for (const auto& l : p.lines) lines.push_back(lineJson(l));
  for (const auto& f : p.functions) {
    functions.push_back({{"name", f.name}, {"line", f.first_line},
                         {"seconds", f.calls ? toJson(Metric::of(f.seconds, "s", "predicted", std::nullopt)) : toJson(Metric::missing("s", "no call in it has known sizes and a described device"))},
                         {"calls", f.calls}, {"unknown_calls", f.unknown}, {"open_loops", f.open},
                         {"bottleneck", f.bottleneck_line ? Json({{"line", f.bottleneck_line}, {"share", f.bottleneck_share}, {"bound", orNull(f.bound)}, {"of_known_only", f.unknown > 0}}) : Json(nullptr)}});
  }
  return {{"lines", lines}, {"functions", functions}, {"assumptions", kAssumptions}};
}

Json memoryJson(const std::vector<FileReport>& files) {
  Json out = Json::array();
  for (const auto& n : total(files)) {
    const auto size = [](const std::optional<double>& v, const char* source, const char* why) {
      return v ? toJson(Metric::of(*v, "B", source, std::nullopt)) : toJson(Metric::missing("B", why));
    };
    out.push_back({{"device", n.device}, {"model", orNull(n.name)}, {"needs", toJson(Metric::of(n.bytes, "B", "predicted", std::nullopt))},
                   {"sites", n.sites}, {"sites_without_size", n.unknown}, {"assumed", n.assumed}, {"free", size(n.free, "driver", "no such device is attached")},
                   {"total", size(n.total, "table", "only the device's name is known")}, {"fits", n.fits ? Json(*n.fits) : Json(nullptr)}, {"why", needText(n)}});
  }
  return out;
}

std::string memoryText(const std::vector<FileReport>& files) {
  std::string out;
  for (const auto& n : total(files)) out += needText(n) + "\n" + (n.rates.empty() ? "" : ratesText(n.device, n.rates) + "\n");
  return out;
}

std::string functionsText(const FileReport& f) {
  std::string out;
  if (!f.analysis.predicted) return out;
  for (const auto& fn : f.analysis.predicted->functions) {
    if (!fn.calls || fn.seconds <= 0) continue;
    out += f.path + ":" + std::to_string(fn.first_line) + ": " + functionLine(f.analysis, f.live ? &*f.live : nullptr, fn) + "\n";
  }
  return out;
}

}  // namespace flagos::lsp

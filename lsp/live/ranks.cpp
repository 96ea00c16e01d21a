#include "lsp/live/ranks.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "lsp/live/join.h"
#include "runtime/base/json.h"

namespace flagos::lsp {
namespace {

constexpr size_t kMaxProc = 1u << 20;

// NAME=value entries of /proc/<pid>/environ.
std::string variable(const std::string& environ, std::string_view name) {
  size_t at = 0;
  while (at < environ.size()) {
    const size_t end = std::min(environ.find('\0', at), environ.size());
    const std::string_view entry = std::string_view(environ).substr(at, end - at);
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') return std::string(entry.substr(name.size() + 1));
    at = end + 1;
  }
  return {};
}

std::string parentOf(const std::string& status) {
  const auto at = status.find("PPid:");
  if (at == std::string::npos) return {};
  const auto begin = status.find_first_of("0123456789", at);
  return begin == std::string::npos ? std::string() : status.substr(begin, status.find('\n', begin) - begin);
}

std::optional<Spread> spreadOf(const std::vector<std::pair<std::string, double>>& values) {
  if (values.size() < 2) return std::nullopt;
  Spread s;
  s.of = values.size();
  s.most = s.least = values[0].second;
  s.most_on = s.least_on = values[0].first;
  for (const auto& [name, v] : values) {
    if (v > s.most) { s.most = v; s.most_on = name; }
    if (v < s.least) { s.least = v; s.least_on = name; }
  }
  return s;
}

}  // namespace

Rank rankOf(int pid, const std::string& root) {
  Rank out;
  const std::string folder = root + "/proc/" + std::to_string(pid);
  const auto environ = readFile(folder + "/environ", kMaxProc);
  if (environ) {
    const std::string rank = variable(*environ, "RANK"), world = variable(*environ, "WORLD_SIZE");
    int number = -1, size = 0;
    std::from_chars(rank.data(), rank.data() + rank.size(), number);
    std::from_chars(world.data(), world.data() + world.size(), size);
    if (number >= 0 && size > 1) {
      out.rank = number;
      std::string run = variable(*environ, "TORCHELASTIC_RUN_ID");
      if (run.empty() || run == "none") run = variable(*environ, "MASTER_ADDR") + ":" + variable(*environ, "MASTER_PORT");
      out.job = "run " + run;
      return out;
    }
  }
  // Children of torch.multiprocessing: the same parent, started by it and not by a shell.
  const auto line = readFile(folder + "/cmdline", kMaxProc), status = readFile(folder + "/status", kMaxProc);
  if (!line || !status) return out;
  const std::string parent = parentOf(*status);
  if (parent.empty() || parent == "0" || parent == "1") return out;
  const auto parents = readFile(root + "/proc/" + parent + "/cmdline", kMaxProc);
  const bool spawned = line->find("--multiprocessing-fork") != std::string::npos;
  if (spawned || (parents && *parents == *line)) out.job = "child of " + parent;
  return out;
}

std::string rankName(int pid, const std::map<int, Rank>& ranks) {
  const auto it = ranks.find(pid);
  const std::string process = "pid " + std::to_string(pid);
  return it == ranks.end() || it->second.rank < 0 ? process : "rank " + std::to_string(it->second.rank) + " (" + process + ")";
}

void addSpread(LiveFile& into, const std::vector<RankValues>& all) {
  if (all.size() < 2) return;
  const auto fill = [&](LiveSite& site, const std::function<const LiveSite*(const LiveFile&)>& same) {
    std::vector<std::pair<std::string, double>> live, peak, time;
    for (const auto& r : all) {
      const LiveSite* s = same(*r.values);
      if (!s || s->state == "not-executed") continue;
      if (s->live_bytes.value) live.emplace_back(r.name, *s->live_bytes.value);
      if (s->peak_bytes.value) peak.emplace_back(r.name, *s->peak_bytes.value);
      if (s->device_time.value) time.emplace_back(r.name, *s->device_time.value);
    }
    site.live_spread = spreadOf(live);
    site.peak_spread = spreadOf(peak);
    site.time_spread = spreadOf(time);
  };
  for (size_t i = 0; i < into.sites.size(); ++i)
    fill(into.sites[i], [i](const LiveFile& f) { return i < f.sites.size() ? &f.sites[i] : nullptr; });
  for (auto& m : into.also) {
    fill(m.live, [&](const LiveFile& f) -> const LiveSite* {
      for (const auto& other : f.also) if (other.span == m.span) return &other.live;
      return nullptr;
    });
  }
}

}  // namespace flagos::lsp

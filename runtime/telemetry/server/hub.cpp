#include "runtime/telemetry/server/hub.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/telemetry/json_writer.h"

namespace flagos::telemetry {
namespace {
constexpr uint64_t kShareNs = 2'000'000;
constexpr uint64_t kWindowNs = 1'000'000'000;   // utilisation is the share of the last second
constexpr uint64_t kShortestNs = 200'000'000;
constexpr size_t kMaxEvents = 1024;
}  // namespace

const Sample& Hub::sample() {
  const uint64_t now = nowNs();
  if (sampled_ns_ && now >= sampled_ns_ && now - sampled_ns_ < kShareNs) return sample_;
  std::vector<DeviceRow> devices;
  try {
    const Json rows = hooks_.devices ? hooks_.devices() : Json();
    if (rows.is_array())
      for (const Json& r : rows) devices.push_back(deviceFromJson(r));
  } catch (const std::exception&) {
    devices.clear();                   // no device facts in this sample; the program goes on
  }
  sample_ = takeSample(std::move(devices));
  sampled_ns_ = now;
  fillUtilisation(sample_);
  // An operator that falls back to the CPU for the first time on a line is an event, not only a count.
  const auto& falls = sample_.counters.fallbacks;
  for (; known_fallbacks_ < falls.size(); ++known_fallbacks_) {
    std::string members;
    JsonWriter w(members);
    w.key("op").text(nameText(falls[known_fallbacks_].op)).key("site").number(falls[known_fallbacks_].site);
    publish({sample_.counters.t_ns, "fallback", std::move(members)});
  }
  return sample_;
}

void Hub::fillUtilisation(Sample& s) {
  if (!timingWanted()) {
    history_.clear();
    for (DeviceRow& d : s.devices)
      if (!d.utilisation.value) d.utilisation = Metric::missing("%", "no viewer has asked for timings yet");
    return;
  }
  const uint64_t now = s.counters.t_ns;
  // Keep one entry that is a full window old, and those after it.
  while (history_.size() > 1 && now - history_[1].t_ns >= kWindowNs) history_.pop_front();
  for (size_t i = 0; i < s.devices.size(); ++i) {
    DeviceRow& d = s.devices[i];
    if (d.utilisation.value) continue;
    const auto colon = d.device.rfind(':');
    const size_t index = colon == std::string::npos ? i : static_cast<size_t>(std::atoi(d.device.c_str() + colon + 1));
    if (history_.empty() || now - history_.front().t_ns < kShortestNs) {
      d.utilisation = Metric::missing("%", "timings began less than 0.2 s ago");
      continue;
    }
    const auto at = [&](const std::vector<uint64_t>& v) { return index < v.size() ? v[index] : 0; };
    const double busy = static_cast<double>(at(s.counters.device_busy_ns) - std::min(at(history_.front().ns), at(s.counters.device_busy_ns)));
    const double share = 100.0 * busy / static_cast<double>(now - history_.front().t_ns);
    d.utilisation = Metric::of(std::min(share, 100.0), "%", "measured");
  }
  history_.push_back({now, s.counters.device_busy_ns});
}

const std::function<Result<Json>(const Json&)>* Hub::method(const std::string& name) const {
  const auto it = hooks_.methods.find(name);
  return it == hooks_.methods.end() || !it->second ? nullptr : &it->second;
}

std::vector<std::string> Hub::features() const {
  std::vector<std::string> all = {"subscribe", "unsubscribe", "snapshot"};
  for (const auto& [name, call] : hooks_.methods)
    if (call) all.push_back(name);
  return all;
}

void Hub::wantTiming(bool more) {
  timing_wanted_ += more ? 1 : -1;
  if (timing_wanted_ != (more ? 1 : 0)) return;
  setTimingWanted(more);
  if (hooks_.timing) hooks_.timing(more);
  sampled_ns_ = 0;
}

std::string Hub::snapshotMembers(const Selection& want) {
  const Sample& s = sample();
  std::string out = "\"t_ns\":" + std::to_string(s.counters.t_ns) + ",\"version\":1,";
  appendMembers(out, processRow(s, identity_, want));
  return out;
}

void Hub::publish(Event event) {
  std::lock_guard lock(mutex_);
  if (events_.size() >= kMaxEvents) { ++dropped_; return; }
  events_.push_back(std::move(event));
}
std::deque<Hub::Event> Hub::takeEvents(uint64_t& dropped) {
  std::lock_guard lock(mutex_);
  dropped = std::exchange(dropped_, 0);
  return std::exchange(events_, {});
}

}  // namespace flagos::telemetry

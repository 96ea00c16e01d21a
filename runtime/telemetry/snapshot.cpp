#include "runtime/telemetry/snapshot.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/base/settings.h"
#include "runtime/telemetry/json_writer.h"

namespace flagos::telemetry {
namespace {


Metric bytes(uint64_t v) { return Metric::of(static_cast<double>(v), "B", "measured"); }
Metric deviceTime(uint64_t ns, uint64_t launches) {
  if (launches == 0) return Metric::missing("s", "no kernel of it was timed: timings run while a viewer is attached");
  if (ns == 0) return Metric::missing("s", "only first launches were timed so far, in which the driver may have compiled");
  return Metric::of(static_cast<double>(ns) / 1e9, "s", "measured");
}
const char* copyKind(CopyKind k) {
  switch (k) {
    case CopyKind::host_to_device: return "host_to_device";
    case CopyKind::device_to_host: return "device_to_host";
    case CopyKind::device_to_device: return "device_to_device";
  }
  return "unknown";
}

}  // namespace

std::string hex16(uint64_t v) {
  char buf[17];
  std::snprintf(buf, sizeof buf, "%016llx", static_cast<unsigned long long>(v));
  return buf;
}

std::string deviceName(uint32_t index) {
  static const std::string name = setting("FLAGOS_DEVICE_NAME").value_or("npu");
  return name + ":" + std::to_string(index);
}

SiteRow siteRow(const SiteCounters& c) {
  SiteRow r;
  r.id = c.site;
  if (const Site* s = site(c.site)) {
    r.file = s->file, r.qualname = s->qualname;
    r.line = s->line, r.end_line = s->end_line, r.column = s->column, r.end_column = s->end_column;
    if (s->call_hash) r.call_hash = hex16(s->call_hash);
    r.backward_of = s->backward_of;
  }
  r.device = deviceName(c.device);
  r.live_bytes = bytes(c.live_bytes);
  r.peak_bytes = bytes(c.peak_bytes);
  r.device_time = deviceTime(c.device_ns, c.launches);
  r.calls = c.calls, r.allocations = c.allocations, r.timed_calls = c.timed_calls;
  return r;
}

RouteRow routeRow(const RouteCounters& c) {
  RouteRow r;
  r.op = nameText(c.op), r.kernel = nameText(c.kernel), r.reason = nameText(c.reason), r.bound = nameText(c.bound);
  r.calls = c.calls, r.timed_calls = c.timed_calls;
  r.device_time = deviceTime(c.device_ns, c.launches);
  r.predicted = c.predicted_s < 0 ? Metric::missing("s", "the cost model has no figure for this call")
                                  : Metric::of(c.predicted_s, "s", "predicted", std::nullopt);
  r.route = c.route, r.site = c.site;
  r.device = deviceName(c.device);
  return r;
}
FallbackRow fallbackRow(const FallbackCounters& c) { return {std::string(nameText(c.op)), c.calls, c.bytes, c.site}; }
CopyRow copyRow(const CopyCounters& c) { return {copyKind(c.kind), c.calls, c.bytes, c.site}; }

Sample takeSample(std::vector<DeviceRow> devices) {
  Sample s;
  s.counters = readCounters();
  s.devices = std::move(devices);
  s.written_at = wallSeconds();
  s.total_sites = s.counters.sites.size();
  for (const auto& c : s.counters.sites) s.total_live_bytes += c.live_bytes;
  std::sort(s.counters.sites.begin(), s.counters.sites.end(), [](const SiteCounters& a, const SiteCounters& b) {
    if (a.live_bytes != b.live_bytes) return a.live_bytes > b.live_bytes;
    if (a.device_ns != b.device_ns) return a.device_ns > b.device_ns;
    return a.site != b.site ? a.site < b.site : a.device < b.device;
  });
  return s;
}

std::vector<bool> keptSites(const Sample& s, const Selection& want) {
  if (want.top == 0 || s.counters.sites.size() <= want.top) return {};
  std::vector<bool> kept(size_t{siteCount()} + 1, false);
  kept[0] = true;
  for (uint32_t i = 0; i < want.top; ++i)
    if (const SiteId id = s.counters.sites[i].site; id < kept.size()) kept[id] = true;
  return kept;
}

namespace {
bool keeps(const std::vector<bool>& kept, SiteId id) { return kept.empty() || (id < kept.size() && kept[id]); }
size_t siteLimit(const Sample& s, const Selection& want) {
  return want.top ? std::min<size_t>(want.top, s.counters.sites.size()) : s.counters.sites.size();
}
}  // namespace

ProcessRow processRow(const Sample& s, const Identity& who, const Selection& want) {
  ProcessRow p;
  p.pid = who.pid, p.start_time = who.start_time, p.script = who.script, p.argv = who.argv;
  p.state = "live";
  p.written_at = s.written_at;
  p.total_sites = s.total_sites, p.total_live_bytes = s.total_live_bytes;
  const auto kept = keptSites(s, want);
  if (want.devices) p.devices = s.devices;
  if (want.sites) {
    for (size_t i = 0, n = siteLimit(s, want); i < n; ++i) p.sites.push_back(siteRow(s.counters.sites[i]));
    for (const File& f : recordedFiles()) p.files.push_back({f.path, f.hash, f.mtime});
  }
  if (want.routes)
    for (const auto& c : s.counters.routes)
      if (keeps(kept, c.site)) p.routes.push_back(routeRow(c));
  if (want.fallbacks) {
    for (const auto& c : s.counters.fallbacks)
      if (keeps(kept, c.site)) p.fallbacks.push_back(fallbackRow(c));
    for (const auto& c : s.counters.copies)
      if (keeps(kept, c.site)) p.copies.push_back(copyRow(c));
  }
  return p;
}

void DeltaWriter::reset(const Sample& s, const Selection& want) {
  sites_.clear(), routes_.clear(), fallbacks_.clear(), copies_.clear(), devices_.clear();
  files_ = 0;
  std::string told;
  append(told, s, want);
}

namespace {
// A device's row without ages, which change at every look.
std::string deviceKey(const DeviceRow& d) {
  std::string k = d.device + '\0' + d.name;
  for (const Metric* m : {&d.total, &d.allocated, &d.allocated_peak, &d.reserved, &d.free, &d.utilisation})
    k += '\0' + (m->value ? std::to_string(*m->value) : m->why_missing) + m->source;
  return k;
}
std::string rowText(const SiteCounters& c) { return toText(siteRow(c)); }
std::string rowText(const RouteCounters& c) { return toText(routeRow(c)); }
std::string rowText(const FallbackCounters& c) { return toText(fallbackRow(c)); }
std::string rowText(const CopyCounters& c) { return toText(copyRow(c)); }

void value(JsonWriter& w, const char* key, uint64_t v) { w.key(key).open('{').key("value").number(v).close('}'); }
void timeValue(JsonWriter& w, uint64_t ns, bool first) {
  w.key("device_time").open('{').key("value").number(static_cast<double>(ns) / 1e9);
  if (first) w.key("source").text("measured").key("age_s").number(0).key("why_missing").null();
  w.close('}');
}
}  // namespace

bool DeltaWriter::append(std::string& out, const Sample& s, const Selection& want) {
  ++round_;
  std::string body;
  JsonWriter w(body);
  bool any = false;
  std::string removed;
  JsonWriter gone(removed);

  // Walks one list: rows that are new are written in full, rows that changed by `change`; rows not seen are removed.
  const auto list = [&](const char* name, auto& told, const auto& rows, size_t limit, auto keep, auto keyOf, auto valuesOf,
                        auto change, auto writeKey) {
    bool opened = false;
    for (size_t i = 0; i < limit; ++i) {
      const auto& row = rows[i];
      if (!keep(row)) continue;
      Values now = valuesOf(row);
      now.seen = round_;
      const auto [it, fresh] = told.try_emplace(keyOf(row), now);
      if (!fresh && it->second.v == now.v) { it->second.seen = round_; continue; }
      if (!opened) { w.key(name).open('['); opened = true; }
      if (fresh) {
        w.raw(rowText(row));
      } else {
        w.open('{');
        writeKey(w, it->first);
        change(w, it->second, now);
        w.close('}');
        it->second = now;
      }
    }
    if (opened) w.close(']');
    any = any || opened;
    opened = false;
    for (auto it = told.begin(); it != told.end();) {
      if (it->second.seen == round_) { ++it; continue; }
      if (!opened) { gone.key(name).open('['); opened = true; }
      gone.open('{');
      writeKey(gone, it->first);
      gone.close('}');
      it = told.erase(it);
    }
    if (opened) gone.close(']');
    any = any || opened;
  };

  const auto kept = keptSites(s, want);
  const auto keepSite = [&](const auto& c) { return keeps(kept, c.site); };
  const auto all = [](const auto&) { return true; };

  if (want.devices) {
    bool opened = false;
    devices_.resize(s.devices.size());
    for (size_t i = 0; i < s.devices.size(); ++i) {
      std::string k = deviceKey(s.devices[i]);
      if (k == devices_[i]) continue;
      devices_[i] = std::move(k);
      if (!opened) { w.key("devices").open('['); opened = true; }
      w.raw(toText(s.devices[i]));
    }
    if (opened) w.close(']');
    any = any || opened;
  }
  if (want.sites) {
    list("sites", sites_, s.counters.sites, siteLimit(s, want), all,
         [](const SiteCounters& c) { return uint64_t{c.device} << 32 | c.site; },
         [](const SiteCounters& c) {
           return Values{{c.live_bytes, c.peak_bytes, c.allocations, c.calls, c.timed_calls, c.launches, c.device_ns}};
         },
         [](JsonWriter& o, const Values& was, const Values& now) {
           if (was.v[0] != now.v[0]) value(o, "live_bytes", now.v[0]);
           if (was.v[1] != now.v[1]) value(o, "peak_bytes", now.v[1]);
           if (was.v[2] != now.v[2]) o.key("allocations").number(now.v[2]);
           if (was.v[3] != now.v[3]) o.key("calls").number(now.v[3]);
           if (was.v[4] != now.v[4]) o.key("timed_calls").number(now.v[4]);
           if (was.v[5] != now.v[5]) timeValue(o, now.v[6], was.v[5] == 0);
         },
         [](JsonWriter& o, uint64_t k) {
           o.key("id").number(k & 0xffffffffu).key("device").text(deviceName(static_cast<uint32_t>(k >> 32)));
         });
    const auto files = recordedFiles();
    if (files.size() > files_) {
      w.key("files").open('[');
      for (size_t i = files_; i < files.size(); ++i) w.raw(toText(FileRow{files[i].path, files[i].hash, files[i].mtime}));
      w.close(']');
      files_ = files.size();
      any = true;
    }
  }
  if (want.routes)
    list("routes", routes_, s.counters.routes, s.counters.routes.size(), keepSite,
         [](const RouteCounters& c) { return uint64_t{c.site} << 32 | c.route; },
         [](const RouteCounters& c) { return Values{{c.calls, c.timed_calls, c.launches, c.device_ns}}; },
         [](JsonWriter& o, const Values& was, const Values& now) {
           if (was.v[0] != now.v[0]) o.key("calls").number(now.v[0]);
           if (was.v[1] != now.v[1]) o.key("timed_calls").number(now.v[1]);
           if (was.v[2] != now.v[2]) timeValue(o, now.v[3], was.v[2] == 0);
         },
         [](JsonWriter& o, uint64_t k) { o.key("site").number(k >> 32).key("route").number(k & 0xffffffffu); });
  if (want.fallbacks) {
    const auto amounts = [](const auto& c) { return Values{{c.calls, c.bytes}}; };
    const auto change = [](JsonWriter& o, const Values&, const Values& now) { o.key("calls").number(now.v[0]).key("bytes").number(now.v[1]); };
    list("fallbacks", fallbacks_, s.counters.fallbacks, s.counters.fallbacks.size(), keepSite,
         [](const FallbackCounters& c) { return uint64_t{c.site} << 32 | c.op; }, amounts, change,
         [](JsonWriter& o, uint64_t k) { o.key("site").number(k >> 32).key("op").text(nameText(static_cast<NameId>(k))); });
    list("copies", copies_, s.counters.copies, s.counters.copies.size(), keepSite,
         [](const CopyCounters& c) { return uint64_t{c.site} << 32 | static_cast<uint32_t>(c.kind); }, amounts, change,
         [](JsonWriter& o, uint64_t k) {
           o.key("site").number(k >> 32).key("kind").text(copyKind(static_cast<CopyKind>(k & 0xff)));
         });
  }
  if (!any) return false;
  w.key("written_at").number(s.written_at);
  w.key("totals").open('{').key("sites").number(s.total_sites).key("live_bytes").number(s.total_live_bytes).close('}');
  if (!removed.empty()) w.key("removed").raw("{" + removed + "}");
  out += body;
  return true;
}

}  // namespace flagos::telemetry

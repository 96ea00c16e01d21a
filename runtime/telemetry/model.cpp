#include "runtime/telemetry/model.h"

#include <algorithm>

#include "runtime/telemetry/json_writer.h"

namespace flagos::telemetry {
namespace {

void write(JsonWriter& w, const DeviceRow& r) {
  w.open('{').key("device").text(r.device).key("name").text(r.name).key("memory").open('{');
  w.key("total").metric(r.total).key("allocated").metric(r.allocated).key("allocated_peak").metric(r.allocated_peak);
  w.key("reserved").metric(r.reserved).key("free").metric(r.free).close('}');
  w.key("utilisation").metric(r.utilisation).close('}');
}
void write(JsonWriter& w, const SiteRow& r) {
  w.open('{').key("id").number(r.id).key("file").text(r.file).key("line").number(r.line);
  w.key("end_line").number(r.end_line).key("column").number(r.column).key("end_column").number(r.end_column);
  w.key("qualname").text(r.qualname).key("call_hash").textOrNull(r.call_hash);
  w.key("backward_of");
  if (r.backward_of) w.number(r.backward_of); else w.null();
  w.key("device").text(r.device).key("live_bytes").metric(r.live_bytes).key("peak_bytes").metric(r.peak_bytes);
  w.key("device_time").metric(r.device_time).key("calls").number(r.calls).key("timed_calls").number(r.timed_calls);
  w.key("allocations").number(r.allocations).key("state").text(r.state).close('}');
}
void write(JsonWriter& w, const RouteRow& r) {
  w.open('{').key("op").text(r.op).key("kernel").text(r.kernel).key("calls").number(r.calls);
  w.key("device_time").metric(r.device_time).key("timed_calls").number(r.timed_calls).key("reason").text(r.reason);
  w.key("predicted").metric(r.predicted).key("bound").textOrNull(r.bound);
  w.key("route").number(r.route).key("site").number(r.site).key("device").text(r.device).close('}');
}
void write(JsonWriter& w, const FallbackRow& r) {
  w.open('{').key("op").text(r.op).key("calls").number(r.calls).key("bytes").number(r.bytes).key("site").number(r.site).close('}');
}
void write(JsonWriter& w, const CopyRow& r) {
  w.open('{').key("kind").text(r.kind).key("calls").number(r.calls).key("bytes").number(r.bytes).key("site").number(r.site).close('}');
}
void write(JsonWriter& w, const FileRow& r) {
  w.open('{').key("path").text(r.path).key("hash").textOrNull(r.hash).key("mtime").number(r.mtime).close('}');
}
template <class Row>
void writeAll(JsonWriter& w, const char* key, const std::vector<Row>& rows) {
  w.key(key).open('[');
  for (const Row& r : rows) write(w, r);
  w.close(']');
}

// Reading: a wrong type reads as missing, never as an exception.
std::string textOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
template <class N = uint64_t>
N numberOf(const Json& j, const char* key, N missing = 0) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? it->get<N>() : missing;
}
Metric metricOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() ? metricFromJson(*it) : Metric::missing("", "not reported");
}
template <class Row, class F>
void readAll(const Json& j, const char* key, std::vector<Row>& rows, F&& read) {
  const auto it = j.find(key);
  if (it == j.end() || !it->is_array()) return;
  for (const Json& r : *it)
    if (r.is_object()) rows.push_back(read(r));
}

// Keys that name a row in each list of the document.
struct List { const char* name; std::vector<const char*> keys; };
const std::vector<List>& lists() {
  static const std::vector<List> all = {{"devices", {"device"}}, {"sites", {"id", "device"}}, {"routes", {"site", "route"}},
                                        {"fallbacks", {"site", "op"}}, {"copies", {"site", "kind"}}, {"files", {"path"}}};
  return all;
}
bool sameRow(const Json& a, const Json& b, const List& list) {
  for (const char* k : list.keys) {
    const auto x = a.find(k), y = b.find(k);
    if (x == a.end() || y == b.end() || *x != *y) return false;
  }
  return true;
}
// Unlike JSON merge patch, null is a value here: a metric may become unknown.
void merge(Json& into, const Json& change) {
  if (!into.is_object() || !change.is_object()) { into = change; return; }
  for (const auto& [k, v] : change.items()) merge(into[k], v);
}
double valueOf(const Json& row, const char* key) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_object()) return 0;
  const auto v = it->find("value");
  return v != it->end() && v->is_number() ? v->get<double>() : 0;
}

}  // namespace

void appendMembers(std::string& out, const ProcessRow& p) {
  JsonWriter w(out);
  w.key("pid").number(p.pid).key("start_time").number(p.start_time).key("state").text(p.state);
  w.key("script").text(p.script).key("argv").open('[');
  for (const auto& a : p.argv) w.text(a);
  w.close(']').key("age_s").number(p.age_s).key("written_at").number(p.written_at);
  writeAll(w, "devices", p.devices);
  writeAll(w, "sites", p.sites);
  writeAll(w, "routes", p.routes);
  writeAll(w, "fallbacks", p.fallbacks);
  writeAll(w, "copies", p.copies);
  writeAll(w, "files", p.files);
  w.key("totals").open('{').key("sites").number(p.total_sites).key("live_bytes").number(p.total_live_bytes).close('}');
}

Json toJson(const ProcessRow& p) {
  std::string text = "{";
  appendMembers(text, p);
  text += '}';
  return Json::parse(text, nullptr, false);
}
namespace {
template <class Row>
std::string textOfRow(const Row& r) {
  std::string text;
  JsonWriter w(text);
  write(w, r);
  return text;
}
}  // namespace
std::string toText(const DeviceRow& r) { return textOfRow(r); }
std::string toText(const SiteRow& r) { return textOfRow(r); }
std::string toText(const RouteRow& r) { return textOfRow(r); }
std::string toText(const FallbackRow& r) { return textOfRow(r); }
std::string toText(const CopyRow& r) { return textOfRow(r); }
std::string toText(const FileRow& r) { return textOfRow(r); }
Json toJson(const DeviceRow& d) { return Json::parse(toText(d), nullptr, false); }

DeviceRow deviceFromJson(const Json& j) {
  DeviceRow d;
  if (!j.is_object()) return d;
  d.device = textOf(j, "device");
  d.name = textOf(j, "name");
  const auto it = j.find("memory");
  const Json& m = it != j.end() && it->is_object() ? *it : j;
  d.total = metricOf(m, "total");
  d.allocated = metricOf(m, "allocated");
  d.allocated_peak = metricOf(m, "allocated_peak");
  d.reserved = metricOf(m, "reserved");
  d.free = metricOf(m, "free");
  d.utilisation = metricOf(j, "utilisation");
  return d;
}

ProcessRow processFromJson(const Json& j) {
  ProcessRow p;
  if (!j.is_object()) return p;
  p.pid = numberOf<int>(j, "pid");
  p.start_time = numberOf(j, "start_time");
  p.state = textOf(j, "state");
  p.script = textOf(j, "script");
  p.age_s = numberOf<double>(j, "age_s");
  p.written_at = numberOf<double>(j, "written_at");
  if (const auto it = j.find("argv"); it != j.end() && it->is_array())
    for (const Json& a : *it)
      if (a.is_string()) p.argv.push_back(a.get<std::string>());
  readAll(j, "devices", p.devices, deviceFromJson);
  readAll(j, "sites", p.sites, [](const Json& r) {
    SiteRow s;
    s.id = numberOf<uint32_t>(r, "id");
    s.file = textOf(r, "file");
    s.qualname = textOf(r, "qualname");
    s.line = numberOf<int>(r, "line");
    s.end_line = numberOf<int>(r, "end_line");
    s.column = numberOf<int>(r, "column", -1);
    s.end_column = numberOf<int>(r, "end_column", -1);
    s.call_hash = textOf(r, "call_hash");
    s.backward_of = numberOf<uint32_t>(r, "backward_of");
    s.device = textOf(r, "device");
    s.live_bytes = metricOf(r, "live_bytes");
    s.peak_bytes = metricOf(r, "peak_bytes");
    s.device_time = metricOf(r, "device_time");
    s.calls = numberOf(r, "calls");
    s.timed_calls = numberOf(r, "timed_calls");
    s.allocations = numberOf(r, "allocations");
    s.state = textOf(r, "state");
    return s;
  });
  readAll(j, "routes", p.routes, [](const Json& r) {
    RouteRow o;
    o.op = textOf(r, "op");
    o.kernel = textOf(r, "kernel");
    o.reason = textOf(r, "reason");
    o.bound = textOf(r, "bound");
    o.calls = numberOf(r, "calls");
    o.timed_calls = numberOf(r, "timed_calls");
    o.device_time = metricOf(r, "device_time");
    o.predicted = metricOf(r, "predicted");
    o.route = numberOf<uint32_t>(r, "route");
    o.site = numberOf<uint32_t>(r, "site");
    o.device = textOf(r, "device");
    return o;
  });
  readAll(j, "fallbacks", p.fallbacks, [](const Json& r) {
    return FallbackRow{textOf(r, "op"), numberOf(r, "calls"), numberOf(r, "bytes"), numberOf<uint32_t>(r, "site")};
  });
  readAll(j, "copies", p.copies, [](const Json& r) {
    return CopyRow{textOf(r, "kind"), numberOf(r, "calls"), numberOf(r, "bytes"), numberOf<uint32_t>(r, "site")};
  });
  readAll(j, "files", p.files, [](const Json& r) {
    return FileRow{textOf(r, "path"), textOf(r, "hash"), numberOf<double>(r, "mtime")};
  });
  if (const auto it = j.find("totals"); it != j.end() && it->is_object()) {
    p.total_sites = numberOf(*it, "sites");
    p.total_live_bytes = numberOf(*it, "live_bytes");
  }
  return p;
}

bool applyDelta(Json& snapshot, const Json& delta) {
  if (!snapshot.is_object() || !delta.is_object()) return false;
  const auto have = snapshot.find("seq");
  const auto next = delta.find("seq");
  if (have == snapshot.end() || next == delta.end() || !have->is_number() || !next->is_number()) return false;
  if (next->get<uint64_t>() != have->get<uint64_t>() + 1) return false;
  *have = *next;
  if (textOf(delta, "type") != "delta") return true;
  for (const char* k : {"t_ns", "written_at", "totals"})
    if (const auto it = delta.find(k); it != delta.end()) snapshot[k] = *it;
  const auto removed = delta.find("removed");
  for (const List& list : lists()) {
    Json& rows = snapshot[list.name];
    if (!rows.is_array()) rows = Json::array();
    if (removed != delta.end() && removed->is_object())
      if (const auto gone = removed->find(list.name); gone != removed->end() && gone->is_array())
        for (const Json& key : *gone)
          rows.erase(std::remove_if(rows.begin(), rows.end(), [&](const Json& r) { return sameRow(r, key, list); }), rows.end());
    const auto changes = delta.find(list.name);
    if (changes == delta.end() || !changes->is_array()) continue;
    for (const Json& change : *changes) {
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const Json& r) { return sameRow(r, change, list); });
      if (row != rows.end()) merge(*row, change);
      else rows.push_back(change);
    }
    if (std::string_view(list.name) == "sites")
      std::stable_sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) {
        const double x = valueOf(a, "live_bytes"), y = valueOf(b, "live_bytes");
        return x != y ? x > y : valueOf(a, "device_time") > valueOf(b, "device_time");
      });
  }
  return true;
}

uint64_t fnv1a(std::string_view bytes) noexcept {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}
uint64_t callHash(std::string_view text) noexcept {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) {
    if (c == ' ' || (c >= '\t' && c <= '\r')) continue;
    h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return h;
}

}  // namespace flagos::telemetry

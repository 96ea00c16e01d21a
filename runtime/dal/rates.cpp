#include "runtime/dal/rates.h"

#include <cmath>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/base/file_lock.h"

namespace flagos::dal {
namespace {

struct Rate { const char* name; double DeviceDescription::*value; };
constexpr Rate kRates[] = {{"bandwidth_bps", &DeviceDescription::bandwidth_bps},
                           {"flops_f32", &DeviceDescription::flops_f32},
                           {"copy_bps", &DeviceDescription::copy_bps},
                           {"launch_s", &DeviceDescription::launch_s},
                           {"wait_s", &DeviceDescription::wait_s}};

std::string path() { return cacheDir() + "/rates.json"; }

bool isRates(const Json& doc) { return doc.is_object() && doc.contains("devices") && doc["devices"].is_object(); }

// The stored document, or a fresh one.
Json document() {
  auto doc = readJsonFile(path());
  if (doc && isRates(*doc)) return *doc;
  return {{"version", 1}, {"devices", Json::object()}};
}

bool fill(const Json& doc, DeviceDescription& d, const std::string& identity) {
  const auto row = doc["devices"].find(identity);
  if (row == doc["devices"].end() || !row->is_object()) return false;
  bool any = false;
  for (const Rate& r : kRates) {
    const auto v = row->find(r.name);
    if (v == row->end() || !v->is_number()) continue;
    const double value = v->get<double>();
    if (!std::isfinite(value) || value <= 0) continue;
    d.*r.value = value;
    any = true;
  }
  if (any) d.rates_source = "measured";
  return any;
}

}  // namespace

bool loadRates(DeviceDescription& d, const std::string& identity) { return fill(document(), d, identity); }

RatesTable readRates(std::string_view json_text) {
  RatesTable out;
  const auto doc = parseJson(json_text, "rates.json");
  if (!doc || !isRates(*doc)) return out;
  for (const auto& [identity, row] : (*doc)["devices"].items()) {
    MeasuredRates m;
    if (!fill(*doc, m.rates, identity)) continue;
    if (const auto v = row.find("measured_bytes"); v != row.end() && v->is_number() && v->get<double>() > 0)
      m.measured_bytes = v->get<double>();
    out.emplace(identity, std::move(m));
  }
  return out;
}

RatesTable storedRates() {
  const auto text = readFile(path(), 16u << 20);
  return text ? readRates(*text) : RatesTable{};
}

std::string ratesRecord(const std::vector<std::string>& identities) {
  const Json all = document();
  Json out{{"version", 1}, {"devices", Json::object()}};
  for (const std::string& id : identities)
    if (const auto row = all["devices"].find(id); row != all["devices"].end()) out["devices"][id] = *row;
  return dump(out, 1) + "\n";
}

Result<void> storeRates(const DeviceDescription& d, const std::string& identity, double measured_bytes) {
  if (auto made = makeDirs(cacheDir()); !made) return made.error();
  const FileLock lock(path() + ".lock");
  Json doc = document();
  if (doc["devices"].contains(identity)) return {};
  Json row = {{"name", d.name}};
  for (const Rate& r : kRates)
    if (d.*r.value > 0) row[r.name] = d.*r.value;
  if (measured_bytes > 0) row["measured_bytes"] = measured_bytes;
  doc["devices"][identity] = std::move(row);
  return writeFileAtomic(path(), dump(doc, 1) + "\n");
}

}  // namespace flagos::dal

#include "runtime/kde/rates.h"

#include <cmath>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/kde/file_lock.h"

namespace flagos::kde {
namespace {

struct Rate { const char* name; double dal::DeviceDescription::*value; };
constexpr Rate kRates[] = {{"bandwidth_bps", &dal::DeviceDescription::bandwidth_bps},
                           {"flops_f32", &dal::DeviceDescription::flops_f32},
                           {"copy_bps", &dal::DeviceDescription::copy_bps},
                           {"launch_s", &dal::DeviceDescription::launch_s},
                           {"wait_s", &dal::DeviceDescription::wait_s}};

std::string path() { return cacheDir() + "/rates.json"; }

// The stored document, or a fresh one.
Json document() {
  auto doc = readJsonFile(path());
  if (doc && doc->is_object() && doc->contains("devices") && (*doc)["devices"].is_object()) return *doc;
  return {{"version", 1}, {"devices", Json::object()}};
}

}  // namespace

bool loadRates(dal::DeviceDescription& d, const std::string& identity) {
  const Json doc = document();
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

Result<void> storeRates(const dal::DeviceDescription& d, const std::string& identity) {
  if (auto made = makeDirs(cacheDir()); !made) return made.error();
  const FileLock lock(path() + ".lock");
  Json doc = document();
  if (doc["devices"].contains(identity)) return {};
  Json row = {{"name", d.name}};
  for (const Rate& r : kRates)
    if (d.*r.value > 0) row[r.name] = d.*r.value;
  doc["devices"][identity] = std::move(row);
  return writeFileAtomic(path(), dump(doc, 1) + "\n");
}

}  // namespace flagos::kde

// A device that is not here: what the table says, for planning.
#include <algorithm>

#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/database.h"

namespace flagos::dal {
namespace {
bool confident(char c) { return c == 'A' || c == 'B' || c == 'C'; }
}  // namespace

Result<DeviceDescription> describeModel(std::string_view model) {
  const Database& db = database();
  const Model* m = db.byName(model);
  if (!m) {
    std::vector<std::string> names;
    for (const Model& x : db.models()) names.push_back(x.name);
    const std::string near = nearest(model, names);
    return fail("no device model \"" + std::string(model) + "\" in the fingerprint table",
                near.empty() ? "Names are those of `flagos fingerprints list`" : "Did you mean \"" + near + "\"?");
  }
  DeviceDescription d;
  d.name = m->name;
  d.vendor = m->vendor_name;
  d.kind = m->kind;
  d.shared_memory = m->kind == Kind::integrated;
  d.fp16 = m->dense_fp16_tflops > 0;
  if (!m->memory_gib.empty()) d.memory_bytes = static_cast<uint64_t>(m->memory_gib.front() * 1073741824.0);
  // Rated U (unknown or conflicting) is no basis for a prediction: 0 makes the cost model refuse.
  if (confident(m->memory_confidence)) d.bandwidth_bps = m->bandwidth_gbps * 1e9;
  d.rates_source = "table";
  return d;
}

}  // namespace flagos::dal

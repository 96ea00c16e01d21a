// A device that is not here: what the table says, for planning.
#include <algorithm>
#include <cstdio>

#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/database.h"

namespace flagos::dal {
namespace {

bool confident(char c) { return c == 'A' || c == 'B' || c == 'C'; }

// Payload of a link "4x16" in bytes/s and direction; 0 where it is not PCIe.
double linkRate(const std::string& link) {
  int generation = 0, width = 0;
  if (std::sscanf(link.c_str(), "%dx%d", &generation, &width) != 2 || generation < 1 || generation > 5 || width < 1) return 0;
  const double transfers[] = {2.5e9, 5e9, 8e9, 16e9, 32e9};
  return transfers[generation - 1] * width / 8 * (generation < 3 ? 0.8 : 128.0 / 130.0);
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// By the whole name, or by a part that only one model has ("7900 XTX").
Result<const Model*> modelNamed(std::string_view name) {
  const Database& db = database();
  if (const Model* m = db.byName(name)) return m;
  std::vector<std::string> names, like;
  for (const Model& m : db.models()) {
    names.push_back(m.name);
    const bool part = !name.empty() && lower(m.name).find(lower(name)) != std::string::npos;
    if (part && std::find(like.begin(), like.end(), m.name) == like.end()) like.push_back(m.name);
  }
  if (like.size() == 1) return db.byName(like[0]);
  if (!like.empty()) {
    std::string all;
    for (const auto& n : like) all += (all.empty() ? "" : ", ") + n;
    return fail("several models are named like '" + std::string(name) + "': " + all, "Write the whole name");
  }
  const std::string near = nearest(name, names);
  return fail("no device model \"" + std::string(name) + "\" in the fingerprint table",
              near.empty() ? "Names are those of `flagos fingerprints list`" : "Did you mean \"" + near + "\"?");
}

}  // namespace

Result<DeviceDescription> describeModel(std::string_view model) {
  const auto named = modelNamed(model);
  if (!named) return named.error();
  const Model* m = *named;
  DeviceDescription d;
  d.name = m->name;
  d.vendor = m->vendor_name;
  d.kind = m->kind;
  d.shared_memory = m->kind == Kind::integrated;
  d.fp16 = m->dense_fp16_tflops > 0;
  if (!m->memory_gib.empty()) d.memory_bytes = static_cast<uint64_t>(m->memory_gib.front() * 1073741824.0);
  // Rated U (unknown or conflicting) is no basis for a prediction: 0 makes the cost model refuse.
  if (confident(m->memory_confidence)) d.bandwidth_bps = m->bandwidth_gbps * 1e9;
  if (confident(m->vector_confidence)) d.flops_f32 = m->fp32_tflops * 1e12;
  d.launch_s = kAssumedLaunchSeconds;
  if (confident(m->pcie_confidence) && !d.shared_memory) d.copy_bps = linkRate(m->pcie) * kAssumedLinkShare;
  d.rates_source = "table";
  return d;
}

std::string modelRates(std::string_view model) {
  const auto named = modelNamed(model);
  if (!named) return {};
  const Model* m = *named;
  const auto rated = [](double value, const char* unit, char confidence, const std::string& source) {
    char number[32];
    std::snprintf(number, sizeof number, "%g", value);
    return number + std::string(" ") + unit + " (" + (source.empty() ? "confidence " : "") + confidence + (source.empty() ? "" : ": " + source) + ")";
  };
  const bool bandwidth = confident(m->memory_confidence) && m->bandwidth_gbps > 0;
  std::string out = bandwidth ? rated(m->bandwidth_gbps, "GB/s", m->memory_confidence, {}) : "memory bandwidth not in the table";
  out += ", ";
  if (confident(m->vector_confidence) && m->fp32_tflops > 0) out += rated(m->fp32_tflops, "TFLOP/s fp32 without matrix units", m->vector_confidence, m->vector_source);
  else out += "fp32 rate not in the table";
  char text[96];
  std::snprintf(text, sizeof text, "; assumed: %g us a kernel launch", kAssumedLaunchSeconds * 1e6);
  out += text;
  if (confident(m->pcie_confidence) && linkRate(m->pcie) > 0 && m->kind != Kind::integrated) {
    std::snprintf(text, sizeof text, ", copies at %g %% of the PCIe %s link", kAssumedLinkShare * 100, m->pcie.c_str());
    out += text;
  }
  return out;
}

}  // namespace flagos::dal

#include "lsp/server/machine.h"

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/inventory.h"
#include "runtime/dal/rates.h"

namespace flagos::lsp {

std::vector<std::string> splitDevices(const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  for (const char c : text + ",") {
    if (c != ',') { if (c != ' ' || !word.empty()) word += c; continue; }
    while (!word.empty() && word.back() == ' ') word.pop_back();
    if (!word.empty() && word != "none") out.push_back(word);
    word.clear();
  }
  return out;
}

Machine machineOf(std::vector<std::string> devices) {
  Machine m;
  m.known = true;
  m.devices = std::move(devices);
  return m;
}

Result<Machine> machineFrom(const std::vector<std::string>& entries) {
  Machine m = machineOf({});
  for (const auto& e : entries) {
    const auto equals = e.find('=');
    const std::string device = e.substr(0, equals);
    if (!isDeviceString(device)) return fail("`" + device + "` is no device; write for example npu:0,npu:1 or none");
    m.devices.push_back(device);
    if (equals == std::string::npos) continue;
    auto description = dal::describeModel(e.substr(equals + 1));
    if (!description) return description.error();
    std::string rates = dal::modelRates(description->name);
    MachineDevice& detail = m.details[device];
    detail.description = std::move(*description);
    detail.rates = std::move(rates);
  }
  return m;
}

Machine detectedMachine() {
  const std::string name = setting("FLAGOS_DEVICE_NAME").value_or("npu");
  Machine m = machineOf({});
  for (const auto& d : dal::machine().devices) {
    if (!d.index || !d.usable) continue;
    m.devices.push_back(name + ":" + std::to_string(*d.index));
    MachineDevice& detail = m.details[m.devices.back()];
    detail.description = d.description;
    detail.free_bytes = d.memory_free.value;
    detail.free_source = d.memory_free.source;
    detail.why_no_free = d.memory_free.why_missing;
    detail.free_read_at = wallSeconds();
    if (dal::loadRates(detail.description, d.fingerprint.identity + d.fingerprint.build)) continue;
    // Never used yet, so nothing is measured: what the table says of the model.
    if (d.fingerprint.result != "exact" || !d.parent.empty()) continue;
    const auto table = dal::describeModel(d.fingerprint.model);
    if (!table) continue;
    detail.description.bandwidth_bps = table->bandwidth_bps;
    detail.description.flops_f32 = table->flops_f32;
    detail.description.copy_bps = table->copy_bps;
    detail.description.launch_s = table->launch_s;
    detail.description.rates_source = "table";
    detail.rates = dal::modelRates(d.fingerprint.model);
  }
  return m;
}

}  // namespace flagos::lsp

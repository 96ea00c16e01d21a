#include "lsp/server/machine.h"

#include "runtime/base/settings.h"
#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/inventory.h"
#include "runtime/dal/rates.h"

namespace flagos::lsp {

std::vector<std::string> splitDevices(const std::string& text) {
  std::vector<std::string> out;
  std::string word;
  for (const char c : text + ",") {
    if (c != ',') { if (c != ' ') word += c; continue; }
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
    m.details[device] = {std::move(*description), std::nullopt};
  }
  return m;
}

Machine detectedMachine() {
  const std::string name = setting("FLAGOS_DEVICE_NAME").value_or("npu");
  Machine m = machineOf({});
  for (const auto& d : dal::machine().devices) {
    if (!d.index || !d.usable) continue;
    m.devices.push_back(name + ":" + std::to_string(*d.index));
    MachineDevice& detail = m.details[m.devices.back()] = {d.description, d.memory_free.value};
    dal::loadRates(detail.description, d.fingerprint.identity + d.fingerprint.build);
  }
  return m;
}

}  // namespace flagos::lsp

#include "lsp/server/machine.h"

#include "runtime/base/settings.h"
#include "runtime/dal/inventory.h"

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

Machine detectedMachine() {
  const std::string name = setting("FLAGOS_DEVICE_NAME").value_or("npu");
  Machine m = machineOf({});
  for (const auto& d : dal::machine().devices) {
    if (!d.index || !d.usable) continue;
    m.devices.push_back(name + ":" + std::to_string(*d.index));
    m.details[m.devices.back()] = {d.description, d.memory_free.value};
  }
  return m;
}

}  // namespace flagos::lsp

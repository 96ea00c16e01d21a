// What libraries, records and hardware tell of devices: any bytes as opencl.json, nvml.json, rates.json, a PCI config
// space or a struct of unknown layout give devices that keep their promises, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/base/bytes.h"
#include "runtime/dal/acs.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/pci_address.h"
#include "runtime/dal/pci_ids.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"
#include "runtime/dal/rates.h"

using namespace flagos;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  dal::Facts facts;
  (void)dal::readOpenClRecord(text, facts.opencl);
  (void)dal::readNvmlRecord(text, facts);
  std::vector<dal::Device> devices = dal::mergeDevices(dal::Root("/nonexistent"), facts);
  dal::EnumerateOptions options;
  options.visible = text.substr(0, 64);
  std::vector<std::string> warnings;
  dal::orderDevices(devices, options, &warnings);
  for (const dal::Device& d : devices)
    if (d.usable != d.why_unusable.empty() || d.usable != d.opencl.has_value()) std::abort();
  dal::Inventory inventory;
  inventory.devices = std::move(devices);
  (void)dump(dal::toJson(inventory));
  (void)dump(dal::nvmlRecord(facts));
  (void)dal::fabricOf(facts);
  (void)dal::readRates(text);
  (void)dal::acsOf(text);
  if (dal::withoutSerialNumber(text).size() != text.size()) std::abort();
  (void)dal::addressIn(data, size);
  (void)dal::pciDeviceName(text, "1002", "744c");
  const std::string pci = dal::normalPciAddress(text);
  if (!pci.empty() && dal::normalPciAddress(pci) != pci) std::abort();
  if (const auto bytes = parseBytes(text); bytes && *bytes == 0) std::abort();
  return 0;
}

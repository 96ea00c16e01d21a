// The machine's devices: probes run on an injectable root, merged by PCI address, matched with the fingerprint
// database, ordered by the command contract. Creates no OpenCL context, wakes no card, never throws.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/metric.h"
#include "runtime/base/result.h"
#include "runtime/dal/description.h"
#include "runtime/dal/torch_device.h"

namespace flagos::dal {

struct Driver { std::string platform, version; bool chosen = false; std::string why; };
struct Candidate { std::string model; double score = 0; std::vector<std::string> evidence_for, evidence_against; };
struct Fingerprint {
  std::string result = "unknown";                 // exact | family | unknown
  std::string model;                              // "" = null
  std::vector<Candidate> candidates;
  std::string identity, build;
};
// Where the runtime finds the device again: indices in the ICD loader's order.
struct OpenClPlace { uint32_t platform = 0, device = 0; };

struct Device {
  std::optional<int> index;                       // N of npu:N
  std::string name, vendor;
  Kind kind = Kind::other;
  bool usable = false;
  std::string why_unusable;                       // "" = null
  std::string why_no_index;                       // usable, but without index
  std::string pci;                                // "0000:03:00.0" or ""
  std::vector<std::string> pci_candidates;
  std::string parent;
  std::string stable_id;
  std::vector<Driver> drivers;
  Fingerprint fingerprint;
  Metric memory_dedicated, memory_shared, memory_used, memory_free, utilisation;
  std::vector<std::string> dtypes;
  std::vector<std::string> sort_key;
  std::optional<OpenClPlace> opencl;
  DeviceDescription description;
  Metric bandwidth;                               // of its memory, bytes/s: measured at first use, else the table's
  TorchDevice torch;
};

// A direct link between two cards that the vendor's library told of, by PCI address.
struct FabricLink { std::string a, b, name; };

struct ProbeReport { std::string name; int found = 0; std::string why_nothing; };

struct Inventory {
  std::vector<Device> devices;                    // indexed ones first, in npu:N order
  std::vector<ProbeReport> probes;
  std::vector<FabricLink> fabric;
  std::vector<std::string> warnings;              // settings that name nothing here, one sentence each
  std::vector<std::string> broken;                // recorded files that cannot be read: "file:line:column: reason"
};

struct EnumerateOptions {
  std::string root = "/";                         // FLAGOS_ROOT / --root
  std::optional<std::string> visible;             // FLAGOS_VISIBLE_DEVICES
  bool include_cpu = false;                       // FLAGOS_INCLUDE_CPU
};
EnumerateOptions optionsFromEnvironment();

Inventory enumerate(const EnumerateOptions& options);
// enumerate(optionsFromEnvironment()), once per process.
const Inventory& machine();

// Writes what enumerate() reads on this machine to a folder that `--root` accepts, personal data removed: no names of
// users, hosts or folders, no serial numbers. Device UUIDs stay, since slices are told apart by them.
Result<void> recordMachine(const std::string& dir);

// The `flagos devices --json` document.
Json toJson(const Inventory&);

}  // namespace flagos::dal

// The device database: fingerprints/*.json, one file per vendor, compiled in; FLAGOS_FINGERPRINTS replaces it by a
// folder. Figures are nominal: the device's own answer always wins (fingerprints/README.md).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/dal/description.h"

namespace flagos::dal {

// One product. Zero or empty = the table does not know.
struct Model {
  std::string vendor, device;           // hex ids; device "" = no public id, never matched
  std::string vendor_name, name, arch, pci_ids_name, told_by, note;
  Kind kind = Kind::other;
  std::vector<double> memory_gib;       // the sizes it is sold with
  std::string memory_type;
  double bus_bits = 0, gbit_per_pin = 0;
  double bandwidth_gbps = 0;            // decimal
  double dense_fp16_tflops = 0;
  double fp32_tflops = 0;               // peak of the vector units, matrix units not counted
  std::string pcie;
  char memory_confidence = 'U', pcie_confidence = 'U', compute_confidence = 'U', vector_confidence = 'U';
  std::string id_source, figure_source, date, vector_source;
};

class Database {
 public:
  // Adds one vendor file. On error nothing is added. `name` is shown in the error.
  Result<void> add(std::string_view json_text, std::string_view name);

  bool knows(std::string_view vendor, std::string_view device) const;
  // All products of one PCI id, in file order.
  std::vector<const Model*> find(std::string_view vendor, std::string_view device) const;
  const Model* byName(std::string_view model) const;      // exact text, case ignored
  std::string vendorName(std::string_view vendor) const;  // "" if unknown
  const std::vector<Model>& models() const noexcept { return models_; }
  const std::vector<std::string>& problems() const noexcept { return problems_; }
  void addProblem(std::string text) { problems_.push_back(std::move(text)); }

 private:
  std::vector<Model> models_;
  std::unordered_map<std::string, std::vector<uint32_t>> by_id_;  // "1002:744c"
  std::unordered_map<std::string, std::string> vendors_;
  std::vector<std::string> problems_;
};

// The process's database, loaded at first use. A broken file is left out and named in problems().
const Database& database();
// The compiled-in files: names without suffix, and their text.
const std::vector<std::string>& builtinNames();
std::string_view builtinText(std::string_view name) noexcept;

// What the table cannot know of a card is assumed alike for all: stated with every figure that rests on it.
inline constexpr double kAssumedLaunchSeconds = 10e-6;   // public measurements: 3 us (CUDA) to 50 us (slow drivers)
inline constexpr double kAssumedLinkShare = 0.8;         // of the link's payload rate, from pinned memory

// A description for planning without the device: nominal figures, rates_source "table". `model` is a whole name, or a part
// of one that no other model has ("7900 XTX"), in any case of letters. The error names the nearest models.
Result<DeviceDescription> describeModel(std::string_view model);
// Where the rates of describeModel come from and what is assumed: "960 GB/s (A), 61.4 TFLOP/s fp32 of its vector units
// (A, ...); assumed: ..."; "" for a model that is not in the table.
std::string modelRates(std::string_view model);

}  // namespace flagos::dal

#include "runtime/dal/fingerprint/database.h"

#include <dirent.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "runtime/base/json.h"
#include "runtime/base/settings.h"

namespace flagos::dal {
namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string stringOf(const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
double numberOf(const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  const double v = it != j.end() && it->is_number() ? it->get<double>() : 0;
  return std::isfinite(v) && v > 0 ? v : 0;
}
const Json& part(const Json& j, const char* key) {
  static const Json empty = Json::object();
  const auto it = j.find(key);
  return it != j.end() && it->is_object() ? *it : empty;
}
char letterOf(const Json& j) {
  const std::string s = stringOf(j, "confidence");
  return s.size() == 1 && (s[0] == 'A' || s[0] == 'B' || s[0] == 'C') ? s[0] : 'U';
}
Kind kindOf(const std::string& s) {
  for (const Kind k : {Kind::discrete, Kind::npu, Kind::integrated, Kind::cpu})
    if (s == kindName(k)) return k;
  return Kind::other;
}

Model modelFrom(const Json& j, const std::string& vendor, const std::string& vendor_name) {
  Model m;
  m.vendor = vendor;
  m.vendor_name = vendor_name;
  m.device = lower(stringOf(j, "id"));
  m.name = stringOf(j, "model");
  m.arch = stringOf(j, "arch");
  m.pci_ids_name = stringOf(j, "pci_ids_name");
  m.told_by = stringOf(j, "told_by");
  m.note = stringOf(j, "note");
  m.kind = kindOf(stringOf(j, "kind"));
  const Json& memory = part(j, "memory");
  if (const auto it = memory.find("gib"); it != memory.end() && it->is_array())
    for (const Json& g : *it)
      if (g.is_number() && g.get<double>() > 0) m.memory_gib.push_back(g.get<double>());
  m.memory_type = stringOf(memory, "type");
  m.bus_bits = numberOf(memory, "bus_bits");
  m.gbit_per_pin = numberOf(memory, "gbit_per_pin");
  m.bandwidth_gbps = numberOf(memory, "bandwidth_gbps");
  m.memory_confidence = letterOf(memory);
  m.pcie = stringOf(part(j, "pcie"), "link");
  m.pcie_confidence = letterOf(part(j, "pcie"));
  m.dense_fp16_tflops = numberOf(part(j, "compute"), "dense_fp16_tflops");
  m.compute_confidence = letterOf(part(j, "compute"));
  const Json& vector = part(j, "vector");
  m.fp32_tflops = numberOf(vector, "fp32_tflops");
  m.vector_confidence = letterOf(vector);
  m.vector_source = stringOf(vector, "source");
  const Json& sources = part(j, "sources");
  m.id_source = stringOf(sources, "id");
  m.figure_source = stringOf(sources, "figures");
  m.date = stringOf(sources, "date");
  return m;
}

Database load() {
  Database db;
  if (const auto dir = setting("FLAGOS_FINGERPRINTS")) {
    std::vector<std::string> files;
    if (DIR* d = ::opendir(dir->c_str())) {
      while (const dirent* e = ::readdir(d)) {
        const std::string n = e->d_name;
        if (n.size() > 5 && n.substr(n.size() - 5) == ".json" && n != "schema.json") files.push_back(*dir + "/" + n);
      }
      ::closedir(d);
    }
    if (files.empty())
      db.addProblem(*dir + ": FLAGOS_FINGERPRINTS names no folder with *.json files; the built-in table is used");
    std::sort(files.begin(), files.end());
    for (const std::string& f : files) {
      const auto text = readFile(f, 16u << 20);
      const auto done = text ? db.add(*text, f) : Result<void>(text.error());
      if (!done) db.addProblem(done.error().text());
    }
    if (!db.models().empty()) return db;
  }
  for (const std::string& name : builtinNames())
    if (const auto done = db.add(builtinText(name), name + ".json"); !done) db.addProblem(done.error().text());
  return db;
}

}  // namespace

Result<void> Database::add(std::string_view json_text, std::string_view name) {
  const auto doc = parseJson(json_text, name);
  if (!doc) return doc.error();
  Error e = fail("no \"vendor\" with \"id\" and \"name\", or no \"devices\" list", "See fingerprints/schema.json",
                 Exit::broken_input);
  e.where = std::string(name) + ":1";
  if (!doc->is_object()) return e;
  const Json& vendor = part(*doc, "vendor");
  const std::string id = lower(stringOf(vendor, "id")), vendor_name = stringOf(vendor, "name");
  const auto devices = doc->find("devices");
  if (id.size() != 4 || vendor_name.empty() || devices == doc->end() || !devices->is_array()) return e;
  vendors_.emplace(id, vendor_name);
  for (const Json& d : *devices) {
    if (!d.is_object()) continue;
    Model m = modelFrom(d, id, vendor_name);
    if (m.name.empty()) continue;
    if (m.device.size() == 4) by_id_[id + ":" + m.device].push_back(static_cast<uint32_t>(models_.size()));
    else m.device.clear();
    models_.push_back(std::move(m));
  }
  return {};
}

bool Database::knows(std::string_view vendor, std::string_view device) const {
  return by_id_.count(std::string(vendor) + ":" + std::string(device)) != 0;
}

std::vector<const Model*> Database::find(std::string_view vendor, std::string_view device) const {
  std::vector<const Model*> out;
  const auto it = by_id_.find(std::string(vendor) + ":" + std::string(device));
  if (it != by_id_.end())
    for (const uint32_t i : it->second) out.push_back(&models_[i]);
  return out;
}

const Model* Database::byName(std::string_view model) const {
  const std::string wanted = lower(model);
  for (const Model& m : models_)
    if (lower(m.name) == wanted) return &m;
  return nullptr;
}

std::string Database::vendorName(std::string_view vendor) const {
  const auto it = vendors_.find(std::string(vendor));
  return it == vendors_.end() ? std::string() : it->second;
}

const Database& database() {
  static const Database db = load();
  return db;
}

const std::vector<std::string>& builtinNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> v;
    std::string_view rest = FLAGOS_FINGERPRINT_NAMES;  // "amd,nvidia,..." from the build
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      v.emplace_back(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return v;
  }();
  return names;
}

}  // namespace flagos::dal

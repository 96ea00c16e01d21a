#include "runtime/dal/fingerprint/check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runtime/base/json.h"
#include "runtime/base/settings.h"
#include "runtime/dal/pci_ids.h"

namespace flagos::dal {
namespace {

constexpr double kVectorTolerance = 1.01; // clocks are rounded to MHz, peaks to three digits
constexpr double kRateTolerance = 1.005;   // pin rates are rounded: good rows exceed width x rate by up to 0.2 %

// Line of the n-th object of the "devices" list, and of a key inside it, by scanning the text: the parsed tree has no
// lines.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    size_t p = text.find("\"devices\"");
    p = p == std::string_view::npos ? p : text.find('[', p);
    if (p == std::string_view::npos) return;
    int depth = 0;
    bool in_string = false;
    for (++p; p < text.size(); ++p) {
      const char c = text[p];
      if (in_string) {
        if (c == '\\') ++p;
        else if (c == '"') in_string = false;
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        if (depth++ == 0) starts_.push_back(p);
      } else if (c == '}' || c == ']') {
        if (depth-- == 0) break;
        if (depth == 0) ends_.push_back(p);
      }
    }
  }
  int entry(size_t n) const { return n < starts_.size() ? lineColumn(text_, starts_[n]).line : 1; }
  int key(size_t n, const std::string& key) const {
    if (n >= starts_.size() || n >= ends_.size()) return entry(n);
    const size_t p = text_.find("\"" + key + "\"", starts_[n]);
    return p == std::string_view::npos || p > ends_[n] ? entry(n) : lineColumn(text_, p).line;
  }
  int top(const std::string& key) const {
    const size_t p = text_.find("\"" + key + "\"");
    return p == std::string_view::npos ? 1 : lineColumn(text_, p).line;
  }

 private:
  std::string_view text_;
  std::vector<size_t> starts_, ends_;
};

bool isHex4(const std::string& s) {
  return s.size() == 4 &&
         std::all_of(s.begin(), s.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool isDate(const std::string& s) {
  return s.size() == 10 && s[4] == '-' && s[7] == '-' &&
         std::all_of(s.begin(), s.end(), [](char c) { return c == '-' || (c >= '0' && c <= '9'); });
}
std::string stringOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
double numberOf(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number() ? it->get<double>() : 0;
}

class Checker {
 public:
  Checker(std::string_view text, std::string file, std::string_view pci_ids)
      : lines_(text), file_(std::move(file)), pci_ids_(pci_ids) {}
  std::vector<CheckError> errors;

  void top(const Json& doc) {
    keys(doc, {"$schema", "version", "vendor", "devices"}, 1);
    if (numberOf(doc, "version") != 1) add(lines_.top("version"), "\"version\" must be 1");
    const auto vendor = doc.find("vendor");
    if (vendor == doc.end() || !vendor->is_object()) {
      add(1, "\"vendor\" must be an object with \"id\" and \"name\"");
      return;
    }
    keys(*vendor, {"id", "name"}, lines_.top("vendor"));
    vendor_ = stringOf(*vendor, "id");
    if (!isHex4(vendor_)) add(lines_.top("vendor"), "vendor \"id\" must be four lower-case hex digits");
    if (stringOf(*vendor, "name").empty()) add(lines_.top("vendor"), "vendor \"name\" is missing");
    const auto devices = doc.find("devices");
    if (devices == doc.end() || !devices->is_array()) {
      add(lines_.top("devices"), "\"devices\" must be a list");
      return;
    }
    for (size_t i = 0; i < devices->size(); ++i) {
      if ((*devices)[i].is_object()) entry((*devices)[i], i);
      else add(lines_.entry(i), "an entry of \"devices\" must be an object");
    }
  }

 private:
  void add(int line, std::string reason) { errors.push_back({file_, line, std::move(reason)}); }

  void keys(const Json& j, const std::vector<std::string>& allowed, int line) {
    for (const auto& [key, value] : j.items()) {
      (void)value;
      if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
      const std::string near = nearest(key, allowed);
      add(line, "unknown field \"" + key + "\"" + (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
    }
  }

  // An object part such as "memory"; null if absent.
  const Json* object(const Json& e, const char* key, size_t i) {
    const auto it = e.find(key);
    if (it == e.end()) return nullptr;
    if (it->is_object()) return &*it;
    add(lines_.key(i, key), std::string("\"") + key + "\" must be an object");
    return nullptr;
  }

  void positive(const Json& j, const char* key, size_t i) {
    const auto it = j.find(key);
    if (it != j.end() && (!it->is_number() || !std::isfinite(it->get<double>()) || it->get<double>() <= 0))
      add(lines_.key(i, key), std::string("\"") + key + "\" must be a number above 0; leave it out if it is unknown");
  }

  void confidence(const Json& j, size_t i, const char* part) {
    const std::string c = stringOf(j, "confidence");
    if (c != "A" && c != "B" && c != "C" && c != "U")
      add(lines_.key(i, part),
          std::string("\"") + part + "\" needs \"confidence\": A (two sources), B (one), C (recalled) or U");
  }

  void entry(const Json& e, size_t i) {
    keys(e, {"id", "model", "kind", "arch", "told_by", "pci_ids_name", "memory", "pcie", "compute", "vector", "sources", "note"},
         lines_.entry(i));
    const std::string model = stringOf(e, "model");
    if (model.empty()) add(lines_.entry(i), "\"model\" is missing");
    const std::string kind = stringOf(e, "kind");
    if (kind != "discrete" && kind != "integrated" && kind != "npu" && kind != "other")
      add(lines_.key(i, "kind"), "\"kind\" must be discrete, integrated, npu or other");
    const auto id = e.find("id");
    if (id == e.end() || (!id->is_null() && !(id->is_string() && isHex4(id->get<std::string>()))))
      add(lines_.key(i, "id"), "\"id\" must be four lower-case hex digits, or null where no public id is known");
    const bool numbers = memory(e, i) | link(e, i) | compute(e, i);
    vector(e, i);   // names its own source
    sources(e, i, numbers);
    if (id != e.end() && id->is_string()) unique(id->get<std::string>(), model, e, i);
  }

  bool memory(const Json& e, size_t i) {
    const Json* m = object(e, "memory", i);
    if (!m) return false;
    keys(*m, {"gib", "type", "bus_bits", "gbit_per_pin", "bandwidth_gbps", "confidence"}, lines_.key(i, "memory"));
    confidence(*m, i, "memory");
    for (const char* k : {"bus_bits", "gbit_per_pin", "bandwidth_gbps"}) positive(*m, k, i);
    if (const auto g = m->find("gib"); g != m->end()) {
      bool good = g->is_array() && !g->empty();
      if (good)
        for (const Json& size : *g) good = good && size.is_number() && size.get<double>() > 0;
      if (!good) add(lines_.key(i, "gib"), "\"gib\" must be a list of sizes above 0");
    }
    const double product = numberOf(*m, "bus_bits") * numberOf(*m, "gbit_per_pin") / 8,
                 bandwidth = numberOf(*m, "bandwidth_gbps");
    if (product > 0 && bandwidth > product * kRateTolerance) {
      char text[160];
      std::snprintf(text, sizeof text, "bandwidth %.6g GB/s is more than bus_bits x gbit_per_pin / 8 = %.6g GB/s",
                    bandwidth, product);
      add(lines_.key(i, "bandwidth_gbps"), text);
    }
    return m->contains("gib") || bandwidth > 0;
  }

  bool link(const Json& e, size_t i) {
    const Json* p = object(e, "pcie", i);
    if (!p) return false;
    keys(*p, {"link", "confidence"}, lines_.key(i, "pcie"));
    confidence(*p, i, "pcie");
    const std::string l = stringOf(*p, "link");
    const bool good =
        l == "C2C" ||
        (l.size() >= 3 && l.size() <= 4 && l[0] >= '1' && l[0] <= '7' && l[1] == 'x' &&
         (l.substr(2) == "1" || l.substr(2) == "2" || l.substr(2) == "4" || l.substr(2) == "8" || l.substr(2) == "16"));
    if (!good) add(lines_.key(i, "link"), "\"link\" must be generation x width such as \"4x16\", or \"C2C\"");
    return true;
  }

  bool compute(const Json& e, size_t i) {
    const Json* c = object(e, "compute", i);
    if (!c) return false;
    keys(*c, {"dense_fp16_tflops", "sparse_fp16_tflops", "confidence"}, lines_.key(i, "compute"));
    confidence(*c, i, "compute");
    positive(*c, "dense_fp16_tflops", i);
    positive(*c, "sparse_fp16_tflops", i);
    const double dense = numberOf(*c, "dense_fp16_tflops"), sparse = numberOf(*c, "sparse_fp16_tflops");
    if (sparse > 0 && dense > sparse / 2 * kRateTolerance)
      add(lines_.key(i, "dense_fp16_tflops"),
          "dense FP16 must be at most half of the sparse figure: is this the sparse one?");
    return true;
  }

  // Two operations (a fused multiply-add) per lane and cycle are all that vector units can do.
  void vector(const Json& e, size_t i) {
    const Json* v = object(e, "vector", i);
    if (!v) return;
    keys(*v, {"fp32_tflops", "lanes", "boost_mhz", "confidence", "source", "date"}, lines_.key(i, "vector"));
    confidence(*v, i, "vector");
    for (const char* k : {"fp32_tflops", "lanes", "boost_mhz"}) positive(*v, k, i);
    const double peak = 2 * numberOf(*v, "lanes") * numberOf(*v, "boost_mhz") / 1e6,
                 rate = numberOf(*v, "fp32_tflops");
    if (peak > 0 && rate > peak * kVectorTolerance) {
      char text[160];
      std::snprintf(text, sizeof text, "fp32 %.6g TFLOP/s is more than 2 x lanes x boost_mhz = %.6g TFLOP/s", rate, peak);
      add(lines_.key(i, "fp32_tflops"), text);
    }
    if (stringOf(*v, "source").empty() || !isDate(stringOf(*v, "date")))
      add(lines_.key(i, "vector"), "\"vector\" needs \"source\" and \"date\" as YYYY-MM-DD");
  }

  void sources(const Json& e, size_t i, bool numbers) {
    const Json* s = object(e, "sources", i);
    if (!s) { add(lines_.entry(i), "\"sources\" is missing: every id and number has a source and a date"); return; }
    keys(*s, {"id", "figures", "date"}, lines_.key(i, "sources"));
    if (stringOf(*s, "id").empty())
      add(lines_.key(i, "sources"), "\"sources\" needs \"id\": where the device id comes from");
    if (numbers && stringOf(*s, "figures").empty())
      add(lines_.key(i, "sources"), "\"sources\" needs \"figures\": where the numbers come from");
    if (!isDate(stringOf(*s, "date"))) add(lines_.key(i, "sources"), "\"sources\" needs \"date\" as YYYY-MM-DD");
    if (pci_ids_.empty() || stringOf(*s, "id") != "pci.ids" || !e.contains("id") || !e["id"].is_string()) return;
    // The id must be in its vendor's own list.
    const std::string id = e["id"].get<std::string>();
    if (pciVendorSection(pci_ids_, vendor_).empty()) add(lines_.key(i, "id"), "pci.ids has no vendor " + vendor_);
    else if (pciDeviceName(pci_ids_, vendor_, id).empty())
      add(lines_.key(i, "id"), "pci.ids does not list " + vendor_ + ":" + id);
  }

  // Two entries of one id must be told apart by something.
  void unique(const std::string& id, const std::string& model, const Json& e, size_t i) {
    const std::string told = stringOf(e, "told_by");
    std::string sizes = "-";
    if (const auto m = e.find("memory"); m != e.end() && m->is_object() && m->contains("gib"))
      sizes = m->at("gib").dump();
    if (!names_.insert(id + "\n" + model).second)
      add(lines_.entry(i), "id " + id + " has two entries for \"" + model + "\"");
    const auto [it, fresh] = told_.emplace(id, std::make_pair(told, sizes));
    if (!fresh && it->second.second == sizes && (told.empty() || it->second.first.empty()))
      add(lines_.entry(i),
          "id " + id + " has another entry of the same memory size: \"told_by\" must say what tells them apart");
  }

  Lines lines_;
  std::string file_, vendor_;
  std::string_view pci_ids_;
  std::set<std::string> names_;
  std::map<std::string, std::pair<std::string, std::string>> told_;
};

}  // namespace

std::vector<CheckError> checkFingerprints(std::string_view json_text, const std::string& file,
                                          std::string_view pci_ids) {
  const auto doc = parseJson(json_text, file);
  if (!doc) {
    // "file:line:column" of the parser becomes file and line.
    const std::string& where = doc.error().where;
    int line = 1;
    if (where.size() > file.size() && where.compare(0, file.size(), file) == 0)
      line = std::max(1, std::atoi(where.c_str() + file.size() + 1));
    return {{file, line, doc.error().what}};
  }
  if (!doc->is_object()) return {{file, 1, "must be an object with \"vendor\" and \"devices\""}};
  Checker c(json_text, file, pci_ids);
  c.top(*doc);
  std::stable_sort(c.errors.begin(), c.errors.end(),
                   [](const CheckError& a, const CheckError& b) { return a.line < b.line; });
  return c.errors;
}

std::vector<CheckError> checkTogether(const std::vector<std::pair<std::string, std::string>>& files) {
  std::vector<CheckError> errors;
  std::map<std::string, std::string> owner;
  struct Figures { std::string file; double gib, bandwidth, fp32; };
  std::map<std::string, Figures> models;
  for (const auto& [file, text] : files) {
    const auto doc = parseJson(text, file);
    if (!doc || !doc->is_object() || !doc->contains("vendor") || !(*doc)["vendor"].is_object()) continue;
    const Lines lines(text);
    const std::string vendor = stringOf((*doc)["vendor"], "id");
    if (const auto [it, fresh] = owner.emplace(vendor, file); !fresh)
      errors.push_back({file, lines.top("vendor"), "vendor " + vendor + " already has a file: " + it->second});
    if (!doc->contains("devices") || !(*doc)["devices"].is_array()) continue;
    for (size_t i = 0; i < (*doc)["devices"].size(); ++i) {
      const Json& e = (*doc)["devices"][i];
      if (!e.is_object()) continue;
      Figures f{file, 0, 0, 0};
      if (const auto v = e.find("vector"); v != e.end() && v->is_object()) f.fp32 = numberOf(*v, "fp32_tflops");
      if (const auto m = e.find("memory"); m != e.end() && m->is_object()) {
        f.bandwidth = numberOf(*m, "bandwidth_gbps");
        if (m->contains("gib") && (*m)["gib"].is_array() && !(*m)["gib"].empty() && (*m)["gib"][0].is_number())
          f.gib = (*m)["gib"][0].get<double>();
      }
      const auto [it, fresh] = models.emplace(stringOf(e, "model"), f);
      if (fresh) continue;
      const Figures& o = it->second;
      if ((f.gib > 0 && o.gib > 0 && f.gib != o.gib) ||
          (f.bandwidth > 0 && o.bandwidth > 0 && f.bandwidth != o.bandwidth) ||
          (f.fp32 > 0 && o.fp32 > 0 && f.fp32 != o.fp32))
        errors.push_back(
            {file, lines.entry(i),
             "\"" + stringOf(e, "model") + "\" has other figures in " + o.file + ": one name, one product"});
    }
  }
  return errors;
}

}  // namespace flagos::dal

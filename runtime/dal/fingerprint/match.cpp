#include "runtime/dal/fingerprint/match.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace flagos::dal {
namespace {

constexpr double kGib = 1073741824.0;
constexpr double kMemoryBand = 0.10;         // nominal and reported sizes differ by reserved pages, ECC and units
constexpr double kSlowestCopy = 0.50;        // a copy test reaches 50 to 100 % of the nominal bandwidth
constexpr double kRounding = 1e-9;

std::string number(double v) {
  char buf[32];
  std::snprintf(buf, sizeof buf, "%.4g", v);
  return buf;
}

std::string hexId(const std::string& text, size_t digits) {
  std::string s = text;
  if (s.size() > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X')) s.erase(0, 2);
  for (char& c : s) {
    if (!std::isxdigit(static_cast<unsigned char>(c))) return "";
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (s.empty() || s.size() > digits) return s.empty() ? "" : s;
  return std::string(digits - s.size(), '0') + s;
}

bool sizeFits(double reported_gib, double nominal_gib) {
  return std::fabs(reported_gib - nominal_gib) <= nominal_gib * (kMemoryBand + kRounding);
}

// Longest name wins elsewhere; here a name is only evidence, so containing every word of the model is enough to mention
// it.
bool nameMentions(const std::string& reported, const std::string& model) {
  std::string a, b;
  for (const char c : reported)
    if (std::isalnum(static_cast<unsigned char>(c)))
      a += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const char c : model)
    if (std::isalnum(static_cast<unsigned char>(c)))
      b += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return !b.empty() && a.size() >= b.size() && a.compare(a.size() - b.size(), b.size(), b) == 0;
}

// Fills the evidence; true if nothing excludes the model.
bool judge(const Model& m, const Board& b, Candidate& c) {
  bool fits = true;
  double score = 0.5;
  c.model = m.name;
  c.evidence_for.push_back("id " + m.vendor + ":" + m.device + (m.id_source.empty() ? "" : " (" + m.id_source + ")"));
  if (b.memory_bytes && !m.memory_gib.empty()) {
    const double gib = *b.memory_bytes / kGib;
    std::string sizes;
    bool any = false;
    for (const double nominal : m.memory_gib) {
      sizes += (sizes.empty() ? "" : " or ") + number(nominal);
      any = any || sizeFits(gib, nominal);
    }
    const std::string text = "memory " + number(gib) + " GiB, nominal " + sizes + " GiB";
    (any ? c.evidence_for : c.evidence_against).push_back(text + (any ? " (within 10 %)" : " (more than 10 % away)"));
    if (any) score += 0.25; else fits = false;
  }
  if (b.bandwidth_gbps && m.bandwidth_gbps > 0) {
    const double share = *b.bandwidth_gbps / m.bandwidth_gbps;
    const bool ok = share >= kSlowestCopy - kRounding && share <= 1 + kRounding;
    const std::string text = "measured " + number(*b.bandwidth_gbps) + " GB/s is " + number(share * 100) +
                             " % of the nominal " + number(m.bandwidth_gbps);
    (ok ? c.evidence_for : c.evidence_against).push_back(text + (ok ? "" : " (50 to 100 % is possible)"));
    if (ok) score += 0.15; else fits = false;
  }
  if (!b.reported_name.empty()) {
    const bool mentions = nameMentions(b.reported_name, m.name);
    if (mentions) {
      c.evidence_for.push_back("the driver calls it \"" + b.reported_name + "\" (a name never decides)");
      score += 0.05;
    }
  }
  if (m.told_by == "revision" && !b.revision.empty())
    c.evidence_against.push_back("revision " + b.revision + ": the table does not say which revision this model has");
  c.score = fits ? std::min(1.0, score) : 0;
  return fits;
}

}  // namespace

double memoryClassGib(double reported_bytes) {
  static constexpr double kSizes[] = {0.5, 1,  2,  3,  4,  5,  6,  7,   8,   10,  11,  12,  16,  20,  24, 32,
                                      40,  48, 64, 80, 94, 95, 96, 128, 141, 144, 192, 256, 288, 384, 512};
  const double gib = reported_bytes / kGib;
  // Reserved pages and ECC take up to a tenth away; nothing adds more than a rounding.
  for (const double size : kSizes)
    if (gib <= size * 1.005 && gib >= size * (1 - kMemoryBand)) return size;
  return std::round(gib);
}

Fingerprint match(const Database& db, const Board& board) {
  Fingerprint f;
  Board b = board;
  b.vendor = hexId(b.vendor, 4);
  b.device = hexId(b.device, 4);
  b.revision = hexId(b.revision, 2);
  std::string subsystem;
  if (const auto colon = b.subsystem.find(':'); colon != std::string::npos) {
    const std::string sv = hexId(b.subsystem.substr(0, colon), 4), sd = hexId(b.subsystem.substr(colon + 1), 4);
    if (!sv.empty() && !sd.empty()) subsystem = sv + ":" + sd;
  }
  std::set<std::string> fitting;
  std::set<double> sizes;
  if (!b.device.empty())
    for (const Model* m : db.find(b.vendor, b.device)) {
      Candidate c;
      if (judge(*m, b, c)) {
        fitting.insert(m->name);
        if (m->memory_gib.size() == 1) sizes.insert(m->memory_gib.front());
        else sizes.insert(-static_cast<double>(m->memory_gib.size()) - 1);  // no single size: not decided by the model
      }
      f.candidates.push_back(std::move(c));
    }
  std::stable_sort(f.candidates.begin(), f.candidates.end(),
                   [](const Candidate& x, const Candidate& y) { return x.score > y.score; });
  f.result = fitting.empty() ? "unknown" : fitting.size() == 1 ? "exact" : "family";
  if (fitting.size() == 1) f.model = *fitting.begin();

  // Where every fitting model has one size, that is the class, reported or not: a driver that is not loaded yet, or
  // reports a little less than the last one, changes nothing.
  std::string memory = "-";
  if (sizes.size() == 1 && *sizes.begin() > 0) memory = number(*sizes.begin()) + "GiB";
  else if (b.memory_bytes && sizes.count(-1) == 0) memory = number(memoryClassGib(*b.memory_bytes)) + "GiB";
  f.identity = (b.vendor.empty() ? "-" : b.vendor) + ":" + (b.device.empty() ? "-" : b.device) + "/" +
               (subsystem.empty() ? "-" : subsystem) + "/" + (b.revision.empty() ? "-" : b.revision) + "/" + memory;
  f.build = "firmware " + (b.firmware.empty() ? "-" : b.firmware) + ", driver " + (b.driver.empty() ? "-" : b.driver);
  return f;
}

Fingerprint matchMeasured(const Database& db, const Board& board, double measured_gbps) {
  Board b = board;
  b.bandwidth_gbps.reset();
  Fingerprint without = match(db, b);
  if (without.result == "unknown") return without;
  b.bandwidth_gbps = measured_gbps;
  const Fingerprint with = match(db, b);
  std::string left_out;
  if (with.result == "unknown") left_out = "no model that fits reaches it";
  for (const Candidate& c : without.candidates)
    for (const Model* m : db.find(hexId(b.vendor, 4), hexId(b.device, 4)))
      if (c.score > 0 && m->name == c.model && m->bandwidth_gbps > 0 &&
          measured_gbps < kSlowestCopy * m->bandwidth_gbps)
        left_out = "a busy or throttled card measures low";
  if (left_out.empty()) {
    Fingerprint f = with;
    f.identity = without.identity;
    f.build = without.build;
    return f;
  }
  for (Candidate& c : without.candidates)
    c.evidence_against.push_back("measured " + number(measured_gbps) + " GB/s was not counted: " + left_out);
  return without;
}

Json toJson(const Fingerprint& f) {
  Json candidates = Json::array();
  for (const Candidate& c : f.candidates)
    candidates.push_back(Json{{"model", c.model},
                              {"score", std::round(c.score * 1000) / 1000},
                              {"for", c.evidence_for},
                              {"against", c.evidence_against}});
  return Json{{"result", f.result},
              {"model", f.model.empty() ? Json(nullptr) : Json(f.model)},
              {"candidates", std::move(candidates)},
              {"identity", f.identity},
              {"build", f.build}};
}

Result<Board> boardFromJson(const Json& j) {
  if (!j.is_object()) return fail("expected one object a line", {}, Exit::broken_input);
  Board b;
  std::string wrong;
  const auto text = [&](const char* key, std::string& out) {
    const auto it = j.find(key);
    if (it == j.end() || it->is_null()) return;
    if (it->is_string()) out = it->get<std::string>();
    else if (wrong.empty()) wrong = std::string("\"") + key + "\" must be a string or null";
  };
  const auto positive = [&](const char* key, std::optional<double>& out) {
    const auto it = j.find(key);
    if (it == j.end() || it->is_null()) return;
    if (it->is_number() && it->get<double>() > 0) out = it->get<double>();
    else if (wrong.empty()) wrong = std::string("\"") + key + "\" must be a positive number or null";
  };
  text("vendor", b.vendor);
  text("device", b.device);
  text("subsystem", b.subsystem);
  text("revision", b.revision);
  text("firmware", b.firmware);
  text("driver", b.driver);
  text("reported_name", b.reported_name);
  positive("memory_bytes", b.memory_bytes);
  positive("bandwidth_gbps", b.bandwidth_gbps);
  if (!wrong.empty()) return fail(wrong, {}, Exit::broken_input);
  return b;
}

}  // namespace flagos::dal

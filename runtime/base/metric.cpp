#include "runtime/base/metric.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace flagos {
namespace {
std::string number(double v, const char* unit) {
  char buf[48];
  const double a = std::fabs(v);
  const int digits = a >= 100 || v == std::floor(v) ? 0 : a >= 10 ? 1 : 2;
  std::snprintf(buf, sizeof buf, "%.*f %s", digits, v, unit);
  return buf;
}
std::string stringOr(const nlohmann::json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
}
}  // namespace

Metric Metric::of(double value, std::string_view unit, std::string_view source, std::optional<double> age_s) {
  return {value, std::string(unit), std::string(source), age_s, {}};
}
Metric Metric::missing(std::string_view unit, std::string_view why) {
  return {std::nullopt, std::string(unit), {}, std::nullopt, std::string(why)};
}

nlohmann::json toJson(const Metric& m) {
  nlohmann::json j;
  // Whole numbers print as integers: 4096, not 4096.0.
  if (!m.value || !std::isfinite(*m.value)) j["value"] = nullptr;
  else if (*m.value == std::floor(*m.value) && std::fabs(*m.value) < 9e15) j["value"] = static_cast<int64_t>(*m.value);
  else j["value"] = *m.value;
  j["unit"] = m.unit;
  j["source"] = m.source.empty() ? nlohmann::json(nullptr) : nlohmann::json(m.source);
  j["age_s"] = m.age_s ? nlohmann::json(*m.age_s) : nlohmann::json(nullptr);
  j["why_missing"] = m.value ? nlohmann::json(nullptr)
                             : nlohmann::json(m.why_missing.empty() ? "no source reported it" : m.why_missing);
  return j;
}

Metric metricFromJson(const nlohmann::json& j) {
  Metric m;
  if (!j.is_object()) return Metric::missing("", "not reported");
  m.unit = stringOr(j, "unit");
  m.source = stringOr(j, "source");
  m.why_missing = stringOr(j, "why_missing");
  if (const auto it = j.find("value"); it != j.end() && it->is_number()) m.value = it->get<double>();
  if (const auto it = j.find("age_s"); it != j.end() && it->is_number()) m.age_s = it->get<double>();
  return m;
}

std::string formatBytes(double b) {
  static const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int i = 0;
  while (std::fabs(b) >= 1024 && i < 5) { b /= 1024; ++i; }
  return number(b, units[i]);
}

std::string formatSeconds(double s) {
  const double a = std::fabs(s);
  if (a == 0) return "0 s";
  if (a < 1e-6) return number(s * 1e9, "ns");
  if (a < 1e-3) return number(s * 1e6, "us");
  if (a < 1) return number(s * 1e3, "ms");
  return number(s, "s");
}

std::string format(const Metric& m) {
  if (!m.value) return "unknown (" + (m.why_missing.empty() ? std::string("no source reported it") : m.why_missing) + ")";
  if (m.unit == "B") return formatBytes(*m.value);
  if (m.unit == "s") return formatSeconds(*m.value);
  return number(*m.value, m.unit.c_str());
}

}  // namespace flagos

// A number as it is shown: value, unit, source, age, and if it is missing, why. Missing is never 0.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace flagos {

struct Metric {
  std::optional<double> value;
  std::string unit;         // "B", "%", "s", "B/s", "Hz", "W", "C", "count"
  std::string source;       // "opencl" | "sysfs" | "driver" | "measured" | "table" | "predicted"
  std::optional<double> age_s;  // seconds since it was read; empty for facts that do not age
  std::string why_missing;  // one clause; empty if value is set

  static Metric of(double value, std::string_view unit, std::string_view source, std::optional<double> age_s = 0.0);
  static Metric missing(std::string_view unit, std::string_view why);
};

// {"value","unit","source","age_s","why_missing"}; a missing part is null.
nlohmann::json toJson(const Metric&);
Metric metricFromJson(const nlohmann::json&);  // unknown fields ignored; a wrong type reads as missing

// "1.2 GiB", "512 B": binary units, at most three significant digits.
std::string formatBytes(double bytes);
// "1.25 ms", "40 ns".
std::string formatSeconds(double seconds);
// The value with its unit, or "unknown (why)".
std::string format(const Metric&);

}  // namespace flagos

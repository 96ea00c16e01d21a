// Appends JSON text without building a tree. Keys are our own literals; texts are escaped, invalid UTF-8 replaced.
#pragma once
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "runtime/base/metric.h"

namespace flagos::telemetry {

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& open(char bracket) { separate(); out_ += bracket; fresh_ = true; return *this; }
  JsonWriter& close(char bracket) { out_ += bracket; fresh_ = false; return *this; }
  JsonWriter& key(std::string_view k) {
    separate();
    out_ += '"';
    out_ += k;
    out_ += "\":";
    fresh_ = true;                     // no comma before the value
    return *this;
  }
  JsonWriter& null() { separate(); out_ += "null"; return *this; }
  JsonWriter& number(uint64_t v) { separate(); out_ += std::to_string(v); return *this; }
  JsonWriter& number(int64_t v) { separate(); out_ += std::to_string(v); return *this; }
  JsonWriter& number(int v) { return number(int64_t{v}); }
  JsonWriter& number(uint32_t v) { return number(uint64_t{v}); }
  JsonWriter& number(double v) {
    if (!std::isfinite(v)) return null();
    if (v == std::floor(v) && std::fabs(v) < 9e15) return number(static_cast<int64_t>(v));
    separate();
    char buf[32];
    const auto end = std::to_chars(buf, buf + sizeof buf, v);  // shortest text that reads back as the same number
    out_.append(buf, static_cast<size_t>(end.ptr - buf));
    return *this;
  }
  JsonWriter& text(std::string_view s);
  JsonWriter& textOrNull(std::string_view s) { return s.empty() ? null() : text(s); }
  JsonWriter& raw(std::string_view json) { separate(); out_ += json; return *this; }
  JsonWriter& metric(const Metric& m) {
    open('{').key("value");
    if (m.value) number(*m.value); else null();
    key("unit").text(m.unit).key("source").textOrNull(m.source).key("age_s");
    if (m.age_s) number(*m.age_s); else null();
    key("why_missing");
    if (m.value) null(); else text(m.why_missing.empty() ? "no source reported it" : std::string_view(m.why_missing));
    return close('}');
  }

 private:
  void separate() {
    if (!fresh_) out_ += ',';
    fresh_ = false;
  }
  std::string& out_;
  bool fresh_ = true;
};

}  // namespace flagos::telemetry

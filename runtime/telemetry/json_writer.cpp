#include "runtime/telemetry/json_writer.h"

namespace flagos::telemetry {
namespace {
// Bytes of the well-formed UTF-8 sequence at s[i], or 0.
size_t sequence(std::string_view s, size_t i) {
  const auto at = [&](size_t k) { return i + k < s.size() ? static_cast<unsigned char>(s[i + k]) : 0u; };
  const auto tail = [&](size_t k) { return (at(k) & 0xc0u) == 0x80u; };
  const unsigned c = at(0);
  if (c < 0x80) return 1;
  if (c >= 0xc2 && c < 0xe0) return tail(1) ? 2 : 0;
  if (c >= 0xe0 && c < 0xf0) {
    if (!tail(1) || !tail(2)) return 0;
    if ((c == 0xe0 && at(1) < 0xa0) || (c == 0xed && at(1) >= 0xa0)) return 0;
    return 3;
  }
  if (c >= 0xf0 && c < 0xf5) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if ((c == 0xf0 && at(1) < 0x90) || (c == 0xf4 && at(1) >= 0x90)) return 0;
    return 4;
  }
  return 0;
}
}  // namespace

JsonWriter& JsonWriter::text(std::string_view s) {
  separate();
  out_ += '"';
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c == '"' || c == '\\') { out_ += '\\'; out_ += s[i++]; continue; }
    if (c < 0x20) {
      char buf[8];
      std::snprintf(buf, sizeof buf, "\\u%04x", c);
      out_ += buf;
      ++i;
      continue;
    }
    const size_t n = sequence(s, i);
    if (n == 0) { out_ += "\xef\xbf\xbd"; ++i; continue; }
    out_.append(s, i, n);
    i += n;
  }
  out_ += '"';
  return *this;
}

}  // namespace flagos::telemetry

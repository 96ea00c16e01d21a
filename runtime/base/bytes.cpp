#include "runtime/base/bytes.h"

#include <charconv>
#include <cmath>
#include <string>

namespace flagos {

Result<size_t> parseBytes(std::string_view text) {
  const std::string given = "FLAGOS_MEMORY_LIMIT=" + std::string(text);
  const char* todo = "Write a number, or one with K, M, G or T (8G)";
  const Error bad = fail(given + " is not a number of bytes", todo);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) return fail(given + " is more than any device has", todo);
  if (error != std::errc{} || !(value >= 0)) return bad;
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  int power = 0;
  if (!unit.empty() && unit != "B") {
    const size_t letter = std::string_view("KMGT").find(static_cast<char>(unit.front() & ~0x20));
    unit.remove_prefix(1);
    if (letter == std::string_view::npos || !(unit.empty() || unit == "iB" || unit == "B" || unit == "ib")) return bad;
    power = 10 * static_cast<int>(letter + 1);
  }
  const double bytes = std::ldexp(value, power);
  // Beyond what an address can say (or below one byte) the conversion would be undefined.
  if (bytes < 1) return fail(given + " leaves no memory at all", todo);
  if (!(bytes < std::ldexp(1.0, 62))) return fail(given + " is more than any device has", todo);
  return static_cast<size_t>(bytes);
}

std::string counted(uint64_t n, std::string_view noun) {
  return std::to_string(n) + " " + std::string(noun) + (n == 1 ? "" : "s");
}

}  // namespace flagos

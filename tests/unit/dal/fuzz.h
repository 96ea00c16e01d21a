// Helpers of the fuzz tests: mutations of text, and what must hold of any inventory.
#pragma once
#include <random>
#include <string>

#include "runtime/base/json.h"
#include "runtime/dal/inventory.h"
#include "tests/unit/catch.h"

namespace fuzz {

inline std::string mutate(std::string s, std::mt19937& rng) {
  static const char* const kPieces[] = {
      "null", "-1", "1e999", "[]", "{}", "\"", "\\u0000",      "\xff\xfe", "18446744073709551616",
      "true", "0x", ",",     "]",  "}",  "\n", "0000:ff:1f.7", "\x01"};
  const int edits = 1 + static_cast<int>(rng() % 4);
  for (int i = 0; i < edits; ++i) {
    const size_t at = s.empty() ? 0 : rng() % s.size();
    switch (rng() % 6) {
      case 0: if (!s.empty()) s[at] = static_cast<char>(rng()); break;
      case 1: s.insert(at, kPieces[rng() % std::size(kPieces)]); break;
      case 2: s.erase(at, rng() % 16); break;
      case 3: s.resize(at); break;
      case 4: if (!s.empty()) s.insert(at, s.substr(rng() % s.size(), rng() % 64)); break;
      default: s.replace(at, std::min<size_t>(s.size() - at, rng() % 8), kPieces[rng() % std::size(kPieces)]); break;
    }
  }
  return s;
}

inline void promises(const flagos::dal::Inventory& inventory) {
  int next = 0;
  for (const flagos::dal::Device& d : inventory.devices) {
    if (d.index && *d.index != next++) FAIL("indices are not dense");
    if (d.usable != d.why_unusable.empty()) FAIL("usable and its reason disagree");
    if (d.usable != d.opencl.has_value()) FAIL("usable without a place, or a place without use");
    for (const flagos::Metric* m :
         {&d.memory_dedicated, &d.memory_shared, &d.memory_used, &d.memory_free, &d.utilisation})
      if (m->value.has_value() == !m->why_missing.empty()) FAIL("a number and its absence at once");
    if (d.name.empty() || d.stable_id.empty()) FAIL("no name or id");
  }
  for (const flagos::dal::ProbeReport& p : inventory.probes)
    if (p.name == "all") FAIL("an exception: " << p.why_nothing);
  if (flagos::dump(flagos::dal::toJson(inventory)).empty()) FAIL("no JSON");
}

}  // namespace fuzz

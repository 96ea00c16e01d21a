// A fixed set of names that is asked very often and mostly in vain: most questions end at the length and the first letter.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <unordered_set>

namespace flagos::lsp {

class NameSet {
 public:
  NameSet(std::initializer_list<std::string_view> names) : all_(names) {
    for (const auto n : names) starts_[slot(n)] |= bit(n);
  }
  size_t count(std::string_view n) const { return (starts_[slot(n)] & bit(n)) == 0 ? 0 : all_.count(n); }

 private:
  static size_t slot(std::string_view n) { return n.size() < 31 ? n.size() : 31; }
  static uint64_t bit(std::string_view n) { return n.empty() ? 1 : uint64_t{1} << (static_cast<unsigned char>(n[0]) & 63); }
  std::unordered_set<std::string_view> all_;   // of literals: they live for ever
  uint64_t starts_[32] = {};
};

}  // namespace flagos::lsp

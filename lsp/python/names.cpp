#include "lsp/python/names.h"

#include <mutex>
#include <unordered_set>

namespace flagos::lsp {
namespace {

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};
struct Names {
  std::mutex lock;
  std::unordered_set<std::string, Hash, std::equal_to<>> all;
};
Names& names() {
  static auto* n = new Names;   // never destroyed: other threads may still be at work when the process ends
  return *n;
}

}  // namespace

SlotName knownName(std::string_view name) {
  Names& n = names();
  const std::lock_guard guard(n.lock);
  const auto it = n.all.find(name);
  return it == n.all.end() ? nullptr : &*it;
}

SlotName internName(std::string_view name) {
  Names& n = names();
  const std::lock_guard guard(n.lock);
  const auto it = n.all.find(name);
  return it != n.all.end() ? &*it : &*n.all.emplace(name).first;
}

}  // namespace flagos::lsp

#include "runtime/telemetry/first_launch.h"

#include <atomic>
#include <map>
#include <mutex>
#include <tuple>

namespace flagos::telemetry {
namespace {

using Key = std::tuple<SiteId, RouteId, NameId>;

struct Owed {
  std::mutex mutex;
  std::map<Key, uint32_t> launches;
  std::atomic<bool> any{false};  // kept beside the map, so that the usual launch takes no lock
};

// Never destroyed: drivers deliver times while the process ends.
Owed& owed() {
  static Owed* o = new Owed;
  return *o;
}

}  // namespace

uint32_t launchesTimed(SiteId site, RouteId route, NameId kernel, bool first) noexcept {
  Owed& o = owed();
  if (!first && !o.any.load(std::memory_order_acquire)) return 1;
  std::unique_lock lock(o.mutex);
  const Key key{site, route, kernel};
  if (first) {
    try {
      ++o.launches[key];
      o.any.store(true, std::memory_order_release);
    } catch (...) {}
    return 0;
  }
  const auto it = o.launches.find(key);
  if (it == o.launches.end()) return 1;
  const uint32_t n = 1 + it->second;
  o.launches.erase(it);
  if (o.launches.empty()) o.any.store(false, std::memory_order_release);
  return n;
}

void forgetFirstLaunches() noexcept {
  Owed& o = owed();
  std::unique_lock lock(o.mutex);
  o.launches.clear();
  o.any.store(false, std::memory_order_release);
}

}  // namespace flagos::telemetry

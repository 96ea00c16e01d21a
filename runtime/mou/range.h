// The reserved range of host addresses of one logical device, handed out to slabs in granules. Addresses only: no
// memory is used until a slab's pages are opened. Not thread-safe; the pool's mutex guards it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/base/result.h"

namespace flagos::mou {

struct Slab;

class AddressRange {
 public:
  // Maps inaccessible addresses; MAP_FAILED and errno when it cannot. Replaced in tests.
  using Map = void* (*)(size_t bytes);
  // Tries `bytes`, then halves (an address-space limit forbids big ranges) down to four granules.
  static Result<std::unique_ptr<AddressRange>> reserve(size_t bytes, size_t granule, Map map = &mapInaccessible);
  static void* mapInaccessible(size_t bytes);
  ~AddressRange();
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  // A run of granules for `bytes` (plus an inaccessible gap if asked), lowest address first; null if none is left.
  char* take(Slab* slab, size_t bytes, bool gap) noexcept;
  // Gives the pages back to the system and the addresses back to the range (inaccessible again).
  void give(char* base) noexcept;

  // The slab whose granules hold the address, or null. The address may lie past the slab's end.
  Slab* slabAt(const void* address) const noexcept;
  bool contains(const void* address) const noexcept {
    const auto* p = static_cast<const char*>(address);
    return p >= base_ && p < base_ + bytes_;
  }
  size_t bytes() const noexcept { return bytes_; }
  char* base() const noexcept { return base_; }

 private:
  AddressRange(char* base, size_t bytes, size_t granule);

  char* base_;
  size_t bytes_, granule_;
  std::vector<Slab*> owner_;  // per granule
};

}  // namespace flagos::mou

#include "runtime/mou/range.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/base/metric.h"

namespace flagos::mou {

AddressRange::AddressRange(char* base, size_t bytes, size_t granule)
    : base_(base), bytes_(bytes), granule_(granule), owner_(bytes / granule, nullptr) {}

AddressRange::~AddressRange() { ::munmap(base_, bytes_); }

void* AddressRange::mapInaccessible(size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

Result<std::unique_ptr<AddressRange>> AddressRange::reserve(size_t bytes, size_t granule, Map map) {
  bytes = std::max(bytes / granule, size_t{4}) * granule;
  const size_t asked = bytes;
  for (;;) {
    void* p = map(bytes);
    if (p != MAP_FAILED) return std::unique_ptr<AddressRange>(new AddressRange(static_cast<char*>(p), bytes, granule));
    if (bytes <= granule * 4) break;
    bytes = std::max(bytes / 2 / granule, size_t{4}) * granule;
  }
  return fail("cannot reserve addresses for device memory (tried " + formatBytes(double(asked)) + " down to " +
                  formatBytes(double(bytes)) + "): " + std::strerror(errno),
              "raise the address-space limit of this process (ulimit -v)");
}

char* AddressRange::take(Slab* slab, size_t bytes, bool gap) noexcept {
  const size_t need = (bytes + (gap ? 1 : 0) + granule_ - 1) / granule_;
  size_t run = 0;
  for (size_t i = 0; i < owner_.size(); ++i) {
    run = owner_[i] ? 0 : run + 1;
    if (run < need) continue;
    const size_t first = i + 1 - need;
    std::fill_n(owner_.begin() + static_cast<std::ptrdiff_t>(first), need, slab);
    return base_ + first * granule_;
  }
  return nullptr;
}

void AddressRange::give(char* base) noexcept {
  const size_t first = static_cast<size_t>(base - base_) / granule_;
  Slab* slab = owner_[first];
  size_t count = 0;
  while (first + count < owner_.size() && owner_[first + count] == slab) owner_[first + count++] = nullptr;
  // Mapping afresh drops the pages and the access in one call.
  ::mmap(base, count * granule_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

Slab* AddressRange::slabAt(const void* address) const noexcept {
  if (!contains(address)) return nullptr;
  return owner_[static_cast<size_t>(static_cast<const char*>(address) - base_) / granule_];
}

}  // namespace flagos::mou

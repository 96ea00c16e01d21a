#include "runtime/mou/slab.h"

#include <sys/mman.h>

namespace flagos::mou {
namespace {

void* pages(size_t bytes) noexcept {
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

size_t words(size_t units) noexcept { return units / 64 + 1; }

}  // namespace

bool StartIndex::open(StartIndex& index, size_t units) noexcept {
  index.units_ = units;
  index.starts_ = static_cast<Node**>(pages(units * sizeof(Node*)));
  index.bits_ = static_cast<uint64_t*>(pages(words(units) * sizeof(uint64_t)));
  if (index.starts_ && index.bits_) return true;
  index.close();
  return false;
}

void StartIndex::close() noexcept {
  if (starts_) ::munmap(starts_, units_ * sizeof(Node*));
  if (bits_) ::munmap(bits_, words(units_) * sizeof(uint64_t));
  starts_ = nullptr;
  bits_ = nullptr;
}

Node* StartIndex::below(size_t unit) const noexcept {
  if (unit >= units_) return nullptr;
  size_t word = unit / 64;
  const size_t bit = unit % 64;
  uint64_t w = bits_[word] & (bit == 63 ? ~uint64_t{0} : (uint64_t{1} << (bit + 1)) - 1);
  while (!w) {
    if (word == 0) return nullptr;
    w = bits_[--word];
  }
  return starts_[word * 64 + static_cast<size_t>(std::bit_width(w) - 1)];
}

}  // namespace flagos::mou

// Internal to the pool: a device buffer, its blocks in address order, and the index from addresses to blocks.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/mou/pool.h"
#include "runtime/mou/size_class.h"

namespace flagos::mou {

// A Block as the pool sees it: free or in use, always exactly `extent` bytes of its slab.
struct Node : Block {
  size_t extent = 0;                    // bytes of the slab, a multiple of the unit; >= Block::bytes
  Node *bin_prev = nullptr, *bin_next = nullptr;
  Node* handed_back = nullptr;          // link of the lock-free list of blocks released while the lock was taken
  Node* right() const noexcept { return static_cast<Node*>(next); }
  Node* left() const noexcept { return static_cast<Node*>(prev); }
};

// Where blocks begin in a slab: one pointer per unit in pages that stay untouched (and so cost nothing) inside big
// blocks, and one bit per unit to find the block below an interior address.
class StartIndex {
 public:
  static bool open(StartIndex& index, size_t units) noexcept;
  void close() noexcept;
  void set(size_t unit, Node* node) noexcept {
    starts_[unit] = node;
    bits_[unit / 64] |= uint64_t{1} << (unit % 64);
  }
  void clear(size_t unit) noexcept {
    starts_[unit] = nullptr;
    bits_[unit / 64] &= ~(uint64_t{1} << (unit % 64));
  }
  // The block that begins at `unit` or nearest below it.
  Node* below(size_t unit) const noexcept;

 private:
  Node** starts_ = nullptr;
  uint64_t* bits_ = nullptr;
  size_t units_ = 0;
};

struct Slab {
  SlabHandle handle = nullptr;
  char* base = nullptr;
  size_t bytes = 0;
  Node* first = nullptr;
  size_t in_use = 0;  // blocks handed out or waiting for another queue
  StartIndex index;
};

// Free blocks of one queue by size class.
class Bins {
 public:
  void push(Node* node, uint32_t cls) noexcept {
    Node*& head = heads_[cls];
    node->bin_prev = nullptr;
    node->bin_next = head;
    if (head) head->bin_prev = node;
    head = node;
    const uint32_t octave = cls / kSubClasses;
    sub_[octave] |= uint32_t{1} << (cls % kSubClasses);
    octaves_ |= uint64_t{1} << octave;
  }
  void remove(Node* node, uint32_t cls) noexcept {
    if (node->bin_next) node->bin_next->bin_prev = node->bin_prev;
    if (node->bin_prev) {
      node->bin_prev->bin_next = node->bin_next;
      return;
    }
    heads_[cls] = node->bin_next;
    if (heads_[cls]) return;
    const uint32_t octave = cls / kSubClasses;
    sub_[octave] &= ~(uint32_t{1} << (cls % kSubClasses));
    if (!sub_[octave]) octaves_ &= ~(uint64_t{1} << octave);
  }
  // The head of the first non-empty bin at or above the class, or null.
  Node* at(uint32_t cls) const noexcept {
    uint32_t octave = cls / kSubClasses;
    uint32_t sub = sub_[octave] & (~uint32_t{0} << (cls % kSubClasses));
    if (!sub) {
      const uint64_t higher = octave + 1 < 64 ? octaves_ & (~uint64_t{0} << (octave + 1)) : 0;
      if (!higher) return nullptr;
      octave = static_cast<uint32_t>(std::countr_zero(higher));
      sub = sub_[octave];
    }
    return heads_[octave * kSubClasses + static_cast<uint32_t>(std::countr_zero(sub))];
  }
  // The largest block (within its class), or null.
  Node* largest() const noexcept {
    if (!octaves_) return nullptr;
    const uint32_t octave = static_cast<uint32_t>(std::bit_width(octaves_) - 1);
    const uint32_t sub = static_cast<uint32_t>(std::bit_width(sub_[octave]) - 1);
    Node* best = heads_[octave * kSubClasses + sub];
    for (Node* n = best; n; n = n->bin_next)
      if (n->extent > best->extent) best = n;
    return best;
  }

 private:
  uint64_t octaves_ = 0;
  uint32_t sub_[kOctaves] = {};
  Node* heads_[kClasses] = {};
};

}  // namespace flagos::mou

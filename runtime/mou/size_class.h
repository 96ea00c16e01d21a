// Size classes of the pool: 32 steps per power of two, in units of the pool's granularity (128 bytes or the device's
// alignment). Every request is rounded up to a class, so any block in a request's bin fits it and rounding wastes at
// most 1/32 above 32 units. Why classes and not best fit: finding a block is two bit scans.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace flagos::mou {

inline constexpr uint32_t kSubClasses = 32;
inline constexpr uint32_t kOctaves = 48;
inline constexpr uint32_t kClasses = kOctaves * kSubClasses;

// Rounds a count of units up to the next class boundary. units >= 1.
constexpr uint64_t roundUnits(uint64_t units) noexcept {
  if (units <= kSubClasses) return units;
  const int shift = std::bit_width(units) - 6;
  const uint64_t step = uint64_t{1} << (shift < 0 ? 0 : shift);
  return (units + step - 1) & ~(step - 1);
}

// The class whose lower boundary is the greatest one not above `units`. Blocks are kept in this bin; a request that is
// itself a class boundary is served by any block of the same or a higher class.
constexpr uint32_t classOf(uint64_t units) noexcept {
  if (units < kSubClasses) return static_cast<uint32_t>(units);
  const int top = std::bit_width(units) - 1;  // >= 5
  const uint32_t octave = static_cast<uint32_t>(top - 4);
  const uint32_t sub = static_cast<uint32_t>(units >> (top - 5)) & (kSubClasses - 1);
  return octave * kSubClasses + sub;
}

}  // namespace flagos::mou

// float16 and bfloat16 on the host, round half to even: for scalars that travel to kernels, and for tests.
#pragma once
#include <bit>
#include <cstdint>

namespace flagos::ocl {

inline uint16_t floatToBfloat16(float x) noexcept {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
inline float bfloat16ToFloat(uint16_t b) noexcept { return std::bit_cast<float>(uint32_t{b} << 16); }

inline uint16_t floatToHalf(float x) noexcept {
  const uint32_t u = std::bit_cast<uint32_t>(x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65536 or beyond
  if (a < 0x38800000u) {
    // Subnormal: adding 0.5 aligns the significand so that the hardware's own rounding does the work.
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  return static_cast<uint16_t>(sign | ((a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13));
}
inline float halfToFloat(uint16_t h) noexcept {
  const uint32_t sign = uint32_t{h & 0x8000u} << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
  if (e == 31) return std::bit_cast<float>(sign | 0x7f800000u | (m << 13));
  if (e == 0) {
    const float v = static_cast<float>(m) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(v));
  }
  return std::bit_cast<float>(sign | ((e + 112u) << 23) | (m << 13));
}

}  // namespace flagos::ocl

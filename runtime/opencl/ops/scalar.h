// A number that goes along with an operator (alpha, value, threshold), exact for both floats and 64-bit integers.
#pragma once
#include <concepts>
#include <cstdint>

namespace flagos::ocl {

// Kernels that compute in an integer type use `integer`, the others `real`.
struct Scalar {
  double real = 0.0;
  int64_t integer = 0;

  constexpr Scalar() = default;
  template <std::integral T>
  constexpr Scalar(T v) : real(static_cast<double>(v)), integer(static_cast<int64_t>(v)) {}
  template <std::floating_point T>
  constexpr Scalar(T v) : real(static_cast<double>(v)), integer(toInteger(static_cast<double>(v))) {}

 private:
  static constexpr int64_t toInteger(double v) noexcept {
    if (v >= -9.2e18 && v <= 9.2e18) return static_cast<int64_t>(v);
    return v > 0 ? INT64_MAX : INT64_MIN;  // infinities and NaN have no integer; the caller's dtype check comes first
  }
};

}  // namespace flagos::ocl

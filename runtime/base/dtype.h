// Element types as FlagOS names them: PyTorch's own words, without a torch header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flagos {

enum class DType : uint8_t {
  float32, float64, float16, bfloat16, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_,
  complex32, complex64, complex128, other, count_
};

std::string_view dtypeName(DType) noexcept;                    // "float32", "bool" ...
std::optional<DType> dtypeFromName(std::string_view) noexcept;  // also accepts "torch.float32", "float", "half", "long" ...
size_t dtypeBytes(DType) noexcept;                              // 0 for `other`

}  // namespace flagos

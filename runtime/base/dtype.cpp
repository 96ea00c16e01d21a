#include "runtime/base/dtype.h"

#include <array>

namespace flagos {
namespace {
struct Row { std::string_view name; size_t bytes; };
constexpr std::array<Row, static_cast<size_t>(DType::count_)> kRows{{
    {"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2}, {"int8", 1}, {"int16", 2},
    {"int32", 4}, {"int64", 8}, {"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"uint64", 8}, {"bool", 1},
    {"complex32", 4}, {"complex64", 8}, {"complex128", 16}, {"other", 0}}};
// PyTorch's short names (torch.float, torch.half ...).
struct Alias { std::string_view alias; DType dtype; };
constexpr Alias kAliases[] = {{"float", DType::float32}, {"double", DType::float64}, {"half", DType::float16},
                              {"char", DType::int8}, {"short", DType::int16}, {"int", DType::int32},
                              {"long", DType::int64}, {"byte", DType::uint8}, {"chalf", DType::complex32},
                              {"cfloat", DType::complex64}, {"cdouble", DType::complex128}};
}  // namespace

std::string_view dtypeName(DType t) noexcept {
  const auto i = static_cast<size_t>(t);
  return i < kRows.size() ? kRows[i].name : "other";
}

size_t dtypeBytes(DType t) noexcept {
  const auto i = static_cast<size_t>(t);
  return i < kRows.size() ? kRows[i].bytes : 0;
}

std::optional<DType> dtypeFromName(std::string_view name) noexcept {
  if (name.substr(0, 6) == "torch.") name.remove_prefix(6);
  for (size_t i = 0; i + 1 < kRows.size(); ++i)
    if (kRows[i].name == name) return static_cast<DType>(i);
  for (const auto& a : kAliases)
    if (a.alias == name) return a.dtype;
  return std::nullopt;
}

}  // namespace flagos

// What a routing decision depends on: the operator, its arguments' dtypes, shapes and layouts, the scalars that matter.
// Plain data on the caller's stack: no allocation, no string, no torch.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/dtype.h"
#include "runtime/base/names.h"

namespace flagos::kde {

inline constexpr int kMaxArgs = 5;
inline constexpr int kMaxRank = 6;

enum class Layout : uint8_t { none, contiguous, channels_last, strided, overlapping };
std::string_view layoutName(Layout) noexcept;

struct ArgSig {
  DType dtype = DType::other;
  Layout layout = Layout::none;
  uint8_t rank = 0;                          // true rank; only the first kMaxRank sizes are kept
  bool on_device = true;                     // false: a CPU scalar tensor
  std::array<int64_t, kMaxRank> sizes{};
};

// Named operands that rules and cost models read ("m", "n", "k", "batch", "groups" ...). The names of an operator's
// scalars are fixed by its family (kde/families.h); here only values travel.
struct Signature {
  NameId op = 0;                             // "aten::mm" (with overload: "aten::add.out")
  uint8_t nargs = 0;
  uint8_t nscalars = 0;
  uint8_t device = 0;                        // N of npu:N
  bool native = true;                        // false: no launcher takes this call (no row, or its `fits` said no)
  bool queue_idle = true;                    // not part of the hash: it may only choose between bit-equal candidates
  std::array<ArgSig, kMaxArgs> args{};
  std::array<int64_t, 8> scalars{};

  uint64_t hash() const noexcept;            // over the used parts only
  bool operator==(const Signature&) const noexcept;
};

// "aten::mm(float32[256,64] contiguous, float32[64,10] contiguous)".
std::string text(const Signature&);

}  // namespace flagos::kde

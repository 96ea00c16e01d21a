// The operand values of one call, by name: what predicates test, what the cost model counts, what explain prints.
// An operand that cannot be known stays unknown with a reason; it is never 0.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/dal/description.h"
#include "runtime/kde/families.h"

namespace flagos::kde {

class Facts {
 public:
  // `device` must outlive the facts.
  static Facts of(const Signature& signature, const dal::DeviceDescription& device);

  Family family() const noexcept { return family_; }
  DType dtype() const noexcept { return dtype_; }
  std::string_view op() const noexcept { return op_; }
  const Signature& signature() const noexcept { return signature_; }
  const dal::DeviceDescription& device() const noexcept { return *device_; }

  // integer, bytes and boolean fields; empty = unknown or no operand of this family.
  std::optional<int64_t> number(Field f) const noexcept { return numbers_[static_cast<size_t>(f)]; }
  // text, dtype and kind fields; empty = unknown.
  std::string_view text(Field f) const noexcept;
  // True if a value exists; else why says what is missing.
  bool known(Field f) const noexcept;
  std::string whyUnknown(Field f) const;
  // "1024", "float32", "true", "unknown".
  std::string show(Field f) const;

  // Values that only the cost model reads: bytes of inputs and of the result. < 0 = unknown.
  double bytes_in = -1, bytes_out = -1;
  bool overlapping_self = false;   // an in-place operator on a tensor whose elements share memory

  // The same call with one number changed; bytes follow numel. Used to search for what would change the answer.
  Facts with(Field f, int64_t value) const;

 private:
  Signature signature_;
  const dal::DeviceDescription* device_ = nullptr;
  std::string_view op_;
  Family family_ = Family::other;
  DType dtype_ = DType::other;
  std::array<std::optional<int64_t>, static_cast<size_t>(Field::count_)> numbers_{};
};

// The element count of an argument; empty if its rank exceeds the kept sizes or the product overflows.
std::optional<int64_t> numelOf(const ArgSig&) noexcept;
bool isFloating(DType) noexcept;
bool isComplex(DType) noexcept;

}  // namespace flagos::kde

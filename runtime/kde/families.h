// Operator families: which template can run an operator, and how the named operands that rules and cost models read
// ("m", "batch", "groups" ...) follow from a signature.
//
// Signature::scalars per family (absent ones take the value in brackets; the torch glue fills them, `flagos explain`
// takes them by name):
//   conv   stride_h [1] stride_w [1] padding_h [0] padding_w [0] dilation_h [1] dilation_w [1] flags [0] groups [c / weight.c]
//          flags: bit 0 = transposed; backward: bits 1..3 = gradient of input, weight, bias wanted
//   pool   kernel_h kernel_w stride_h [kernel] stride_w [kernel] padding_h [0] padding_w [0]
//   reduce reduced = elements folded into one output (0 = all of them)
//   softmax dim (counted from 0) [last]
//   index  dim [0]
//   attention causal [0]
//   foreach tensors [1] numel = elements in all tensors together
// All other families have none.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kde/signature.h"

namespace flagos::kde {

enum class Family : uint8_t {
  pointwise, reduce, gemm, conv, pool, softmax, loss, copy, fill, random, index, foreach, norm, attention,
  resample, composed, other, count_
};
std::string_view familyName(Family) noexcept;
bool familyFromName(std::string_view name, Family* out) noexcept;

// By the table of native operators, else by name (globs); `other` if neither knows it. Overloads do not matter.
Family familyOf(std::string_view op);

// "aten::mm" of "aten::mm.out"; the text itself where there is no overload.
std::string_view baseName(std::string_view op) noexcept;
// "aten::mm" also stands for all its overloads; otherwise a glob with * and ?.
bool opMatches(std::string_view pattern, std::string_view op) noexcept;
bool globMatches(std::string_view pattern, std::string_view text) noexcept;

// Names of a family's Signature::scalars, in order.
std::span<const std::string_view> scalarNames(Family) noexcept;

// What a rule can ask for.
enum class Field : uint8_t {
  op, dtype, rank, numel, bytes, contiguous,
  m, n, k, batch, bias, c, h, w, r, s, stride, padding, dilation, groups, transposed,
  rows, outputs, reduced, inner, tensors, indices,
  device_kind, device_vendor, device_name, device_firmware, device_memory, count_
};
enum class FieldType : uint8_t { integer, bytes, boolean, text, dtype, kind };

struct FieldInfo { Field field; std::string_view name; FieldType type; std::string_view meaning; };
const FieldInfo& fieldInfo(Field) noexcept;
// nullptr if no field has this name ("device.kind").
const FieldInfo* findField(std::string_view name) noexcept;

struct FieldUse { Field field; std::string_view meaning; };
// The family's own operands with their meaning there ("k": inner size of a product, output channels of a convolution).
std::span<const FieldUse> familyFields(Family) noexcept;
bool familyHas(Family, Field) noexcept;   // generic and device fields belong to every family
// Every field name that a rule for this family may use, in the order of `flagos explain --fields`.
std::vector<std::string> fieldNames(Family);

}  // namespace flagos::kde

// Texts compiled into the library: "builtin" (rules/builtin.json), "native_ops" and "aten_ops" (catalog/*.txt),
// "rules" (schema/rules.schema.json).
#pragma once
#include <string_view>

namespace flagos::kde {

// Empty for an unknown name.
std::string_view embedded(std::string_view name) noexcept;

}  // namespace flagos::kde

// A routing question as text, the way `flagos explain` and the language server ask it: operator, shapes, dtype, scalars.
#pragma once
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/kde/signature.h"

namespace flagos::kde {

struct Query {
  std::string op;        // "aten::mm"
  std::string shapes;    // "[1024,512] [512,256]"; "[]" is 0-dim, "-" an absent operand
  std::string dtype;     // one for all floating operands, or one per operand: "float32,int64"
  std::string layout;    // "" = contiguous; one for all, or one per operand
  std::string scalars;   // "stride=2 padding=1": names of kde/families.h; stride, padding, dilation, kernel set both
};

// An operator's name that no operator has is an error with the nearest right one; other libraries' names pass unchecked.
Result<void> checkOp(const std::string& op);

// Errors name the word that is wrong and the nearest right one (exit usage).
Result<Signature> signatureOf(const Query&, int device);

}  // namespace flagos::kde

// Which operators have OpenCL launchers. catalog/native_ops.txt is the single table: compiled in for everyone who asks
// without a process (CLI, language server), and compared by a test with what the torch part really registers.
// Inside a training process the registrations themselves decide, so that a route never names a kernel that is not there.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/kde/families.h"

namespace flagos::kde {

struct NativeOp {
  std::string_view op;                 // "aten::mm.out"
  Family family = Family::other;
  uint32_t dtypes = 0;                 // bit per DType
  int max_rank = 12;
  bool contiguous_only = false;
  bool host = true;                    // false: PyTorch has no CPU kernel that host.aten could run
  std::vector<std::string_view> runs_as;  // a composite: PyTorch runs these operators instead
  bool takes(DType t) const noexcept { return dtypes >> static_cast<unsigned>(t) & 1u; }
};

// All rows of the table, sorted by name.
std::span<const NativeOp> nativeOpTable();
// The row of this very operator, else the first overload of the same base name ("aten::mm" finds "aten::mm.out").
const NativeOp* findNativeOp(std::string_view op);
const NativeOp* findNativeOpExact(std::string_view op);

// What the torch part registers, at load (cold, any thread). `dtypes` in the table's words; empty: every dtype, since the
// launcher itself refuses the calls it cannot run (Signature::native). From the first call on only declared operators have native candidates in this process.
void declareImplemented(std::string_view op, std::string_view family, std::string_view dtypes = {});
bool anyDeclared() noexcept;
bool isDeclared(std::string_view op);
// One line per disagreement between the table and the declarations ("aten::mm.out: in native_ops.txt, not registered").
std::vector<std::string> catalogDifferences();
void forgetDeclaredForTest();

// "float32,float16", or the groups all, floating, integral, number (floating + integral). 0 if a word is unknown.
uint32_t dtypesFromText(std::string_view text);
std::string dtypesText(uint32_t mask);

// True if PyTorch 2.13 has this operator (any overload if none is given).
bool isAtenOp(std::string_view op);
// The nearest operator name to a misspelled one, or "".
std::string nearestOp(std::string_view op);

}  // namespace flagos::kde

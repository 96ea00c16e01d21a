// Mixed precision: PyTorch's own lists of what runs in half precision, in float32, or in the widest type of its inputs.
// Without the fallthrough every operator under autocast would fail, since core registers none for our key.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "runtime/torch/install.h"

namespace flagos::glue {
namespace {

using namespace at;  // the lists below name operators and types without their namespace

at::Tensor bannedBinaryCrossEntropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(false, "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: in half precision "
              "the logarithm of a probability near 0 or 1 is lost. Use binary_cross_entropy_with_logits, which takes the "
              "values before the sigmoid.");
}

void registerLists(torch::Library& m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FP32_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FP32_SET)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(PROMOTE)
#undef LOWER
#undef FP32
#undef FP32_SET
#undef PROMOTE
  m.impl("binary_cross_entropy", &bannedBinaryCrossEntropy);
}

}  // namespace

void installAutocast() {
  static torch::Library all(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFallthrough());
  static torch::Library lib(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  registerLists(lib);
}

}  // namespace flagos::glue

// cuda-extension: a native extension that only CUDA's compiler can build. Its kernels must be replaced for other devices, so
// there is no fix.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

bool hasCudaSource(const Value& v, int depth = 0) {
  if (!v || depth > 2) return false;
  if (is(v, V::string)) return v->text.ends_with(".cu") || v->text.ends_with(".cuh");
  for (const auto& i : v->items) if (hasCudaSource(i, depth + 1)) return true;
  return false;
}

void look(Interp& interp, const CallEvent& e) {
  if (!e.call.starts_with("torch.utils.cpp_extension.")) return;
  const std::string_view name = e.call.substr(26);
  bool cuda = name == "CUDAExtension";
  if (name == "load" || name == "load_inline") {
    const Arg *sources = e.args->get(1, "sources"), *inline_cuda = e.args->get(2, "cuda_sources"), *with = e.args->keyword("with_cuda");
    cuda = (name == "load" && sources && hasCudaSource(sources->value)) || (with && truth(with->value) == Truth::yes) ||
           (name == "load_inline" && inline_cuda && !is(inline_cuda->value, V::none));
  }
  if (!cuda) return;
  interp.report(findingAt("cuda-extension", e.node, "this extension needs CUDA's compiler and an NVIDIA device; elsewhere its kernels must be replaced, for "
                                                    "example by PyTorch operators, which run on every device"),
                e.unit);
}

}  // namespace

void listenCudaExtension(Interp& interp) { interp.listen(E::call | E::foreign, look); }

}  // namespace flagos::lsp
